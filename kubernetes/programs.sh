#!/usr/bin/env bash
# Builds the programs of others that the tests here need, from Go's modules, and fetches Debian's.
#
#   kubernetes/programs.sh      containerd with its shim, ctr, crictl, helm, runc, CNI's plugins
#
# They lie in ~/.cache/ginnel-kubernetes/bin and stay there. Needs Go, and apt-get where runc and CNI's
# plugins are not installed.
set -euo pipefail
shopt -s inherit_errexit
cache=${XDG_CACHE_HOME:-$HOME/.cache}/ginnel-kubernetes

containerd=github.com/containerd/containerd/v2

# build MODULE@VERSION PACKAGE… builds those programs that the cache does not have.
build() {
    local draft package wanted=()
    for package in "${@:2}"; do
        [[ -x $cache/bin/${package##*/} ]] || wanted+=("$package")
    done
    ((${#wanted[@]})) || return 0
    draft=$(mktemp -d)
    echo "building ${wanted[*]##*/} ($1)"
    if ! (cd "$draft" && go mod init wrapper && go get "$1" && build_each "$draft" "${wanted[@]}") >"$draft/log" 2>&1; then
        tail -n 40 "$draft/log" >&2
        return 1
    fi
    rm -rf "$draft"
}

build_each() {
    local package name
    for package in "${@:2}"; do
        name=${package##*/}
        CGO_ENABLED=0 go build -mod=mod -ldflags "-s -w" -o "$1/$name" "$package" &&
            install -D "$1/$name" "$cache/bin/$name" && rm "$1/$name" || return 1
    done
}

# debian PACKAGE unpacks one of Debian's into the cache.
debian() {
    [[ ! -d $cache/$1 ]] || return 0
    local draft
    draft=$(mktemp -d)
    (cd "$draft" && apt-get -q download "$1" && dpkg -x "$1"_*.deb root) >"$draft/log" 2>&1 || { cat "$draft/log" >&2; return 1; }
    mkdir -p "$cache"
    mv "$draft/root" "$cache/$1"
    rm -rf "$draft"
}

build "$containerd@v2.4.2" "$containerd"/cmd/{containerd,containerd-shim-runc-v2,ctr}
build sigs.k8s.io/cri-tools@v1.37.0 sigs.k8s.io/cri-tools/cmd/crictl
build helm.sh/helm/v3@v3.22.0 helm.sh/helm/v3/cmd/helm
# crun 1.8, Debian 12's, does not take this containerd's containers.
command -v runc >/dev/null || { debian runc && ln -sf ../runc/usr/sbin/runc "$cache/bin/runc"; }
[[ -d /usr/lib/cni ]] || debian containernetworking-plugins
