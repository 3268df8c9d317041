#!/usr/bin/env bash
# Builds the programs, the library and libfabric's provider for hosts and containers with an older C
# library (glibc) than this machine's, into target/portable. That library is the one to mount into
# containers (docs/containers.md).
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
build -p ginnel-shim -p ginnel-preload -p ginnel-cli -p ginnel-host -p ginnel-switch -p ginnel-cache
build -p ginnel-fabric-provider
build -p ginnel-bench --bin ginnel-bench

mkdir -p "$target/portable"
for file in ginnel ginnel-bench ginneld ginnel-prover ginnel-switch ginnel-cache ginnel-go-loader libginnel_shim.so libginnel-fi.so; do
    built=$target/$machine-unknown-linux-gnu/release/$file
    needs=$(objdump -T "$built" | grep -o 'GLIBC_2[.0-9]*' | sort -Vu | tail -n 1)
    if [[ $(printf '%s\n' "GLIBC_$glibc" "$needs" | sort -V | tail -n 1) != "GLIBC_$glibc" ]]; then
        echo "$file needs $needs, a later one than $glibc" >&2
        exit 1
    fi
    install "$built" "$target/portable/$file"
    echo "$target/portable/$file needs $needs"
done
