#!/usr/bin/env bash
# Runs the chart on a cluster of one node: etcd, Kubernetes' own programs, containerd, and the agent as
# the DaemonSet that Helm makes, in its own image. Pods reach each other by a Service.
#
#   kubernetes/cluster.sh       as root; after `make product`. CARGO_TARGET_DIR says where that is.
#
# All of it lives in namespaces of its own, and ends with them. Needs redis, nginx, wrk, openssl, nft and
# python3, and what kubernetes/image.sh and kubernetes/programs.sh need: the latter builds Kubernetes once, for
# half an hour. KEEP=1 leaves the directory with all logs. AGENT_IMAGE names the file of an image that
# is there already, for whoever has no time for image.sh's. CHART_VALUES is handed to helm: with
# CHART_VALUES='--set runtimeHandlers={other}' the agent gives no pod anything, and this must fail.
set -euo pipefail
shopt -s inherit_errexit
# shellcheck source=kubernetes/node.sh
source "$(dirname "${BASH_SOURCE[0]}")/node.sh"

node=ginnel-node address=10.99.0.1 agents_in=ginnel-system
more=(nginx wrk)

prepare() {
    "$here/programs.sh" cluster
    [[ -n ${AGENT_IMAGE:-} ]] || "$here/image.sh"
    mkdir -p "$1/image/etc"
    nginx_settings >"$1/image/etc/nginx.conf"
    make_image "$1"
    # A veth for each pod and no bridge: packets to a Service are translated on their way, both ways.
    configure "$1" '"type": "ptp"'
    control_groups
    mkdir -p "$1"/{lib,log,certificates,sysctl}
    openssl genrsa -out "$1/accounts.key" 2048 2>/dev/null
    kubelet_settings >"$1/kubelet.yaml"
    proxy_settings >"$1/proxy.yaml"
}

# The kubelet wants its group in each hierarchy of cgroup v1, and processors and memory named there.
control_groups() {
    local hierarchy file
    for hierarchy in /sys/fs/cgroup/*/; do
        [[ $hierarchy != */unified/ && ! -L ${hierarchy%/} ]] || continue
        mkdir "$hierarchy$parent"
    done
    for file in cpuset.cpus cpuset.mems; do
        cat "/sys/fs/cgroup/cpuset/$file" >"/sys/fs/cgroup/cpuset/$parent/$file"
    done
}

kubelet_settings() {
    cat <<-END
	apiVersion: kubelet.config.k8s.io/v1beta1
	kind: KubeletConfiguration
	authentication: {anonymous: {enabled: true}, webhook: {enabled: false}}
	authorization: {mode: AlwaysAllow}
	cgroupDriver: cgroupfs
	cgroupRoot: /$parent
	failCgroupV1: false
	failSwapOn: false
	containerRuntimeEndpoint: unix:///run/containerd/containerd.sock
	volumePluginDir: $work/lib/plugins
	resolvConf: ""
	syncFrequency: 5s
	fileCheckFrequency: 5s
	volumeStatsAggPeriod: 5s
	evictionHard: {memory.available: 100Mi, nodefs.available: 1%, imagefs.available: 1%}
	END
}

proxy_settings() {
    cat <<-END
	apiVersion: kubeproxy.config.k8s.io/v1alpha1
	kind: KubeProxyConfiguration
	mode: nftables
	hostnameOverride: $node
	clientConnection: {kubeconfig: $work/admin.kubeconfig}
	conntrack: {maxPerCore: 0, min: 0, tcpEstablishedTimeout: 0s, tcpCloseWaitTimeout: 0s}
	nftables: {minSyncPeriod: 100ms}
	END
}

nginx_settings() {
    cat <<-END
	daemon off; worker_processes 1; pid /tmp/nginx.pid; error_log stderr;
	events { worker_connections 100; }
	http {
	    access_log off;
	    client_body_temp_path /tmp/body; proxy_temp_path /tmp/proxy; fastcgi_temp_path /tmp/fastcgi;
	    uwsgi_temp_path /tmp/uwsgi; scgi_temp_path /tmp/scgi;
	    server { listen 8080; keepalive_requests 1000000000; location / { return 200 'an answer of nginx'; } }
	}
	END
}

