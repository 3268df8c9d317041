#!/bin/sh
# Names over TCP: BIND, unbound that asks it over TCP, and dnsmasq, which has a process for each connection; a zone is transferred.
. "${0%/*}/lib.sh"
needs named unbound dnsmasq dnsperf dig
version named -v
bind=$(port)
unbound=$(port)
dnsmasq=$(port)
cat >"$TMPDIR/named.conf" <<C
options {
    directory "$TMPDIR"; listen-on port $bind { $address; }; listen-on-v6 { none; }; recursion no;
    pid-file "$TMPDIR/named.pid"; session-keyfile "$TMPDIR/key"; tcp-clients 300; allow-transfer { any; };
};
controls { };
zone "x.test" { type primary; file "$TMPDIR/zone"; };
C
{
    printf '$TTL 100\n@ IN SOA n. h. 1 3600 600 864000 100\n@ NS n.x.test.\nn A 127.0.0.1\n'
    for i in $(seq 200); do echo "h$i A 10.0.0.$i"; done
    for i in $(seq 100); do echo "big TXT \"$(printf 'a%.0s' $(seq 200))$i\""; done
    seq 20000 | sed 's/.*/t& TXT "&"/'
} >"$TMPDIR/zone"
cat >"$TMPDIR/unbound.conf" <<C
server:
    do-daemonize: no
    chroot: ""
    username: ""
    directory: "$TMPDIR"
    pidfile: ""
    use-syslog: no
    interface: $address@$unbound
    do-not-query-localhost: no
    num-threads: 2
    incoming-num-tcp: 200
    outgoing-num-tcp: 100
    tcp-upstream: yes
    module-config: "iterator"
    local-zone: "test." nodefault
    cache-max-ttl: 0
stub-zone:
    name: "x.test"
    stub-addr: $address@$bind
remote-control:
    control-enable: no
C
for i in $(seq 200); do echo "h$i.x.test A"; done >"$TMPDIR/questions"
for i in $(seq 100); do echo "h$i.x.test"; done >"$TMPDIR/names"

# dnsmasq ends each connection after a hundred questions: what was asked behind them gets no answer.
load() {
    dnsperf -s "$address" -p "$1" -m tcp -d "$TMPDIR/questions" -c 8 -q 64 -l "$((seconds / 3))" >"$TMPDIR/dnsperf" 2>&1
    cat "$TMPDIR/dnsperf"
    grep -q 'Response codes: *NOERROR [0-9]* (100.00%)' "$TMPDIR/dnsperf" || return 1
    [ "$1" = "$dnsmasq" ] || grep -q 'Queries lost: *0 ' "$TMPDIR/dnsperf"
}

large() {
    for _ in 1 2 3 4 5; do
        [ "$(dig +tcp +short -p "$1" "@$address" big.x.test TXT | wc -l)" = 100 ] || return 1
    done
}

in_one() { [ "$(dig +tcp +keepopen +short -p "$1" "@$address" -f "$TMPDIR/names" | wc -l)" = 100 ]; }

# It listens before it has read it.
known() {
    for _ in $(seq 300); do
        dig +tcp +short -p "$bind" "@$address" h1.x.test | grep -q '^10' && return 0
        sleep 0.1
    done
    return 1
}

zone() { [ "$(dig -p "$bind" "@$address" x.test AXFR +short | wc -l)" = 20304 ]; }

start named -g -c "$TMPDIR/named.conf" -n 2
start unbound -d -c "$TMPDIR/unbound.conf"
start dnsmasq -k -C /dev/null -p "$dnsmasq" --listen-address="$address" -z --no-resolv \
    --server="/x.test/$address#$bind" --pid-file= -u "$(id -un)" -g "$(id -gn)"
check "BIND knows its zone" known
for port in "$bind" "$unbound" "$dnsmasq"; do
    case $port in "$bind") who=BIND ;; "$unbound") who=unbound ;; *) who=dnsmasq ;; esac
    check "$who listens" listening "$port"
    check "$who: questions under load" load "$port"
    check "$who: 20 KB in one answer" large "$port"
    check "$who: a hundred questions in one connection" in_one "$port"
done
check "BIND: 20304 records transferred" zone
