#!/bin/sh
# CoreDNS, a server in Go, over TCP: names asked for by dnsperf, a client in C, on connections that stay, and a
# zone that a second server transfers from the first.
. "${0%/*}/lib.sh"
needs_go coredns
needs dnsperf
version coredns -version
port=$(port)
names=3000
{
    printf '$ORIGIN load.test.\n$TTL 60\n@ IN SOA ns admin 1 60 60 60 60\n@ IN NS ns\nns IN A 127.0.0.1\n'
    for name in $(seq $names); do echo "name$name IN A 10.0.$((name / 250)).$((name % 250))"; done
} >"$TMPDIR/zone"
for name in $(seq $names); do echo "name$name.load.test A"; done >"$TMPDIR/asked"
echo "load.test:$port { bind $address
    file $TMPDIR/zone
    transfer { 
        to *
    }
}" >"$TMPDIR/first"
# Each answer comes, and says that the name is there.
asked() {
    to=$1
    shift
    dnsperf -m tcp -s "$address" -p "$to" -d "$TMPDIR/asked" -l "$((seconds / 4 + 1))" -t 20 "$@" >"$TMPDIR/dnsperf" 2>&1
    cat "$TMPDIR/dnsperf"
    grep -Eq 'Queries completed: +[1-9][0-9]* \(100\.00%\)' "$TMPDIR/dnsperf" && grep -Eq 'Response codes: +NOERROR [0-9]+ \(100\.00%\)' "$TMPDIR/dnsperf"
}
start coredns -conf "$TMPDIR/first"
check "listens" listening "$port"
# Before the load: dnsperf binds its sockets, to ports that port may have named, and nobody can listen there for a
# minute after them.
second=$(port)
echo "load.test:$second { bind $address
    secondary { 
        transfer from $address:$port
    }
}" >"$TMPDIR/second"
start coredns -conf "$TMPDIR/second"
check "the second listens" listening "$second"
check "one connection" asked "$port" -c 1
check "many connections" asked "$port" -c 32 -T 2
check "many questions on a connection" asked "$port" -c 2 -q 500
check "what was transferred" asked "$second" -c 4
