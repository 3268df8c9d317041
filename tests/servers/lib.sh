# What the scripts in this folder share. Each starts a real server with its own client in TMPDIR, loads it, checks what came of it,
# and tells each check as a line of TAP. Part of `make conformance`, which runs each plainly and under the shim.
set -u
PATH=$PATH:/usr/sbin:/sbin
seconds=${LOAD_SECONDS:-120}
address=127.0.0.1
number=0
servers=0
started=

# A script whose programs are not installed.
needs() {
    for program; do
        command -v "$program" >/dev/null || { echo "ok 1 - all # SKIP no $program"; exit 0; }
    done
}

# A script whose programs in Go were not built: tests/src/conformance/servers.rs says what, where it is put
# (GO_PROGRAMS), and of which module and version it is (GO_MODULE).
needs_go() {
    for program; do
        [ -x "${GO_PROGRAMS-}/$program" ] || { echo "ok 1 - all # SKIP no $program in GO_PROGRAMS"; exit 0; }
    done
    PATH=$GO_PROGRAMS:$PATH
}

# check NAME COMMAND…: the command must succeed; else its last words follow.
check() {
    number=$((number + 1))
    name=$1
    shift
    if "$@" >"$TMPDIR/log.$number" 2>&1; then
        echo "ok $number - $name"
    else
        echo "not ok $number - $name"
        tail -n 20 "$TMPDIR/log.$number" | sed 's/^/# /'
    fi
}

# skip NAME WHY: a check that would say nothing here.
skip() {
    number=$((number + 1))
    echo "ok $number - $1 # SKIP $2"
}

# version COMMAND…: the first line that it prints, warnings aside, names what is tested.
version() {
    echo "# version: $("$@" 2>&1 | grep -v Warning | head -n 1)"
}

# start COMMAND…: in the background, ended with the script.
start() {
    servers=$((servers + 1))
    "$@" >"$TMPDIR/server.$servers.${1##*/}.log" 2>&1 &
    started="$! $started"
}

end() {
    for pid in $started; do kill "$pid" 2>/dev/null; done
    for pid in $started; do wait "$pid" 2>/dev/null; done
}
trap end EXIT
trap 'exit 143' TERM

# wrk_was_well FILE: it had answers, each of them one, and none too late. (A connection that is closed between two requests is within HTTP's rules.)
wrk_was_well() {
    cat "$1"
    grep -Eq '^ *[1-9][0-9]* requests in' "$1" && ! grep -q 'Non-2xx' "$1" && ! grep -q 'timeout [1-9]' "$1"
}

# load_and_signal URL CONNECTIONS PID SIGNAL PAUSE: wrk for the whole time, while the server gets the signal after each pause.
load_and_signal() {
    wrk -t 2 -c "$2" -d "$seconds" --timeout 20s "$1" >"$TMPDIR/wrk" 2>&1 &
    wrk=$!
    while kill -0 "$wrk" 2>/dev/null; do
        sleep "$5"
        kill "-$4" "$3"
    done
    wait "$wrk" && wrk_was_well "$TMPDIR/wrk"
}

# nginx_conf PORT WORKERS [LISTEN]: a configuration that serves TMPDIR/www; LISTEN: more words about the listening socket.
nginx_conf() {
    mkdir -p "$TMPDIR/www"
    cat >"$TMPDIR/nginx.conf" <<C
daemon off; $([ "$(id -u)" = 0 ] && echo 'user root root;') worker_processes $2; pid $TMPDIR/nginx.pid; error_log $TMPDIR/error.log;
events { worker_connections 512; }
http {
    access_log off; sendfile on; keepalive_requests 100000;
    client_body_temp_path $TMPDIR/b; proxy_temp_path $TMPDIR/p; fastcgi_temp_path $TMPDIR/f; uwsgi_temp_path $TMPDIR/u; scgi_temp_path $TMPDIR/s;
    server { listen $address:$1 ${3-}; root $TMPDIR/www; }
}
C
}

# A port that nobody listens on: the network may be everybody's.
port() {
    python3 -c 'import socket; s = socket.socket(); s.bind(("127.0.0.1", 0)); print(s.getsockname()[1])'
}

# listening PORT: waits until somebody does. Where nobody does for two minutes the servers' last words follow.
listening() {
    hex=$(printf '%04X' "$1")
    for _ in $(seq 1200); do
        grep -q ":$hex [0-9A-F]*:0000 0A" /proc/net/tcp /proc/net/tcp6 2>/dev/null && return 0
        sleep 0.1
    done
    echo "nobody listens on port $1"
    for pid in $started; do kill -0 "$pid" || echo "process $pid has ended"; done
    tail -n 8 "$TMPDIR"/server.*.log
    return 1
}
