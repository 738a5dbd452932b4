"""Reads checkpoints of torch.distributed.checkpoint (DCP), without PyTorch and without running what is in them.

    from tutti import dcp
    done = dcp.convert("checkpoint/", "model.safetensors", prefix="model.")
    print(done.tensors, "tensors; left out:", done.skipped)

    python -m tutti.dcp checkpoint/ model.safetensors --prefix model.

A directory of DCP has .metadata, a pickle that says which tensor's blocks are where, and files *.distcp. Both are not
trusted. Of .metadata only the classes below are made, as plain objects of this module; any other name is refused. Of an
item the bytes are taken, compared with their CRC-32, which PyTorch does not look at. The blocks must fill each tensor
without holes and overlap. One block at a time is in memory.
"""

import argparse
import io
import itertools
import json
import math
import os
import pickle
import struct
import sys
import zipfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import IO, Any, BinaryIO

from .errors import CorruptError, Error

_METADATA_MOST = 1 << 30  # bytes
_DTYPES = {"float64": "F64", "float32": "F32", "float16": "F16", "bfloat16": "BF16", "int64": "I64", "int32": "I32",
           "int16": "I16", "int8": "I8", "uint8": "U8", "bool": "BOOL"}
_WIDTHS = {"F64": 8, "F32": 4, "F16": 2, "BF16": 2, "I64": 8, "I32": 4, "I16": 2, "I8": 1, "U8": 1, "BOOL": 1}
_STORAGES = {"F64": "Double", "F32": "Float", "F16": "Half", "BF16": "BFloat16", "I64": "Long", "I32": "Int",
             "I16": "Short", "I8": "Char", "U8": "Byte", "BOOL": "Bool"}
_ITEM_MOST = 1 << 20  # bytes of an item's description
_DIMS_MOST = 64
_TUPLE_MOST = 1000  # elements of a tuple and of those in it


@dataclass(frozen=True, slots=True)
class Converted:
    """What convert() has written."""

    tensors: int
    bytes: int  # of all tensors
    skipped: tuple[str, ...]  # names of what is no tensor, as counters of steps


@dataclass(frozen=True, slots=True)
class _Block:
    offsets: tuple[int, ...]
    sizes: tuple[int, ...]
    path: str
    begin: int
    length: int


@dataclass(frozen=True, slots=True)
class _Stored:
    name: str
    dtype: str
    shape: tuple[int, ...]
    blocks: tuple[_Block, ...]


# ---- pickles: names become plain objects, and there are no others ----

class _Plain:
    """In place of a class of PyTorch: it has what the pickle gives it."""

    def __setstate__(self, state: Any) -> None:
        self.state = state

    def get(self, key: str) -> Any:
        state = getattr(self, "state", None)
        return state.get(key) if isinstance(state, dict) else None


def _plain(name: str) -> type:
    return type(name, (_Plain,), {})  # new ones for each pickle, so that none can change another's


def _weighed(value: tuple[Any, ...]) -> tuple[Any, ...]:
    """Returns the tuple. ValueError: to hash it may take for ever, since each of a chain of tuples can have the one
    before it twice."""
    elements, left = 0, [value]
    while left:
        inner = left.pop()
        elements += len(inner)
        if elements > _TUPLE_MOST:
            raise ValueError(f"a tuple has more than {_TUPLE_MOST} elements, with those of tuples in it")
        left += [e for e in inner if isinstance(e, tuple)]
    return value


def _weighing(load: Any) -> Any:
    def loads(self: Any) -> None:
        load(self)
        _weighed(self.stack[-1])

    return loads


