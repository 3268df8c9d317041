"""A Python program that uses the module as it says; argv[1] is the server's address."""

import sys

import ginnel_cache

with ginnel_cache.Client(sys.argv[1]) as cache:
    assert cache.is_neighbour
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
try:
    cache.get("key")
    raise SystemExit("a closed client reads")
except ginnel_cache.Error:
    pass
