#!/bin/sh
# etcd, a server in Go with its own client: keys put and read by several clients at once, a watch that hears
# of each, a snapshot, and the load of its own benchmark.
. "${0%/*}/lib.sh"
needs_go etcd etcdctl etcd-benchmark
version etcd --version
port=$(port)
peers=$(port)
export ETCDCTL_API=3
ctl() { etcdctl --endpoints "http://$address:$port" --command-timeout 20s "$@"; }

healthy() {
    for _ in $(seq 100); do ctl endpoint health 2>/dev/null && return 0; sleep 0.1; done
    return 1
}

# Many keys through one connection: transactions from a file, each read back.
puts() {
    end=$(($(date +%s) + seconds / 3))
    round=0
    while [ "$(date +%s)" -lt "$end" ]; do
        round=$((round + 1))
        for key in 1 2 3 4 5 6 7 8; do
            printf '\nput load/%s/%s %s-%s\n\n\n' "$1" "$key" "$round" "$key" | ctl txn -i >/dev/null || return 1
            [ "$(ctl get --print-value-only "load/$1/$key")" = "$round-$key" ] || return 1
        done
    done
    echo "client $1: $round rounds"
}

all_put() {
    waited=
    for client in 1 2 3 4; do
        puts "$client" &
        waited="$waited $!"
    done
    for pid in $waited; do wait "$pid" || return 1; done
}

# etcd's own load: some seconds of puts by many clients, on connections that stay. How fast it finds the machine does
# not matter.
perf() {
    ctl check perf --load s --prefix "perf-$$/" >"$TMPDIR/perf" 2>"$TMPDIR/perf.progress"
    cat "$TMPDIR/perf"
    grep -Eq 'Throughput (is|too low:) [1-9]' "$TMPDIR/perf" && ! grep -q 'ERROR(' "$TMPDIR/perf"
}

heard() {
    ctl watch --prefix seen/ >"$TMPDIR/heard" &
    watch=$!
    sleep 1
    for key in $(seq 200); do ctl put "seen/$key" "value $key" >/dev/null || return 1; done
    sleep 1
    kill "$watch"
    wait "$watch"
    [ "$(grep -c '^value ' "$TMPDIR/heard")" = 200 ]
}

# Its benchmark, with many clients on some connections: says how many answers it had, and no error.
measured() {
    etcd-benchmark --endpoints "http://$address:$port" --conns 8 --clients 64 "$@" >"$TMPDIR/measured" 2>&1 || return 1
    cat "$TMPDIR/measured"
    grep -q 'Requests/sec' "$TMPDIR/measured" && ! grep -q 'Error distribution' "$TMPDIR/measured"
}

saved() { ctl snapshot save "$TMPDIR/snapshot" && ctl snapshot status "$TMPDIR/snapshot"; }

start etcd --data-dir "$TMPDIR/etcd" --listen-client-urls "http://$address:$port" --advertise-client-urls "http://$address:$port" \
    --listen-peer-urls "http://$address:$peers" --initial-advertise-peer-urls "http://$address:$peers" \
    --initial-cluster "default=http://$address:$peers" --unsafe-no-fsync
check "is healthy" healthy
check "four clients put and read" all_put
check "etcd's own load" perf
check "a watch hears of 200 keys" heard
check "a snapshot" saved
check "its benchmark puts" measured put --total "$((seconds * 100))" --val-size 300 --sequential-keys
check "its benchmark reads" measured range --total "$((seconds * 100))" foo
