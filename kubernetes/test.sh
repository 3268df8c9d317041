#!/usr/bin/env bash
# Runs the agent beside a real containerd, with pods of two groups: who asks for it is carried, and
# pods start where there is no agent, too. Before it: the agent's own tests, and what helm makes of the
# chart.
#
#   kubernetes/test.sh          as root; after `make product`. CARGO_TARGET_DIR says where that is.
#
# All of it lives in namespaces of its own, and ends with them. Needs redis, nft, python3 with PyYAML,
# and what kubernetes/programs.sh needs: that builds containerd, crictl and helm once. KEEP=1 leaves
# the directory.
set -euo pipefail
shopt -s inherit_errexit
# shellcheck source=kubernetes/node.sh
source "$(dirname "${BASH_SOURCE[0]}")/node.sh"

prepare() {
    "$here/programs.sh" runtime
    (cd "$here/agent" && go vet . && go test . >"$1/unit.log" 2>&1) || { cat "$1/unit.log" >&2; return 1; }
    (cd "$here/agent" && CGO_ENABLED=0 go build -buildvcs=false -o "$1/ginnel-agent" .)
    "$here/chart.py" "$cache/bin/helm" "$1/ginnel-agent"
    # As image.sh lays the library out.
    mkdir -p "$1/library"
    cp -a "$target/release/"{'$LIB',lib,lib64} "$1/library/"
    cp "$target/release/libginnel_shim.so" "$target/release/ginnel" "$1/library/"
    chmod 644 "$1/library/libginnel_shim.so"
    make_agent_image "$1"
    make_image "$1"
    # A veth for each pod and no bridge: packets to a Service are translated on their way, both ways.
    configure "$1" '"type": "ptp"'
}

# The agent in an image: not image.sh's, which takes other builds, but with all that is in that.
make_agent_image() {
    local root=$1/agent-image file
    mkdir -p "$root"/{usr/bin,usr/lib/ginnel,proc,sys,dev,etc}
    cp -a "$1/library/." "$root/usr/lib/ginnel"
    cp "$1/ginnel-agent" "$target/release/ginnel-broker" "$root/usr/bin"
    ldd "$target/release/ginnel-broker" | grep -o '/[^ ]*' | sort -u | while read -r file; do
        install -D "$(realpath "$file")" "$root/$file"
    done
    python3 "$here/archive.py" "$root" "$1/agent.tar" docker.io/library/ginnel-agent:test "$(uname -m)"
}

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

# service ADDRESS OF has what pods send to ADDRESS translated to another one, by the rule with which
# kube-proxy ends where a Service has one pod.
service() {
    echo 1 >/proc/sys/net/ipv4/ip_forward
    nft -f - <<-END
	table ip ginnel-test {
	    chain services { type nat hook prerouting priority dstnat; ip daddr $1 tcp dport 6379 dnat to $2:6379; }
	}
	END
}

# load CONTAINER ADDRESS runs a benchmark of it there, with two connections, until end_load.
load() { patience=210 cri exec "$1" timeout 200 redis-benchmark -h "$2" -q -t get -n 100000000 -c 2 >/dev/null 2>&1; }

# end_load CONTAINER ADDRESS PROCESS: redis-benchmark ends once the server has closed its connections.
end_load() {
    cri exec "$1" redis-cli -h "$2" client kill type normal >/dev/null
    wait "$3" || true
}

# says CONTAINER PATTERN: its status has such a line; all of it is in $work/said.
says() {
    status "$1" >"$work/said"
    grep -q "$2" "$work/said"
}

# carried CONTAINER ADDRESS WHAT: while a benchmark of it runs, both connections come to be carried.
carried() {
    load "$1" "$2" &
    local load=$!
    until_true 45 says "$1" '^2 of 2 ends accelerated' || { cat "$work/said"; fail "not carried: $3"; }
    cat "$work/said"
    end_load "$1" "$2" "$load"
}

# stays CONTAINER ADDRESS WHAT: they stay on TCP, for longer than a broker waits for the other end.
stays() {
    load "$1" "$2" &
    local load=$!
    until_true 45 says "$1" ' of 2 ends accelerated' || { cat "$work/said"; fail "no connection: $3"; }
    sleep 7
    says "$1" '^0 of 2 ends accelerated; 0 B by ring' || { cat "$work/said"; fail "carried: $3"; }
    cat "$work/said"
    end_load "$1" "$2" "$load"
}

