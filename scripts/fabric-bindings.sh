#!/usr/bin/env bash
# Writes crates/fabric-bindings/src/bindings.rs anew from libfabric's headers: types and numbers alone.
# Debian 12: bindgen, libclang1-14, libclang-common-14-dev, libfabric-dev.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../crates/fabric-bindings"
export LIBCLANG_PATH=${LIBCLANG_PATH:-/usr/lib/llvm-14/lib}

bindgen bindings.h --size_t-is-usize --no-layout-tests --no-doc-comments \
    --default-enum-style consts --no-prepend-enum-name \
    --allowlist-type 'fi_.*|fid.*' --allowlist-var 'FI_.*' --blocklist-function '.*' \
    --blocklist-type '_?_?pthread.*|fi_mutex_cond|fi_wait_pollfd|fi_trigger.*|fi_op_.*|fi_deferred.*|fi_eq_cm_entry|__Inc.*' \
    -o src/bindings.rs
