#!/usr/bin/env bash
# Builds iceoryx2's Python module with its memory in a segment: a wheel called ginnel-iceoryx2, which
# is not the one of iceoryx2's authors. scripts/build-iceoryx2-python.sh [TO]
#   TO  a folder that is to have the wheel: target/iceoryx2-python/dist by default
# It takes the sources of the module from PyPI, by the checksum below, and changes two lines of them:
# which service "Ipc" means, and the module's own name. Needs cargo, and Python with venv.
# GINNEL_ICEORYX2_SOURCE: the archive of the sources, where it is there already.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
source scripts/exchange-line.sh

version=0.10.0
sha256=62db7f0935ade10b18de17600952e579e9458704c337113428a91becac9bc454
work=$(realpath -m "${CARGO_TARGET_DIR:-target}")/iceoryx2-python
to=${1:-$work/dist}
here=$PWD/crates/iceoryx2
mkdir -p "$work" "$to"

archive=${GINNEL_ICEORYX2_SOURCE:-$work/iceoryx2-$version.tar.gz}
[[ -x $work/venv/bin/pip ]] || python3 -m venv "$work/venv"
is_whole() {
    echo "$sha256  $archive" | sha256sum --check --status 2>/dev/null
}
if ! is_whole && [[ -z ${GINNEL_ICEORYX2_SOURCE-} ]]; then
    "$work/venv/bin/pip" download --quiet --no-deps --no-binary :all: --dest "$work" "iceoryx2==$version"
fi
is_whole || { echo "$archive is not the archive of iceoryx2 $version that was tried" >&2; exit 1; }

rm -rf "$work/source" "$work/build"
mkdir -p "$work/source" "$work/build/python"
tar xf "$archive" --directory "$work/source" --strip-components 1
cp "$here"/python/{Cargo.toml,Cargo.lock,pyproject.toml} "$work/build/"
cp -r "$work/source/iceoryx2-ffi/python" "$work/build/module"
cp -r "$work/source/python-src/iceoryx2" "$work/build/python/ginnel_iceoryx2"
cp -r "$here"/python/{__main__.py,as_iceoryx2} "$work/build/python/ginnel_iceoryx2/"
exchange "$work/build/module/src/service_type.rs" \
    'pub(crate) type IpcService = iceoryx2::prelude::ipc_threadsafe::Service;' \
    'pub(crate) type IpcService = ginnel_iceoryx2::Threadsafe;'
# The name by which Python finds a part of it: beside iceoryx2's own module, in one process.
exchange "$work/build/module/src/lib.rs" \
    '    let qualified_name = format!("iceoryx2.{name}");' \
    '    let qualified_name = format!("ginnel_iceoryx2.{name}");'
exchange "$work/build/module/Cargo.toml" '[dependencies]' "[dependencies]
ginnel-iceoryx2 = { path = \"$here\", default-features = false }"

CARGO_TARGET_DIR=$work/target "$work/venv/bin/pip" wheel --quiet --no-deps --wheel-dir "$to" "$work/build"
ls "$to"/ginnel_iceoryx2-"$version"-*.whl
