#!/usr/bin/env bash
# Makes the agent's image without a registry, a builder or a daemon.
#
#   kubernetes/image.sh [VERSION]     (no argument: the version of the chart)
#
# Leaves target/kubernetes/ginnel-agent.tar, which `ctr -n k8s.io images import`, `podman load` and
# `skopeo copy oci-archive:…` take, and its files in target/kubernetes/root. Needs Go, a Rust toolchain
# with its target for musl, musl-gcc, python3 with venv (for zig; see scripts/portable.sh).
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

cargo=${CARGO:-cargo}
target=$(realpath -m "${CARGO_TARGET_DIR:-target}")
version=${1:-$(sed -n 's/^appVersion: *//p' kubernetes/chart/Chart.yaml)}
machine=$(uname -m)
out=$target/kubernetes
tools=$target/portable-tools
root=$out/root

if [[ ! -x $tools/bin/cargo-zigbuild ]]; then
    python3 -m venv --clear "$tools"
    "$tools/bin/pip" install --quiet ziglang==0.17.1 cargo-zigbuild==0.24.1
fi
# The library for images with an older glibc, and the one for musl.
PATH=$tools/bin:$PATH CARGO_ZIGBUILD_PYTHON_PATH=$tools/bin/python CARGO_TARGET_DIR=$target \
    "$cargo" zigbuild --release --target "$machine-unknown-linux-gnu.2.17" -p ginnel-shim
# Programs that need nothing of the node's.
CARGO_TARGET_DIR=$target "$cargo" build --release --target "$machine-unknown-linux-musl" \
    -p ginnel-host --bin ginnel-broker -p ginnel-cli --bin ginnel
mkdir -p "$out"
(cd kubernetes/agent && CGO_ENABLED=0 go build -trimpath -buildvcs=false -ldflags '-s -w' -o "$out/ginnel-agent" .)

rm -rf "$root"
install -d "$root/usr/bin" "$root/usr/lib/ginnel"
install "$out/ginnel-agent" "$target/$machine-unknown-linux-musl/release/ginnel-broker" "$root/usr/bin"
install -m 644 "$target/$machine-unknown-linux-gnu/release/libginnel_shim.so" "$root/usr/lib/ginnel"
# In each pod, so that `kubectl exec POD -- /usr/lib/ginnel/ginnel status` can ask there.
install "$target/$machine-unknown-linux-musl/release/ginnel" "$root/usr/lib/ginnel"
[[ $("$root/usr/lib/ginnel/ginnel" --version) = "ginnel "* ]] || { echo "the ginnel in the image does not heed its arguments" >&2; exit 1; }
CARGO_TARGET_DIR=$target scripts/build-musl.sh "$root/usr/lib/ginnel"
python3 kubernetes/archive.py "$root" "$out/ginnel-agent.tar" "docker.io/library/ginnel-agent:$version" "$machine"
echo "$out/ginnel-agent.tar: ginnel-agent:$version"
