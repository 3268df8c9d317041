#!/usr/bin/env bash
# memcached's own tests (t/ of Debian's source package), pointed at another server.
#
#   scripts/cache-suite.sh PROGRAM [FILE.t …]      e.g. target/release/ginnel-cache, or memcached
#
# Prints a line for each file: its name, how many of its tests passed, how many failed, how many it
# planned, or "skipped" where the file does. The source is fetched once, into target/cache-suite,
# with lists of packages of its own. Four files run at a time; most of them sleep.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

[[ $# -ge 1 ]] || { sed -n '2,/^set/s/^# \{0,1\}//p' "$0" | sed '$d' >&2; exit 2; }
program=$(command -v "$1") || { echo "$1: no such program" >&2; exit 2; }
program=$(realpath "$program")
shift
base=$PWD/target/cache-suite
mkdir -p "$base"

fetch() {
    local apt=$base/apt options
    mkdir -p "$apt/lists/partial" "$apt/cache/archives/partial"
    # A key's path is named; a key that stands in the list itself is apt's already.
    apt-get indextargets --format '$(SIGNED_BY)|$(REPO_URI) $(RELEASE) $(COMPONENT)' \
        'Created-By: Packages' | sort -u | awk -F'|' \
        '{ print "deb-src", ($1 ~ /^\// ? "[signed-by=" $1 "] " : "") $2 }' > "$apt/sources.list"
    options=(-qq -o "Dir::Etc::sourcelist=$apt/sources.list" -o Dir::Etc::sourceparts=none
             -o "Dir::State::lists=$apt/lists" -o "Dir::Cache=$apt/cache"
             -o APT::Sandbox::User=root -o Acquire::Retries=3)
    apt-get "${options[@]}" update
    (cd "$base" && apt-get "${options[@]}" source memcached) > "$base/fetch.log" 2>&1
}

source=$(find "$base" -maxdepth 1 -type d -name 'memcached-*' | head -1)
if [[ -z $source ]]; then
    fetch || { cat "$base/fetch.log" >&2; echo "memcached's source is not to be had" >&2; exit 3; }
    source=$(find "$base" -maxdepth 1 -type d -name 'memcached-*' | head -1)
fi

# A folder as the tests want it: two programs beside t/.
work=$(mktemp -d "$base/run.XXXXXX")
trap 'rm -rf "$work"' EXIT
chmod 755 "$work"
cp -r "$source/t" "$source/doc" "$work"
mkdir -m 700 "$work/ginnel"
printf '#!/bin/sh\nGINNEL_DIR=%q exec %q "$@"\n' "$work/ginnel" "$program" > "$work/memcached-debug"
printf '#!/bin/sh\nlimit=$1; shift; exec timeout -k 5 "$limit" "$@"\n' > "$work/timedrun"
chmod +x "$work/memcached-debug" "$work/timedrun"

one() {
    local file=$1 out=$work/$1.out plan passed failed
    timeout -k 5 400 perl "t/$file" > "$out" 2>&1 || true
    if grep -aq '^1\.\.0 ' "$out"; then
        echo "$file skipped"
        return
    fi
    plan=$(grep -aoE '^1\.\.[0-9]+' "$out" | tail -1 | cut -c4- || true)
    passed=$(grep -acE '^ok ' "$out" || true) failed=$(grep -acE '^not ok ' "$out" || true)
    echo "$file $passed $failed ${plan:-?}"
}
export -f one
export work

cd "$work"
files=("$@")
[[ ${#files[@]} -gt 0 ]] || mapfile -t files < <(cd t && ls -- *.t)
printf '%s\n' "${files[@]}" | xargs -P4 -I{} bash -c 'one {}' | sort
