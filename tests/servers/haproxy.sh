#!/bin/sh
# HAProxy in front of nginx: splicing, and reloads that hand the listening sockets to the next process.
. "${0%/*}/lib.sh"
needs haproxy nginx wrk curl
port=$(port)
behind=$(port)
mkdir "$TMPDIR/www"
echo small >"$TMPDIR/www/small"
head -c 100000000 /dev/urandom >"$TMPDIR/www/large"
nginx_conf "$behind" 1
cat >"$TMPDIR/haproxy.cfg" <<C
global
    maxconn 400
    stats socket $TMPDIR/control mode 600 level admin expose-fd listeners
defaults
    mode http
    option splice-auto
    timeout connect 10s
    timeout client 30s
    timeout server 30s
frontend front
    bind $address:$port
    default_backend back
backend back
    server one $address:$behind
C

large() {
    wanted=$(sha256sum <"$TMPDIR/www/large")
    for _ in 1 2 3 4 5; do
        [ "$(curl -sS "http://$address:$port/large" | sha256sum)" = "$wanted" ] || return 1
    done
}

start nginx -e stderr -p "$TMPDIR" -c "$TMPDIR/nginx.conf"
check "nginx listens" listening "$behind"
start haproxy -W -f "$TMPDIR/haproxy.cfg"
haproxy=${started%% *}
check "haproxy listens" listening "$port"
check "100 MB, five times" large
check "reloaded under load" load_and_signal "http://$address:$port/small" 32 "$haproxy" USR2 2.5
check "still answers" curl -fsS "http://$address:$port/small"
