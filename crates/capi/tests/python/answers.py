"""Answers requests: 16 bytes with the name of the queue for the answer, then numbers. The answer is
their sum."""

import struct

import ginnel

segment = ginnel.Segment.own(size=64 << 20)
ginnel.Queue(message_size=4096, senders=8).open_or_create(segment, "sums")
answers = {}
with ginnel.Receiver.open(segment, "sums") as requests:
    while True:
        try:
            with requests.recv(60) as request:
                data = bytes(request)
        except ginnel.Ended:
            # Everybody who asked has left.
            break
        name = data[:16].split(b"\0")[0].decode()
        if name not in answers:
            answers[name] = ginnel.Sender.open(segment, name)
        numbers = struct.unpack(f"<{(len(data) - 16) // 8}Q", data[16:])
        answers[name].send(struct.pack("<Q", sum(numbers)), 60)
