#!/usr/bin/env bash
# Builds another revision and measures it beside the working copy, in turn: ends with status 1 where the working copy is worse by more than the noise.
#
#   scripts/bench-compare.sh REVISION [OPTION OF ginnel-bench-table …]
#
# What was built of a revision stays in target/compare and is taken from there the next time.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

[[ $# -ge 1 && -n $1 ]] || { echo "usage: $0 REVISION [OPTION …]   (make bench-compare BASE=REVISION)" >&2; exit 2; }
commit=$(git rev-parse --verify --quiet "$1^{commit}") || { echo "no revision $1" >&2; exit 2; }
shift
cargo=${CARGO:-cargo}
target=$(realpath -m "${CARGO_TARGET_DIR:-target}")
compare=$target/compare
built=$compare/$commit

if [[ ! -e $built/ginnel || ! -e $built/libginnel_shim.so ]]; then
    tree=$compare/tree-$$
    mkdir -p "$compare"
    trap 'git worktree remove --force "$tree" 2>/dev/null; git worktree prune' EXIT
    trap 'exit 129' HUP
    trap 'exit 130' INT
    trap 'exit 143' TERM
    git worktree add --quiet --detach "$tree" "$commit"
    # All revisions share one folder: most of what they depend on is the same.
    (cd "$tree" && "$cargo" build --release -p ginnel-cli -p ginnel-shim --target-dir "$compare/target")
    mkdir -p "$built.part"
    cp "$compare/target/release/ginnel" "$compare/target/release/libginnel_shim.so" "$built.part/"
    rm -rf "$built"
    mv "$built.part" "$built"
    git worktree remove --force "$tree"
fi

"$cargo" build --release -p ginnel-cli -p ginnel-shim -p ginnel-bench
echo "Old: $(git log -1 --format='%h %s' "$commit" | cut -c1-100). New: the working copy."
"$cargo" run --release --quiet -p ginnel-bench --bin ginnel-bench-table -- --against "$built" "$@"
