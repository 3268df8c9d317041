#!/usr/bin/env bash
# Runs the agent beside a real containerd, with pods of two groups: who asks for it is carried, and
# pods start where there is no agent, too.
#
#   kubernetes/test.sh          as root; after `make product`. CARGO_TARGET_DIR says where that is.
#
# All of it lives in namespaces of its own, and ends with them. Needs Go, redis, python3, CNI's
# plugins (Debian: containernetworking-plugins). containerd and crictl are built from their modules
# once, into ~/.cache/ginnel-kubernetes; Debian's runc is put there, too, where none is installed.
# crun 1.8, Debian 12's, does not take this containerd's containers.
set -euo pipefail
shopt -s inherit_errexit
here=$(realpath "$(dirname "${BASH_SOURCE[0]}")")
target=$(realpath -m "${CARGO_TARGET_DIR:-$here/../target}")
cache=${XDG_CACHE_HOME:-$HOME/.cache}/ginnel-kubernetes
image=docker.io/library/ginnel-test:1

# build NAME MODULE@VERSION PACKAGE builds one program into the cache.
build() {
    [[ ! -x $cache/bin/$1 ]] || return 0
    local draft
    draft=$(mktemp -d)
    echo "building $1 ($2)"
    (cd "$draft" && go mod init wrapper && go get "$2" &&
        CGO_ENABLED=0 go build -mod=mod -o "$draft/$1" "$3") >"$draft/log" 2>&1 || { cat "$draft/log" >&2; return 1; }
    install -D "$draft/$1" "$cache/bin/$1"
    rm -rf "$draft"
}

runc_path() { command -v runc || echo "$cache/runc/usr/sbin/runc"; }

# The image: Debian's redis, with what it is linked with.
make_image() {
    local root=$1/image program file
    mkdir -p "$root"/{usr/bin,tmp,proc,sys,dev,etc}
    ln -s usr/bin "$root/bin"
    for program in redis-server redis-benchmark redis-cli sleep; do
        program=$(command -v "$program")
        cp -L "$program" "$root/usr/bin/"
        ldd "$program" | grep -o '/[^ ]*'
    done | sort -u >"$1/linked"
    # The library needs these two itself.
    ldd "$target/release/libginnel_shim.so" "$target/release/ginnel" | grep -o '/[^ :]*\.so[^ :]*' | grep -v ginnel >>"$1/linked"
    while read -r file; do
        [[ -e $root/$file ]] || install -D "$(realpath "$file")" "$root/$file"
    done <"$1/linked"
    python3 "$here/archive.py" "$root" "$1/image.tar" "$image" "$(uname -m)" "/usr/bin/sleep infinity"
}

prepare() {
    build containerd github.com/containerd/containerd/v2@v2.4.2 github.com/containerd/containerd/v2/cmd/containerd
    build containerd-shim-runc-v2 github.com/containerd/containerd/v2@v2.4.2 github.com/containerd/containerd/v2/cmd/containerd-shim-runc-v2
    build ctr github.com/containerd/containerd/v2@v2.4.2 github.com/containerd/containerd/v2/cmd/ctr
    build crictl sigs.k8s.io/cri-tools@v1.37.0 sigs.k8s.io/cri-tools/cmd/crictl
    [[ -x $(runc_path) ]] || (cd "$cache" && apt-get -q download runc && dpkg -x runc_*.deb runc)
    (cd "$here/agent" && CGO_ENABLED=0 go build -buildvcs=false -o "$1/ginnel-agent" .)
    # As image.sh lays the library out.
    mkdir -p "$1/library"
    cp -a "$target/release/"{'$LIB',lib,lib64} "$1/library/"
    cp "$target/release/libginnel_shim.so" "$target/release/ginnel" "$1/library/"
    chmod 644 "$1/library/libginnel_shim.so"
    make_image "$1"
}

