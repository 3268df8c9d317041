#!/usr/bin/env bash
# Builds iceoryx2's C library with its memory in a segment: ginnel_iceoryx2_c, which is not the one of
# iceoryx2's authors. scripts/build-iceoryx2-c.sh SOURCES [TO]
#   SOURCES  iceoryx2's sources at v0.10.0, as git clone gives them: no registry has those for C
#   TO       a folder that is to have include/, lib/ and lib/pkgconfig/: target/iceoryx2-c/dist by default
# It copies the two crates that make the library, and changes one line of them: which service
# iox2_service_type_e_IPC means. All other crates come from crates.io. Needs cargo.
set -euo pipefail
sources=$(realpath -e "${1:?the folder with the sources of iceoryx2}")
cd "$(dirname "${BASH_SOURCE[0]}")/.."
source scripts/exchange-line.sh

version=0.10.0
work=$(realpath -m "${CARGO_TARGET_DIR:-target}")/iceoryx2-c
to=${2:-$work/dist}
here=$PWD/crates/iceoryx2
[[ -f $sources/iceoryx2-ffi/c/Cargo.toml ]] || { echo "$sources has no iceoryx2-ffi/c: not iceoryx2's sources" >&2; exit 1; }
grep -qxF "version = \"$version\"" "$sources/Cargo.toml" || {
    echo "$sources is not iceoryx2 $version: git checkout v$version" >&2
    exit 1
}

rm -rf "$work/build"
mkdir -p "$work/build/iceoryx2-ffi"
cp "$sources"/*.md "$work/build/"
cp -r "$sources"/iceoryx2-ffi/{c,ffi-macros} "$work/build/iceoryx2-ffi/"
cp "$here/Cargo.lock" "$work/build/"
# The manifest of the workspace, for these two: what else it knows by a folder comes from crates.io.
awk '
    /^members = \[/ { print "members = [\"iceoryx2-ffi/c\", \"iceoryx2-ffi/ffi-macros\"]"; skipped = 1 }
    skipped { if (/^\]/) skipped = 0; next }
    /path = "/ && !/^iceoryx2-ffi-macros / { if (!/version = "/) next; sub(/, *path = "[^"]*"/, "") }
    { print }
' "$sources/Cargo.toml" >"$work/build/Cargo.toml"
crate=$work/build/iceoryx2-ffi/c
exchange "$crate/src/api/service.rs" \
    'pub(crate) type IpcService = iceoryx2::prelude::ipc_threadsafe::Service;' \
    'pub(crate) type IpcService = ginnel_iceoryx2::Threadsafe;'
exchange "$crate/Cargo.toml" '[lib]' '[lib]
name = "ginnel_iceoryx2_c"'
exchange "$crate/Cargo.toml" '[dependencies]' "[dependencies]
ginnel-iceoryx2 = { path = \"$here\", default-features = false }"

"${CARGO:-cargo}" build --release --manifest-path "$crate/Cargo.toml" --target-dir "$work/target"
mkdir -p "$to"/{include/ginnel-iceoryx2/iox2,lib/pkgconfig}
cp "$work/target/release/iceoryx2-ffi-c-cbindgen/include/iox2/iceoryx2.h" "$to/include/ginnel-iceoryx2/iox2/"
cp "$work"/target/release/libginnel_iceoryx2_c.{a,so} "$to/lib/"
cat >"$to/lib/pkgconfig/ginnel-iceoryx2-c.pc" <<PC
prefix=\${pcfiledir}/../..

Name: ginnel-iceoryx2-c
Description: iceoryx2's C library with its memory in a segment of Ginnel
Version: $version
Cflags: -I\${prefix}/include/ginnel-iceoryx2
Libs: -L\${prefix}/lib -lginnel_iceoryx2_c
Libs.private: -lm -lpthread -ldl -lrt
PC
echo "$to"
