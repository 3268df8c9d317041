#!/usr/bin/env bash
# Links libginnel.so from the static library that cargo builds, with its map of symbol versions, and
# writes header and pkg-config file beside it: scripts/build-capi.sh TO [PROFILE] [PREFIX].
#   TO       a folder that is to have include/, lib/ and lib/pkgconfig/
#   PROFILE  cargo's: release by default
#   PREFIX   what the pkg-config file names: TO by default
# GINNEL_BUILT=1: cargo has built it.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

to=$1 profile=${2:-release} prefix=${3:-$1}
target=${CARGO_TARGET_DIR:-target}
version=$(sed -n 's/^version = "\(.*\)"/\1/p' Cargo.toml | head -1)
soname=libginnel.so.0

[[ -n ${GINNEL_BUILT:-} ]] || "${CARGO:-cargo}" build --quiet --profile "$profile" -p ginnel-capi
mkdir -p "$to/include" "$to/lib/pkgconfig"
install -m 644 crates/capi/include/ginnel.h "$to/include/ginnel.h"
install -m 644 "$target/$profile/libginnel_c.a" "$to/lib/libginnel.a"
"${CC:-cc}" -shared -o "$to/lib/libginnel.so.$version" -Wl,-soname,$soname \
    -Wl,--version-script=crates/capi/ginnel.map -Wl,--gc-sections -Wl,-z,relro,-z,now \
    -Wl,--whole-archive "$target/$profile/libginnel_c.a" -Wl,--no-whole-archive \
    -lgcc_s -lpthread -ldl -lm -lc
ln -sf "libginnel.so.$version" "$to/lib/$soname"
ln -sf "$soname" "$to/lib/libginnel.so"
sed "s|@PREFIX@|$prefix|; s|@VERSION@|$version|" crates/capi/ginnel.pc.in >"$to/lib/pkgconfig/ginnel.pc"
