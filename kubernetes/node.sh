# shellcheck shell=bash
# What the tests here have in common: a node in namespaces of its own. To be sourced.
#
# $here: this folder. $target: where the product lies. $work: a directory of the run's own.
here=$(realpath "$(dirname "${BASH_SOURCE[0]}")")
target=$(realpath -m "${CARGO_TARGET_DIR:-$here/../target}")
cache=${XDG_CACHE_HOME:-$HOME/.cache}/ginnel-kubernetes
image=docker.io/library/ginnel-test:1
# What that has beside redis.
more=()

fail() { echo "FAILED: $*" >&2; exit 1; }

# until_true SECONDS COMMAND…
until_true() {
    local left=$(($1 * 5))
    until "${@:2}" >/dev/null 2>&1; do
        ((left-- > 0)) || { echo "FAILED: in $1 s never: ${*:2}" >&2; return 1; }
        sleep 0.2
    done
}

# make_image DIRECTORY leaves image.tar there: Debian's redis and $more, with what they are linked with,
# and what lies in DIRECTORY/image already.
make_image() {
    local root=$1/image program file
    mkdir -p "$root"/{usr/bin,tmp,proc,sys,dev,etc}
    ln -s usr/bin "$root/bin"
    for program in redis-server redis-benchmark redis-cli sleep timeout dd "${more[@]}"; do
        program=$(command -v "$program")
        cp -L "$program" "$root/usr/bin/"
        ldd "$program" | grep -o '/[^ ]*'
    done | sort -u >"$1/linked"
    # The library needs these itself.
    ldd "$target/release/libginnel_shim.so" "$target/release/ginnel" | grep -o '/[^ :]*\.so[^ :]*' | grep -v ginnel >>"$1/linked"
    # So does the one in image.sh's image, which is made for older C libraries: by names that every
    # distribution's package of glibc has beside libc.so.6, and no program made for this one asks
    # for. Without them no program starts (docs/containers.md).
    file=$(grep -m 1 '/libc\.so\.6$' "$1/linked")
    printf '%s\n' "${file%/*}"/{libpthread.so.0,libdl.so.2} >>"$1/linked"
    while read -r file; do
        [[ -e $root/$file ]] || install -D "$(realpath "$file")" "$root/$file"
    done <"$1/linked"
    python3 "$here/archive.py" "$root" "$1/image.tar" "$image" "$(uname -m)" "/usr/bin/sleep infinity"
}

runc_path() { command -v runc || echo "$cache/bin/runc"; }

cni_path() { [[ -d /usr/lib/cni ]] && echo /usr/lib/cni || echo "$cache/containernetworking-plugins/usr/lib/cni"; }

# configure DIRECTORY NETWORK: containerd's configuration, and its network's, which is a plugin of CNI
# with its settings.
configure() {
    mkdir -p "$1/cni"
    cat >"$1/cni/10-test.conflist" <<-END
	{"cniVersion": "1.0.0", "name": "test", "plugins": [{$2, "ipam": {"type": "host-local",
	 "dataDir": "$1/addresses", "ranges": [[{"subnet": "10.88.7.0/24"}]], "routes": [{"dst": "0.0.0.0/0"}]}}]}
	END
    cat >"$1/containerd.toml" <<-END
	version = 3
	root = "$1/root"
	state = "/run/containerd"
	[plugins.'io.containerd.cri.v1.images'.pinned_images]
	sandbox = "$image"
	[plugins.'io.containerd.cri.v1.runtime']
	restrict_oom_score_adj = true
	[plugins.'io.containerd.cri.v1.runtime'.cni]
	bin_dirs = ["$(cni_path)"]
	conf_dir = "$1/cni"
	[plugins.'io.containerd.cri.v1.runtime'.containerd.runtimes.runc]
	runtime_type = "io.containerd.runc.v2"
	[plugins.'io.containerd.cri.v1.runtime'.containerd.runtimes.runc.options]
	BinaryName = "$(runc_path)"
	END
}

# cri …: crictl, for no longer than $patience seconds.
cri() { timeout "${patience:-60}" crictl -c "$work/crictl.yaml" -r unix:///run/containerd/containerd.sock -t 30s "$@"; }

# start_containerd, in the namespaces, with the images that are named.
start_containerd() {
    local archive
    : >"$work/crictl.yaml"
    ! mountpoint -q /sys/fs/cgroup/unified || umount /sys/fs/cgroup/unified
    ip link set lo up
    export PATH=$cache/bin:$PATH
    containerd -c "$work/containerd.toml" >"$work/containerd.log" 2>&1 &
    until_true 60 cri version || { tail "$work/containerd.log" >&2; return 1; }
    for archive in "$@"; do
        ctr -a /run/containerd/containerd.sock -n k8s.io images import "$archive" >/dev/null
    done
}

# within PROGRAM SECONDS has PROGRAM run as "PROGRAM inside" in namespaces, with $work a directory that
# goes when it ends, and so do the groups of processes named like $parent.
within() {
    [[ $(id -u) = 0 ]] || fail "only root can make the namespaces"
    work=$(mktemp -d /var/tmp/ginnel-kubernetes.XXXXXX)
    parent=ginnel-test-$$
    trap leave EXIT
    mkdir "$work/root"
    prepare "$work"
    # unshare(1) takes SIGTERM from nobody, and a first process of a pid namespace neither. In the
    # foreground: who ends this ends that, too.
    work=$work parent=$parent timeout --foreground --kill-after=5 "$2" unshare --mount --net --uts \
        --ipc --pid --fork --kill-child --mount-proc bash "$1" inside
}

leave() {
    find /sys/fs/cgroup -depth -type d -path "*/$parent*" -exec rmdir {} + 2>/dev/null || true
    [[ -n ${KEEP:-} ]] || rm -rf --one-file-system "$work"
}
