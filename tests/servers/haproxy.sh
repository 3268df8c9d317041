#!/bin/sh
# HAProxy in front of nginx: splicing, and reloads that hand the listening sockets to the next process.
. "${0%/*}/lib.sh"
needs haproxy nginx wrk curl
version haproxy -v
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
    # By -auto it would not, for a client this near.
    option splice-request
    option splice-response
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

# Pipes are what it splices through; those that it made it keeps.
spliced() {
    python3 - "$TMPDIR/control" <<'P'
import socket, sys
control = socket.socket(socket.AF_UNIX)
control.connect(sys.argv[1])
control.sendall(b'show info\n')
told = dict(line.split(': ', 1) for line in control.makefile() if ': ' in line)
print({name: told[name] for name in told if name.startswith('Pipes')})
sys.exit(int(told['PipesUsed']) + int(told['PipesFree']) == 0)
P
}

# The listening socket's inode: another one would have refused connections in between.
listener() { awk -v at="$(printf ':%04X' "$port")" '$4 == "0A" && index($2, at) { print $10 }' /proc/net/tcp; }

# Files go through old processes and new ones while one hands over to the next.
reloaded() {
    before=$(listener)
    large &
    files=$!
    load_and_signal "http://$address:$port/small" 32 "$haproxy" USR2 2.5 || return 1
    wait "$files" || return 1
    echo "the listening socket: $before, then $(listener)"
    [ -n "$before" ] && [ "$(listener)" = "$before" ]
}

start nginx -e stderr -p "$TMPDIR" -c "$TMPDIR/nginx.conf"
check "nginx listens" listening "$behind"
start haproxy -W -f "$TMPDIR/haproxy.cfg"
haproxy=${started%% *}
check "haproxy listens" listening "$port"
check "100 MB, five times" large
check "by splice" spliced
check "reloaded under load, with files under way" reloaded
check "still answers" curl -fsS "http://$address:$port/small"
