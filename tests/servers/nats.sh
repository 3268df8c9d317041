#!/bin/sh
# NATS, a server in Go, with the load of its own client library: messages published to subscribers, requests
# answered.
. "${0%/*}/lib.sh"
needs_go nats-server nats-bench
port=$(port)
version nats-server --version
bench() { nats-bench -s "nats://$address:$port" "$@"; }
repeated() {
    end=$(($(date +%s) + seconds / 3))
    while [ "$(date +%s)" -lt "$end" ]; do bench "$@" || return 1; done
}
start nats-server -a "$address" -p "$port"
check "listens" listening "$port"
check "one publisher, four subscribers" repeated -np 1 -ns 4 -n 100000 -ms 128 one
check "eight publishers, eight subscribers" repeated -np 8 -ns 8 -n 40000 -ms 16 eight
check "messages of 64 KiB" repeated -np 2 -ns 2 -n 2000 -ms 65536 large
