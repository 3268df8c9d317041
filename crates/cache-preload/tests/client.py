"""A program of libmemcached under the preloaded library: what it reads, and by which way.

    client.py SERVER OTHER    two unix sockets; the first is a ginnel-cache's

Calls libmemcached by ctypes, through the program's own namespace, as a program linked with it would.
"""

import ctypes
import os
import sys

LIBRARY = ctypes.CDLL("libmemcached.so.11", ctypes.RTLD_GLOBAL)
GLOBAL = ctypes.CDLL(None)
NOREPLY, PREFIX, END, SUCCESS, NOTFOUND = 26, 0, 21, 0, 16


def of(name, result, *arguments):
    function = getattr(GLOBAL, name)
    function.restype, function.argtypes = result, arguments
    return function


pointer, text, size, number = ctypes.c_void_p, ctypes.c_char_p, ctypes.c_size_t, ctypes.c_int
sizes, flags_of, error_of = (ctypes.POINTER(kind) for kind in (size, ctypes.c_uint32, number))
create = of("memcached_create", pointer, pointer)
free = of("memcached_free", None, pointer)
push = of("memcached_server_add_unix_socket", number, pointer, text)
store = of("memcached_set", number, pointer, text, size, text, size, ctypes.c_long, ctypes.c_uint32)
delete = of("memcached_delete", number, pointer, text, size, ctypes.c_long)
get_it = of("memcached_get", pointer, pointer, text, size, sizes, flags_of, error_of)
mget_it = of("memcached_mget", number, pointer, ctypes.POINTER(text), sizes, size)
fetch_it = of("memcached_fetch", pointer, pointer, text, sizes, sizes, flags_of, error_of)
fetch_result = of("memcached_fetch_result", pointer, pointer, pointer, error_of)
result_key = of("memcached_result_key_value", text, pointer)
result_value = of("memcached_result_value", text, pointer)
result_flags = of("memcached_result_flags", ctypes.c_uint32, pointer)
behavior = of("memcached_behavior_set", number, pointer, number, ctypes.c_uint64)
callback = of("memcached_callback_set", number, pointer, number, text)
execute = of("memcached_fetch_execute", number, pointer, pointer, pointer, ctypes.c_uint32)
counts_of = of("ginnel_memcached_counts", None, *[ctypes.POINTER(ctypes.c_uint64)] * 2)
c_free = of("free", None, pointer)


def counts():
    """(direct, asked) since the last call."""
    direct, asked = ctypes.c_uint64(), ctypes.c_uint64()
    counts_of(direct, asked)
    now = (direct.value, asked.value)
    was, counts.was = counts.was, now
    return now[0] - was[0], now[1] - was[1]


counts.was = (0, 0)


def connected(*sockets):
    handle = create(None)
    for socket in sockets:
        assert push(handle, socket.encode()) == SUCCESS
    return handle


def put(handle, key, value, flags=0):
    assert store(handle, key, len(key), value, len(value), 0, flags) == SUCCESS


def taken(place, length):
    value = None if not place else ctypes.string_at(place, length)
    if place:
        assert ctypes.string_at(place, length + 1)[-1] == 0, "no zero byte behind the value"
        c_free(place)
    return value


def get(handle, key):
    length, flags, error = size(), ctypes.c_uint32(), number()
    place = get_it(handle, key, len(key), length, flags, error)
    return taken(place, length.value), flags.value, error.value


def mget(handle, *keys):
    names, lengths = (text * len(keys))(*keys), (size * len(keys))(*map(len, keys))
    assert mget_it(handle, names, lengths, len(keys)) == SUCCESS


def fetched(handle):
    found = []
    while True:
        key, key_length, length = ctypes.create_string_buffer(251), size(), size()
        flags, error = ctypes.c_uint32(), number()
        place = fetch_it(handle, key, key_length, length, flags, error)
        if not place:
            assert error.value in (END, NOTFOUND), error.value
            return found
        found.append((key.raw[: key_length.value], taken(place, length.value), flags.value))


def results(handle):
    found, error = [], number()
    while result := fetch_result(handle, None, error):
        found.append((result_key(result), result_value(result), result_flags(result)))
    assert error.value in (END, NOTFOUND), error.value
    return found


