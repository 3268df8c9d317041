#!/usr/bin/env bash
# Builds the library for programs that use musl, and puts it beside the one for glibc, with links by
# which each dynamic linker finds its own (packaging/files says how).
#
#   scripts/build-musl.sh [FOLDER]      (no argument: target/release)
#
# MACHINE   another processor, as for scripts/portable.sh, whose zig then links
#
# Needs musl-gcc (Debian: musl-tools) and Rust's standard library for musl (rustup target add).
# Where one of them is missing it says so, and is content: programs that use musl stay on TCP.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

cargo=${CARGO:-cargo}
target=$(realpath -m "${CARGO_TARGET_DIR:-target}")
folder=${1:-$target/release}
machine=${MACHINE:-$(uname -m)}
triple=$machine-unknown-linux-musl
library=libginnel_shim.so

left_out() {
    echo "no library for musl ($1): programs that use it stay on TCP" >&2
    exit 0
}
if [[ $machine == $(uname -m) ]]; then
    command -v musl-gcc >/dev/null || left_out "there is no musl-gcc: Debian's musl-tools has it"
    how=(build --target "$triple") more=" -C link-self-contained=no -C linker=musl-gcc"
else
    tools=$target/portable-tools
    export PATH=$tools/bin:$PATH CARGO_ZIGBUILD_PYTHON_PATH=$tools/bin/python
    how=(zigbuild --target "$triple") more=
fi
std=$("${RUSTC:-rustc}" --print target-libdir --target "$triple" 2>/dev/null) || left_out "rustc does not know $triple"
compgen -G "$std/libstd-*.rlib" >/dev/null || left_out "rustup target add $triple brings what it takes"

# Linked as a program's libraries are: not with a C library of its own, which is what Rust does for
# musl unless it is told otherwise. What .cargo/config.toml says counts no more then, so it is said
# here, too.
RUSTFLAGS="${RUSTFLAGS:+$RUSTFLAGS }-C target-feature=-crt-static$more --cfg curve25519_dalek_backend=\"serial\"" \
    CARGO_TARGET_DIR=$target \
    "$cargo" "${how[@]}" --release -p ginnel-shim

# Under another name first: programs that run go on with the file that they have.
put() {
    mkdir -p "$(dirname "$2")"
    "${@:3}" "$1" "$2.new"
    mv -fT "$2.new" "$2"
}
put "$target/$triple/release/$library" "$folder/\$LIB/$library" install -m 644
while read -r crate to place _; do
    [[ $crate != = ]] || put "$to" "$folder/${place#lib/ginnel/}/${to##*/}" ln -sfn
done <packaging/files
