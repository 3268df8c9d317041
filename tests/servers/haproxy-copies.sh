#!/bin/sh
# HAProxy in front of nginx as it is by default: it reads and writes. (haproxy.sh has it splice.)
. "${0%/*}/lib.sh"
needs haproxy nginx wrk curl
version haproxy -v
port=$(port)
through=$(port)
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
    timeout connect 10s
    timeout client 30s
    timeout server 30s
frontend requests
    mode http
    bind $address:$port
    default_backend pool
backend pool
    mode http
    http-reuse always
    server one $address:$behind
frontend streams
    mode tcp
    bind $address:$through
    default_backend straight
backend straight
    mode tcp
    server one $address:$behind check inter 500ms
C

large() {
    for _ in 1 2 3; do
        curl -fsS "http://$address:$1/large" | cmp - "$TMPDIR/www/large" || return 1
    done
}

start nginx -e stderr -p "$TMPDIR" -c "$TMPDIR/nginx.conf"
check "nginx listens" listening "$behind"
start haproxy -W -f "$TMPDIR/haproxy.cfg"
haproxy=${started%% *}
check "haproxy listens" listening "$port"
check "requests: 100 MB, three times" large "$port"
check "streams: 100 MB, three times" large "$through"
seconds=$((seconds / 2))
check "requests: reloaded under load" load_and_signal "http://$address:$port/small" 32 "$haproxy" USR2 2.5
check "streams: reloaded under load" load_and_signal "http://$address:$through/small" 32 "$haproxy" USR2 2.5
check "100 MB again" large "$port"
