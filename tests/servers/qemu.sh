#!/bin/sh
# QEMU: a machine without a system that answers on its serial port, controlled by QMP and migrated twice, the second time over
# several connections. Character device, monitor and migration each are TCP.
. "${0%/*}/lib.sh"
needs qemu-system-x86_64 python3
version qemu-system-x86_64 --version
cat >"$TMPDIR/machines.py" <<'P'
import json, os, socket, subprocess, sys, time

PATIENCE = 120
here, end = os.environ['TMPDIR'], time.time() + float(sys.argv[1])


def port():
    with socket.socket() as one:
        one.bind(('127.0.0.1', 0))
        return one.getsockname()[1]


def connected(at):
    limit = time.time() + PATIENCE
    while True:
        try:
            made = socket.create_connection(('127.0.0.1', at))
            made.settimeout(PATIENCE)
            return made
        except OSError:
            assert time.time() < limit, 'nobody listens'
            time.sleep(0.1)


# A boot sector that answers each byte of the serial port with the same letter, small for capital and the other way round:
# it waits for bit 0 of the line status, reads, inverts bit 5, waits for bit 5 of the line status, and writes.
START = 'fa 31c0 8ed8 8ec0 8ed0 bc007c'
ANSWER = 'bafd03 ec a801 74f8 baf803 ec 3420 50 bafd03 ec a820 74fb 58 baf803 ee ebe2'
with open(here + '/boot', 'wb') as boot:
    boot.write((bytes.fromhex(START + ANSWER).ljust(510, b'\0') + b'\x55\xaa').ljust(1 << 20, b'\0'))


class Machine:
    def __init__(self, *more):
        monitor, serial = port(), port()
        self.qemu = subprocess.Popen(
            ['qemu-system-x86_64', '-machine', 'q35,accel=tcg', '-m', '128', '-display', 'none', '-nodefaults',
             '-drive', 'file=%s/boot,format=raw,if=ide,snapshot=on' % here,
             '-qmp', 'tcp:127.0.0.1:%d,server=on,wait=off' % monitor,
             '-chardev', 'socket,id=serial,host=127.0.0.1,port=%d,server=on,wait=off' % serial,
             '-device', 'isa-serial,chardev=serial', *more])
        self.monitor = connected(monitor)
        self.lines = self.monitor.makefile('rb')
        assert b'QMP' in self.lines.readline()
        self('qmp_capabilities')
        self.serial = connected(serial)

    def __call__(self, command, **arguments):
        self.monitor.sendall(json.dumps({'execute': command, 'arguments': arguments}).encode() + b'\n')
        while True:
            said = json.loads(self.lines.readline())
            assert 'error' not in said, said
            if 'return' in said:
                return said['return']

    def booted(self):
        """Until it answers. What came too early, it may answer or not."""
        limit = time.time() + PATIENCE
        self.serial.settimeout(1)
        while True:
            assert time.time() < limit, 'it does not boot'
            self.serial.sendall(b'a')
            try:
                if self.serial.recv(1) == b'A':
                    break
            except socket.timeout:
                pass
        try:
            while self.serial.recv(100):
                pass
        except socket.timeout:
            self.serial.settimeout(PATIENCE)

    def answers(self, times):
        for i in range(times):
            said, heard = bytes(65 + (i + j) % 26 for j in range(1 + i % 14)), b''
            self.serial.sendall(said)
            while len(heard) < len(said):
                part = self.serial.recv(100)
                assert part, 'the serial port ended'
                heard += part
            assert heard == said.lower(), (said, heard)

    def migrated(self, at):
        self('migrate', uri='tcp:127.0.0.1:%d' % at)
        while (told := self('query-migrate'))['status'] not in ('completed', 'failed'):
            time.sleep(0.1)
        assert told['status'] == 'completed', told

    def ended(self):
        self.monitor.sendall(b'{"execute": "quit"}\n')
        assert self.qemu.wait(PATIENCE) == 0


at = port()
first, second = Machine(), Machine('-incoming', 'tcp:127.0.0.1:%d' % at)
first.booted()
rounds = 0
while rounds == 0 or time.time() < end:
    first.answers(50)
    for _ in range(20):
        assert first('query-status')['running']
    assert len(json.dumps(first('query-qmp-schema'))) > 100_000
    rounds += 1
print(rounds, 'rounds')
for machine in first, second:
    machine('migrate-set-parameters', **{'max-bandwidth': 1 << 33})
first.migrated(at)
second.answers(100)
third, at = Machine('-incoming', 'defer'), port()
for machine in second, third:
    machine('migrate-set-capabilities', capabilities=[{'capability': 'multifd', 'state': True}])
    machine('migrate-set-parameters', **{'max-bandwidth': 1 << 33, 'multifd-channels': 3})
third('migrate-incoming', uri='tcp:127.0.0.1:%d' % at)
second.migrated(at)
third.answers(100)
for machine in first, second, third:
    machine.ended()
P
check "serial port, monitor, migration" timeout $((seconds + 250)) python3 "$TMPDIR/machines.py" "$((seconds / 2))"
