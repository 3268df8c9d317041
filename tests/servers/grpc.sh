#!/bin/sh
# gRPC-Go's own benchmark: calls of one answer and streams, over one connection and over many.
. "${0%/*}/lib.sh"
needs_go grpc-server grpc-client
port=$(port)
version echo "$GO_MODULE"
# Both write profiles below /tmp, under the test's name.
profile="../${TMPDIR#/}"
called() {
    load=$1
    shift
    grpc-client -port "$port" -test_name "$profile/$load" -w 1 -d "$((seconds / 4 + 1))" "$@" >"$TMPDIR/$load.out" 2>&1
    code=$?
    cat "$TMPDIR/$load.out"
    [ "$code" = 0 ] && grep -Eq 'qps: *[1-9]' "$TMPDIR/$load.out"
}
start grpc-server -port "$port" -test_name "$profile/server"
check "listens" listening "$port"
check "one call at a time" called one -c 1 -r 1 -req 64 -resp 64
check "64 connections" called many -c 64 -r 1 -req 64 -resp 64
check "64 calls on a connection" called shared -c 1 -r 64 -req 64 -resp 64
check "answers of 64 KiB" called large -c 4 -r 4 -req 64 -resp 65536
