#!/usr/bin/env bash
# Links libginnel.so with its map of symbol versions, which cargo's linking of a cdylib has no place
# for, from the static library that cargo builds: scripts/link-capi.sh STATIC SHARED.
#   STATIC  target/release/libginnel_c.a
#   SHARED  what is to be made
#   CC      the compiler, with arguments (cc)
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

[[ $# -eq 2 ]] || { echo "usage: $0 STATIC SHARED" >&2; exit 2; }
read -ra compiler <<<"${CC:-cc}"
"${compiler[@]}" -shared -o "$2" -Wl,-soname,libginnel.so.0 \
    -Wl,--version-script=crates/capi/ginnel.map -Wl,--gc-sections -Wl,-z,relro,-z,now \
    -Wl,--whole-archive "$1" -Wl,--no-whole-archive \
    -lgcc_s -lpthread -ldl -lm -lc