class _Reader(pickle._Unpickler):
    """The one in Python: in the one in C a few bytes ask for any amount of memory (a number of its memo). The text is
    in memory, so no length of a value can exceed it. It has no sets, and no BYTEARRAY8, which allocates before it
    reads."""

    dispatch = {code: load for code, load in pickle._Unpickler.dispatch.items()
                if code not in (pickle.BYTEARRAY8[0], pickle.EMPTY_SET[0], pickle.FROZENSET[0])}
    for _code in (pickle.TUPLE[0], pickle.TUPLE1[0], pickle.TUPLE2[0], pickle.TUPLE3[0]):
        dispatch[_code] = _weighing(dispatch[_code])

    def __init__(self, file: IO[bytes], where: str, known: dict[tuple[str, str], Any]):
        super().__init__(io.BytesIO(file.read()))
        self._where, self._known = where, known

    def find_class(self, module: str, name: str) -> Any:
        if (module, name) not in self._known:
            raise CorruptError(f"'{self._where}' asks for '{module}.{name}', which a checkpoint does not need; it is "
                               "not read, since it may run programs of strangers")
        return self._known[module, name]

    def persistent_load(self, pid: Any) -> Any:
        return pid


def _unpickled(file: IO[bytes], where: str, known: dict[tuple[str, str], Any]) -> Any:
    try:
        return _Reader(file, where, known).load()
    except CorruptError:
        raise
    except Exception as why:  # whatever: what is damaged can ask for anything of a plain object
        raise CorruptError(f"'{where}' is damaged: {type(why).__name__}: {str(why)[:200]}") from None


def _encoding(*value: Any) -> Any:
    """In place of an Enum of PyTorch."""
    return _weighed(value)


def _member(of: Any, name: Any) -> Any:
    """In place of getattr, by which Python 3.11.2 names a member of an Enum. It does nothing else."""
    if of is not _encoding or type(name) is not str:
        raise TypeError("it asks for a member of something else than an Enum")
    return (name,)


def _text(value: Any) -> str:
    """TypeError: it is no text. The text of other values may take all memory."""
    if not isinstance(value, str):
        raise TypeError("no text where one is needed")
    return value


def _known_of_metadata() -> dict[tuple[str, str], Any]:
    base = "torch.distributed.checkpoint."
    names = ("Metadata", "TensorStorageMetadata", "TensorProperties", "ChunkStorageMetadata", "BytesStorageMetadata",
             "MetadataIndex", "StorageMeta")
    known: dict[tuple[str, str], Any] = {(base + "metadata", name): _plain(name) for name in names}
    known[base + "filesystem", "_StorageInfo"] = _plain("_StorageInfo")
    known[base + "metadata", "_MEM_FORMAT_ENCODING"] = _encoding
    known["builtins", "getattr"] = _member
    known["torch.serialization", "_get_layout"] = _text
    known["torch", "Size"] = lambda sizes=(): _counts(sizes)
    for module in ("pathlib", "pathlib._local"):
        for name in ("PosixPath", "WindowsPath", "PurePosixPath"):
            known[module, name] = lambda *parts: "/".join(parts)
    for dtype in (*_DTYPES, "float8_e4m3fn", "float8_e5m2", "float8_e4m3fnuz", "float8_e5m2fnuz", "complex64",
                  "complex128", "uint16", "uint32", "uint64"):
        known["torch", dtype] = dtype
    return known


def _kind(value: Any) -> str:
    return type(value).__name__ if isinstance(value, _Plain) else ""


def _counts(value: Any) -> tuple[int, ...]:
    """A shape or an offset; TypeError: it is none."""
    if not isinstance(value, tuple | list) or len(value) > _DIMS_MOST:
        raise TypeError
    if not all(type(n) is int and 0 <= n < 2**62 for n in value):
        raise TypeError
    return tuple(value)


# ---- .metadata ----

