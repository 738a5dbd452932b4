"""Finds and loads libtutti once: the file that TUTTI_LIBRARY names, else that of the package, else the system's.

After `pip install -e .` the Python files are those of the source tree, and the built files are where pip installs.
"""

import ctypes
import os
from collections.abc import Iterator
from typing import Any

from . import _abi

_SONAME = "libtutti.so." + _abi.ABI


def built(*name: str) -> str | None:
    """Returns the path of a built file of this package, such as built("lib", "libtutti.so.0.4"); None: no such file."""
    beside = os.path.join(os.path.dirname(os.path.abspath(__file__)), *name)
    if os.path.exists(beside):
        return beside
    from importlib import metadata  # not before it is needed: it takes as long as all the rest

    try:
        installed = str(metadata.distribution("tutti").locate_file(os.path.join("tutti", *name)))
    except metadata.PackageNotFoundError:
        return None
    return installed if os.path.exists(installed) else None


def _find() -> str:
    return os.environ.get("TUTTI_LIBRARY") or built("lib", _SONAME) or _SONAME


def _refused(path: str, why: str) -> ImportError:
    named = "named by TUTTI_LIBRARY" if os.environ.get("TUTTI_LIBRARY") else "of this installation"
    return ImportError(f"tutti cannot use the library '{path}' {named}: {why}", name="tutti", path=path)


def _interface(version: str) -> str:
    """Returns the part of a version that stands for its interface (cmake/Install.cmake): 0.2 of 0.2.1, 3 of 3.1.0."""
    major, minor = version.split(".")[:2]
    return f"0.{minor}" if major == "0" else major


def _load() -> ctypes.CDLL:
    path = _find()
    try:
        loaded = ctypes.CDLL(path)
    except OSError as e:
        missing = str(e).partition(": cannot open shared object file")[0]
        if missing == path:
            raise _refused(path, "there is no such file; install tutti again, or name one in TUTTI_LIBRARY") from None
        if missing != str(e):
            raise _refused(path, f"it needs {missing}, which is not on this machine; install what has it") from None
        raise _refused(path, str(e)) from None
    try:
        loaded.tutti_version.restype = ctypes.c_char_p
        version = loaded.tutti_version().decode()
        if _interface(version) == _abi.ABI:
            _abi.declare(loaded)
            loaded.tutti_python_fail_at_exit.argtypes, loaded.tutti_python_fail_at_exit.restype = [], None
            return loaded
        why = f"it is of version {version}, and this package was made for {_abi.VERSION}; install both from one version"
    except AttributeError as e:
        why = f"it is no libtutti of version {_abi.VERSION} ({e}); install both from one version"
    raise _refused(path, why)


def table(name: str) -> Iterator[Any]:
    """Yields the entries of a NULL-ended table of the library, such as "tutti_methods"."""
    at = ctypes.addressof(ctypes.c_void_p.in_dll(library, name))
    entries = ctypes.cast(at, ctypes.POINTER(_abi.TABLES[name]))
    k = 0
    while entries[k]:
        yield entries[k].contents
        k += 1


def members(struct: type[ctypes.Structure]) -> dict[str, Any]:
    """Returns the types of a struct's members, by name."""
    return {field[0]: field[1] for field in struct._fields_}


library = _load()
fail_at_exit = library.tutti_python_fail_at_exit  # src/api/python.h: no public function
