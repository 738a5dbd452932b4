"""Finds and loads libtutti, once."""

import ctypes
import os

from . import _abi


def _find():
    named = os.environ.get("TUTTI_LIBRARY")
    if named:
        return named
    beside = os.path.join(os.path.dirname(os.path.abspath(__file__)), "lib")
    for name in sorted(os.listdir(beside)) if os.path.isdir(beside) else ():
        if name.startswith("libtutti.so"):
            return os.path.join(beside, name)
    return "libtutti.so.%d" % _abi.ABI


def _load():
    path = _find()
    try:
        library = ctypes.CDLL(path)
        _abi.declare(library)
    except (OSError, AttributeError) as e:
        raise ImportError("tutti: the library '%s' cannot be used (%s); install the package again, or name another "
                          "in TUTTI_LIBRARY" % (path, e)) from None
    return library


library = _load()