def alone(server):
    handle = connected(server)
    put(handle, b"key", b"value", 7)
    put(handle, b"large", b"x" * 300_000)
    assert get(handle, b"key") == (b"value", 7, SUCCESS)
    assert get(handle, b"large")[0] == b"x" * 300_000
    assert counts() == (2, 0), "the first read already is direct"
    # A miss is the server's to tell.
    assert get(handle, b"none") == (None, 0, NOTFOUND)
    assert get(handle, b"key")[0] == b"value" and get(handle, b"key")[0] == b"value"
    assert counts() == (2, 1)
    # What it stores itself it reads at once; an empty value is libmemcached's to tell.
    for at in range(200):
        put(handle, b"key", b"%d" % at)
        assert get(handle, b"key")[0] == b"%d" % at
    put(handle, b"empty", b"")
    assert get(handle, b"empty")[2] == SUCCESS
    assert counts() == (200, 1)
    return handle


def several(handle):
    put(handle, b"one", b"1", 1)
    put(handle, b"two", b"22", 2)
    expected = [(b"one", b"1", 1), (b"two", b"22", 2)]
    mget(handle, b"one", b"two")
    assert fetched(handle) == expected
    mget(handle, b"one", b"two")
    assert results(handle) == expected
    assert counts() == (4, 0)
    seen = []
    kind = ctypes.CFUNCTYPE(number, pointer, pointer, pointer)
    note = kind(lambda _handle, result, _context: seen.append(result_value(result)) or SUCCESS)
    mget(handle, b"two", b"one")
    assert execute(handle, ctypes.byref(ctypes.cast(note, pointer)), None, 1) == SUCCESS
    assert seen == [b"22", b"1"]
    # One that is not there: the whole question is libmemcached's.
    mget(handle, b"one", b"none", b"two")
    assert sorted(fetched(handle)) == expected
    assert counts() == (2, 3)
    # What was not fetched is nobody's any more.
    mget(handle, b"one", b"two")
    assert get(handle, b"two")[0] == b"22"
    assert fetched(handle) == []


def settings(handle):
    put(handle, b"p-key", b"prefixed")
    counts()
    assert callback(handle, PREFIX, b"p-") == SUCCESS
    assert get(handle, b"key")[0] == b"prefixed"
    assert counts() == (1, 0)
    assert callback(handle, PREFIX, None) == SUCCESS
    # A write that nobody acknowledges may not have been executed.
    assert behavior(handle, NOREPLY, 1) == SUCCESS
    assert get(handle, b"p-key")[0] == b"prefixed"
    assert counts() == (0, 1)
    assert behavior(handle, NOREPLY, 0) == SUCCESS


def two_servers(server, other):
    """One is a ginnel-cache and one is not: each key is the business of the one it hashes to."""
    handle = connected(server, other)
    keys = [b"key-%d" % at for at in range(100)]
    for key in keys:
        put(handle, key, b"of " + key)
    counts()
    for key in keys:
        assert get(handle, key)[0] == b"of " + key
    direct, asked = counts()
    assert direct > 20 and asked > 20, (direct, asked)
    # The other server's keys have other values at the cache, which nobody may see.
    for place in (server, other):
        single = connected(place)
        for key in keys:
            put(single, key, place.encode())
        free(single)
    seen = {get(handle, key)[0] for key in keys}
    assert seen == {server.encode(), other.encode()}, seen
    free(handle)


def in_a_child(handle):
    put(handle, b"key", b"value")
    counts()
    child = os.fork()
    if child == 0:
        # A handle is not for two processes; the child's own is made anew.
        own = connected(SERVER)
        good = get(own, b"key")[0] == b"value" and counts() == (1, 0)
        os._exit(0 if good else 1)
    assert os.waitpid(child, 0)[1] == 0
    assert get(handle, b"key")[0] == b"value"


def moved(server, other):
    """The cache lives, and another server has its address: what libmemcached does not know yet."""
    handle = connected(server)
    put(handle, b"key", b"the cache's")
    assert get(handle, b"key")[0] == b"the cache's"
    os.rename(other, server)
    counts()
    assert get(handle, b"key")[0] == b"the cache's", "its connection leads there still"
    assert counts() == (1, 0)
    # It connects anew, unseen: what the setting is does not matter.
    of("memcached_quit", None, pointer)(handle)
    put(handle, b"key", b"the other's")
    for _ in range(3):
        assert get(handle, b"key")[0] == b"the other's"
    assert counts() == (0, 3)
    free(handle)


SERVER, OTHER = sys.argv[1:]
one = alone(SERVER)
several(one)
settings(one)
two_servers(SERVER, OTHER)
in_a_child(one)
free(one)
moved(SERVER, OTHER)
print("ok")