inside() {
    mount --make-rprivate /
    mount -t tmpfs tmpfs /run
    mkdir -p "/var/lib/cni" && mount -t tmpfs tmpfs /var/lib/cni
    mkdir -p "$work"/{logs,host-library}
    start_containerd "$work/image.tar" "$work/agent.tar"

    echo "== without the agent: a pod that asks for a group starts"
    local early early_at server server_at same other at
    early=$(pod early g1 redis-server --save '' --protected-mode no --bind 0.0.0.0)
    early_at=$(address "${early% *}")
    until_true 20 cri exec "${early#* }" redis-cli -h "$early_at" ping

    local agent
    start_agent first 9191
    until_true 30 registered first 1 || { cat "$work/first.log" >&2; return 1; }

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
    echo "== status in the same group"; carried "${same#* }" "$server_at" "the same group"
    echo "== status in another group"; stays "${other#* }" "$server_at" "another group"
    echo "== the same group, by a Service's address"
    service 10.96.0.10 "$server_at"
    requests "${same#* }" 10.96.0.10
    carried "${same#* }" 10.96.0.10 "the same group, by a Service's address"
    echo "== another group, by a Service's address"; stays "${other#* }" 10.96.0.10 "another group, by a Service's address"
    echo "== a pod that does not ask"; plain "$server_at" "${server#* }"
    echo "== the agent"; cat "$work/first.log"
    python3 - <<-'END' | tee "$work/metrics"
	import urllib.request
	text = urllib.request.urlopen("http://127.0.0.1:9191/metrics", timeout=10).read().decode()
	print("\n".join(line for line in text.splitlines() if line.startswith("ginnel")))
	END
    judge
    restarted "${server% *}" "${server#* }"
    carried "${same#* }" "$server_at" "a container that was restarted"
    hung_agent "${same#* }" "$server_at"
    upgraded_agent "${same#* }" "$server_at"
    without_agent "${same#* }" "$server_at"
    contained_agent
    echo "kubernetes/test.sh: passed"
}

# A pod without an annotation is left as it is, and the status of whom it asks says why it is on TCP.
plain() {
    local plain plain_at
    plain=$(pod plain '' sleep infinity)
    plain_at=$(address "${plain% *}")
    lacks "${plain#* }" || fail "a pod that does not ask has the library"
    load "${plain#* }" "$1" &
    local load=$!
    until_true 45 asked_by "$2" "$plain_at"
    cri exec "$2" /usr/lib/ginnel/ginnel status --json | python3 "$here/ends.py" share "$plain_at" | tee "$work/plain.share"
    end_load "${plain#* }" "$1" "$load"
    grep -q ' 0.0 % by ring no_peer$' "$work/plain.share" || fail "who does not ask is carried, or nothing says why not"
}

# asked_by CONTAINER ADDRESS: it has exchanged something with ADDRESS.
asked_by() { cri exec "$1" /usr/lib/ginnel/ginnel status --json | python3 "$here/ends.py" share "$2" | grep -qv ': 0 bytes'; }

# start_agent NAME PORT starts an agent; $agent is its process.
start_agent() {
    "$work/ginnel-agent" -namespaces=false -library "$work/library" -host-library "$work/host-library" \
        -host-run /run/ginnel-agent/groups -broker "$target/release/ginnel-broker" -listen "127.0.0.1:$2" \
        >"$work/$1.log" 2>&1 &
    agent=$!
}

# registered NAME TIMES: so often the agent has said so.
registered() { (($(grep -c 'registered with the runtime' "$work/$1.log") >= $2)); }

# lacks CONTAINER: it was not given the library.
lacks() { cri exec "$1" redis-cli --version >/dev/null && ! cri exec "$1" /usr/lib/ginnel/ginnel --version >/dev/null 2>&1; }

# goes_on CONTAINER ADDRESS COMMAND…: connections that are open when the command is begun are carried
# after it as before.
goes_on() {
    load "$1" "$2" &
    local load=$!
    until_true 45 says "$1" '^2 of 2 ends accelerated' || { cat "$work/said"; fail "no connections that could go on"; }
    cri exec "$1" /usr/lib/ginnel/ginnel status --json >"$work/before"
    "${@:3}"
    sleep 1
    cri exec "$1" /usr/lib/ginnel/ginnel status --json >"$work/after"
    python3 "$here/ends.py" goes-on "$work/before" "$work/after" || fail "of connections that are open"
    end_load "$1" "$2" "$load"
}

# restarted POD CONTAINER: the server ends, and its pod gets another container, as kubelet does it.
restarted() {
    echo "== the server's container is restarted"
    local container
    cri exec "$2" redis-cli shutdown nosave || true
    sed 's/"name": "server"/&, "attempt": 1/' "$work/server.container" >"$work/again.container"
    container=$(cri create "$1" "$work/again.container" "$work/server.pod")
    cri start "$container" >/dev/null
    cri rm -f "$2" >/dev/null
    until_true 20 cri exec "$container" redis-cli ping
}

