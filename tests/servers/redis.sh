#!/bin/sh
# Redis: a cluster of three whose slots move under way, and a replica whose connection is cut again and again while clients of every
# kind use the master: pipelines, transactions, scripts, waiting lists, MONITOR, channels, large values, BGSAVE. The replica is alike.
. "${0%/*}/lib.sh"
needs redis-server redis-cli redis-benchmark python3
version redis-server --version
nodes=
for i in 1 2 3; do
    port=$(port)
    # The other nodes come by a port of its own, 10000 higher if it is not given.
    start redis-server --bind "$address" --save '' --dir "$TMPDIR" --port "$port" --cluster-enabled yes --cluster-port "$(port)" \
        --cluster-config-file "$TMPDIR/nodes.$i" --cluster-node-timeout 15000
    nodes="$nodes $address:$port"
    eval "node$i=$port"
    check "listens" listening "$port"
done
master=$(port)
replica=$(port)
start redis-server --bind "$address" --save '' --dir "$TMPDIR" --port "$master" --dbfilename master.rdb \
    --repl-diskless-sync yes --repl-diskless-sync-delay 0
check "listens" listening "$master"
start redis-server --bind "$address" --save '' --dir "$TMPDIR" --port "$replica" --dbfilename replica.rdb --replicaof "$address" "$master"
check "listens" listening "$replica"

agreed() {
    redis-cli --cluster create $nodes --cluster-yes || return 1
    for _ in $(seq 300); do
        states=$(for port in "$node1" "$node2" "$node3"; do redis-cli -p "$port" cluster info; done | grep -c 'cluster_state:ok')
        [ "$states" = 3 ] && return 0
        sleep 0.2
    done
    return 1
}

moved() {
    for i in $(seq 100); do redis-cli -c -p "$node2" set "key$i" "$i" >/dev/null || return 1; done
    redis-benchmark -p "$node1" --cluster -q -n 1000000 -t set,get -c 10 >/dev/null 2>&1 &
    load=$!
    redis-cli --cluster reshard "$address:$node1" --cluster-from all --cluster-to "$(redis-cli -p "$node2" cluster myid)" \
        --cluster-slots 500 --cluster-yes >"$TMPDIR/reshard" 2>&1
    code=$?
    kill "$load" 2>/dev/null
    wait "$load"
    [ "$code" = 0 ] || { tail -n 5 "$TMPDIR/reshard"; return 1; }
    for i in $(seq 100); do [ "$(redis-cli -c -p "$node3" get "key$i")" = "$i" ] || return 1; done
}

cat >"$TMPDIR/clients.py" <<'P'
import hashlib, os, socket, sys, threading, time

MASTER, REPLICA, end = int(sys.argv[1]), int(sys.argv[2]), time.time() + float(sys.argv[3])
failed, told = [], []


class Client:
    def __init__(self, port):
        self.socket = socket.create_connection(('127.0.0.1', port))
        self.socket.settimeout(90)
        self.lines = self.socket.makefile('rb')

    @staticmethod
    def request(*words):
        words = [word if isinstance(word, bytes) else str(word).encode() for word in words]
        return b'*%d\r\n' % len(words) + b''.join(b'$%d\r\n%s\r\n' % (len(word), word) for word in words)

    def answer(self):
        line = self.lines.readline()
        assert line.endswith(b'\r\n'), 'the connection ended'
        kind, rest = line[:1], line[1:-2]
        if kind == b'-':
            raise RuntimeError(rest.decode())
        if kind == b'+':
            return rest
        count = int(rest)
        if kind == b':':
            return count
        if count < 0:
            return None
        return self.lines.read(count + 2)[:-2] if kind == b'$' else [self.answer() for _ in range(count)]

    def __call__(self, *words):
        self.socket.sendall(self.request(*words))
        return self.answer()


def pipelines(number):
    client, sent = Client(MASTER), 0
    while time.time() < end:
        client.socket.sendall(b''.join(
            Client.request('SET', 'p%d:%d' % (number, (sent + i) % 3000), hashlib.md5(b'%d' % (sent + i)).hexdigest() * 10)
            for i in range(50)))
        for _ in range(50):
            assert client.answer() == b'OK'
        sent += 50
    told.append('%d in pipelines' % sent)


