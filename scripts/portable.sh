#!/usr/bin/env bash
# Builds what packaging/files lists for hosts and containers with an older C library (glibc) than
# this machine's, into target/portable. The library there is the one to mount into containers
# (docs/containers.md).
#
#   scripts/portable.sh [GLIBC]      (no argument: 2.28, of 2018)
#
# Installs nothing: zig, which brings the old libraries to link with, and cargo-zigbuild, which has cargo
# link with it, go into the target folder (both from PyPI).
set -euo pipefail
cd "$(dirname "$0")/.."

glibc=${1:-2.28}
[[ $glibc =~ ^2\.[0-9]+$ ]] || { echo "usage: $0 [GLIBC], for instance 2.28" >&2; exit 2; }
cargo=${CARGO:-cargo}
target=$(realpath -m "${CARGO_TARGET_DIR:-target}")
tools=$target/portable-tools
machine=$(uname -m)

if ! "$tools/bin/python" -m ziglang version >/dev/null 2>&1 || [[ ! -x $tools/bin/cargo-zigbuild ]]; then
    python3 -m venv --clear "$tools" ||
        { echo "python3 cannot make a virtual environment: install python3-venv" >&2; exit 1; }
    "$tools/bin/pip" install --quiet ziglang==0.17.1 cargo-zigbuild==0.24.1
fi

build() {
    PATH=$tools/bin:$PATH CARGO_ZIGBUILD_PYTHON_PATH=$tools/bin/python CARGO_TARGET_DIR=$target \
        "$cargo" zigbuild --release --target "$machine-unknown-linux-gnu.$glibc" "$@"
}
# What is built of the list of all that is installed.
mapfile -t files < <(awk '$1 ~ /^ginnel-/ { print $2 }' packaging/files)
# Of ginnel-bench one program alone.
mapfile -t crates < <(awk '$1 ~ /^ginnel-/ && $1 != "ginnel-bench" { print $1 }' packaging/files | sort -u)
build "${crates[@]/#/-p}"
build -p ginnel-bench --bin ginnel-bench
release=$target/$machine-unknown-linux-gnu/release
CC="$tools/bin/python -m ziglang cc -target $machine-linux-gnu.$glibc" \
    scripts/link-capi.sh "$release/libginnel_c.a" "$release/libginnel.so"

mkdir -p "$target/portable"
for file in "${files[@]}"; do
    built=$release/$file
    needs=$(objdump -T "$built" | grep -o 'GLIBC_2[.0-9]*' | sort -Vu | tail -n 1)
    if [[ $(printf '%s\n' "GLIBC_$glibc" "$needs" | sort -V | tail -n 1) != "GLIBC_$glibc" ]]; then
        echo "$file needs $needs, a later one than $glibc" >&2
        exit 1
    fi
    install "$built" "$target/portable/$file"
    echo "$target/portable/$file needs $needs"
done