class _Index:
    """What .metadata says, checked."""

    def __init__(self, directory: str):
        self.directory = directory
        self.path = os.path.join(directory, ".metadata")
        if not os.path.isfile(self.path):
            raise Error(f"'{directory}' has no .metadata: it is no checkpoint of torch.distributed.checkpoint, "
                             "or one that was not completed")
        if os.path.getsize(self.path) > _METADATA_MOST:
            raise CorruptError(f"'{self.path}' has more than {_METADATA_MOST} bytes")
        with open(self.path, "rb") as file:
            self._root = _unpickled(file, self.path, _known_of_metadata())
        self._sizes: dict[str, int] = {}
        self.skipped: list[str] = []
        try:
            self._places = self._storage()
            self.tensors = list(self._tensors())
        except (TypeError, AttributeError):
            raise CorruptError(f"'{self.path}' is damaged: it has not what an index of tensors has") from None

    def _storage(self) -> dict[tuple[str, tuple[int, ...]], _Plain]:
        found = {}
        for index, info in self._root.get("storage_data").items():
            if _kind(index) != "MetadataIndex" or _kind(info) != "_StorageInfo":
                raise TypeError
            name, offset = index.get("fqn"), index.get("offset")
            if offset is not None:
                found[name, _counts(offset)] = info
        return found

    def _tensors(self) -> Iterator[_Stored]:
        if _kind(self._root) != "Metadata":
            raise TypeError
        for name, entry in self._root.get("state_dict_metadata").items():
            if not isinstance(name, str):
                raise TypeError
            if _kind(entry) == "BytesStorageMetadata":
                self.skipped.append(name)
            elif _kind(entry) == "TensorStorageMetadata":
                yield self._tensor(name, entry)
            else:
                raise TypeError

    def _tensor(self, name: str, entry: _Plain) -> _Stored:
        properties = entry.get("properties")
        state = properties.state if _kind(properties) == "TensorProperties" else None
        dtype = _text(state[0] if isinstance(state, tuple) and state else properties.get("dtype"))
        if dtype not in _DTYPES:
            raise Error(f"'{self.path}', tensor '{name}': dtype '{dtype}' is not read ({', '.join(_DTYPES)} are); "
                             "convert it before it is saved")
        shape = _counts(entry.get("size"))
        blocks = [self._block(name, c, shape) for c in entry.get("chunks")]
        for b in blocks:
            if math.prod(b.sizes) * _WIDTHS[_DTYPES[dtype]] > b.length:
                raise CorruptError(f"'{self.path}', tensor '{name}': the block at {b.offsets} of {b.sizes} does not "
                                   f"fit into {b.length} bytes")
        self._check_blocks(name, shape, blocks)
        return _Stored(name, _DTYPES[dtype], shape, tuple(blocks))

    def _block(self, name: str, chunk: _Plain, shape: tuple[int, ...]) -> _Block:
        offsets, sizes = _counts(chunk.get("offsets")), _counts(chunk.get("sizes"))
        if not len(offsets) == len(sizes) == len(shape) or any(
                o + n > m for o, n, m in zip(offsets, sizes, shape, strict=True)):
            raise CorruptError(f"'{self.path}', tensor '{name}': a block at {offsets} of {sizes} is not inside of "
                               f"{shape}")
        info = self._places.get((name, offsets))
        if info is None:
            raise CorruptError(f"'{self.path}', tensor '{name}': it is not said where the block at {offsets} is")
        if info.get("transform_descriptors"):
            raise Error(f"'{self.path}', tensor '{name}': its items are transformed (by an extension), and are not "
                             "read; save it without")
        return _Block(offsets, sizes, *self._place(name, info))

    def _place(self, name: str, info: _Plain) -> tuple[str, int, int]:
        file, begin, length = _text(info.get("relative_path")), *_counts((info.get("offset"), info.get("length")))
        if not file or file.startswith(".") or not set(file).isdisjoint("/\\\0"):
            raise CorruptError(f"'{self.path}', tensor '{name}' is said to be in {file!r}, which is no name of a file "
                               "in this directory; such an index is not followed")
        path = os.path.join(self.directory, file)
        if file not in self._sizes:
            if not os.path.isfile(path):
                raise CorruptError(f"'{self.path}' names '{file}', which is not in the directory; fetch it again")
            self._sizes[file] = os.path.getsize(path)
        if begin + length > self._sizes[file]:
            raise CorruptError(f"'{path}' has {self._sizes[file]} bytes, but tensor '{name}' is said to be at "
                               f"[{begin}, {begin + length}): the file was cut")
        return path, begin, length

    def _check_blocks(self, name: str, shape: tuple[int, ...], blocks: list[_Block]) -> None:
        """They fill the tensor: none overlaps another, and together they have its elements."""
        full = [b for b in blocks if math.prod(b.sizes) > 0]
        where = f"'{self.path}', tensor '{name}'"
        if len(_cut(shape, full)) > _MOST_CUT:
            raise Error(f"{where}: it is cut along {len(_cut(shape, full))} of its dimensions, and at most {_MOST_CUT} "
                        "are read")
        if _fill(shape, full):
            return
        both = _overlap(full)
        if both is not None:
            raise CorruptError(f"{where}: the blocks at {both[0].offsets} and {both[1].offsets} overlap")
        there, wanted = sum(math.prod(b.sizes) for b in full), math.prod(shape)
        what = "some of its blocks overlap" if there >= wanted else (
            f"its blocks have {there} of {wanted} elements: a part is missing")
        raise CorruptError(f"{where}: {what}")


