#!/usr/bin/env bash
# Frames a second through ginnel-switch, from one port to another and back, beside DPDK's testpmd
# as the forwarder (io: without a look at the frame; mac: with one) and Open vSwitch over DPDK (it
# learns addresses, as the switch does), in turn, on one processor; the generator is testpmd with
# virtio_user on another. The generator has two ports, which send to each other: two flows; for four,
# two such pairs. Then one frame in flight each way: polling, and asleep between frames. Then what the
# host's processors do for frames at fixed rates, beside a bridge of the kernel's with taps. Then two
# switches as two hosts, by libfabric over TCP on loopback, beside libfabric's own latency. Prints
# tables; every figure is the median of its rounds.
#
#   scripts/bench-switch.sh [ROUNDS]          (3; after `cargo build --release -p ginnel-switch`)
#
# Open vSwitch (Debian's openvswitch-switch-dpdk) runs with a database and sockets of its own; it is
# left out where it is not installed, and where it does not come up, with what it said. No huge
# pages are needed.
# FORWARDER_CPU and GENERATOR_CPU (1 and 0) choose the processors, SECONDS_EACH (4) for how long each run
# is measured, SIZES ("64 512 1500 9000") of which frames. A machine that does something else beside it measures that: compare columns, not runs.
# Each background job is a process group of its own, and is ended as one, by INT. Where this script was
# started in the background of another, INT is ignored, by it and all it starts: it takes that back.
[[ -n ${INT_ENDS-} ]] || INT_ENDS=1 exec env --default-signal=INT bash "$0" "$@"
set -euo pipefail -m
cd "$(dirname "${BASH_SOURCE[0]}")/.."

rounds=${1:-3} each=${SECONDS_EACH:-4}
forwarder_cpu=${FORWARDER_CPU:-1} generator_cpu=${GENERATOR_CPU:-0}
switch=${CARGO_TARGET_DIR:-target}/release/ginnel-switch
[[ -x $switch ]] || { echo "$switch is missing: cargo build --release -p ginnel-switch" >&2; exit 1; }
command -v dpdk-testpmd >/dev/null || { echo "dpdk-testpmd is missing: scripts/install-deps.sh switch" >&2; exit 1; }

work=$(mktemp -d)
ovs=/usr/lib/openvswitch-switch-dpdk/ovs-vswitchd-dpdk
forwarder= database=
stop() {
    if [[ -n $forwarder ]]; then
        kill -INT -- "-$forwarder" 2>/dev/null || true
        wait "$forwarder" 2>/dev/null || true
        forwarder=
    fi
    if [[ -n $database ]]; then
        kill -- "-$database" 2>/dev/null || true
        wait "$database" 2>/dev/null || true
        database=
    fi
}
trap 'stop; rm -rf "$work"' EXIT

testpmd() {  # cpu prefix arguments…
    local cpu=$1 prefix=$2
    shift 2
    timeout --signal=INT --kill-after=5 120 dpdk-testpmd --no-huge -m 512 --no-pci \
        --lcores "0@$cpu,1@$cpu" --file-prefix "$prefix-$$" "$@"
}

# Open vSwitch with one thread for frames, on the forwarder's processor, and a bridge that learns.
# --no-huge gives DPDK memory that has no physical addresses, which vhost-user ports do not need;
# buffers of each port (and not 262144 for all) go into it.
start_ovs() {  # size
    export OVS_RUNDIR=$work/ovs OVS_LOGDIR=$work/ovs OVS_DBDIR=$work/ovs OVS_SYSCONFDIR=$work/ovs
    rm -rf "$work/ovs"
    mkdir "$work/ovs"
    ovsdb-tool create "$work/ovs/conf.db" /usr/share/openvswitch/vswitch.ovsschema
    ovsdb-server "$work/ovs/conf.db" --remote="punix:$work/ovs/db.sock" 2>>"$work/log" &
    database=$!
    local tries mtu=() vsctl=(ovs-vsctl --timeout=30 --db="unix:$work/ovs/db.sock")
    for tries in $(seq 100); do
        [[ ! -S $work/ovs/db.sock ]] || break
        sleep 0.1
    done
    "${vsctl[@]}" --no-wait set Open_vSwitch . other_config:dpdk-init=true \
        "other_config:dpdk-extra=--no-huge --legacy-mem -m 1024 --no-pci --file-prefix ovs-$$" \
        other_config:per-port-memory=true \
        "other_config:pmd-cpu-mask=$(printf '%x' $((1 << forwarder_cpu)))" -- \
        add-br bench -- set bridge bench datapath_type=netdev other_config:mac-table-size=4096
    # The generator connects to these sockets, as to the others'.
    "$ovs" "unix:$work/ovs/db.sock" --pidfile="$work/ovs/pid" --log-file="$work/ovs/log" 2>>"$work/log" &
    forwarder=$!
    local port
    (($1 <= 1500)) || mtu=("mtu_request=$1")
    for port in "${names[@]}"; do
        "${vsctl[@]}" add-port bench "$port.sock" -- set interface "$port.sock" type=dpdkvhostuser "${mtu[@]}"
    done
    for port in "${names[@]}"; do
        ln -sf "$work/ovs/$port.sock" "$work/$port.sock"
    done
}

