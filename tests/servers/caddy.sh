#!/bin/sh
# Caddy, an HTTP server in Go, from Go's module proxy: pages and a large file, by clients in C.
. "${0%/*}/lib.sh"
# Heard where the script runs under the library: its programs are reached.
export GINNEL_GO=1
needs go wrk curl
port=$(port)
fetched() {
    env GOBIN="$TMPDIR/bin" GOFLAGS= GOTOOLCHAIN=local CGO_ENABLED=0 go install github.com/caddyserver/caddy/v2/cmd/caddy@v2.11.9
}
if ! fetched >"$TMPDIR/fetched" 2>&1; then
    tail -n 3 "$TMPDIR/fetched" | sed 's/^/# /'
    echo "ok 1 - all # SKIP Go's module proxy does not have it"
    exit 0
fi
version "$TMPDIR/bin/caddy" version
mkdir "$TMPDIR/www"
head -c 1024 /dev/urandom >"$TMPDIR/www/page"
head -c 100000000 /dev/urandom >"$TMPDIR/www/large"
cat >"$TMPDIR/Caddyfile" <<C
{
	admin off
	auto_https off
}
http://$address:$port {
	root * $TMPDIR/www
	file_server
}
C
loaded() {
    wrk -t 2 -c 16 -d "$((seconds / 2))" --timeout 20s "http://$address:$port/page" >"$TMPDIR/wrk" && wrk_was_well "$TMPDIR/wrk"
}
large() {
    for _ in 1 2 3 4 5; do curl -sS "http://$address:$port/large" | cmp - "$TMPDIR/www/large" || return 1; done
}
export HOME="$TMPDIR"
start "$TMPDIR/bin/caddy" run --config "$TMPDIR/Caddyfile" --adapter caddyfile
check "listens" listening "$port"
check "16 connections" loaded
check "100 MB, five times" large
check "still answers" curl -fsS -o "$TMPDIR/again" "http://$address:$port/page"