# ---- blocks of a tensor ----

_MOST_CUT = 8  # dimensions along which a tensor is cut: a block has two to the power of them corners
_MOST_PAIRS = 1 << 16  # pairs of blocks that are looked at to name two that overlap


def _cut(shape: tuple[int, ...], blocks: Sequence[_Block]) -> list[int]:
    """The dimensions along which there are several blocks."""
    return [d for d, n in enumerate(shape) if any(b.sizes[d] != n for b in blocks)]


def _fill(shape: tuple[int, ...], blocks: Sequence[_Block]) -> bool:
    """Is each element of the tensor in exactly one block? The blocks are not empty, and inside of it.

    How many blocks have an element is a sum of functions that are 1 inside of a block. Such a function follows from the
    differences along all dimensions, which are 0 but at the block's corners. So the signed corners of all blocks have
    to add up to those of the tensor. Their number grows as that of the blocks does."""
    if math.prod(shape) == 0:
        return not blocks
    along = _cut(shape, blocks)
    corners: dict[tuple[int, ...], int] = {}

    def add(edges: list[tuple[int, int]], sign: int) -> None:
        for ends in itertools.product((0, 1), repeat=len(along)):
            at = tuple(edge[end] for edge, end in zip(edges, ends, strict=True))
            corners[at] = corners.get(at, 0) + (-sign if sum(ends) % 2 else sign)

    add([(0, shape[d]) for d in along], -1)
    for b in blocks:
        offsets, sizes = b.offsets, b.sizes
        add([(offsets[d], offsets[d] + sizes[d]) for d in along], 1)
    return not any(corners.values())


def _overlap(blocks: Sequence[_Block]) -> tuple[_Block, _Block] | None:
    """Two blocks that overlap, for a message; None: none are among the pairs that are looked at."""
    ordered = sorted(blocks, key=lambda b: b.offsets)
    pairs = ((ordered[k - apart], ordered[k]) for apart in range(1, len(ordered)) for k in range(apart, len(ordered)))
    for a, b in itertools.islice(pairs, _MOST_PAIRS):
        if all(max(p, q) < min(p + m, q + n)
               for p, m, q, n in zip(a.offsets, a.sizes, b.offsets, b.sizes, strict=True)):
            return a, b
    return None


# ---- items: zips of torch.save, each in a range of a file ----

class _Window:
    """A range of a file, as a file of its own, for zipfile."""

    def __init__(self, file: BinaryIO, begin: int, length: int):
        self._file, self._begin, self._length, self._at = file, begin, length, 0

    def seekable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._at

    def seek(self, offset: int, whence: int = 0) -> int:
        at = offset + (0, self._at, self._length)[whence]
        if at < 0:
            raise OSError("before the item")
        self._at = at
        return at

    def read(self, n: int | None = -1) -> bytes:
        left = max(self._length - self._at, 0)
        self._file.seek(self._begin + self._at)
        data = self._file.read(left if n is None or n < 0 else min(n, left))
        self._at += len(data)
        return data


