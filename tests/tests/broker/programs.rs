//! The programs in Python, and what takes a broker's place.

/// Answers each connection in a thread of its own. Ends at the end of its input.
pub const SERVER: &str = "import os, socket, sys, threading
l = socket.create_server(('0.0.0.0', 0))
def serve(c):
    while d := c.recv(70000):
        c.sendall(d)
def accept():
    while True:
        threading.Thread(target=serve, args=l.accept()[:1], daemon=True).start()
threading.Thread(target=accept, daemon=True).start()
open(sys.argv[1] + '.new', 'w').write(str(l.getsockname()[1]))
os.rename(sys.argv[1] + '.new', sys.argv[1])
while not os.path.exists(sys.argv[1] + '.end'): threading.Event().wait(0.02)";

/// Serves one connection, and in its midst becomes several processes, or another, in the way that
/// its second argument says. Ends with the connection.
pub const CHANGES: &str = "import array, ctypes, os, socket, subprocess, sys, time
way, number = sys.argv[2], 0
def lines():
    # The sockets by which the two processes of a pair wake each other.
    get, found = ctypes.CDLL('libc.so.6').getsockopt, []
    for fd in map(int, os.listdir('/proc/self/fd')):
        value, length = (ctypes.c_int * 2)(-1, -1), ctypes.c_uint(4)
        for place, name in enumerate((39, 3)):
            get(fd, 1, name, ctypes.byref(value, 4 * place), ctypes.byref(length))
        if tuple(value) == (socket.AF_UNIX, socket.SOCK_STREAM): found.append(fd)
    return found
def serve(c, number):
    while d := c.recv(70000):
        c.sendall(d)
        number += 1
        if number > 0 and os.path.exists(sys.argv[1] + '.change'): number = -10**9; c = WAYS[way](c)
def fork(c):
    assert len(lines()) == 4, lines()
    if os.fork():
        c.close()
        sys.exit(os.waitstatus_to_exitcode(os.wait()[1]))
    assert not lines(), lines()
    return c
def closes(c):
    # As daemons do: all numbers but its own.
    os.closerange(3, c.fileno())
    os.closerange(c.fileno() + 1, 70000)
    assert len(lines()) == 4, lines()
    return c
def keep(c):
    # The child has it too, and does nothing with it.
    if not os.fork(): time.sleep(0.3); os._exit(0)
    return c
def execute(c):
    os.set_inheritable(c.fileno(), True)
    os.execv(sys.executable, [sys.executable, '-c', AGAIN, str(c.fileno())])
def spawn(c):
    os.set_inheritable(c.fileno(), True)
    subprocess.run(['true'], close_fds=False)
    return c
def send(c):
    a, b = socket.socketpair()
    if not os.fork():
        _, fds, _, _ = socket.recv_fds(b, 10, 1)
        c.close()
        serve(socket.socket(fileno=fds[0]), -10**9)
        os._exit(0)
    socket.send_fds(a, [b'x'], [c.fileno()])
    c.close(); a.close(); b.close(); os.wait(); sys.exit(0)
def maps():
    # Who has changed its user may not read this, without a word (PR_SET_DUMPABLE).
    ctypes.CDLL(None).prctl(4, 1, 0, 0, 0)
    return 'ginnel-pair' in open('/proc/self/maps').read()
def become(c):
    assert maps(), 'no pair'
    os.setgroups([]); os.setgid(65533); os.setuid(65533)
    assert not maps(), 'it keeps a pair'
    return c
def lock(c):
    assert maps(), 'no pair'
    os.seteuid(65533); os.seteuid(0)
    # Of the program's own memory, and not of the zeroes where the pair's was (MCL_CURRENT).
    assert ctypes.CDLL(None).mlockall(1) == 0
    locked = [line for line in open('/proc/self/status') if line.startswith('VmLck')][0]
    assert int(locked.split()[1]) < 64 << 10, locked
    return c
def heir(c):
    return become(fork(c))
