#!/usr/bin/env bash
# Builds the programs of others that the tests here need, from Go's modules, and fetches Debian's.
#
#   kubernetes/programs.sh runtime     containerd with its shim, ctr, crictl, helm, runc, CNI's plugins
#   kubernetes/programs.sh cluster     these, etcd and Kubernetes' own programs
#
# They lie in ~/.cache/ginnel-kubernetes/bin and stay there. Needs Go 1.21 or later, which fetches the
# one that a module asks for, and apt-get where runc, CNI's plugins and etcd are not installed.
# Kubernetes is built one program after the other: at once they would take more memory than small
# machines have.
set -euo pipefail
shopt -s inherit_errexit
cache=${XDG_CACHE_HOME:-$HOME/.cache}/ginnel-kubernetes

containerd=github.com/containerd/containerd/v2
kubernetes=1.35.4

# build MODULE@VERSION PACKAGE… builds those programs that the cache does not have.
build() {
    local draft package wanted=()
    for package in "${@:2}"; do
        [[ -x $cache/bin/${package##*/} ]] || wanted+=("$package")
    done
    ((${#wanted[@]})) || return 0
    draft=$(mktemp -d)
    echo "building ${wanted[*]##*/} ($1)"
    if ! (cd "$draft" && go mod init wrapper && require "$1" && build_each "$draft" "${wanted[@]}") >"$draft/log" 2>&1; then
        tail -n 40 "$draft/log" >&2
        return 1
    fi
    rm -rf "$draft"
}

build_each() {
    local package name
    for package in "${@:2}"; do
        name=${package##*/}
        CGO_ENABLED=0 go build -mod=mod -ldflags "-s -w $(version_flags "$package")" -o "$1/$name" "$package" &&
            install -D "$1/$name" "$cache/bin/$name" && rm "$1/$name" || return 1
    done
}

# version_flags PACKAGE: only the linker tells Kubernetes' programs their version, by which they judge
# each other, and by which helm judges them; and helm, which one it takes a cluster for that it does not
# ask (`helm template`).
version_flags() {
    local minor=${kubernetes#1.} of
    case $1 in
        k8s.io/kubernetes/*)
            of=k8s.io/component-base/version
            echo "-X $of.gitVersion=v$kubernetes -X $of.gitMajor=1 -X $of.gitMinor=${minor%.*}" ;;
        helm.sh/*)
            of=helm.sh/helm/v3/pkg/chartutil
            echo "-X $of.k8sVersionMajor=1 -X $of.k8sVersionMinor=${minor%.*}" ;;
    esac
}

# require MODULE@VERSION. Kubernetes' module has its parts beside it in its repository ("staging"),
# and asks for them as v0.0.0; the proxy has each as a module of its own.
require() {
    if [[ $1 = k8s.io/kubernetes@* ]]; then
        local file part
        file=$(go mod download -json "$1" | sed -n 's/.*"GoMod": "\(.*\)".*/\1/p')
        for part in $(sed -n 's|^\s*\(k8s.io/[a-z-]*\) => ./staging.*|\1|p' "$file"); do
            go mod edit -replace "$part=$part@v0.${kubernetes#1.}"
        done
    fi
    go get "$1"
}

# debian PACKAGE unpacks one of Debian's into the cache.
debian() {
    [[ ! -d $cache/$1 ]] || return 0
    local draft
    draft=$(mktemp -d)
    (cd "$draft" && apt-get -q download "$1" && dpkg -x "$1"_*.deb root) >"$draft/log" 2>&1 || { cat "$draft/log" >&2; return 1; }
    mkdir -p "$cache/bin"
    mv "$draft/root" "$cache/$1"
    rm -rf "$draft"
}

runtime() {
    build "$containerd@v2.4.2" "$containerd"/cmd/{containerd,containerd-shim-runc-v2,ctr}
    build sigs.k8s.io/cri-tools@v1.37.0 sigs.k8s.io/cri-tools/cmd/crictl
    build helm.sh/helm/v3@v3.22.0 helm.sh/helm/v3/cmd/helm
    # crun 1.8, Debian 12's, does not take this containerd's containers.
    command -v runc >/dev/null || { debian runc && ln -sf ../runc/usr/sbin/runc "$cache/bin/runc"; }
    [[ -d /usr/lib/cni ]] || debian containernetworking-plugins
}

cluster() {
    local program=k8s.io/kubernetes/cmd
    command -v etcd >/dev/null || { debian etcd-server && ln -sf ../etcd-server/usr/bin/etcd "$cache/bin/etcd"; }
    build "k8s.io/kubernetes@v$kubernetes" \
        "$program"/{kube-apiserver,kubectl,kubelet,kube-controller-manager,kube-scheduler,kube-proxy}
}

[[ $(go version 2>/dev/null) =~ go1\.([0-9]+) && ${BASH_REMATCH[1]} -ge 21 ]] ||
    { echo "Go 1.21 or later is missing (https://go.dev/dl); Debian 12's is older" >&2; exit 1; }
case ${1:-} in
    runtime) runtime ;;
    cluster) runtime && cluster ;;
    *) echo "usage: kubernetes/programs.sh runtime|cluster" >&2; exit 2 ;;
esac
