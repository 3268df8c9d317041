#!/bin/sh
# RabbitMQ (Erlang): a publisher and a consumer of many messages, confirms, large messages; its own tools speak to it as an Erlang node.
. "${0%/*}/lib.sh"
folder=$(ls -d /usr/lib/rabbitmq/lib/rabbitmq_server-*/sbin 2>/dev/null | tail -n 1)
PATH=$folder:$PATH
needs rabbitmq-server rabbitmqctl epmd amqp-publish python3
python3 -c 'import pika' 2>/dev/null || { echo "ok 1 - all # SKIP no pika"; exit 0; }
port=$(port)
export HOME="$TMPDIR" RABBITMQ_USE_LONGNAME=true RABBITMQ_NODENAME="tested@$address" RABBITMQ_NODE_PORT="$port" RABBITMQ_DIST_PORT="$(port)"
export RABBITMQ_MNESIA_BASE="$TMPDIR/mnesia" RABBITMQ_LOG_BASE="$TMPDIR/log" RABBITMQ_CONFIG_FILE="$TMPDIR/rabbit"
export RABBITMQ_ENABLED_PLUGINS_FILE="$TMPDIR/plugins" ERL_EPMD_PORT="$(port)"
mkdir "$TMPDIR/mnesia" "$TMPDIR/log"
echo '[].' >"$TMPDIR/plugins"
echo 'vm_memory_high_watermark.absolute = 1GB' >"$TMPDIR/rabbit.conf"
folder=${folder%/sbin}
version echo "RabbitMQ ${folder##*rabbitmq_server-}"
cat >"$TMPDIR/clients.py" <<'P'
import hashlib, os, sys, time
import pika

port, end = int(sys.argv[1]), time.time() + float(sys.argv[2])


def channel(queue):
    connection = pika.BlockingConnection(pika.ConnectionParameters('127.0.0.1', port, heartbeat=0))
    made = connection.channel()
    made.queue_declare(queue)
    return connection, made


def body(i):
    return b'%08d' % i + hashlib.sha256(b'%d' % i).digest() * (1 + i % 40)


def publish():
    connection, to = channel('many')
    i = 0
    while i < 5000 or time.time() < end:
        to.basic_publish('', 'many', body(i))
        i += 1
    to.basic_publish('', 'many', b'end %d' % i)
    connection.close()


publisher = os.fork()
if publisher == 0:
    publish()
    os._exit(0)
connection, source = channel('many')
source.basic_qos(prefetch_count=500)
seen = 0
for method, _, got in source.consume('many', inactivity_timeout=60):
    assert method, 'nothing for a minute, after %d' % seen
    if got.startswith(b'end '):
        assert int(got[4:]) == seen, 'the end after %s, not %d' % (got[4:], seen)
        break
    assert got == body(seen), 'another message at %d' % seen
    seen += 1
    if seen % 100 == 0:
        source.basic_ack(method.delivery_tag, multiple=True)
source.cancel()
connection.close()
assert os.waitpid(publisher, 0)[1] == 0, 'the publisher failed'
print(seen, 'messages')

connection, both = channel('confirmed')
both.confirm_delivery()
for i in range(300):
    both.basic_publish('', 'confirmed', b'%d' % i, mandatory=True)
for i in range(300):
    assert both.basic_get('confirmed', auto_ack=True)[2] == b'%d' % i
large = os.urandom(20_000_000)
for i in range(5):
    both.basic_publish('', 'confirmed', large)
    assert both.basic_get('confirmed', auto_ack=True)[2] == large, 'another large one'
connection.close()
P

tools() {
    at="amqp://$address:$port"
    amqp-declare-queue -u "$at" -q tools || return 1
    for i in $(seq 20); do echo "message $i" | amqp-publish -u "$at" -r tools -l >/dev/null || return 1; done
    amqp-consume -u "$at" -q tools -c 20 cat >"$TMPDIR/tools" || return 1
    [ "$(sort -u "$TMPDIR/tools" | wc -l)" = 20 ]
}

# The tool's own word is not asked for: a node that halts loses the answers that it is sending, with Ginnel and without.
ended() {
    rabbitmqctl shutdown
    for _ in $(seq 300); do
        grep -q 'Gracefully halting' "$TMPDIR"/server.*.rabbitmq-server.log && return 0
        sleep 0.2
    done
    return 1
}

epmd -port "$ERL_EPMD_PORT" -daemon
start rabbitmq-server
# It takes its time, where others want the processor too.
check "listens" eval 'listening "$port" || listening "$port" || listening "$port"'
check "its tool finds it" rabbitmqctl await_startup --timeout 120
check "many messages, confirmed ones, large ones" python3 "$TMPDIR/clients.py" "$port" "$seconds"
check "a connection for each message" tools
check "its queues" rabbitmqctl list_queues name messages
check "ends" ended
epmd -port "$ERL_EPMD_PORT" -kill >/dev/null
