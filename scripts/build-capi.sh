#!/usr/bin/env bash
# Builds libginnel.so (scripts/link-capi.sh), and puts header and pkg-config file beside it:
# scripts/build-capi.sh TO [PROFILE] [PREFIX]. What `make install` installs has them, too.
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
scripts/link-capi.sh "$target/$profile/libginnel_c.a" "$(realpath "$to")/lib/libginnel.so.$version"
ln -sf "libginnel.so.$version" "$to/lib/$soname"
ln -sf "$soname" "$to/lib/libginnel.so"
sed "s|@PREFIX@|$prefix|; s|@LIBDIR@|$prefix/lib|; s|@VERSION@|$version|" crates/capi/ginnel.pc.in >"$to/lib/pkgconfig/ginnel.pc"
