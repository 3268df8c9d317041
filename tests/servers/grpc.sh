#!/bin/sh
# gRPC-Go's own benchmark: calls of one answer and streams, over one connection and over many. From Go's
# module proxy. Both programs are static, and so reached by the loader alone.
. "${0%/*}/lib.sh"
# Heard where the script runs under the library: its programs are reached.
export GINNEL_GO=1
needs go
port=$(port)
fetched() {
    grpc=google.golang.org/grpc
    env GOBIN="$TMPDIR/bin" GOFLAGS= GOTOOLCHAIN=local CGO_ENABLED=0 \
        go install "$grpc/benchmark/server@v1.85.0" "$grpc/benchmark/client@v1.85.0"
}
if ! fetched >"$TMPDIR/fetched" 2>&1; then
    tail -n 3 "$TMPDIR/fetched" | sed 's/^/# /'
    echo "ok 1 - all # SKIP Go's module proxy does not have it"
    exit 0
fi
version echo "gRPC-Go 1.85.0, $(go version)"
# Both write profiles below /tmp, under the test's name.
profile="../${TMPDIR#/}"
called() {
    load=$1
    shift
    "$TMPDIR/bin/client" -port "$port" -test_name "$profile/$load" -w 1 -d "$((seconds / 4 + 1))" "$@" >"$TMPDIR/$load.out" 2>&1
    code=$?
    cat "$TMPDIR/$load.out"
    [ "$code" = 0 ] && grep -Eq 'qps: *[1-9]' "$TMPDIR/$load.out"
}
start "$TMPDIR/bin/server" -port "$port" -test_name "$profile/server"
check "listens" listening "$port"
check "one call at a time" called one -c 1 -r 1 -req 64 -resp 64
check "64 connections" called many -c 64 -r 1 -req 64 -resp 64
check "64 calls on a connection" called shared -c 1 -r 64 -req 64 -resp 64
check "answers of 64 KiB" called large -c 4 -r 4 -req 64 -resp 65536
