#!/bin/sh
# Python's asyncio: many streams at once, echoed by another process, every byte checked.
. "${0%/*}/lib.sh"
needs /usr/bin/python3.11
version /usr/bin/python3.11 --version
cat >"$TMPDIR/echo.py" <<'P'
import asyncio, sys
async def serve(reader, writer):
    while data := await reader.read(70000):
        writer.write(data)
        await writer.drain()
    writer.close()
async def main():
    async with await asyncio.start_server(serve, '127.0.0.1', int(sys.argv[1])) as server:
        await server.serve_forever()
asyncio.run(main())
P
cat >"$TMPDIR/client.py" <<'P'
import asyncio, os, random, sys, time
port, end = int(sys.argv[1]), time.monotonic() + float(sys.argv[2])
async def one(number):
    rounds = 0
    while time.monotonic() < end:
        reader, writer = await asyncio.open_connection('127.0.0.1', port)
        for _ in range(random.randrange(1, 40)):
            data = os.urandom(random.choice([1, 10, 1000, 65536, 300000]))
            async def send():
                writer.write(data)
                await writer.drain()
            sending = asyncio.create_task(send())
            assert await asyncio.wait_for(reader.readexactly(len(data)), 30) == data
            await sending
            rounds += 1
        writer.write_eof()
        assert await asyncio.wait_for(reader.read(), 30) == b''
        writer.close()
        await writer.wait_closed()
    return rounds
async def main():
    rounds = await asyncio.gather(*(one(n) for n in range(64)))
    print(sum(rounds), 'rounds')
    assert min(rounds) > 0
asyncio.run(main())
P
port=$(port)
start /usr/bin/python3.11 "$TMPDIR/echo.py" "$port"
check "listens" listening "$port"
check "64 streams" /usr/bin/python3.11 "$TMPDIR/client.py" "$port" "$seconds"
