#!/bin/sh
# ZooKeeper: three servers that agree with each other (Java), and kazoo's clients (Python) with locks, watches and nodes that end with
# their client.
. "${0%/*}/lib.sh"
jar=/usr/share/java/zookeeper.jar
needs java python3
[ -e $jar ] || { echo "ok 1 - all # SKIP no ZooKeeper"; exit 0; }
python3 -c 'import kazoo' 2>/dev/null || { echo "ok 1 - all # SKIP no kazoo"; exit 0; }
version dpkg-query -W -f 'ZooKeeper ${Version}, Java' zookeeper
members=
for i in 1 2 3; do
    clients=$(port)
    eval "client$i=$clients"
    members="$members
server.$i=$address:$(port):$(port)"
done
hosts="$address:$client1,$address:$client2,$address:$client3"
for i in 1 2 3; do
    eval "clients=\$client$i"
    mkdir "$TMPDIR/$i"
    echo "$i" >"$TMPDIR/$i/myid"
    cat >"$TMPDIR/$i.cfg" <<C
tickTime=2000
initLimit=30
syncLimit=30
dataDir=$TMPDIR/$i
clientPort=$clients
clientPortAddress=$address
admin.enableServer=false$members
C
    start java -Xmx200m -cp $jar org.apache.zookeeper.server.quorum.QuorumPeerMain "$TMPDIR/$i.cfg"
done
for i in 1 2 3; do
    eval "clients=\$client$i"
    check "listens" listening "$clients"
done
cat >"$TMPDIR/clients.py" <<'P'
import sys, threading, time
from kazoo.client import KazooClient

first, second, third = clients = [KazooClient(hosts=host, timeout=60) for host in sys.argv[1].split(',')]
end = time.time() + float(sys.argv[2])
for client in clients:
    client.start(120)
first.ensure_path('/many')
made = 0
while made < 500 or time.time() < end:
    pending = [first.create_async('/many/n', b'%d' % (made + i) * 20, sequence=True) for i in range(100)]
    for one in pending:
        one.get(60)
    made += 100
third.sync('/many')
names = third.get_children('/many')
assert len(names) == made, (len(names), made)
for name in names[:500]:
    assert third.get('/many/' + name)[0] == b'%d' % int(name[1:]) * 20, name
print(made, 'nodes')

seen, last = [], threading.Event()
second.create('/watched', b'')


@second.DataWatch('/watched')
def watch(data, _stat):
    seen.append(data)
    if data == b'last':
        last.set()


for i in range(200):
    first.set('/watched', b'%d' % i)
first.set('/watched', b'last')
assert last.wait(60), 'the watch was not told'
numbers = [int(data) for data in seen if data not in (b'', b'last')]
assert numbers == sorted(numbers), 'told out of turn'

large = b'x' * 900_000
for i in range(20):
    first.set('/watched', large)
    second.sync('/watched')
    assert second.get('/watched')[0] == large

inside, counted = [], 0


def count(client):
    global counted
    for _ in range(25):
        with client.Lock('/lock'):
            before = counted
            time.sleep(0.001)
            counted = before + 1
    inside.append(client)


threads = [threading.Thread(target=count, args=(client,)) for client in clients]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join(120)
assert len(inside) == 3 and counted == 75, counted

third.create('/mine', b'', ephemeral=True)
third.stop()
third.close()
limit = time.time() + 60
while first.exists('/mine'):
    assert time.time() < limit, 'it outlived its client'
    time.sleep(0.1)
P
check "clients of each" timeout $((seconds + 200)) python3 "$TMPDIR/clients.py" "$hosts" "$((seconds / 2))"