names=(a b)

# What testpmd needs for frames of this size.
large() {
    (($1 <= 1518)) || echo "--mbuf-size=$(($1 + 512)) --max-pkt-len=$(($1 + 18))"
}

start() {  # kind size: what listens at $work/a.sock, b.sock …, as many as there are names
    local name ports=(--run-dir "$work") devices=() vhosts=0
    for name in "${names[@]}"; do
        ports+=(--port "$name:$work/$name.sock")
        devices+=(--vdev "net_vhost$((vhosts++)),iface=$work/$name.sock")
    done
    rm -f "$work"/*.sock
    case $1 in
        switch) taskset -c "$forwarder_cpu" "$switch" --busy "${ports[@]}" 2>"$work/log" & ;;
        asleep)
            printf 'run_dir = "%s"\nmetrics = "off"\npoll_us = 0\n[port.a]\n[port.b]\n' "$work" >"$work/toml"
            taskset -c "$forwarder_cpu" "$switch" --config "$work/toml" 2>"$work/log" & ;;
        io|mac)
            # It ends with its standard input.
            testpmd "$forwarder_cpu" forwarder \
                "${devices[@]}" -- $(large "$2") \
                --total-num-mbufs=16384 --forward-mode="$1" --auto-start \
                < <(sleep 120) >"$work/log" 2>&1 & ;;
        ovs) : >"$work/log"; start_ovs "$2" ;;
    esac
    [[ $1 == ovs ]] || forwarder=$!
    local tries
    for tries in $(seq 100); do
        for name in "${names[@]}"; do
            [[ -S $work/$name.sock ]] || break
        done
        [[ ! -S $work/$name.sock ]] || return 0
        sleep 0.1
    done
    cat "$work/log" >&2
    stop
    return 1
}

# How many frames the switch found at once, so far.
at_once() {
    "$switch" status --json --control "$work/control.sock" | grep -o '"\(sent_frames\|bursts\)":[0-9]*' |
        awk -F: '{ all[$1] += $2 } END { n = all["\"bursts\""]; printf "%.1f\n", n ? all["\"sent_frames\""] / n : 0 }'
}

# Frames a second, all flows together, with so many bursts of so many frames on their way.
measure() {  # kind size burst bursts
    start "$1" "$2"
    local user=queue_size=1024,mac=02:00:00:00:00:0 cards=() peers=() at
    for at in "${!names[@]}"; do
        cards+=(--vdev "net_virtio_user$at,path=$work/${names[at]}.sock,$user$at")
        # Port 0 and port 1 are a pair, and so are 2 and 3.
        peers+=("--eth-peer=$at,02:00:00:00:00:0$((at ^ 1))")
    done
    mkfifo "$work/say"
    testpmd "$generator_cpu" generator "${cards[@]}" -- -i \
        --total-num-mbufs=16384 $(large "$2") --burst="$3" --txpkts="$2" --forward-mode=mac \
        "${peers[@]}" \
        <"$work/say" >"$work/generator" 2>&1 &
    local generator=$! tries
    exec 3>"$work/say"
    for tries in $(seq 300); do
        ! grep -qa 'testpmd>' "$work/generator" || break
        sleep 0.1
    done
    # Open vSwitch takes frames once it has noticed both devices, which it does in its own time: what
    # is sent before is lost, and then nothing is under way.
    for tries in $(seq 200); do
        [[ $1 == ovs ]] || break
        (($(grep -ca 'vHost Device.*has been added' "$work/ovs/log") < ${#names[@]})) || break
        sleep 0.1
    done
    echo "start tx_first $4" >&3
    sleep 1
    echo "show port stats all" >&3
    sleep "$each"
    echo "show port stats all" >&3
    sleep 0.2
    [[ $1 != switch ]] || at_once >>"$work/bursts-$2-${#names[@]}"
    printf 'stop\nquit\n' >&3
    exec 3>&-
    wait "$generator" || true
    stop
    rm -f "$work/say"
    # The second look at each port says what came since the first.
    awk -v ports="${#names[@]}" '/Rx-pps:/ && ++n > ports { all += $2 } END { printf "%d\n", all }' \
        "$work/generator"
}

median() { sort -n | awk '{ v[NR] = $1 } END { print v[int((NR + 1) / 2)] }'; }

kinds=(switch io mac) one=(switch asleep io mac)
if [[ ! -x $ovs ]]; then
    echo "Open vSwitch: not measured (openvswitch-switch-dpdk is not installed: scripts/install-deps.sh switch)" >&2
elif ! start ovs 64; then
    echo "Open vSwitch: not measured, as it does not come up here" >&2
else
    stop
    kinds+=(ovs) one+=(ovs)
fi
declare -A label=([switch]=switch [io]="testpmd io" [mac]="testpmd mac" [ovs]="OVS-DPDK")
echo "millions of frames a second (all flows together), median of $rounds rounds in turn"
printf '%-18s' ""
for kind in "${kinds[@]}"; do printf ' %12s' "${label[$kind]}"; done
echo
row() {  # size label
    local round kind
    for round in $(seq "$rounds"); do
        for kind in "${kinds[@]}"; do
            measure "$kind" "$1" 32 16 >>"$work/$kind-$1-${#names[@]}"
        done
    done
    printf '%-18s' "$2"
    for kind in "${kinds[@]}"; do
        median <"$work/$kind-$1-${#names[@]}" | awk '{ printf " %12.2f", $1 / 1e6 }'
    done
    echo
    # What scatters from run to run: does it go with how many frames are found at once?
    paste "$work/switch-$1-${#names[@]}" "$work/bursts-$1-${#names[@]}" |
        awk '{ printf "%s %.2f at %s", NR == 1 ? "    switch, each run:" : ",", $1 / 1e6, $2 }'
    echo " frames a burst"
}
for size in ${SIZES:-64 512 1500 9000}; do
    row "$size" "$size bytes"
done
names=(a b c d)
row 64 "64 bytes, 4 flows"
names=(a b)
echo "microseconds from port to port, one frame in flight each way"
label+=([switch]="switch, polling" [asleep]="switch, asleep")
for round in $(seq "$rounds"); do
    for kind in "${one[@]}"; do
        measure "$kind" 64 1 1 >>"$work/$kind-one"
    done
done
for kind in "${one[@]}"; do
    # Two frames are under way, so each takes two of the times between frames.
    median <"$work/$kind-one" | awk -v l="${label[$kind]}" '{ printf "%-18s %10.2f\n", l, $1 ? 2e6 / $1 : 0 }'
done

examples=${CARGO_TARGET_DIR:-target}/release/examples
if [[ -x $examples/rates ]]; then
    "$examples/rates" "$rounds" 2>/dev/null
else
    echo "fixed rates: not measured (cargo build --release -p ginnel-switch --example rates)" >&2
fi
hosts=$examples/hosts
if [[ ! -x $hosts ]]; then
    echo "two hosts: not measured (cargo build --release -p ginnel-switch --example hosts)" >&2
    exit 0
fi
for round in $(seq "$rounds"); do
    for kind in open secret; do
        # "   64 bytes:  8.38" under its headline.
        timeout 120 "$hosts" "$kind" 2>/dev/null | awk -v k="$work/$kind" '
            /alone/ { part = "-alone-" } /in flight/ { part = "-us-" } /millions/ { part = "-many-" }
            $2 == "bytes:" { print $3 >> (k part $1); if ($4) print $4, $5 >> (k "-cost-" $1) }'
    done
done
echo "two hosts (two switches, libfabric over TCP on loopback): microseconds one way, one frame in flight"
for file in {open-alone,open-us,secret-us}-{64,1514}; do
    kind=${file%%-*}
    [[ $file != *-alone-* ]] || kind="libfabric alone"
    label="${file##*-} bytes, $kind"
    median <"$work/$file" | awk -v l="$label" '{ printf "%-28s %10.2f\n", l, $1 }'
done
echo "two hosts: millions of frames a second one way, and nanoseconds of sender and receiver for each"
for size in 64 512 1514; do
    for kind in open secret; do
        cost=$(for column in 1 2; do cut -d' ' -f"$column" "$work/$kind-cost-$size" | median; done)
        median <"$work/$kind-many-$size" |
            awk -v l="$size bytes, $kind" -v c="$cost" '{ split(c, n); printf "%-18s %10.3f %8.0f %8.0f\n", l, $1, n[1], n[2] }'
    done
done
