#!/usr/bin/env bash
# Builds what packaging/files lists for hosts and containers with an older C library (glibc) than
# this machine's, into target/portable. The library there is the one to mount into containers
# (docs/containers.md).
#
#   scripts/portable.sh [GLIBC]      (no argument: 2.17, of 2012)
#
# MACHINE   another processor: aarch64, into target/portable-aarch64. It takes Rust's target for it
#           (rustup target add aarch64-unknown-linux-gnu)
#
# Installs nothing: zig, which brings the old libraries to link with, and cargo-zigbuild, which has cargo
# link with it, go into the target folder (both from PyPI).
set -euo pipefail
cd "$(dirname "$0")/.."

glibc=${1:-2.17}
[[ $glibc =~ ^2\.[0-9]+$ ]] || { echo "usage: $0 [GLIBC], for instance 2.17" >&2; exit 2; }
cargo=${CARGO:-cargo}
target=$(realpath -m "${CARGO_TARGET_DIR:-target}")
tools=$target/portable-tools
machine=${MACHINE:-$(uname -m)}
portable=$target/portable
[[ $machine == $(uname -m) ]] || portable=$target/portable-$machine

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
mapfile -t files < <(awk '$1 ~ /^ginnel-/ && $2 !~ /^\$LIB/ { print $2 }' packaging/files)
# Of ginnel-bench one program alone.
mapfile -t crates < <(awk '$1 ~ /^ginnel-/ && $1 != "ginnel-bench" { print $1 }' packaging/files | sort -u)
build "${crates[@]/#/-p}"
build -p ginnel-bench --bin ginnel-bench
release=$target/$machine-unknown-linux-gnu/release
CC="$tools/bin/python -m ziglang cc -target $machine-linux-gnu.$glibc" \
    scripts/link-capi.sh "$release/libginnel_c.a" "$release/libginnel.so"

# What this machine's glibc has.
"${CC:-cc}" -print-file-name=libc.so.6 | xargs nm -D --defined-only --without-symbol-versions |
    awk '{ print $3 }' | sort -u >"$tools/newest"
mkdir -p "$portable"
for file in "${files[@]}"; do
    built=$release/$file
    readelf -W --dyn-syms "$built" | awk '$7 == "UND" { print $5, $8 }' >"$tools/asked"
    needs=$(grep -o 'GLIBC_2[.0-9]*' "$tools/asked" | sort -Vu | tail -n 1)
    # What no library had when it was linked has no version: a function newer than that.
    lacks=$(awk '$1 != "WEAK" && $2 !~ /@/ { print $2 }' "$tools/asked" | sort | comm -12 - "$tools/newest")
    if [[ -n $lacks ]]; then
        echo "$file asks for" $lacks ", which glibc $glibc lacks" >&2
        exit 1
    fi
    if [[ $(printf '%s\n' "GLIBC_$glibc" "$needs" | sort -V | tail -n 1) != "GLIBC_$glibc" ]]; then
        echo "$file needs $needs, a later one than $glibc" >&2
        exit 1
    fi
    install "$built" "$portable/$file"
    echo "$portable/$file needs $needs"
done
# musl's functions have no versions: any build will do.
MACHINE=$machine scripts/build-musl.sh "$portable"
