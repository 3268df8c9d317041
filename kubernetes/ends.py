#!/usr/bin/env python3
"""Reads what `ginnel status --json` printed, from standard input or from files.

  ends.py share PEER    prints how many bytes this side exchanged with PEER, an address without its
                        port, and how many of them by ring, in per cent
  ends.py goes-on BEFORE AFTER
                        is content where connections that are in both go on by ring: one at least,
                        each with more bytes by ring in AFTER, and no more by TCP
"""

import json
import sys

RING, TCP = ("out_ring", "in_ring"), ("out_tcp", "in_tcp")


def count(end, carriers):
    return sum(end[carrier] for carrier in carriers)


def share(ends, peer):
    ends = [end for end in ends if (end["remote"] or "").rpartition(":")[0] == peer]
    ring, tcp = (sum(count(end, carriers) for end in ends) for carriers in (RING, TCP))
    reasons = sorted({end["reason"] for end in ends if end["reason"]})
    print(f"{peer}: {ring + tcp} bytes, {100 * ring / max(ring + tcp, 1):.1f} % by ring", *reasons)


def goes_on(before, after):
    before = {end["cookie"]: end for end in before}
    both = [(before[end["cookie"]], end) for end in after if end["cookie"] in before]
    for old, new in both:
        moved, kept = (count(new, carriers) - count(old, carriers) for carriers in (RING, TCP))
        print(f"socket {new['cookie']}: {moved} bytes more by ring, {kept} by TCP")
        if moved <= 0 or kept > 0:
            sys.exit("a connection does not go on by ring")
    if not both:
        sys.exit("no connection is in both")


def read(file):
    return json.load(file)["connections"]


def main(what, *arguments):
    if what == "share":
        share(read(sys.stdin), *arguments)
    else:
        goes_on(*(read(open(name, encoding="utf-8")) for name in arguments))


if __name__ == "__main__":
    main(*sys.argv[1:])
