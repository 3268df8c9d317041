#!/usr/bin/env bash
# What ginnel-broker costs, in about a minute: a connection that moves into memory by its help,
# beside one that moves within one segment and one over TCP; what is asked in vain; a broker that is
# killed and started again while two processes exchange; a thousand pairs, and all of them idle.
# Each figure of the first table is the median of its rounds.
#
#   scripts/bench-broker.sh [ROUNDS]      (3; as root; after `make product`)
#
# EACH: connections of a kind in a round (300).
#
# All of it is its own: the broker's directory, the programs' GINNEL_DIR, a port of the loopback
# interface. A machine that does something else beside it measures that.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

rounds=${1:-3} each=${EACH:-300}
release=$(realpath "${CARGO_TARGET_DIR:-target}/release")
[[ $(id -u) = 0 ]] || { echo "$0: the broker takes root" >&2; exit 1; }
"$release/ginnel-broker" --check >/dev/null || exit 1

work=$(mktemp -d) broker= server=
stop() { # PROCESS
    [[ -z $1 ]] || { kill "$1" 2>/dev/null || true; wait "$1" 2>/dev/null || true; }
}
trap 'stop "$server"; stop "$broker"; rm -rf "$work"' EXIT
mkdir -m 700 "$work/one" "$work/other"
printf 'run_dir = "%s/run"\nstatus = "off"\n' "$work" >"$work/ginneld.toml"
"${CC:-cc}" -O2 -pthread -o "$work/asked" crates/bench/programs/asked.c

start_broker() {
    local before
    before=$(grep -c event=started "$work/log" 2>/dev/null || true)
    "$release/ginnel-broker" --config "$work/ginneld.toml" 2>>"$work/log" &
    broker=$!
    for _ in $(seq 500); do
        [[ $(grep -c event=started "$work/log") = "${before:-0}" ]] || return 0
        sleep 0.02
    done
    cat "$work/log" >&2
    return 1
}

# under WHERE ROLE… runs a program: WHERE is `plainly`, or a directory for its segment, and then
# $asks is where it asks for a broker.
under() {
    local where=$1
    shift
    if [[ $where = plainly ]]; then
        exec "$work/asked" "$@"
    else
        GINNEL_DIR=$work/$where GINNEL_BROKER=$asks exec "$release/ginnel" run -- "$work/asked" "$@"
    fi
}

start_server() { # WHERE
    : >"$work/port"
    (under "$1" server >"$work/port") &
    server=$!
    for _ in $(seq 500); do
        port=$(sed -n 's/^listening //p' "$work/port")
        [[ -z $port ]] || return 0
        sleep 0.02
    done
    return 1
}

# lives NAME SERVER CLIENT [BROKER]: the lives of connections, this round.
lives() {
    asks=${4:-$work/none}
    start_server "$2"
    (under "$3" lives --addr "127.0.0.1:$port" --count "$each") >>"$work/lives-$1"
    stop "$server"
    server=
}

median() { sort -n | awk '{ all[NR] = $1 } END { print all[int((NR + 1) / 2)] }'; }

start_broker
socket=$work/run/broker/broker.sock
for ((round = 0; round < rounds; round++)); do
    lives tcp plainly plainly
    lives segment one one
    lives broker one other "$socket"
    lives alone plainly other
    lives vain plainly other "$socket"
done
pairs=$(grep -c event=paired "$work/log") || true
[[ $pairs = "$rounds" ]] || { echo "the broker made $pairs pairs, and not $rounds:" >&2; cat "$work/log" >&2; exit 1; }

echo "A connection, from connect to close, µs:"
printf '%-64s %8s %8s %8s\n' 'exchanges of 64 B' 1 16 64
while read -r name text; do
    printf '%-64s' "$text"
    for exchanges in 1 16 64; do
        printf ' %8s' "$(sed -n "s/^$exchanges //p" "$work/lives-$name" | median)"
    done
    echo
done <<'END'
tcp TCP
segment Ginnel, both ends in one segment
broker Ginnel, by the broker
alone Ginnel at one end alone, no broker
vain Ginnel at one end alone, with a broker
END

echo
echo "The broker is killed in second 3, and started again in second 5:"
asks=$socket
start_server one
(GINNEL_REPORT=$work/report under other steady --addr "127.0.0.1:$port" --seconds 7) &
client=$!
sleep 2.5
kill -KILL "$broker"
wait "$broker" 2>/dev/null || true
broker=
sleep 2
start_broker
wait "$client"
by() { grep -o "\"[a-z]*_\(in\|out\)\":[0-9]*" "$work/report" | sed -n "s/^\"$1_.*://p" | awk '{ sum += $1 } END { print sum + 0 }'; }
echo "bytes by ring: $(by ring), by TCP: $(by tcp)"
(under other lives --addr "127.0.0.1:$port" --count "$each") | sed -n 's/^64 \(.*\)/a connection of 64 exchanges after that: \1 µs/p'
stop "$server"
server=
pairs=$(grep -c event=paired "$work/log") || true
[[ $pairs = $((rounds + 2)) ]] || { echo "after its restart the broker made no pair:" >&2; cat "$work/log" >&2; exit 1; }

echo
"${CARGO:-cargo}" test --quiet -p ginnel-host --profile testing --test main -- --ignored --exact --nocapture \
    broker_cost::by_hand_what_a_thousand_pairs_cost | grep -v '^$\|^running\|^\.$\|^test result'
