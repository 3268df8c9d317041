#!/bin/sh
# nginx with several workers, reloaded under load: every answer is one, and a large file arrives whole.
. "${0%/*}/lib.sh"
needs nginx wrk curl
version nginx -v
port=$(port)
mkdir "$TMPDIR/www"
echo small >"$TMPDIR/www/small"
head -c 200000000 /dev/urandom >"$TMPDIR/www/large"
nginx_conf "$port" 4 reuseport

large() {
    wanted=$(sha256sum <"$TMPDIR/www/large")
    for _ in 1 2 3 4 5; do
        [ "$(curl -sS "http://$address:$port/large" | sha256sum)" = "$wanted" ] || return 1
    done
    curl -sS "http://$address:$port/large" "http://$address:$port/large" | cmp - "$TMPDIR/twice"
}

start nginx -e stderr -p "$TMPDIR" -c "$TMPDIR/nginx.conf"
nginx=${started%% *}
check "listens" listening "$port"
check "reloaded every second under load" load_and_signal "http://$address:$port/small" 32 "$nginx" HUP 0.9
cat "$TMPDIR/www/large" "$TMPDIR/www/large" >"$TMPDIR/twice"
check "200 MB by sendfile, seven times" large
check "still answers" curl -fsS "http://$address:$port/small"
