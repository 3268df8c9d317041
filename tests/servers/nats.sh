#!/bin/sh
# NATS, a server in Go, with the load of its own client library: messages published to subscribers, requests
# answered. Both from Go's module proxy.
. "${0%/*}/lib.sh"
# Heard where the script runs under the library: its programs are reached.
export GINNEL_GO=1
needs go
port=$(port)
fetched() {
    env GOBIN="$TMPDIR/bin" GOFLAGS= GOTOOLCHAIN=local CGO_ENABLED=0 \
        go install github.com/nats-io/nats-server/v2@v2.15.2 || return 1
    env GOBIN="$TMPDIR/bin" GOFLAGS= GOTOOLCHAIN=local CGO_ENABLED=0 \
        go install github.com/nats-io/nats.go/examples/nats-bench@v1.55.0
}
if ! fetched >"$TMPDIR/fetched" 2>&1; then
    tail -n 3 "$TMPDIR/fetched" | sed 's/^/# /'
    echo "ok 1 - all # SKIP Go's module proxy does not have it"
    exit 0
fi
version "$TMPDIR/bin/nats-server" --version
bench() { "$TMPDIR/bin/nats-bench" -s "nats://$address:$port" "$@"; }
repeated() {
    end=$(($(date +%s) + seconds / 3))
    while [ "$(date +%s)" -lt "$end" ]; do bench "$@" || return 1; done
}
start "$TMPDIR/bin/nats-server" -a "$address" -p "$port"
check "listens" listening "$port"
check "one publisher, four subscribers" repeated -np 1 -ns 4 -n 100000 -ms 128 one
check "eight publishers, eight subscribers" repeated -np 8 -ns 8 -n 40000 -ms 16 eight
check "messages of 64 KiB" repeated -np 2 -ns 2 -n 2000 -ms 65536 large