def _layout_of(file: IO[bytes], where: str) -> tuple[str, int, tuple[int, ...], tuple[int, ...]]:
    """Reads data.pkl of an item: the storage's type, where the tensor begins in it, shape and strides, in elements."""
    known: dict[tuple[str, str], Any] = {("collections", "OrderedDict"): lambda: {}}
    known["torch._utils", "_rebuild_tensor_v2"] = lambda storage, at, size, strides, *rest: (
        storage[1], at, size, strides)
    for storage in _STORAGES.values():
        known["torch", storage + "Storage"] = storage
    layout = _unpickled(file, where, known)
    try:
        storage, at, size, strides = layout
        return _text(storage), _counts((at,))[0], _counts(size), _counts(strides)
    except (TypeError, ValueError):
        raise CorruptError(f"'{where}' is damaged: an item is no tensor") from None


def _entries(archive: zipfile.ZipFile, where: str) -> dict[str, zipfile.ZipInfo]:
    found = {entry.filename.partition("/")[2]: entry for entry in archive.infolist()}
    for key in ("data.pkl", "data/0", "byteorder"):
        if key not in found:
            raise CorruptError(f"'{where}': an item has no '{key}': it is no tensor of torch.save")
        if found[key].compress_type != zipfile.ZIP_STORED:
            raise CorruptError(f"'{where}': '{key}' of an item is compressed, which torch.save does not do")
    if "data/1" in found or found["data.pkl"].file_size > _ITEM_MOST:
        raise CorruptError(f"'{where}': an item has more than a tensor")
    return found


def _contents(file: BinaryIO, tensor: _Stored, block: _Block) -> bytes:
    """The block's values in the order of rows. zipfile compares them with their CRC-32."""
    where, width = block.path, _WIDTHS[tensor.dtype]
    what = f"'{where}', tensor '{tensor.name}', block at {block.offsets}"
    try:
        with zipfile.ZipFile(_Window(file, block.begin, block.length)) as archive:
            entries = _entries(archive, where)
            if archive.read(entries["byteorder"]) != b"little":
                raise Error(f"{what}: its numbers are not little-endian; save it on such a machine")
            with archive.open(entries["data.pkl"]) as description:
                storage, begin, shape, strides = _layout_of(description, where)
            data = archive.read(entries["data/0"])
    except Error:
        raise
    except (zipfile.BadZipFile, RuntimeError, struct.error, OSError, EOFError, ValueError, LookupError) as why:
        if isinstance(why, OSError) and why.errno is not None:
            raise
        raise CorruptError(f"{what} is damaged: {why}") from None
    if (storage, begin, shape, len(data)) != (_STORAGES[tensor.dtype], 0, block.sizes, math.prod(shape) * width) or (
            len(strides) != len(shape)):
        raise CorruptError(f"{what}: the item has {len(data)} bytes, type {storage} and shape {shape}, where "
                           f"{block.sizes} of {tensor.dtype} is wanted")
    return _in_rows(data, shape, strides, width, what)


def _in_rows(data: bytes, shape: tuple[int, ...], strides: tuple[int, ...], width: int, what: str) -> bytes:
    rows = [math.prod(shape[k + 1:]) for k in range(len(shape))]
    if not data or all(s == r for n, s, r in zip(shape, strides, rows, strict=True) if n > 1):
        return data
    if sum((n - 1) * s for n, s in zip(shape, strides, strict=True)) >= len(data) // width:
        raise CorruptError(f"{what}: its strides {strides} lead out of its {len(data)} bytes")
    try:
        import numpy
    except ImportError:
        raise Error(f"{what} is stored with strides {strides}: install NumPy to read it") from None
    flat = numpy.frombuffer(data, f"V{width}")
    steps = tuple(s * width for s in strides)
    return numpy.lib.stride_tricks.as_strided(flat, shape, steps).tobytes()


def _runs(tensor: _Stored, block: _Block) -> Iterator[tuple[int, int]]:
    """Where the block's elements are in the tensor: (first, how many), in the order of rows."""
    shape, offsets, sizes = tensor.shape, block.offsets, block.sizes
    cut = max((k for k in range(len(shape)) if sizes[k] < shape[k]), default=0)
    strides = [math.prod(shape[k + 1:]) for k in range(len(shape))]
    length = math.prod(sizes[cut:])
    at = list(offsets[:cut])
    last = offsets[cut] * strides[cut] if shape else 0
    while math.prod(sizes) > 0:
        yield sum(a * s for a, s in zip(at, strides, strict=False)) + last, length
        for k in range(cut - 1, -1, -1):
            at[k] += 1
            if at[k] < offsets[k] + sizes[k]:
                break
            at[k] = offsets[k]
        else:
            return


