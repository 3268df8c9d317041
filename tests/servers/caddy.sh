#!/bin/sh
# Caddy, an HTTP server in Go: pages and a large file, by clients in C.
. "${0%/*}/lib.sh"
needs_go caddy
needs wrk curl cmp
port=$(port)
version echo "$GO_MODULE"
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
start caddy run --config "$TMPDIR/Caddyfile" --adapter caddyfile
check "listens" listening "$port"
check "16 connections" loaded
check "100 MB, five times" large
check "still answers" curl -fsS -o "$TMPDIR/again" "http://$address:$port/page"