# The agent does not answer: the runtime waits for it once, and pods start.
hung_agent() {
    echo "== the agent hangs"
    local hung after began=$SECONDS
    kill -STOP "$agent"
    hung=$(pod hung g1 sleep infinity)
    echo "a pod starts within $((SECONDS - began)) s"
    lacks "${hung#* }" || fail "a pod has the library from an agent that hangs"
    goes_on "$1" "$2" pod beside g1 sleep infinity
    kill -CONT "$agent"
    until_true 60 registered first 2 || { cat "$work/first.log" >&2; return 1; }
    after=$(pod after g1 sleep infinity)
    carried "${after#* }" "$2" "a pod that started after the agent hung"
}

# A new agent comes with another library before the old one ends, as the DaemonSet has it.
upgraded_agent() {
    echo "== the agent is upgraded while a benchmark runs"
    echo new >"$work/library/new"
    goes_on "$1" "$2" upgrade
    requests "$1" "$2"
    local new
    new=$(pod new g1 sleep infinity)
    carried "${new#* }" "$2" "a pod of a new agent's"
    (($(find "$work/host-library" -mindepth 1 -maxdepth 1 | wc -l) == 2)) || fail "the old library is gone, or a third is there"
}

upgrade() {
    local old=$agent
    start_agent second 9192
    until_true 10 grep -q 'waiting for the agent before' "$work/second.log"
    kill -TERM "$old"
    until_true 30 registered second 1 || { cat "$work/second.log" >&2; return 1; }
}

# The agent ends: what is carried goes on, and pods that ask for a group start.
without_agent() {
    echo "== the agent is killed while a benchmark runs"
    local late
    goes_on "$1" "$2" kill -9 "$agent"
    cri exec "$1" redis-benchmark -h "$2" -q -t get -n 20000 -c 1 | tr '\r' '\n' | grep 'per second'
    late=$(pod late g1 sleep infinity)
    cri exec "${late#* }" redis-cli -h "$2" ping
}

# The agent in a container, with what the chart gives it: namespaces of its own, among them that for
# numbers of processes, two capabilities, and the runtime's filter of system calls.
contained_agent() {
    echo "== the agent in a container"
    local pod container server server_at client
    mkdir -p /run/ginnel-agent "$work/node"
    cat >"$work/agent.pod" <<-END
	{"metadata": {"name": "agent", "namespace": "ginnel-system", "uid": "agent"}, "log_directory": "$work/logs",
	 "linux": {"cgroup_parent": "/$parent", "security_context": {"namespace_options": {"network": 0, "pid": 1, "ipc": 0}}}}
	END
    cat >"$work/agent.container" <<-END
	{"metadata": {"name": "agent"}, "image": {"image": "docker.io/library/ginnel-agent:test"}, "log_path": "agent.log",
	 "args": ["-namespaces=false", "-nri-socket=/var/run/nri/nri.sock", "-host-library=$work/node/library", "-host-run=/run/ginnel-agent/groups"],
	 "mounts": [{"container_path": "/var/run/nri", "host_path": "/var/run/nri"}, {"container_path": "$work/node", "host_path": "$work/node"},
	  {"container_path": "/run/ginnel-agent", "host_path": "/run/ginnel-agent"}],
	 "linux": {"resources": {"memory_limit_in_bytes": 536870912}, "security_context": {"run_as_user": {"value": 0}, "readonly_rootfs": true,
	  "no_new_privs": true, "seccomp": {"profile_type": 0}, "capabilities": {"drop_capabilities": ["ALL"], "add_capabilities": ["BPF", "PERFMON"]}}}}
	END
    pod=$(cri runp "$work/agent.pod")
    container=$(cri create "$pod" "$work/agent.container" "$work/agent.pod")
    cri start "$container" >/dev/null
    until_true 30 grep -q 'registered with the runtime' "$work/logs/agent.log" || { cat "$work/logs/agent.log" >&2; return 1; }
    server=$(pod served g3 redis-server --save '' --protected-mode no --bind 0.0.0.0)
    client=$(pod asking g3 sleep infinity)
    server_at=$(address "${server% *}")
    until_true 20 cri exec "${client#* }" redis-cli -h "$server_at" ping
    carried "${client#* }" "$server_at" "pods of an agent in a container"
    ! grep 'level=error' "$work/logs/agent.log" || fail "its broker says so"
}

judge() {
    grep -q '^ginnel_agent_containers_total{result="injected"} 3$' "$work/metrics" || fail "three containers have the library"
    grep -q '^ginnel_agent_containers_total{result="taken_path"} 4$' "$work/metrics" || fail "four have no place for it"
}

case ${1:-} in
    inside) inside ;;
    '') within "$here/test.sh" 600 ;;
    *) fail "usage: kubernetes/test.sh" ;;
esac