def transactions():
    client, done = Client(MASTER), 0
    while time.time() < end:
        for words in ('MULTI',), ('INCR', 'one'), ('INCR', 'two'):
            client(*words)
        done += 1
        assert client('EXEC') == [done, done]
        script = "redis.call('INCRBY', KEYS[1], ARGV[1]); return redis.call('GET', KEYS[1])"
        assert client('EVAL', script, 1, 'scripted', 3) == b'%d' % (3 * done)
    told.append('%d transactions' % done)


def waits():
    client, got = Client(MASTER), 0
    while (word := client('BLPOP', 'list', 0)[1]) != b'end':
        assert word == b'%d' % got, (word, got)
        got += 1
    told.append('%d from the list' % got)


def gives():
    client, given = Client(MASTER), 0
    while time.time() < end:
        client('RPUSH', 'list', given)
        given += 1
        if given % 7 == 0:
            time.sleep(0.002)
    client('RPUSH', 'list', 'end')


def monitors():
    client, seen = Client(MASTER), 0
    assert client('MONITOR') == b'OK'
    while time.time() < end - 1:
        assert client.answer()
        seen += 1
    told.append('%d monitored' % seen)


def listens():
    client, heard = Client(MASTER), -1
    client('SUBSCRIBE', 'channel')
    ready.set()
    while (word := client.answer()[2]) != b'end':
        assert int(word) == heard + 1, (word, heard)
        heard += 1
    told.append('%d heard' % heard)


def speaks():
    client, said = Client(MASTER), 0
    assert ready.wait(60)
    while time.time() < end:
        client('PUBLISH', 'channel', said)
        said += 1
    client('PUBLISH', 'channel', 'end')


def large():
    client, body = Client(MASTER), os.urandom(3_000_000)
    while time.time() < end:
        client('SET', 'large', body)
        assert client('GET', 'large') == body, 'another value'
        time.sleep(0.3)


def saves():
    client, saved = Client(MASTER), 0
    while time.time() < end:
        try:
            client('BGSAVE')
            saved += 1
        except RuntimeError:  # One is under way.
            pass
        time.sleep(0.5)
    told.append('%d saves' % saved)


def cuts():
    client, cut = Client(MASTER), 0
    while time.time() < end - 1:
        time.sleep(0.8)
        cut += client('CLIENT', 'KILL', 'TYPE', 'replica')
    told.append('%d cuts' % cut)


def run(part, *words):
    try:
        part(*words)
    except BaseException as error:
        failed.append('%s: %r' % (part.__name__, error))


def linked():
    master, replica = Client(MASTER), Client(REPLICA)
    limit = time.time() + 90
    while b'master_link_status:up' not in replica('INFO', 'replication') or master('WAIT', 1, 1000) != 1:
        assert time.time() < limit, 'the replica is not linked'
        time.sleep(0.1)
    return master, replica


linked()
ready = threading.Event()
parts = [(pipelines, 0), (pipelines, 1)] + [(one,) for one in (
    transactions, waits, gives, monitors, listens, speaks, large, saves, cuts)]
threads = [threading.Thread(target=run, args=part, daemon=True) for part in parts]
for thread in threads:
    thread.start()
for thread, part in zip(threads, parts):
    thread.join(max(end - time.time(), 0) + 100)
    assert not thread.is_alive(), '%s does not end: %s' % (part[0].__name__, failed)
print(', '.join(told))
assert not failed, failed
master, replica = linked()
keys = sorted(master('KEYS', '*'))
assert keys == sorted(replica('KEYS', '*')), 'other keys'
for key in keys:
    if master('TYPE', key) == b'string':
        assert master('GET', key) == replica('GET', key), key
P

check "three agree" agreed
check "with load from clients of a cluster" timeout 100 redis-benchmark -p "$node1" --cluster -q -n $((seconds * 1000)) -t set,get -c 20
check "slots move under way" moved
check "a replica that is cut again and again" timeout $((seconds + 250)) python3 "$TMPDIR/clients.py" "$master" "$replica" "$((seconds / 2))"