# ---- the file ----

def _header(tensors: list[_Stored], names: list[str]) -> tuple[bytes, list[int]]:
    entries: dict[str, Any] = {"__metadata__": {"format": "pt"}}
    begins, at = [], 0
    for tensor, name in zip(tensors, names, strict=True):
        end = at + math.prod(tensor.shape) * _WIDTHS[tensor.dtype]
        entries[name] = {"dtype": tensor.dtype, "shape": list(tensor.shape), "data_offsets": [at, end]}
        begins.append(at)
        at = end
    text = json.dumps(entries, separators=(",", ":")).encode()
    text += b" " * (-(8 + len(text)) % 64)
    return struct.pack("<Q", len(text)) + text, [*begins, at]


def _write(out: BinaryIO, tensors: list[_Stored], names: list[str]) -> int:
    header, begins = _header(tensors, names)
    out.write(header)
    out.truncate(len(header) + begins[-1])
    for tensor, begin in zip(tensors, begins, strict=False):
        width = _WIDTHS[tensor.dtype]
        for block in tensor.blocks:
            if math.prod(block.sizes) == 0:
                continue
            with open(block.path, "rb") as file:
                data, at = memoryview(_contents(file, tensor, block)), 0
            for first, count in _runs(tensor, block):
                out.seek(len(header) + begin + first * width)
                out.write(data[at:at + count * width])
                at += count * width
    return begins[-1]


def convert(directory: str | os.PathLike[str], path: str | os.PathLike[str], prefix: str = "") -> Converted:
    """Writes the tensors of a checkpoint of torch.distributed.checkpoint to a new safetensors file.

    prefix: only those whose names begin so are written, without it. CorruptError: something is damaged, or is not what
    a checkpoint has; it names file and tensor. Error: it cannot be read. ValueError: path exists, or nothing has
    the prefix. The file appears when all of it is on the disk.
    """
    path = os.fspath(path)
    if os.path.lexists(path):
        raise ValueError(f"'{path}' is there already, and nothing is written over it; name another, or remove it")
    index = _Index(os.fspath(directory))
    tensors = sorted((t for t in index.tensors if t.name.startswith(prefix)),
                     key=lambda t: (-_WIDTHS[t.dtype], t.name))  # so that each begins at a multiple of its width
    names = [t.name[len(prefix):] for t in tensors]
    if not tensors:
        raise ValueError(f"'{index.path}' has no tensor whose name begins with '{prefix}'")
    if "" in names or "__metadata__" in names:
        raise ValueError(f"'{index.path}': without '{prefix}' a tensor has no name that a file can have")
    part = path + ".unfinished"
    try:
        with open(part, "wb") as out:
            total = _write(out, tensors, names)
            out.flush()
            os.fsync(out.fileno())
        os.rename(part, path)
    except BaseException:
        if os.path.exists(part):
            os.remove(part)
        raise
    return Converted(len(tensors), total, tuple(sorted(index.skipped)))


def _main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tutti.dcp", description="Writes the tensors of a checkpoint of "
                                     "torch.distributed.checkpoint to a safetensors file.")
    parser.add_argument("directory", help="it has .metadata and files *.distcp")
    parser.add_argument("file", help="which must not exist")
    parser.add_argument("--prefix", default="", help="take only names that begin so, and omit it")
    given = parser.parse_args()
    try:
        done = convert(given.directory, given.file, given.prefix)
    except (Error, ValueError, OSError) as why:
        print(f"tutti.dcp: {why}", file=sys.stderr)
        return 1
    print(f"{given.file}: {done.bytes} bytes of {done.tensors} tensors")
    if done.skipped:
        print(f"left out, since no tensors: {', '.join(done.skipped)}")
    return 0


if __name__ == "__main__":
    sys.exit(_main())
