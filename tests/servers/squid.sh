#!/bin/sh
# squid before nginx: its own cache, a pool of connections behind it, tunnels, and a new configuration under load.
. "${0%/*}/lib.sh"
needs squid nginx ab curl
version squid -v
port=$(port)
behind=$(port)
mkdir "$TMPDIR/www"
echo small >"$TMPDIR/www/small"
head -c 100000000 /dev/urandom >"$TMPDIR/www/large"
nginx_conf "$behind" 1
cat >"$TMPDIR/squid.conf" <<C
http_port $address:$port
http_access allow all
cache_mem 64 MB
maximum_object_size_in_memory 1 MB
pid_filename $TMPDIR/squid.pid
access_log none
cache_log $TMPDIR/cache.log
coredump_dir $TMPDIR
shutdown_lifetime 1 second
netdb_filename none
pinger_enable off
visible_hostname front
cache_effective_user $(id -un)
C

# large [-p]: by a tunnel.
large() {
    for _ in 1 2 3; do
        curl -fsS "$@" -x "http://$address:$port" "http://$address:$behind/large" | cmp - "$TMPDIR/www/large" || return 1
    done
}

load() {
    ab -k -c 16 -t "$((seconds / 2))" -n 10000000 -X "$address:$port" "http://$address:$behind/$1" >"$TMPDIR/ab" 2>&1 || return 1
    cat "$TMPDIR/ab"
    grep -q 'Failed requests: *0$' "$TMPDIR/ab" && ! grep -q 'Non-2xx' "$TMPDIR/ab"
}

# Meanwhile it does not listen for a moment.
configured() {
    (for _ in 1 2 3; do sleep 1; kill -HUP "$squid"; done) &
    load "small?again" && wait $! && sleep 1 && listening "$port"
}

start nginx -e stderr -p "$TMPDIR" -c "$TMPDIR/nginx.conf"
start squid -N -f "$TMPDIR/squid.conf"
squid=${started%% *}
check "nginx listens" listening "$behind"
check "squid listens" listening "$port"
check "100 MB, three times" large
check "100 MB by a tunnel, three times" large -p
check "from its cache" load small
check "configured anew under load" configured
check "100 MB again" large