configure() {
    mkdir -p "$1/cni"
    cat >"$1/cni/10-test.conflist" <<-END
	{"cniVersion": "1.0.0", "name": "test", "plugins": [{"type": "bridge", "bridge": "ginnel0",
	 "isGateway": true, "ipam": {"type": "host-local", "dataDir": "$1/addresses",
	 "ranges": [[{"subnet": "10.88.7.0/24"}]]}}]}
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
	bin_dirs = ["/usr/lib/cni"]
	conf_dir = "$1/cni"
	[plugins.'io.containerd.cri.v1.runtime'.containerd.runtimes.runc]
	runtime_type = "io.containerd.runc.v2"
	[plugins.'io.containerd.cri.v1.runtime'.containerd.runtimes.runc.options]
	BinaryName = "$(runc_path)"
	END
}

# until_true SECONDS COMMAND…
until_true() {
    local left=$(($1 * 5))
    until "${@:2}" >/dev/null 2>&1; do
        ((left-- > 0)) || { echo "FAILED: in $1 s never: ${*:2}" >&2; return 1; }
        sleep 0.2
    done
}

cri() { timeout 60 crictl -c "$work/crictl.yaml" -r unix:///run/containerd/containerd.sock -t 30s "$@"; }

# pod NAME GROUP COMMAND… starts a pod and prints "POD CONTAINER". Group "": the pod asks for none.
# $volumes: what the container has mounted, as crictl takes it.
pod() {
    local name=$1 annotations='{}' command pod container
    [[ -z $2 ]] || annotations="{\"ginnel.dev/group\": \"$2\"}"
    command=$(python3 -c 'import json, sys; print(json.dumps(sys.argv[1:]))' "${@:3}")
    cat >"$work/$name.pod" <<-END
	{"metadata": {"name": "$name", "namespace": "default", "uid": "$name"}, "annotations": $annotations,
	 "log_directory": "$work/logs", "linux": {"cgroup_parent": "/$parent", "security_context":
	 {"namespace_options": {"network": 0, "pid": 1, "ipc": 0}}}}
	END
    cat >"$work/$name.container" <<-END
	{"metadata": {"name": "$name"}, "image": {"image": "$image"}, "command": $command, "mounts": ${volumes:-[]},
	 "log_path": "$name.log", "linux": {"security_context": {"run_as_user": {"value": 1000},
	 "readonly_rootfs": true, "no_new_privs": true, "capabilities": {"drop_capabilities": ["ALL"]}}}}
	END
    pod=$(cri runp "$work/$name.pod")
    container=$(cri create "$pod" "$work/$name.container" "$work/$name.pod")
    cri start "$container" >/dev/null
    echo "$pod $container"
}

address() { cri inspectp "$1" | python3 -c 'import json, sys; print(json.load(sys.stdin)["status"]["network"]["ip"])'; }

# requests CONTAINER ADDRESS prints redis-benchmark's lines.
requests() { cri exec "$1" redis-benchmark -h "$2" -q -t set,get -n 60000 -c 1 | tr '\r' '\n' | grep 'per second'; }

status() { cri exec "$1" /usr/lib/ginnel/ginnel status 2>&1 || true; }

fail() { echo "FAILED: $*" >&2; exit 1; }

# carried CONTAINER ADDRESS: while a benchmark of it runs, prints what the status in it says.
carried() {
    cri exec "$1" redis-benchmark -h "$2" -q -t get -n 100000000 -c 2 >/dev/null 2>&1 &
    local load=$!
    sleep 3
    status "$1"
    kill "$load" 2>/dev/null || true
    wait "$load" 2>/dev/null || true
}

inside() {
    : >"$work/crictl.yaml"
    mount --make-rprivate /
    mount -t tmpfs tmpfs /run
    mkdir -p "/var/lib/cni" && mount -t tmpfs tmpfs /var/lib/cni
    ! mountpoint -q /sys/fs/cgroup/unified || umount /sys/fs/cgroup/unified
    ip link set lo up
    export PATH=$cache/bin:$PATH
    mkdir -p "$work"/{logs,host-library}
    containerd -c "$work/containerd.toml" >"$work/containerd.log" 2>&1 &
    until_true 60 cri version || { tail "$work/containerd.log" >&2; return 1; }
    ctr -a /run/containerd/containerd.sock -n k8s.io images import "$work/image.tar" >/dev/null

    echo "== without the agent: a pod that asks for a group starts"
    local early early_at server server_at same other at
    early=$(pod early g1 redis-server --save '' --protected-mode no --bind 0.0.0.0)
    early_at=$(address "${early% *}")
    until_true 20 cri exec "${early#* }" redis-cli -h "$early_at" ping

    "$work/ginnel-agent" -namespaces=false -library "$work/library" -host-library "$work/host-library" \
        -host-run /run/ginnel-agent/groups -broker "$target/release/ginnel-broker" -listen 127.0.0.1:9191 \
        >"$work/agent.log" 2>&1 &
    local agent=$!
    until_true 30 grep -q 'registered with the runtime' "$work/agent.log" || { cat "$work/agent.log" >&2; return 1; }

    echo "== a pod whose volumes leave no place, read-only ones among them, starts without"
    mkdir "$work/volume"
    for at in /run /var/run /usr/lib /dev/shm; do
        volumes="[{\"container_path\": \"$at\", \"host_path\": \"$work/volume\", \"readonly\": true}]" \
            pod "volume${at//\//-}" g1 sleep infinity
    done
    [[ -z $(ls -A "$work/volume") ]] || fail "something was made in a pod's volume"
    server=$(pod server g1 redis-server --save '' --protected-mode no --bind 0.0.0.0)
    same=$(pod same g1 sleep infinity)
    other=$(pod other g2 sleep infinity)
    server_at=$(address "${server% *}")
    until_true 20 cri exec "${same#* }" redis-cli -h "$server_at" ping
    for _ in 1 2; do
        echo "== the same group"; requests "${same#* }" "$server_at"
        echo "== another group"; requests "${other#* }" "$server_at"
    done
    echo "== status in the same group"; carried "${same#* }" "$server_at" | tee "$work/same.status"
    echo "== status in another group"; carried "${other#* }" "$server_at" | tee "$work/other.status"
    echo "== the agent"; cat "$work/agent.log"
    python3 - <<-'END' | tee "$work/metrics"
	import urllib.request
	text = urllib.request.urlopen("http://127.0.0.1:9191/metrics", timeout=10).read().decode()
	print("\n".join(line for line in text.splitlines() if line.startswith("ginnel")))
	END
    judge
    without_agent "$agent" "${same#* }" "$server_at"
}

# The agent ends: what is carried goes on, and pods that ask for a group start.
without_agent() {
    echo "== the agent is killed while a benchmark runs"
    cri exec "$2" redis-benchmark -h "$3" -q -t get -n 60000 -c 1 >"$work/over" 2>&1 &
    local load=$! late
    sleep 0.5
    kill -9 "$1"
    wait "$load" || fail "a benchmark ends badly once the agent is gone"
    tr '\r' '\n' <"$work/over" | grep 'per second'
    late=$(pod late g1 sleep infinity)
    cri exec "${late#* }" redis-cli -h "$3" ping
    echo "kubernetes/test.sh: passed"
}

outside() {
    [[ $(id -u) = 0 ]] || fail "only root can make the namespaces"
    work=$(mktemp -d /var/tmp/ginnel-kubernetes.XXXXXX)
    parent=ginnel-test-$$
    trap 'find /sys/fs/cgroup -depth -type d -path "*/$parent*" -exec rmdir {} + 2>/dev/null || true; rm -rf --one-file-system "$work"' EXIT
    mkdir "$work/root"
    prepare "$work"
    configure "$work"
    work=$work parent=$parent timeout 400 unshare --mount --net --uts --ipc --pid --fork --kill-child \
        --mount-proc bash "$here/test.sh" inside
}

judge() {
    grep -q '^ginnel_agent_containers_total{result="injected"} 3$' "$work/metrics" || fail "three containers have the library"
    grep -q '^ginnel_agent_containers_total{result="taken_path"} 4$' "$work/metrics" || fail "four have no place for it"
    grep -q '^2 of 2 ends accelerated' "$work/same.status" || fail "the same group is carried"
    grep -q '^0 of 2 ends accelerated; 0 B by ring' "$work/other.status" || fail "another group is not"
}

case ${1:-} in
    inside) inside ;;
    '') outside ;;
    *) fail "usage: kubernetes/test.sh" ;;
esac
