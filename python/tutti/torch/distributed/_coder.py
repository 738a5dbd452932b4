"""A codec at work: the calls of one order (_sites.py) through a relay of the library's (codec.h).

A call is one tensor of the relay, or several where its matrices are known, or one for each part of a reduce-scatter.
The relay encodes and decodes; this brings its numbers and bytes to the other members.

- All-reduce. Numbers are averaged by an all-reduce, in the library's one order of summation. Messages are all-gathered.
- Reduce-scatter. Each part goes to its owner alone, unless the codec needs it on all (powersgd's factors): numbers by a
  reduce-scatter, messages by an all-to-all. A member that does not own a part decodes its own message of it only, for
  what the codec keeps.

All of it is called by the group's thread.
"""

from __future__ import annotations

import ctypes
import hashlib
import itertools
import math
import warnings
import weakref
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import torch

from ... import _abi
from ..._library import library as _c
from ...errors import StateError, check
from ..hook import _DTYPES, _memory
from ._calls import Members
from ._sites import Order

Shapes = list[tuple[int, int]]
_NUMBERS = (torch.float32, torch.float16, torch.bfloat16)
_FLOAT = ctypes.POINTER(ctypes.c_float)


def _opened(spec: str, shapes: Shapes, rank: int, workers: int, seed: int) -> ctypes.c_void_p:
    relay = ctypes.c_void_p()
    tensors = (_abi.tutti_relay_tensor * len(shapes))(*(_abi.tutti_relay_tensor(None, r, c) for r, c in shapes))
    check(_c.tutti_relay_open, relay, spec.encode(), tensors, len(shapes), rank, workers, seed)
    return relay


def traits_of(spec: str) -> int:
    """Those of a codec. ValueError: it is none; the sentence has near names."""
    relay = _opened(spec, [(64, 64)], 0, 1, 0)
    try:
        return int(_c.tutti_relay_traits(relay))
    finally:
        _c.tutti_relay_close(relay)