AGAIN = 'import socket, sys\\nc = socket.socket(fileno=int(sys.argv[1]))\\nwhile d := c.recv(70000): c.sendall(d)'
WAYS = dict(fork=fork, closes=closes, leaves=keep, execute=execute, spawn=spawn, send=send, become=become, heir=heir, lock=lock)
l = socket.create_server(('0.0.0.0', 0))
open(sys.argv[1] + '.new', 'w').write(str(l.getsockname()[1]))
os.rename(sys.argv[1] + '.new', sys.argv[1])
serve(l.accept()[0], 0)";

/// Messages of three sizes that all have to come back.
macro_rules! exchange {
    () => {
        "def exchange(c, number):
    for size in (6, 3000, 50000):
        sent = (b'%06d' % number) * (size // 6)
        c.sendall(sent)
        got = b''
        while len(got) < len(sent):
            d = c.recv(len(sent) - len(got))
            assert d, 'ended'
            got += d
        assert got == sent
"
    };
}

/// So many connections at once, so many messages on each; then waits until a file is gone, and says
/// more messages, all of which have to come back.
pub const CLIENT: &str = concat!(
    exchange!(),
    "import os, socket, sys, time
host, port, count, messages, stays = sys.argv[1], *map(int, sys.argv[2:5]), sys.argv[5]
def connect():
    c = socket.create_connection((host, port))
    c.settimeout(30)
    return c
all = [connect() for _ in range(count)]
for number in range(messages):
    for c in all: exchange(c, number)
    time.sleep(0.01)
print('first', flush=True)
while os.path.exists(stays):
    for c in all: exchange(c, 999999)
    time.sleep(0.01)
all.append(connect())
for number in range(messages):
    for c in all: exchange(c, number)
    time.sleep(0.01)
print('second', flush=True)
while os.path.exists(stays + '2'):
    for c in all: exchange(c, 888888)
    time.sleep(0.01)"
);

/// One connection, whose messages all come back: until a file is gone, and eighty times more.
pub const ONE: &str = concat!(
    exchange!(),
    "import os, socket, sys, time
c = socket.create_connection((sys.argv[1], int(sys.argv[2])))
c.settimeout(30)
number, left = 0, 80
while left:
    number += 1
    if not os.path.exists(sys.argv[3]): left -= 1
    exchange(c, number)
    time.sleep(0.005)"
);

/// One connection, whose messages all come back. Once a file is gone it does with the sockets by
/// which the two processes of the pair wake each other what its third argument says, past the
/// library; then all messages have to come back still.
pub const NOISE: &str = concat!(
    exchange!(),
    "import ctypes, os, platform, socket, sys, time
host, port, way, stays = sys.argv[1], int(sys.argv[2]), sys.argv[3], sys.argv[4]
syscall = ctypes.CDLL('libc.so.6', use_errno=True).syscall
SENDTO, CLOSE, GETSOCKOPT = (44, 3, 55) if platform.machine() == 'x86_64' else (206, 57, 209)
def option(fd, name):
    value, length = ctypes.c_int(-1), ctypes.c_uint(4)
    syscall(GETSOCKOPT, fd, 1, name, ctypes.byref(value), ctypes.byref(length))
    return value.value
def lines():
    numbers = [int(name) for name in os.listdir('/proc/self/fd')]
    return [fd for fd in numbers if (option(fd, 39), option(fd, 3)) == (socket.AF_UNIX, socket.SOCK_STREAM)]
def rings():
    # Until it is hung up on, where somebody sleeps; a line that is only full stays open.
    open, end = set(lines()), time.monotonic() + 60
    assert len(open) == 4, open
    while len(open) == 4 and time.monotonic() < end:
        for fd in list(open):
            flags = socket.MSG_DONTWAIT | socket.MSG_NOSIGNAL
            if syscall(SENDTO, fd, b'x' * 50, 50, flags, None, 0) < 0 and ctypes.get_errno() == 32: open.remove(fd)
        time.sleep(0)
    assert len(open) < 4, 'nobody hangs up'
def closes():
    for fd in lines(): syscall(CLOSE, fd)
c = socket.create_connection((host, port))
for number in range(60): exchange(c, number)
print('first', flush=True)
while os.path.exists(stays):
    exchange(c, 999999)
    time.sleep(0.003)
exchange(c, 1)
dict(rings=rings, closes=closes)[way]()
for number in range(80):
    exchange(c, number)
    time.sleep(0.003)
print('answered', flush=True)"
);

/// Gets a pair's memory as anybody may, by a connection of its own, and writes nonsense over it for
/// some seconds: next to what stands there, and at random. Its own connection may break.
pub const NONSENSE: &str = "import array, mmap, os, random, socket, sys, time
host, port, path = sys.argv[1], int(sys.argv[2]), sys.argv[3]
def exchange(c, count):
    for number in range(count):
        c.sendall(b'x' * 100)
        got = 0
        while got < 100:
            d = c.recv(1000)
            if not d: return
            got += len(d)
b = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
b.connect(path)
b.settimeout(15)
memory, rounds = None, 0
all = []
for attempt in range(6):
    c = socket.create_connection((host, port))
    c.settimeout(2)
    exchange(c, 60)
    b.sendmsg([bytes([1, 1]) + bytes(14)], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array('i', [c.fileno()]))])
    while True:
        answer, fds, _, _ = socket.recv_fds(b, 100, 1)
        if answer[1] != 9: break
    if answer[1] == 0 and fds: memory = mmap.mmap(fds[0], 0)
    all.append(c)
    if not memory: continue
    end = time.monotonic() + 1
    while time.monotonic() < end:
        view = memoryview(memory)[:4 << 20].cast('Q')
        for at in range(512, len(view)):
            if view[at] and random.random() < 0.2:
                word = view[at]
                chosen = (0, 1, 2, 3, 4, 5, 1 << 63, 2**64 - 1, random.getrandbits(64), word + 1 & 2**64 - 1)
                chosen += (word ^ 1 << random.randrange(64),)
                view[min(at + random.choice((0, 0, 1, -1, 8)), len(view) - 1)] = random.choice(chosen)
        for _ in range(2000):
            view[random.randrange(512, len(view) - 1)] = random.choice((1, 2, 4, random.getrandbits(64)))
        rounds += 1
        try: exchange(c, 3)
        except OSError: pass
