"""Reading items of a ginnel-cache out of its memory, without asking the server.

    import ginnel_cache
    cache = ginnel_cache.Client("127.0.0.1:11211")
    cache.set("greeting", b"hello")
    cache.get("greeting")            # b'hello', or None

One file, over libginnel_cache_client.so.0, by ctypes. A client is for one thread at a time. The
server may be any memcached: then every call asks it. Keys and values are bytes or str, which is
stored as UTF-8; what is read is bytes.
"""

import ctypes
import os

__all__ = ["Client", "Error", "Item"]


class Error(Exception):
    """The server could not be asked, or did not understand."""


class _Item(ctypes.Structure):
    _fields_ = [
        ("value", ctypes.c_void_p),
        ("length", ctypes.c_size_t),
        ("cas", ctypes.c_uint64),
        ("flags", ctypes.c_uint32),
    ]


class Item:
    """A value with its flags and its unique number."""

    __slots__ = ("value", "flags", "cas")

    def __init__(self, value, flags, cas):
        self.value, self.flags, self.cas = value, flags, cas

    def __repr__(self):
        return f"Item(value={self.value!r}, flags={self.flags}, cas={self.cas})"


def _load():
    library = ctypes.CDLL(os.environ.get("GINNEL_CACHE_LIBRARY", "libginnel_cache_client.so.0"))
    handle, key, size = ctypes.c_void_p, ctypes.c_char_p, ctypes.c_size_t
    flags, time, number = ctypes.c_uint32, ctypes.c_int32, ctypes.c_uint64
    one, counter = ctypes.POINTER(_Item), ctypes.POINTER(ctypes.c_uint64)
    keys, sizes = ctypes.POINTER(key), ctypes.POINTER(size)
    for name, result, arguments in [
        ("open", handle, [key]),
        ("close", None, [handle]),
        ("get", ctypes.c_int, [handle, key, size, one]),
        ("mget", ctypes.c_ssize_t, [handle, keys, sizes, size, one]),
        ("set", ctypes.c_int, [handle, key, size, key, size, flags, time]),
        ("cas", ctypes.c_int, [handle, key, size, key, size, flags, time, number]),
        ("delete", ctypes.c_int, [handle, key, size]),
        ("is_neighbour", ctypes.c_int, [handle]),
        ("counts", None, [handle, counter, counter]),
        ("error", key, []),
    ]:
        function = getattr(library, "ginnel_cache_" + name)
        function.restype, function.argtypes = result, arguments
    return library


_library = None


def _bytes(given):
    if isinstance(given, str):
        return given.encode()
    if isinstance(given, (bytes, bytearray, memoryview)):
        return bytes(given)
    raise TypeError(f"keys and values are bytes or str, not {type(given).__name__}")


class Client:
    """A client of the server at HOST:PORT, or at a unix socket's path."""

    def __init__(self, address="127.0.0.1:11211"):
        global _library
        self._handle = None
        if _library is None:
            _library = _load()
        self._handle = _library.ginnel_cache_open(address.encode())
        if not self._handle:
            raise Error(_library.ginnel_cache_error().decode(errors="replace"))
        self._item = _Item()

    def close(self):
        """Closes the client, which is of no use then."""
        if self._handle:
            _library.ginnel_cache_close(self._handle)
            self._handle = None

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

    def __del__(self):
        self.close()

    def _open(self):
        if not self._handle:
            raise Error("the client is closed")
        return self._handle

    @staticmethod
    def _said(result):
        if result < 0:
            raise Error(_library.ginnel_cache_error().decode(errors="replace"))
        return result

    def get(self, key, default=None):
        """Returns the value of `key`, or `default`."""
        item = self.gets(key)
        return default if item is None else item.value

    def gets(self, key):
        """Returns the Item of `key`, or None."""
        key, item = _bytes(key), self._item
        if not self._said(_library.ginnel_cache_get(self._open(), key, len(key), ctypes.byref(item))):
            return None
        return Item(ctypes.string_at(item.value, item.length), item.flags, item.cas)

    def mget(self, keys):
        """Returns a dict of those of `keys` that there are, with their Items."""
        names = list(keys)
        raw = [_bytes(name) for name in names]
        items = (_Item * len(raw))()
        pointers = (ctypes.c_char_p * len(raw))(*raw)
        sizes = (ctypes.c_size_t * len(raw))(*map(len, raw))
        self._said(_library.ginnel_cache_mget(self._open(), pointers, sizes, len(raw), items))
        return {
            name: Item(ctypes.string_at(item.value, item.length), item.flags, item.cas)
            for name, item in zip(names, items)
            if item.value
        }

    def set(self, key, value, flags=0, exptime=0):
        """Stores `value` for `exptime` seconds, 0 for ever; says whether it was stored."""
        key, value = _bytes(key), _bytes(value)
        result = _library.ginnel_cache_set(
            self._open(), key, len(key), value, len(value), flags, exptime
        )
        return bool(self._said(result))

    def cas(self, key, value, cas, flags=0, exptime=0):
        """As set, but only where the item there has the unique number `cas`."""
        key, value = _bytes(key), _bytes(value)
        result = _library.ginnel_cache_cas(
            self._open(), key, len(key), value, len(value), flags, exptime, cas
        )
        return bool(self._said(result))

    def delete(self, key):
        """Deletes an item; says whether there was one."""
        key = _bytes(key)
        return bool(self._said(_library.ginnel_cache_delete(self._open(), key, len(key))))

    @property
    def is_neighbour(self):
        """Whether items are read out of the server's memory."""
        return bool(_library.ginnel_cache_is_neighbour(self._open()))

    @property
    def why(self):
        """Why items are not read out of the server's memory; "" where they are."""
        if self.is_neighbour:
            return ""
        return _library.ginnel_cache_error().decode(errors="replace")

    @property
    def counts(self):
        """How many reads were answered (out of the memory, by the server)."""
        direct, asked = ctypes.c_uint64(), ctypes.c_uint64()
        _library.ginnel_cache_counts(self._open(), ctypes.byref(direct), ctypes.byref(asked))
        return direct.value, asked.value
