#!/bin/sh
# ZeroMQ (libzmq, from Python): its threads of input and output, with each pattern of sockets; large messages, queues that are full,
# many sockets in one process, and encryption.
. "${0%/*}/lib.sh"
needs python3
python3 -c 'import zmq' 2>/dev/null || { echo "ok 1 - all # SKIP no zmq"; exit 0; }
version python3 -c 'import zmq; print("libzmq", zmq.zmq_version(), "pyzmq", zmq.__version__)'
cat >"$TMPDIR/both.py" <<'P'
import os, sys, time
import zmq

case, at, end = sys.argv[1], 'tcp://127.0.0.1:' + sys.argv[2], time.time() + float(sys.argv[3])


class Context:
    """A context of this process, whose sockets say when they waited for too long."""

    def __init__(self, threads=1, queue=0):
        self.context, self.queue, self.made = zmq.Context(threads), queue, []

    def socket(self, kind):
        made = self.context.socket(kind)
        made.set_hwm(self.queue)
        made.RCVTIMEO = made.SNDTIMEO = made.LINGER = 60000
        self.made.append(made)
        return made

    def end(self):
        for one in self.made:
            one.close()
        self.context.term()


def child(run):
    pid = os.fork()
    if pid == 0:
        try:
            run()
            os._exit(0)
        except BaseException as error:
            print('a child:', repr(error), flush=True)
            os._exit(1)
    return pid


def ended(*pids):
    for pid in pids:
        assert os.waitpid(pid, 0)[1] == 0, 'a child failed'


def pipeline(queue, threads, extra):
    def push():
        context = Context(threads, queue)
        to, i = context.socket(zmq.PUSH), 0
        to.connect(at)
        while i < 20000 or time.time() < end:
            to.send(extra + b'%d' % i)
            i += 1
        to.send(b'end')
        context.end()

    pid = child(push)
    context = Context(threads, queue)
    source, i = context.socket(zmq.PULL), 0
    source.bind(at)
    while (got := source.recv()) != b'end':
        assert got == extra + b'%d' % i, (got, i)
        i += 1
        if queue and i % 5000 == 0:
            time.sleep(0.1)
    ended(pid)
    context.end()
    print(i, 'messages')


def calls():
    def answer():
        context = Context()
        server = context.socket(zmq.REP)
        server.bind(at)
        while (got := server.recv()) != b'end':
            server.send(got[::-1])
        server.send(b'bye')
        context.end()

    pid = child(answer)
    context, i = Context(), 0
    client = context.socket(zmq.REQ)
    client.connect(at)
    while time.time() < end or i < 2000:
        client.send(b'call %d' % i)
        assert client.recv() == (b'call %d' % i)[::-1]
        i += 1
    client.send(b'end')
    assert client.recv() == b'bye'
    ended(pid)
    context.end()
    print(i, 'calls')


def subscribers():
    back = 'ipc://' + os.environ['TMPDIR'] + '/back'

    def subscribe(number):
        context, i = Context(), number
        source, ready = context.socket(zmq.SUB), context.socket(zmq.PUSH)
        source.connect(at)
        ready.connect(back)
        source.subscribe(b'%d ' % number)
        source.subscribe(b'all')
        assert source.recv() == b'all'
        ready.send(b'')
        while (got := source.recv()) != b'all end':
            if got == b'all':
                continue
            assert got == b'%d %d' % (number, i), (got, number, i)
            i += 4
        context.end()

    pids = [child(lambda number=number: subscribe(number)) for number in range(4)]
    context, heard, i = Context(), 0, 0
    to, ready = context.socket(zmq.PUB), context.socket(zmq.PULL)
    to.bind(at)
    ready.bind(back)
    ready.RCVTIMEO = 50
    limit = time.time() + 60
    while heard < 4 and time.time() < limit:
        to.send(b'all')
        try:
            ready.recv()
            heard += 1
        except zmq.Again:
            pass
    while i < 20000 or time.time() < end:
        to.send(b'%d %d' % (i % 4, i))
        i += 1
        if i % 5000 == 0:
            # No queue has an end here.
            time.sleep(0.05)
    to.send(b'all end')
    ended(*pids)
    context.end()
    print(i, 'messages')


def large():
    body = os.urandom(50_000_000)

    def swap():
        context = Context()
        other = context.socket(zmq.DEALER)
        other.connect(at)
        while (parts := other.recv_multipart())[0] != b'end':
            assert parts[1] == body, 'another body'
            other.send_multipart([parts[2], parts[1]], copy=False)
        context.end()

    pid = child(swap)
    context, i = Context(), 0
    this = context.socket(zmq.DEALER)
    this.bind(at)
    while i < 3 or time.time() < end:
        this.send_multipart([b'', body, b'%d' % i], copy=False)
        assert this.recv_multipart() == [b'%d' % i, body], 'another body'
        i += 1
    this.send(b'end')
    ended(pid)
    context.end()
    print(i, 'times')


def hundred():
    public, secret = zmq.curve_keypair()

    def deal():
        context, i = Context(), 0
        many = [context.socket(zmq.DEALER) for _ in range(100)]
        for one in many:
            one.curve_publickey, one.curve_secretkey, one.curve_serverkey = public, secret, public
            one.connect(at)
        while i < 10 or time.time() < end:
            for number, one in enumerate(many):
                one.send(b'%d %d' % (i, number))
            for number, one in enumerate(many):
                assert one.recv() == b'%d %d' % (i, number)
            i += 1
        many[0].send(b'end')
        print(i, 'rounds', flush=True)
        context.end()

    pid = child(deal)
    context = Context()
    server = context.socket(zmq.ROUTER)
    server.curve_server, server.curve_publickey, server.curve_secretkey = True, public, secret
    server.bind(at)
    while (got := server.recv_multipart())[1] != b'end':
        server.send_multipart(got)
    ended(pid)
    context.end()


{
    'pipeline': lambda: pipeline(0, 1, b''),
    'short': lambda: pipeline(10, 4, b'x' * 300),
    'calls': calls,
    'subscribers': subscribers,
    'large': large,
    'hundred': hundred,
}[case]()
P
both() { timeout $((seconds + 120)) python3 "$TMPDIR/both.py" "$1" "$(port)" $((seconds / 6)); }
check "a pipeline" both pipeline
check "one with short queues, and four threads" both short
check "calls" both calls
check "four subscribers" both subscribers
check "messages of 50 MB" both large
check "a hundred encrypted connections of one process" both hundred
