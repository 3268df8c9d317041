#!/bin/sh
# Mosquitto (MQTT): every message arrives once and in turn, at each quality of service, from its own clients and from paho; one
# topic goes to forty clients at once.
. "${0%/*}/lib.sh"
needs mosquitto mosquitto_pub mosquitto_sub python3
python3 -c 'import paho.mqtt.client' 2>/dev/null || { echo "ok 1 - all # SKIP no paho"; exit 0; }
version mosquitto -h
port=$(port)
cat >"$TMPDIR/conf" <<C
listener $port $address
allow_anonymous true
max_queued_messages 0
max_inflight_messages 100
log_type error
C

# in_turn QOS COUNT
in_turn() {
    seq -f 'line %.0f of many that are all alike' "$2" >"$TMPDIR/in"
    mosquitto_sub -p "$port" -t "turn/$1" -q "$1" -C "$2" -W 120 >"$TMPDIR/out" &
    subscriber=$!
    known "turn/$1" 1 || return 1
    mosquitto_pub -p "$port" -t "turn/$1" -q "$1" -l <"$TMPDIR/in" || return 1
    wait "$subscriber" || return 1
    cmp "$TMPDIR/in" "$TMPDIR/out"
}

# known TOPIC COUNT: until so many have subscribed. Each hears the first words that are kept for it.
known() {
    for _ in $(seq 100); do
        [ "$(mosquitto_sub -p "$port" -t '$SYS/broker/subscriptions/count' -C 1 -W 15)" -ge "$2" ] && return 0
        sleep 0.3
    done
    return 1
}

forty() {
    subscribers=
    for i in $(seq 40); do
        mosquitto_sub -p "$port" -t 'forty/#' -q 1 -C 500 -W 120 >"$TMPDIR/forty.$i" &
        subscribers="$! $subscribers"
    done
    known forty 40 || return 1
    seq 500 | mosquitto_pub -p "$port" -t forty/all -q 1 -l || return 1
    for pid in $subscribers; do wait "$pid" || return 1; done
    for i in $(seq 40); do seq 500 | cmp - "$TMPDIR/forty.$i" || return 1; done
}

cat >"$TMPDIR/clients.py" <<'P'
import hashlib, sys, threading, time
import paho.mqtt.client as mqtt

port, end = int(sys.argv[1]), time.time() + float(sys.argv[2])


def client():
    made = mqtt.Client()
    made.max_inflight_messages_set(100)
    made.max_queued_messages_set(0)
    return made


def batch(qos, count, size):
    got, subscribed, done = [], threading.Event(), threading.Event()

    def on_message(_client, _data, message):
        got.append(message.payload)
        if len(got) == count:
            done.set()

    reader, writer, topic = client(), client(), 'batch/%d/%d' % (qos, size)
    reader.on_subscribe = lambda *_: subscribed.set()
    reader.on_message = on_message
    reader.connect('127.0.0.1', port)
    reader.subscribe(topic, qos)
    reader.loop_start()
    assert subscribed.wait(60), 'not subscribed'
    writer.connect('127.0.0.1', port)
    writer.loop_start()
    sent = [b'%d ' % i + hashlib.sha256(b'%d' % i).digest() * (size // 32) for i in range(count)]
    for info in [writer.publish(topic, body, qos) for body in sent]:
        info.wait_for_publish()
    assert done.wait(90), 'only %d of %d' % (len(got), count)
    # At least once is no promise of an order among those that go twice.
    assert sorted(got) == sorted(sent) if qos == 1 else got == sent, 'others than were sent'
    for one in reader, writer:
        one.disconnect()
        one.loop_stop()


rounds = 0
while rounds == 0 or time.time() < end:
    for qos, count, size in (0, 5000, 100), (1, 1000, 1000), (2, 500, 20000), (1, 3, 10_000_000):
        batch(qos, count, size)
    rounds += 1
print(rounds, 'rounds')
P

# The tree of $SYS is told anew each second.
sed -i '1i sys_interval 1' "$TMPDIR/conf"
start mosquitto -c "$TMPDIR/conf"
check "listens" listening "$port"
check "each once, perhaps" in_turn 0 50000
check "each at least once" in_turn 1 10000
check "each exactly once" in_turn 2 5000
check "forty hear it" forty
check "paho" python3 "$TMPDIR/clients.py" "$port" "$((seconds / 2))"
