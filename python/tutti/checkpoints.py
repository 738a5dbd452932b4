"""Reads what runs have saved: checkpoints (directories step-00001200/) and model.safetensors.

    for c in tutti.checkpoints.list("runs/mnist"):
        print(c.path, c.step, c.damage or "whole")
    with tutti.checkpoints.Checkpoint(tutti.checkpoints.find("runs/mnist")) as c:
        print(c.step, [item.state for item in c.items])
        weight = c.read("x", "0.weight")
    with tutti.checkpoints.TensorFile("runs/mnist/model.safetensors") as f:
        weight = f.read("0.weight")

Tensors are returned as NumPy arrays, or as memoryviews if NumPy is not installed. Both are writable copies. Types that
neither has (bf16, and fp16 without NumPy) are returned as 16-bit integers with the same bits. Nothing is unpickled, and
all sizes in a file are checked before they are used.
"""

from __future__ import annotations

import builtins
import ctypes
import json
import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from types import TracebackType
from typing import TYPE_CHECKING, Any

from . import _abi
from ._library import library as _c
from .errors import CorruptError, check

if TYPE_CHECKING:
    from typing_extensions import Self

# tutti_dtype: format of a memoryview, NumPy's type.
_FORMATS: dict[int, tuple[Any, str]] = {
    _abi.TUTTI_F32: ("f", "f4"), _abi.TUTTI_F64: ("d", "f8"), _abi.TUTTI_F16: ("H", "f2"), _abi.TUTTI_BF16: ("H", "u2"),
    _abi.TUTTI_I8: ("b", "i1"), _abi.TUTTI_U8: ("B", "u1"), _abi.TUTTI_I32: ("i", "i4"), _abi.TUTTI_I64: ("q", "i8"),
}
_PATH_MOST = 4096


@dataclass(frozen=True, slots=True)
class Item:
    """A vector of a state, as a checkpoint has it."""

    state: str
    tensor: str  # the parameter that it belongs to; "": none
    dtype: str
    keep: str  # what happens to it when the number of workers changes ("same", "slice", "own-mean", ...; base.h)
    owner: int | None  # the worker whose state it is; None: that of all workers
    count: int  # elements


@dataclass(frozen=True, slots=True)
class Tensor:
    """A tensor of a safetensors file. dtype: as the format writes it ("F32")."""

    name: str
    dtype: str
    shape: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Found:
    """A checkpoint of a run, as list() finds it. list() does not compare hashes; verify() does."""

    path: str
    step: int  # -1: the manifest cannot be read
    workers: int  # that saved it; 0: the manifest cannot be read
    damage: str  # what is wrong with the manifest or the sizes of files; "": nothing


def _name_of(dtype: int) -> str:
    return str(_c.tutti_dtype_name(dtype).decode())


def _memory(dtype: int, count: int) -> tuple[bytearray, ctypes.c_void_p]:
    memory = bytearray(count * _c.tutti_dtype_bytes(dtype))
    return memory, ctypes.c_void_p(ctypes.addressof(ctypes.c_char.from_buffer(memory)) if memory else None)


def _shaped(memory: bytearray, dtype: int, shape: tuple[int, ...]) -> Any:
    form, number = _FORMATS[dtype]
    try:
        import numpy
    except ImportError:
        flat = memoryview(memory).cast(form)
        return flat.cast("B").cast(form, shape) if memory and len(shape) > 1 else flat
    return numpy.frombuffer(memory, "<" + number).reshape(shape)


class _Open:
    """An open object of the library and its runtime. Closed by close(), or at the end of a `with`."""

    _at = _runtime = None

    def __init__(self, path: str | os.PathLike[str], opens: Callable[..., int], closes: Callable[..., None]):
        self.path: str = os.fspath(path)
        self._closes = closes
        self._at, self._runtime = ctypes.c_void_p(), ctypes.POINTER(_abi.tutti_runtime)()
        check(_c.tutti_runtime_open_posix, self._runtime)
        check(opens, self._at, self._runtime, os.fsencode(self.path))

    def _open(self) -> ctypes.c_void_p:
        if not self._at:
            raise ValueError(f"'{self.path}' is closed")
        return self._at

    def close(self) -> None:
        at, self._at = self._at, None
        if at:
            self._closes(at)
        runtime, self._runtime = self._runtime, None
        if runtime:
            _c.tutti_runtime_close(runtime)

    __del__ = close

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