def shapes_for(count: int, known: dict[int, Shapes], whole: bool) -> Shapes:
    """The matrices that so many elements are, by rows and columns. whole: for a codec of matrices, which gets one that
    is about square where they are not known. It may have a few more elements."""
    shapes = known.get(count)
    if shapes is not None:
        if sum(r * c for r, c in shapes) != count:
            raise ValueError(f"the shapes of {count} elements are {shapes}, which have {sum(r * c for r, c in shapes)}")
        return list(shapes)
    rows = math.isqrt(count) if whole else 1
    return [(rows, -(-count // rows))]


class _Part(NamedTuple):
    """What is reduced as a whole: tensors of the relay, one after the other."""

    tensors: list[int]
    shapes: Shapes
    elements: int

    def laid(self, x: torch.Tensor) -> torch.Tensor:
        """x, with zeros behind it where the matrix has more elements."""
        if x.numel() == self.elements:
            return x
        y = x.new_zeros(self.elements)
        y[:x.numel()] = x
        return y


def _close(parcels: list[ctypes.c_void_p], relay: ctypes.c_void_p) -> None:
    for parcel in parcels:
        _c.tutti_parcel_close(parcel)
    _c.tutti_relay_close(relay)


class Setting(NamedTuple):
    """shapes: matrices, by the elements of a call. made: told of the bytes of each message."""

    spec: str
    seed: int
    shapes: dict[int, Shapes]
    made: Callable[[int], None]


class Coder:
    """order: a fixed one. loaded: what state() gave."""

    def __init__(self, members: Members, setting: Setting, order: Order, loaded: dict[str, Any] | None):
        self._members, self._spec, self._seed = members, setting.spec, setting.seed
        self._order, self._sites = order.name, list(order.fixed or ())
        self._made = setting.made
        whole, number = traits_of(self._spec) & _abi.TUTTI_CODEC_WHOLE_TENSOR != 0, itertools.count()
        self._parts: list[list[_Part]] = []
        for site in self._sites:
            shapes = [shapes_for(count, setting.shapes, whole) for count in site.counts]
            self._parts.append([_Part([next(number) for _ in s], s, sum(r * c for r, c in s)) for s in shapes])
        self._shapes = [shape for parts in self._parts for part in parts for shape in part.shapes]
        if whole and setting.shapes:
            self._warn_of_others(setting.shapes)
        self._loaded = self._if_ours(loaded)
        self._relay: ctypes.c_void_p | None = None
        self._parcels: list[ctypes.c_void_p] = []
        self._sum = _c.tutti_relay_begin.argtypes[3](self._sum_of)
        self._raised: BaseException | None = None

    def _warn_of_others(self, shapes: dict[int, Shapes]) -> None:
        """Of calls whose matrices are not known where those of others are."""
        others = {count for site in self._sites for count in site.counts} - shapes.keys()
        if others:
            warnings.warn(f"codec '{self._spec}': the matrices of calls of {sorted(shapes)} elements are known, those "
                          f"of calls of {sorted(others)} elements are not, and each of these is taken as one matrix, "
                          "about square; give them in codec_of(group).shapes", stacklevel=2)

    # ---- states ----

    def _about(self) -> dict[str, Any]:
        return {"sites": [site.saved() for site in self._sites], "shapes": [list(shape) for shape in self._shapes]}

    def _if_ours(self, loaded: dict[str, Any] | None) -> dict[str, Any] | None:
        ours = _listed(list(self._about().values()))
        theirs = loaded and _listed([loaded[key] for key in ("sites", "shapes")])
        if loaded is None or theirs == ours:
            return loaded
        warnings.warn(f"what the codec '{self._spec}' had kept was loaded of other calls than those that are made now, "
                      f"and is dropped: {str(theirs)[:200]} instead of {str(ours)[:200]}", stacklevel=2)
        return None

    def _states(self) -> list[tuple[str, torch.Tensor]]:
        found: list[tuple[int, str, torch.Tensor]] = []
        memory = ctypes.c_void_p()
        while state := _c.tutti_relay_state(self._relay, len(found), memory):
            found.append((state.contents.keep, state.contents.name.decode(),
                          _memory(memory.value or 0, state.contents.count, _DTYPES[state.contents.dtype])))
        return [(name, values) for keep, name, values in found if keep != _abi.TUTTI_SCRATCH]

    def state(self) -> dict[str, Any] | None:
        """Between steps. None: there is nothing yet."""
        if self._relay is None:
            return self._loaded
        states = {name: values.clone() for name, values in self._states()}
        return self._about() | {"steps": _c.tutti_relay_steps(self._relay), "states": states}

    def _agree(self) -> None:
        """What it is opened with must be the same on all. It is rarely opened, so this costs little."""
        steps = self._loaded["steps"] if self._loaded else 0
        key = repr((self._spec, self._seed, self._order, self._about(), steps))
        told = torch.tensor(list(hashlib.sha256(key.encode()).digest()[:8]), dtype=torch.uint8)
        theirs = torch.empty((self._members.size, 8), dtype=torch.uint8)
        self._members.allgather(told, [8] * self._members.size, theirs.view(-1))
        ranks = self._members.ranks
        others = ", ".join(f"rank {ranks[k]}" for k, row in enumerate(theirs.tolist()) if row != told.tolist())
        if others:
            raise StateError(
                f"rank {ranks[self._members.index]} has its gradients go through the codec '{self._spec}' (seed "
                f"{self._seed}, {len(self._sites)} calls a step, {steps} steps before), and not so {others}: "
                "another codec, other calls or another state; give all the same Options, and load on all or on none"
            )

    def _open(self) -> None:
        self._agree()
        relay = _opened(self._spec, self._shapes, self._members.index, self._members.size, self._seed)
        weakref.finalize(self, _close, self._parcels, relay).atexit = False
        self._relay = relay
        if self._loaded is not None and self._loaded["steps"] > 0:
            for name, values in self._states():
                values.copy_(self._loaded["states"][name])
            _c.tutti_relay_resume(relay, self._loaded["steps"])
        self._loaded = None

    # ---- a step ----

    def _sum_of(self, _with: Any, n: int, numbers: Any, err: Any) -> int:
        """What a codec that learns from all workers asks for as a step begins."""
        try:
            self._members.allreduce(_memory(ctypes.addressof(numbers.contents), n, torch.float32), _abi.TUTTI_SUM)
        except BaseException as failure:  # noqa: BLE001 (raised by begin)
            self._raised = failure
            if err:
                err.contents.status, err.contents.text = _abi.TUTTI_ERR_IO, str(failure).encode()[:400]
            return _abi.TUTTI_ERR_IO
        return _abi.TUTTI_OK

    def begin(self, epoch: int, lr: float) -> None:
        if self._relay is None:
            self._open()
        try:
            check(_c.tutti_relay_begin, self._relay, epoch, lr, self._sum, None)
        except Exception:
            raised, self._raised = self._raised, None
            if raised is not None:
                raise raised from None
            raise

    def _parcel(self, k: int) -> ctypes.c_void_p:
        while len(self._parcels) <= k:
            parcel = ctypes.c_void_p()
            check(_c.tutti_parcel_open, parcel, self._relay)
            self._parcels.append(parcel)
        return self._parcels[k]

    def _send(self, k: int, part: _Part, x: torch.Tensor) -> _abi.tutti_freight | None:
        n, at, gradients = len(part.tensors), x.data_ptr(), []
        for rows, cols in part.shapes:
            gradients.append(ctypes.cast(at, _FLOAT))
            at += 4 * rows * cols
        freight = _abi.tutti_freight()
        on = check(_c.tutti_parcel_send, self._parcel(k), (ctypes.c_int * n)(*part.tensors), (_FLOAT * n)(*gradients),
                   n, freight)
        return freight if on else None

    def _next(self, k: int, freight: _abi.tutti_freight) -> _abi.tutti_freight | None:
        return freight if check(_c.tutti_parcel_next, self._parcels[k], freight) else None

    def _numbers(self, freight: _abi.tutti_freight) -> torch.Tensor:
        numbers = _memory(freight.data, freight.count, _DTYPES[freight.dtype])
        self._made(numbers.nbytes)
        return numbers

    def allreduce(self, place: int, x: torch.Tensor) -> None:
        """x, flat, contiguous, float32, becomes the mean."""
        [part] = self._parts[place]
        values = part.laid(x)
        freight = self._send(0, part, values)
        while freight is not None:
            numbers, theirs = self._numbers(freight), None
            if freight.kind == _abi.TUTTI_FREIGHT_MEAN:
                self._members.allreduce(numbers, _abi.TUTTI_MEAN)
            else:
                theirs = self._gather(numbers, freight)
            freight = self._next(0, freight)
            del theirs  # the call has read it
        if values is not x:
            x.copy_(values[:x.numel()])

    def reduce_scatter(self, place: int, xs: Sequence[torch.Tensor], mine: torch.Tensor) -> None:
        """mine becomes the mean of this member's part. xs: what this one has for each; undefined afterwards."""
        parts, me = self._parts[place], self._members.index
        values = [part.laid(x) for part, x in zip(parts, xs, strict=True)]
        freights = [self._send(k, part, x) for k, (part, x) in enumerate(zip(parts, values, strict=True))]
        while any(freight is not None for freight in freights):
            numbers = [None if freight is None else self._numbers(freight) for freight in freights]
            self._means(freights, numbers)
            theirs = self._exchange(freights, numbers)
            freights = [None if freight is None else self._next(k, freight) for k, freight in enumerate(freights)]
            del theirs
        mine.copy_(values[me][:mine.numel()])

    # ---- what it sends ----

    def _longest(self, counts: Sequence[int], most: int) -> None:
        """Lengths that a codec cannot have are refused before memory is taken for them."""
        for rank, count in zip(self._members.ranks, counts, strict=True):
            if not 0 <= count <= most:
                raise StateError(f"rank {rank} has a message of {count} bytes, and the codec '{self._spec}' makes at "
                                 f"most {most}; do all ranks run the same version?")

    @staticmethod
    def _give(freight: _abi.tutti_freight, theirs: torch.Tensor, counts: Sequence[int]) -> tuple[Any, ...]:
        """The messages of all, one behind the other in `theirs`. Returns the memory that the next call reads."""
        rows, stride = theirs, max(counts)
        if len(set(counts)) > 1:
            rows = theirs.new_zeros((len(counts), stride))
            for row, message in zip(rows, theirs.split(list(counts)), strict=True):
                row[:message.numel()] = message
        return Coder._point(freight, rows, stride, counts)

    @staticmethod
    def _point(freight: _abi.tutti_freight, rows: torch.Tensor, stride: int, counts: Sequence[int]) -> tuple[Any, ...]:
        lengths = (ctypes.c_ulong * len(counts))(*counts)
        freight.all = ctypes.cast(rows.data_ptr(), ctypes.POINTER(ctypes.c_uint8))
        freight.stride, freight.counts = stride, lengths
        return rows, lengths

    def _gather(self, mine: torch.Tensor, freight: _abi.tutti_freight) -> tuple[Any, ...]:
        n = self._members.size
        counts = [freight.most] * n
        if not freight.fixed:
            lengths = torch.empty(n, dtype=torch.int64)
            self._members.allgather(torch.tensor([mine.numel()]), [1] * n, lengths)
            counts = lengths.tolist()
            self._longest(counts, freight.most)
        theirs = torch.empty(sum(counts), dtype=torch.uint8)
        self._members.allgather(mine, counts, theirs)
        return self._give(freight, theirs, counts)

    def _means(self, freights: Sequence[Any], numbers: Sequence[Any]) -> None:
        """The means that are asked for, all of one type at once."""
        me, n = self._members.index, self._members.size
        for dtype, everyone in itertools.product(_NUMBERS, (False, True)):
            those = [k for k, f in enumerate(freights) if f is not None and f.kind == _abi.TUTTI_FREIGHT_MEAN and
                     f.everyone == everyone and numbers[k].dtype == dtype]
            if not those:
                continue
            x = torch.cat([numbers[k] for k in those])
            if everyone:
                self._members.allreduce(x, _abi.TUTTI_MEAN)
                for k, mean in zip(those, x.split([numbers[k].numel() for k in those]), strict=True):
                    numbers[k].copy_(mean)
                continue
            counts = [numbers[k].numel() if k in those else 0 for k in range(n)]
            mean = x.new_empty(counts[me])
            self._members.reduce_scatter(x, counts, mean, _abi.TUTTI_MEAN)
            if me in those:
                numbers[me].copy_(mean)

    def _exchange(self, freights: Sequence[Any], numbers: Sequence[Any]) -> list[Any]:
        """The messages that are to be gathered, each part's at its owner."""
        me, n = self._members.index, self._members.size
        those = [k for k, f in enumerate(freights) if f is not None and f.kind == _abi.TUTTI_FREIGHT_GATHER]
        if not those:
            return []
        to = [numbers[k].numel() if k in those else 0 for k in range(n)]
        most = freights[me].most if me in those else 0
        come = [most] * n
        if not all(freights[k].fixed for k in those):
            lengths = torch.empty(n, dtype=torch.int64)
            self._members.alltoall(torch.tensor(to), [1] * n, lengths, [1] * n)
            come = lengths.tolist()
            self._longest(come, most)
        theirs = torch.empty(sum(come), dtype=torch.uint8)
        self._members.alltoall(torch.cat([numbers[k] for k in those]), to, theirs, come)
        return [self._give(freights[k], theirs, come) if k == me else
                self._point(freights[k], numbers[k], 0, [to[k]] * n) for k in those]


def _listed(value: Any) -> Any:
    """Tuples as lists, as a saved file may have them."""
    return [_listed(v) for v in value] if isinstance(value, (list, tuple)) else value