# access NAME TOKEN prints a kubeconfig.
access() {
    cat <<-END
	apiVersion: v1
	kind: Config
	clusters: [{name: test, cluster: {server: "https://$address:6443", certificate-authority: $work/certificates/apiserver.crt}}]
	users: [{name: $1, user: {token: $2}}]
	contexts: [{name: test, context: {cluster: test, user: $1}}]
	current-context: test
	END
}

# run NAME COMMAND… in the background, with a log of its own.
run() { "${@:2}" >"$work/log/$1.log" 2>&1 & }

# What kubelet sets for the whole machine is said to be set already; the machine stays as it is.
pretend_settings() {
    local setting
    for setting in vm/overcommit_memory=1 vm/panic_on_oom=0 kernel/panic=10 kernel/panic_on_oops=1 \
        kernel/keys/root_maxkeys=1000000 kernel/keys/root_maxbytes=25000000; do
        local file=$work/sysctl/${setting//\//-}
        echo "${setting#*=}" >"$file"
        mount --bind "$file" "/proc/sys/${setting%=*}"
    done
}

network() {
    hostname "$node"
    ip link add node0 type veth peer name wire0
    ip address add "$address/24" dev node0
    ip link set node0 up
    ip link set wire0 up
    ip route add default via 10.99.0.254 dev node0
    echo 1 >/proc/sys/net/ipv4/ip_forward
}

control_plane() {
    printf '%s\n' 'admin-token,admin,1,system:masters' "node-token,system:node:$node,2,system:nodes" >"$work/tokens.csv"
    run etcd etcd --data-dir /run/etcd --logger zap --log-level warn
    run kube-apiserver kube-apiserver --etcd-servers http://127.0.0.1:2379 --advertise-address "$address" --kubelet-preferred-address-types InternalIP \
        --cert-dir "$work/certificates" --service-cluster-ip-range 10.96.0.0/16 --token-auth-file "$work/tokens.csv" \
        --authorization-mode Node,RBAC --enable-admission-plugins NodeRestriction --allow-privileged \
        --service-account-issuer https://kubernetes.default.svc --service-account-key-file "$work/accounts.key" \
        --service-account-signing-key-file "$work/accounts.key"
    access admin admin-token >"$work/admin.kubeconfig"
    access node node-token >"$work/node.kubeconfig"
    export KUBECONFIG=$work/admin.kubeconfig
    until_true 240 kubectl get --raw /readyz || { tail "$work/log/kube-apiserver.log" >&2; return 1; }
    run kube-controller-manager kube-controller-manager --kubeconfig "$KUBECONFIG" --leader-elect=false \
        --service-account-private-key-file "$work/accounts.key" --root-ca-file "$work/certificates/apiserver.crt" \
        --use-service-account-credentials
    run kube-scheduler kube-scheduler --kubeconfig "$KUBECONFIG" --leader-elect=false
}

start_node() {
    # As systemd has it: volumes of pods are seen by who mounts them on.
    mount --make-rshared /
    start_containerd "$work/image.tar" "${AGENT_IMAGE:-$target/kubernetes/ginnel-agent.tar}"
    run kubelet kubelet --config "$work/kubelet.yaml" --kubeconfig "$work/node.kubeconfig" \
        --hostname-override "$node" --node-ip "$address"
    until_true 240 kubectl wait --for=condition=Ready "node/$node" --timeout=1s || { tail "$work/log/kubelet.log" >&2; return 1; }
    run kube-proxy kube-proxy --config "$work/proxy.yaml"
    kubectl get nodes -o wide
}

# As docs/kubernetes.md has it, so the node's image is there already.
chart() {
    echo "== the chart"
    # A helm that `go build` makes takes 1.20 for the cluster's version, until it has asked a cluster.
    helm template ginnel "$here/chart" -n default --validate | kubectl apply -n default --dry-run=server -f -
    # shellcheck disable=SC2086 # several words
    helm install ginnel "$here/chart" -n ginnel-system --create-namespace ${CHART_VALUES:-}
    agent_works
}

# agent_works: the one that is there has registered with the runtime.
agent_works() {
    kubectl rollout status -n "$agents_in" daemonset/ginnel-agent --timeout=240s
    until_true 60 registered || { kubectl describe pod -n "$agents_in"; kubectl logs -n "$agents_in" daemonset/ginnel-agent; return 1; } >&2
    kubectl logs -n "$agents_in" daemonset/ginnel-agent
}

registered() { kubectl logs -n "$agents_in" daemonset/ginnel-agent | grep -q 'registered with the runtime'; }

# pod NAMESPACE NAME COMMAND… prints a pod that the level "restricted" admits.
pod() {
    cat <<-END
	apiVersion: v1
	kind: Pod
	metadata: {name: $2, namespace: $1, labels: {app: $2}}
	spec:
	  securityContext: {runAsNonRoot: true, runAsUser: 1000, seccompProfile: {type: RuntimeDefault}}
	  terminationGracePeriodSeconds: 1
	  containers:
	    - name: main
	      image: $image
	      imagePullPolicy: Never
	      command: [$(printf '"%s", ' "${@:3}")]
	      securityContext: {allowPrivilegeEscalation: false, readOnlyRootFilesystem: true, capabilities: {drop: [ALL]}}
	      volumeMounts: [{name: scratch, mountPath: /tmp}]
	  volumes: [{name: scratch, emptyDir: {sizeLimit: 20Mi}}]
	END
}

pods() {
    echo "== pods, and a Service"
    local namespace
    kubectl create namespace shop
    kubectl annotate namespace shop ginnel.dev/group=all
    kubectl create namespace other
    kubectl annotate namespace other ginnel.dev/group=all
    kubectl create namespace plain
    kubectl label namespace shop other plain pod-security.kubernetes.io/enforce=restricted
    for namespace in shop other plain; do
        until_true 60 kubectl get serviceaccount -n "$namespace" default
    done
    {
        pod shop redis redis-server --save '' --protected-mode no --bind 0.0.0.0
        echo ---
        pod shop nginx nginx -c /etc/nginx.conf
        echo ---
        pod shop client sleep infinity
        echo ---
        pod other client sleep infinity
        echo ---
        pod plain client sleep infinity
    } | kubectl apply -f -
    kubectl expose -n shop pod redis --port 6379
    kubectl expose -n shop pod nginx --port 8080
    kubectl wait -n shop --for=condition=Ready pod/redis pod/nginx pod/client --timeout=240s
    kubectl wait -n other --for=condition=Ready pod/client --timeout=240s
    kubectl wait -n plain --for=condition=Ready pod/client --timeout=240s
    service=$(kubectl get service -n shop redis -o jsonpath='{.spec.clusterIP}')
    until_true 60 kubectl exec -n shop client -- redis-cli -h "$service" ping
}

# load NAMESPACE POD SECONDS runs a benchmark of the Service in a pod.
load() { kubectl exec -n "$1" "$2" -- timeout "$3" redis-benchmark -h "$service" -q -t get -n 1000000000 -c 2 >/dev/null 2>&1; }

status() { kubectl exec -n shop "$1" -- /usr/lib/ginnel/ginnel status "${@:2}"; }

# requests NAMESPACE prints what the client there gets through.
requests() {
    kubectl exec -n "$1" client -- redis-benchmark -h "$service" -q -t set,get -n 20000 -c 1 | tr '\r' '\n' | grep 'per second'
}

# seen NAMESPACE POD prints what the server's status says of that pod, while it asks by the Service.
seen() {
    local peer load
    peer=$(kubectl get pod -n "$1" "$2" -o jsonpath='{.status.podIP}')
    load "$1" "$2" 60 &
    load=$!
    until_true 90 asks "$peer" || { status redis; kubectl get pods -A -o wide; kubectl logs -n "$agents_in" daemonset/ginnel-agent; } >&2 || fail "the status in the server's pod does not know of $1/$2"
    sleep 3
    status redis --json | python3 "$here/ends.py" share "$peer" | tee "$work/share"
    end_load "$load"
}

# end_load PROCESS: redis-benchmark ends once the server has closed its connections.
end_load() {
    kubectl exec -n shop redis -- redis-cli client kill type normal >/dev/null
    wait "$1" || true
}

asks() { status redis --json | python3 "$here/ends.py" share "$1" | grep -qv ' 0 bytes'; }

# goes_on COMMAND…: connections that are open when the command is begun are carried after it as before.
goes_on() {
    load shop client 300 &
    local load=$!
    until_true 30 asks_by_ring
    status client --json >"$work/before"
    "$@"
    sleep 1
    status client --json >"$work/after"
    python3 "$here/ends.py" goes-on "$work/before" "$work/after" || fail "of connections that are open"
    end_load "$load"
}

# All of its connections.
asks_by_ring() { status client | grep -q '^\([1-9][0-9]*\) of \1 ends accelerated'; }

# What came before the two ends met went by TCP.
carried_by_ring() { python3 -c 'import sys; sys.exit(float(open(sys.argv[1]).read().split()[3]) < 90)' "$work/share"; }

groups() {
    echo "== who is in the group, by the Service"
    requests shop
    seen shop client
    carried_by_ring || fail "the group is not carried"
    echo "== a pod without an annotation"
    requests plain
    seen plain client
    grep -q ' 0.0 % by ring no_peer' "$work/share" || fail "who does not ask is carried, or nothing says why not"
    echo "== a pod of another group"
    requests other
    seen other client
    grep -q ' 0.0 % by ring no_peer' "$work/share" || fail "another group is carried, or nothing says why not"
    says_why
}

# The status in words, in a pod that is carried and has somebody else on TCP.
says_why() {
    local load
    load plain client 60 &
    load=$!
    until_true 15 names_reason
    status redis
    end_load "$load"
}

names_reason() { status redis | grep -q 'peer has no shim or uses another segment'; }

# nginx and wrk, by a Service of their own.
web() {
    echo "== nginx, by its Service: a pod without an annotation, and one of the group"
    local url peer load namespace
    url=http://$(kubectl get service -n shop nginx -o jsonpath='{.spec.clusterIP}'):8080/
    for namespace in plain shop; do
        kubectl exec -n "$namespace" client -- wrk -t 1 -c 2 -d 3s "$url" | grep Requests/sec
    done
    peer=$(kubectl get pod -n shop client -o jsonpath='{.status.podIP}')
    kubectl exec -n shop client -- wrk -t 1 -c 2 -d 30s "$url" >/dev/null &
    load=$!
    until_true 25 web_is_carried "$peer" || { cat "$work/share"; fail "nginx is not carried"; }
    cat "$work/share"
    wait "$load"
}

web_is_carried() {
    status nginx --json | python3 "$here/ends.py" share "$1" >"$work/share"
    carried_by_ring
}

# The plugin of kubectl, on all pods, and on one that has no library for each reason that it knows.
plugin() {
    echo "== kubectl ginnel status"
    kubectl ginnel status -A | tee "$work/plugin"
    grep -A 3 '^== shop/redis, container main, node ginnel-node$' "$work/plugin" | grep -q '^Segments in' ||
        fail "the plugin shows nothing of a pod that has the library"
    says 'it asks for no group'
    kubectl annotate pod -n plain client ginnel.dev/group=late
    says 'it asks for group late, and was given nothing'
    kubectl annotate pod -n plain client ginnel.dev/exclude=other,main
    says 'ginnel.dev/exclude names it'
    kubectl annotate pod -n plain client ginnel.dev/inject=false
    says 'the pod is left out'
    ! kubectl ginnel status -n plain none || fail "the plugin knows of a pod that is not there"
}

# says WHAT: the plugin says it of the pod that has no library.
says() {
    kubectl ginnel status client -n plain --node "$node" >"$work/plugin"
    grep -q "^Not carried: .*$1" "$work/plugin" || { cat "$work/plugin"; fail "the plugin does not say: $1"; }
}

agents() { kubectl get pod -n "$agents_in" -l app.kubernetes.io/name=ginnel-agent -o name; }

restarts() {
    echo "== the server's container is restarted"
    kubectl exec -n shop redis -- redis-cli shutdown nosave || true
    until_true 60 was_restarted
    until_true 60 kubectl exec -n shop client -- redis-cli -h "$service" ping
    seen shop client
    carried_by_ring || fail "a container that was restarted is not carried"
    echo "== the agent is upgraded"
    goes_on replace "$(agents)" helm upgrade ginnel "$here/chart" -n ginnel-system --set broker.pairs=128
    echo "== the agent's pod is deleted"
    goes_on replace "$(agents)" kubectl delete -n "$agents_in" "$(agents)"
    seen shop client
    carried_by_ring || fail "with a new agent, nothing is carried"
}

was_restarted() { [[ $(kubectl get pod -n shop redis -o jsonpath='{.status.containerStatuses[0].restartCount}') = 1 ]]; }

# replace AGENT COMMAND… has another agent take that one's place.
replace() {
    "${@:2}"
    kubectl rollout status -n "$agents_in" daemonset/ginnel-agent --timeout=240s
    until_true 60 is_replaced "$1"
    until_true 60 registered
}

is_replaced() {
    local now
    now=$(agents)
    [[ -n $now && $now != *"$1"* && $now != *$'\n'* ]]
}

# A pod that writes more than its volume may hold is evicted while it uses the Service.
eviction() {
    echo "== eviction"
    pod shop greedy sleep infinity | kubectl apply -f -
    kubectl wait -n shop --for=condition=Ready pod/greedy --timeout=240s
    load shop greedy 300 &
    local load=$!
    goes_on evict
    wait "$load" || true
    kubectl get pod -n shop greedy -o jsonpath='{.status.reason}: {.status.message}{"\n"}'
    pod shop after sleep infinity | kubectl apply -f -
    kubectl wait -n shop --for=condition=Ready pod/after --timeout=240s
    seen shop after
    carried_by_ring || fail "a pod that started after the eviction is not carried"
}

evict() {
    kubectl exec -n shop greedy -- dd if=/dev/zero of=/tmp/much bs=1M count=40
    until_true 90 is_evicted
}

is_evicted() { [[ $(kubectl get pod -n shop greedy -o jsonpath='{.status.reason}') = Evicted ]]; }

# The chart is taken away; then it comes by its manifests alone, without Helm on the cluster.
manifests() {
    echo "== the chart is taken away"
    goes_on taken_away
    kubectl exec -n shop client -- redis-cli -h "$service" ping
    echo "== the chart's manifests"
    agents_in=ginnel
    kubectl apply -f "$here/namespace.yaml"
    helm template ginnel "$here/chart" -n ginnel --validate | kubectl apply -f -
    agent_works
    seen shop client
    carried_by_ring || fail "with the manifests' agent, nothing is carried"
}

taken_away() {
    helm uninstall ginnel -n ginnel-system --wait
    until_true 60 is_gone
}

is_gone() { [[ -z $(agents) ]]; }

inside() {
    mount --make-rprivate /
    mount -t tmpfs tmpfs /run
    mount --bind "$work/lib" /var/lib
    mount --bind "$work/log" /var/log
    export PATH=$here:$cache/bin:$PATH HELM_CACHE_HOME=$work/helm HELM_CONFIG_HOME=$work/helm HELM_DATA_HOME=$work/helm
    ip link set lo up
    network
    pretend_settings
    control_plane
    start_node
    chart
    pods
    groups
    web
    plugin
    restarts
    eviction
    manifests
    echo "== the agent"
    kubectl logs -n "$agents_in" daemonset/ginnel-agent
    echo "kubernetes/cluster.sh: passed"
}

case ${1:-} in
    inside) inside ;;
    '') within "$here/cluster.sh" 1800 ;;
    *) fail "usage: kubernetes/cluster.sh" ;;
esac
