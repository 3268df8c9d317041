"""A Python program that uses the module as it says; argv[1] is the server's address."""

import os
import sys

import ginnel_cache

with ginnel_cache.Client(sys.argv[1]) as cache:
    assert cache.is_neighbour and cache.why == "", cache.why
    assert cache.get("none") is None and cache.get("none", b"x") == b"x"
    assert cache.set("ключ", b"\0value", flags=3)
    item = cache.gets("ключ")
    assert (item.value, item.flags) == (b"\0value", 3), item
    assert not cache.cas("ключ", b"late", item.cas + 9)
    assert cache.cas("ключ", b"", item.cas)
    found = cache.mget(["ключ", "none", b"also-none"])
    assert {key: one.value for key, one in found.items()} == {"ключ": b""}, found
    assert cache.delete("ключ") and not cache.delete("ключ")
    try:
        cache.get("not a key")
        raise SystemExit("a key with blanks was asked for")
    except ginnel_cache.Error as error:
        assert "250 bytes" in str(error)
    print("direct %d asked %d" % cache.counts)
    # What is no bytes is text or refused: never the representation of something else.
    for value, read in [("grüße", "grüße".encode()), (bytearray(b"a"), b"a"), (memoryview(b"b"), b"b")]:
        assert cache.set("kind", value) and cache.get("kind") == read, value
    item = cache.gets("kind")
    assert cache.cas("kind", "text", item.cas) and cache.get("kind") == b"text"
    for wrong in [lambda: cache.set("kind", 5), lambda: cache.get(5), lambda: cache.mget([5])]:
        try:
            wrong()
            raise SystemExit("a number was taken for bytes")
        except TypeError as error:
            assert "not int" in str(error), error
    cache.delete("kind")
    # A child joins the server by itself: what its parent read by, the parent goes on writing.
    cache.set("key", b"value")
    before = cache.counts
    child = os.fork()
    if child == 0:
        first, second = (cache.get("key"), cache.counts), (cache.get("key"), cache.counts)
        expected = [(before[0], before[1] + 1), (before[0] + 1, before[1] + 1)]
        good = first[0] == second[0] == b"value" and [first[1], second[1]] == expected
        os._exit(0 if good else 1)
    assert os.waitpid(child, 0)[1] == 0, "the child read by its parent's ring"
    assert cache.get("key") == b"value" and cache.counts == (before[0] + 1, before[1])
try:
    cache.get("key")
    raise SystemExit("a closed client reads")
except ginnel_cache.Error:
    pass