class Checkpoint(_Open):
    """A checkpoint. path: its directory. The manifest is checked at once, the hash of each tensor when it is read."""

    def __init__(self, path: str | os.PathLike[str]):
        super().__init__(path, _c.tutti_checkpoint_open, _c.tutti_checkpoint_close)
        self.step: int = _c.tutti_checkpoint_step(self._at)
        self.workers: int = _c.tutti_checkpoint_world(self._at)
        self.facts: dict[str, Any] = json.loads(_c.tutti_checkpoint_facts(self._at))
        self._kept = dict(self._pieces())
        self.items: tuple[Item, ...] = tuple(self._kept)

    def _pieces(self) -> Iterator[tuple[Item, tuple[int, int, int]]]:
        k, piece = 0, _abi.tutti_saved()
        while _c.tutti_checkpoint_piece(self._at, k, piece):
            if piece.begin == 0:
                item = Item(piece.state.decode(), piece.tensor.decode(), _name_of(piece.dtype),
                            _c.tutti_keep_name(piece.keep).decode(), None if piece.owner < 0 else piece.owner,
                            piece.count)
                yield item, (piece.dtype, piece.keep, piece.owner)
            k += 1

    def read(self, state: str, tensor: str = "", owner: int | None = None, *, begin: int = 0,
             end: int | None = None) -> Any:
        """Reads one item, or its elements [begin, end). The result has one dimension, since a checkpoint does not store
        shapes.

        owner: may be omitted if the state has only one. KeyError: there is no such item, or there are several.
        """
        at = self._open()
        named = [i for i in self.items if (i.state, i.tensor) == (state, tensor)]
        fitting = [i for i in named if owner is None or i.owner == owner]
        what = f"'{state}'" + (f" of '{tensor}'" if tensor else "")
        if not fitting:
            whose = f" of worker {owner}" if named else ""
            raise KeyError(f"'{self.path}' has no {what}{whose}")
        if len(fitting) > 1:
            raise KeyError(f"'{self.path}' has {what} of workers {', '.join(str(i.owner) for i in fitting)}: "
                           "choose one by owner=")
        count = fitting[0].count
        end = count if end is None else end
        if not 0 <= begin <= end <= count:
            raise ValueError(f"{what} of '{self.path}' has elements [0, {count}), and [{begin}, {end}) is asked for")
        dtype, keep, saver = self._kept[fitting[0]]
        memory, address = _memory(dtype, end - begin)
        target = _abi.tutti_saved(state=state.encode(), tensor=tensor.encode(), keep=keep, dtype=dtype, owner=saver,
                                  count=count, begin=begin, end=end, data=address)
        check(_c.tutti_checkpoint_read, at, target, 1)
        return _shaped(memory, dtype, (end - begin,))

    def verify(self) -> None:
        """Reads everything and compares all hashes. CorruptError: one differs; it names file, tensor and range."""
        check(_c.tutti_checkpoint_verify, self._open())


class TensorFile(_Open):
    """A safetensors file: model.safetensors of a run, or any other. Its header is checked at once."""

    def __init__(self, path: str | os.PathLike[str]):
        super().__init__(path, _c.tutti_safetensors_open, _c.tutti_safetensors_close)
        entries = [_c.tutti_safetensors_entry(self._at, k).contents
                   for k in range(_c.tutti_safetensors_count(self._at))]
        self.tensors: tuple[Tensor, ...] = tuple(
            Tensor(e.name.decode(), _name_of(e.dtype), tuple(e.dim[:e.dims])) for e in entries)

    def metadata(self, key: str) -> str | None:
        """Returns the file's metadata under this key; None: there is none."""
        value = _c.tutti_safetensors_metadata(self._open(), key.encode())
        return None if value is None else value.decode()

    def read(self, name: str) -> Any:
        """Reads a tensor, in its shape. KeyError: there is none of this name."""
        at = self._open()
        entry = _c.tutti_safetensors_find(at, name.encode())
        if not entry:
            raise KeyError(f"'{self.path}' has no tensor '{name}'")
        e = entry.contents
        shape = tuple(e.dim[:e.dims])
        memory, address = _memory(e.dtype, e.bytes // _c.tutti_dtype_bytes(e.dtype))
        check(_c.tutti_safetensors_read, at, entry, 0, address, e.bytes)
        return _shaped(memory, e.dtype, shape)


def find(path: str | os.PathLike[str]) -> str:
    """Returns the path of the newest valid checkpoint. path: a checkpoint, a run's directory or its checkpoints folder.

    Manifests and sizes of files are checked; damaged checkpoints are skipped.
    """
    runtime, found = ctypes.POINTER(_abi.tutti_runtime)(), ctypes.create_string_buffer(_PATH_MOST)
    check(_c.tutti_runtime_open_posix, runtime)
    try:
        check(_c.tutti_checkpoint_find, runtime, os.fsencode(path), found, len(found), None, 0)
    finally:
        _c.tutti_runtime_close(runtime)
    return os.fsdecode(found.value)


def _seen(path: str) -> Found:
    try:
        with Checkpoint(path) as c:
            return Found(path, c.step, c.workers, "")
    except (CorruptError, OSError, ValueError) as e:
        return Found(path, -1, 0, str(e))


def list(path: str | os.PathLike[str]) -> builtins.list[Found]:
    """Returns all checkpoints of a run, oldest first. path: as of find()."""
    at = os.fspath(path)
    if os.path.exists(os.path.join(at, "manifest.json")):
        return [_seen(at)]
    inner = os.path.join(at, "checkpoints")
    folder = inner if os.path.isdir(inner) else at
    # step-N-optimizer: files of a script's optimizer (torch/_saved.py)
    names = [n for n in sorted(os.listdir(folder)) if n.startswith("step-") and not n.endswith("-optimizer")]
    return [_seen(os.path.join(folder, name)) for name in names]


def verify(path: str | os.PathLike[str]) -> builtins.list[Found]:
    """Returns list(), after comparing every hash: `damage` also states a hash that differs."""
    checked = []
    for found in list(path):
        if not found.damage:
            try:
                with Checkpoint(found.path) as c:
                    c.verify()
            except (CorruptError, OSError) as e:
                found = Found(found.path, found.step, found.workers, str(e))
        checked.append(found)
    return checked