print('memory' if memory else 'none', rounds, flush=True)";

/// One connection, for a moment.
pub const BRIEF: &str = "import socket, sys, time
c = socket.create_connection((sys.argv[1], int(sys.argv[2])))
c.settimeout(30)
end = time.monotonic() + 0.3
while time.monotonic() < end:
    c.sendall(b'x' * 100)
    assert len(c.recv(100, socket.MSG_WAITALL)) == 100
    time.sleep(0.002)";

/// In a broker's place: answers every question with memory. Once the asker has parted with it, says
/// so, and two seconds later how often it was asked. Returns what a connection of its own sends.
pub const GENEROUS: &str = "import array, os, select, socket, sys, threading, time
l, broker = socket.create_server(('127.0.0.1', 0)), socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
broker.bind(sys.argv[1])
broker.listen()
print(l.getsockname()[1], flush=True)
def echo(c):
    while d := c.recv(70000): c.sendall(d)
threading.Thread(target=lambda: echo(l.accept()[0]), daemon=True).start()
b = broker.accept()[0]
asked, end = 0, None
while not end or time.monotonic() < end:
    if not select.select([b], [], [], 0.05)[0]: continue
    said, fds, _, _ = socket.recv_fds(b, 100, 1)
    if not said: break
    if said[1] == 2:
        if not end: print('parted', flush=True)
        end = end or time.monotonic() + 2
        continue
    for fd in fds: os.close(fd)
    asked += 1
    memory = os.memfd_create('pair', os.MFD_ALLOW_SEALING)
    os.ftruncate(memory, 1 << 30)
    b.send(bytes([1, 9, 0, 0, 0, 0, 0, 0]) + said[8:] + bytes(16))
    meets = bytes([1, 0, 0, 0, 0, 0, 0, 0]) + said[8:] + asked.to_bytes(8, 'little') + bytes([7]) + bytes(7)
    socket.send_fds(b, [meets], [memory])
    os.close(memory)
