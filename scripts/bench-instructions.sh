#!/usr/bin/env bash
# How many instructions a message takes, there and back, in the library: write and read; the same
# with an epoll_wait before each read; and one set of 50 connections. Counted by valgrind, so that
# it does not matter what else the machine does, and small differences show. It says nothing of
# cache lines, nor of the kernel.
#
#   scripts/bench-instructions.sh [RELEASE-DIRECTORY…]     (target/release)
#
# Several directories are compared: one column each. What goes by time is in it, too, as the service
# thread's work, and when a busy set asks the kernel: two runs differ by one in a hundred, with many
# connections by one in ten.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

[[ $# -gt 0 ]] || set -- "${CARGO_TARGET_DIR:-target}/release"
command -v valgrind >/dev/null || { echo "valgrind is missing: scripts/install-deps.sh bench" >&2; exit 1; }
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cc -O2 -std=gnu11 -Wall -Wextra -o "$work/program" crates/bench/programs/instructions.c

# Instructions of so many messages.
counted() {  # product way messages
    mkdir -p -m 700 "$work/g"
    GINNEL_DIR=$work/g GINNEL_AFTER=0 "$1/ginnel" run -- valgrind --tool=callgrind \
        --callgrind-out-file="$work/out" "$work/program" "$2" "$3" >"$work/said" 2>&1 ||
        { cat "$work/said" >&2; exit 1; }
    awk '/^totals:/ { print $2 }' "$work/out"
    rm -rf "$work/g"
}

printf '%-6s' ''
printf ' %14s' "$@"
printf '\n'
for way in plain epoll many; do
    printf '%-6s' "$way"
    for product in "$@"; do
        # The difference of two runs leaves out how the program begins and ends.
        less=$(counted "$product" "$way" 2000)
        more=$(counted "$product" "$way" 12000)
        printf ' %14d' $(((more - less) / 10000))
    done
    printf '\n'
done