print('asked', asked, flush=True)";

/// In a broker's place: finds nobody, and writes down each question. Ends at the end of its asker.
pub const FINDS_NOBODY: &str = "import os, socket, sys, threading
l, broker = socket.create_server(('127.0.0.1', 0)), socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
broker.bind(sys.argv[1])
broker.listen()
print(l.getsockname()[1], flush=True)
def answer(b):
    while True:
        said, fds, _, _ = socket.recv_fds(b, 100, 1)
        if not said: break
        for fd in fds: os.close(fd)
        print('question', flush=True)
        for verdict in (9, 1): b.send(bytes([1, verdict, 0, 0, 0, 0, 0, 0]) + said[8:] + bytes(16))
def accept():
    while True: answer(broker.accept()[0])
threading.Thread(target=accept, daemon=True).start()
c = l.accept()[0]
while d := c.recv(70000): c.sendall(d)";

/// Speaks until a file is there.
pub const SPEAKS: &str = "import os, socket, sys, time
c = socket.create_connection(('127.0.0.1', int(sys.argv[1])))
while not os.path.exists(sys.argv[2]):
    c.sendall(b'x' * 1000)
    assert len(c.recv(1000, socket.MSG_WAITALL)) == 1000
    time.sleep(0.005)";

/// Has no room for a memory so large. Ends when its other end does.
pub const NARROW: &str = "import resource, socket, sys, time
resource.setrlimit(resource.RLIMIT_AS, (6 << 30, resource.getrlimit(resource.RLIMIT_AS)[1]))
c = socket.create_connection(('127.0.0.1', int(sys.argv[1])))
try:
    while True:
        c.sendall(b'x' * 1000)
        if len(c.recv(1000, socket.MSG_WAITALL)) < 1000: break
        time.sleep(0.005)
except OSError: pass";

/// One connection, which is silent after a while: says how often a second its threads but the first
/// wake up then.
pub const SILENT: &str = "import os, socket, sys, time
c = socket.create_connection((sys.argv[1], int(sys.argv[2])))
for _ in range(200):
    c.sendall(b'x' * 100)
    assert len(c.recv(100, socket.MSG_WAITALL)) == 100
    time.sleep(0.005)
def wakes():
    lines = [line for t in os.listdir('/proc/self/task') if int(t) != os.getpid() for line in open(f'/proc/self/task/{t}/status')]
    return sum(int(line.split()[1]) for line in lines if line.startswith('voluntary'))
time.sleep(6)
before, begun = wakes(), time.monotonic()
time.sleep(6)
print('wakes', int((wakes() - before) / (time.monotonic() - begun)), flush=True)";

/// In a user namespace, and a network of that one's: makes a second network as its second argument
/// says, and runs the server there, and the client here, as two users of the namespace. Before each
/// program goes what says so in its environment.
pub const IN_A_USER_NAMESPACE: &str = "set -e
ip link set lo up
unshare $1 -- sleep 200 & other=$!
until there=$(readlink /proc/$other/ns/net) && [ $there != $(readlink /proc/self/ns/net) ]; do sleep 0.02; done
ip link add v0 type veth peer name v1 netns $other
ip addr add 10.77.0.1/24 dev v0
ip link set v0 up
nsenter -n -t $other sh -c 'ip link set lo up; ip addr add 10.77.0.2/24 dev v1; ip link set v1 up'
nsenter -n -t $other setpriv --reuid=1 --regid=1 --clear-groups env $2 $4 -c \"$5\" \"$7\" & server=$!
until [ -e \"$7\" ]; do sleep 0.02; done
setpriv --reuid=2 --regid=2 --clear-groups env $3 $4 -c \"$6\" 10.77.0.2 $(cat \"$7\") 2 60 \"$8\"
: >\"$7.end\"
wait $server
kill $other";
