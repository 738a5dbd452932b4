"""Reductions: which operation of torch's is what of the library's, for each dtype.

The library sums, averages and compares (comm.h: tutti_reduction). What it has not is built on it here:

- Of other integers the values travel in a wider type, or as their bits, so that the result is exact. bool travels as
  0 and 1: a sum is "any", a product "all".
- Products and bitwise operations are folded. Each member gets all values of its part (all-to-all), combines them in
  the order of ranks, and the parts are gathered. So all members have the same bits.
- PREMUL_SUM multiplies before a sum. A complex tensor is two real ones.

Sums have the library's one order (docs/design/numbers.md). AVG is each value times 1/n, and then the sum. fp16 and
bf16 are summed, multiplied and averaged as fp32 and rounded once.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch.distributed import ReduceOp

from ... import _abi
from .._versions import factor_of
from ._calls import WIRE, Members
from ._tensors import flat, plain, put

Change = Callable[[torch.Tensor], torch.Tensor]
Fold = Callable[[torch.Tensor, torch.Tensor], torch.Tensor]

_NATIVE = {"SUM": _abi.TUTTI_SUM, "AVG": _abi.TUTTI_MEAN, "MAX": _abi.TUTTI_MAX, "MIN": _abi.TUTTI_MIN}
_OF_BOOL = {"SUM": "MAX", "PRODUCT": "MIN", "MAX": "MAX", "MIN": "MIN", "BAND": "MIN", "BOR": "MAX", "BXOR": "SUM"}
_FOLDS: dict[str, Fold] = {
    "PRODUCT": torch.Tensor.mul_,
    "BAND": torch.Tensor.bitwise_and_,
    "BOR": torch.Tensor.bitwise_or_,
    "BXOR": torch.Tensor.bitwise_xor_,
}
NAMES = (*_NATIVE, *_FOLDS, "PREMUL_SUM")
_WIDER = {torch.int16: torch.int32, torch.uint16: torch.int32, torch.uint32: torch.int64}
_REAL = {torch.complex32: torch.float16, torch.complex64: torch.float32, torch.complex128: torch.float64}
_NARROW = (torch.float16, torch.bfloat16)
_FLOATS = (torch.float32, torch.float64, *_NARROW)
_SIGN = -(2**63)  # added to an unsigned number, as a signed one it has the same order


def name_of(op: object) -> str:
    return next((name for name in NAMES if op == getattr(ReduceOp, name)), str(op).rpartition(".")[2])


def _parts(n: int, size: int) -> list[int]:
    return [n // size + (j < n % size) for j in range(size)]


def _then(first: Change | None, second: Change | None) -> Change | None:
    if first is None or second is None:
        return first or second
    return lambda x: second(first(x))


@dataclass(frozen=True)
class Reduction:
    """One operation on one dtype. native: what the library does; None: `fold` adds a member's values to the first
    argument. before: from the tensor's values to those that travel, flat; after: back. None: they are the same."""

    native: int | None
    fold: Fold | None = None
    before: Change | None = None
    after: Change | None = None

    def _enter(self, t: torch.Tensor, own: bool = False) -> torch.Tensor:
        """The values that travel; own: in memory that is not the tensor's."""
        x = flat(t)
        x = x if self.before is None else self.before(x).view(-1)
        return x.clone() if own and x.data_ptr() == t.data_ptr() else x

    def _leave(self, x: torch.Tensor, t: torch.Tensor) -> None:
        put(x if self.after is None else self.after(x), t)

    def _folded(self, members: Members, x: torch.Tensor, counts: Sequence[int]) -> torch.Tensor:
        """This member's part of the result."""
        assert self.fold is not None, "the library does it"
        mine = counts[members.index]
        come = x.new_empty(mine * members.size)
        members.alltoall(x, counts, come, [mine] * members.size, f" for a reduction by {self.fold.__name__}")
        first, *others = come.split(mine) if mine > 0 else [come]
        for other in others:
            self.fold(first, other)
        return first

    def allreduce(self, members: Members, t: torch.Tensor) -> None:
        x = self._enter(t)
        if self.native is not None:
            members.allreduce(x, self.native)
        else:
            counts = _parts(x.numel(), members.size)
            members.allgather(self._folded(members, x, counts), counts, x)
        self._leave(x, t)

    def reduce(self, members: Members, t: torch.Tensor, root: int) -> None:
        """The others keep their values."""
        if self.native is None:
            x = self._enter(t, own=True)
            counts = _parts(x.numel(), members.size)
            members.allgather(self._folded(members, x, counts), counts, x)
        else:
            x = self._enter(t, own=members.index != root)
            members.reduce(x, self.native, root)
        if members.index == root:
            self._leave(x, t)

    def reduce_scatter(self, members: Members, out: torch.Tensor, parts: Sequence[torch.Tensor]) -> None:
        """parts: what goes to each member, which is not changed; or one tensor of equal parts."""
        entered = [self._enter(t, own=len(parts) == 1) for t in parts]
        x = entered[0] if len(parts) == 1 else torch.cat(entered)
        counts = [e.numel() for e in entered] if len(parts) == members.size else _parts(x.numel(), members.size)
        if self.native is None:
            mine = self._folded(members, x, counts)
        else:
            of_out = self.before is None and plain(out)
            mine = flat(out) if of_out else x.new_empty(counts[members.index])
            members.reduce_scatter(x, counts, mine, self.native)
        self._leave(mine, out)


def _of_bool(name: str) -> Reduction | None:
    def to_bytes(x: torch.Tensor) -> torch.Tensor:
        return x.view(torch.uint8)

    def to_bool(x: torch.Tensor) -> torch.Tensor:
        return x.bitwise_and_(1).view(torch.bool)

    return Reduction(_NATIVE[_OF_BOOL[name]], None, to_bytes, to_bool) if name in _OF_BOOL else None


def _of_int(name: str, dtype: torch.dtype) -> Reduction | None:
    if name in ("AVG", "PREMUL_SUM"):
        return None
    native, fold = _NATIVE.get(name), _FOLDS.get(name)
    if dtype in _WIDER:
        return Reduction(native, fold, lambda x: x.to(_WIDER[dtype]), lambda x: x.to(dtype))
    if dtype == torch.uint64 and name in ("MIN", "MAX"):
        return Reduction(native, None, lambda x: x.view(torch.int64) + _SIGN,
                         lambda x: (x + _SIGN).view(torch.uint64))
    if dtype == torch.uint64:
        return Reduction(native, fold, lambda x: x.view(torch.int64), lambda x: x.view(torch.uint64))
    return Reduction(native, fold) if dtype in WIRE else None


def _of_float(name: str, dtype: torch.dtype) -> Reduction | None:
    if name.startswith("B"):
        return None
    if name == "PRODUCT" and dtype in _NARROW:
        return Reduction(None, torch.Tensor.mul_, torch.Tensor.float, lambda x: x.to(dtype))
    return Reduction(_NATIVE.get(name), _FOLDS.get(name))


def _premultiplied(dtype: torch.dtype, factor: float | torch.Tensor) -> Reduction:
    by = factor.detach().cpu() if isinstance(factor, torch.Tensor) else factor
    if dtype in _NARROW:
        return Reduction(_abi.TUTTI_SUM, None, lambda x: x.float() * by, lambda x: x.to(dtype))
    return Reduction(_abi.TUTTI_SUM, None, lambda x: (x * by).to(dtype))


def _of_complex(real: Reduction) -> Reduction:
    def to_real(x: torch.Tensor) -> torch.Tensor:
        return torch.view_as_real(x).view(-1)

    def to_complex(x: torch.Tensor) -> torch.Tensor:
        return torch.view_as_complex(x.view(-1, 2))

    return Reduction(real.native, None, _then(to_real, real.before), _then(real.after, to_complex))


@functools.cache
def _reduction(name: str, dtype: torch.dtype) -> Reduction | None:
    """None: there is no such thing."""
    if dtype == torch.bool:
        return _of_bool(name)
    if dtype in _REAL:
        real = _of_float(name, _REAL[dtype]) if name in ("SUM", "AVG") else None
        return None if real is None else _of_complex(real)
    if dtype in _FLOATS:
        return _of_float(name, dtype)
    return _of_int(name, dtype)


def reduction(what: str, op: Any, dtype: torch.dtype) -> Reduction:
    """Refuses by name what there is not. It depends on the arguments alone, so all ranks refuse alike."""
    name = name_of(op)
    if name == "PREMUL_SUM" and (dtype in _FLOATS or dtype in _REAL):
        multiplied = _premultiplied(_REAL.get(dtype, dtype), factor_of(op))
        return _of_complex(multiplied) if dtype in _REAL else multiplied
    found = _reduction(name, dtype) if name in NAMES else None
    if found is None:
        takes = [n for n in NAMES if n == "PREMUL_SUM" and dtype in (*_FLOATS, *_REAL) or
                 n != "PREMUL_SUM" and _reduction(n, dtype) is not None]
        has = f"of {dtype} it has {', '.join(takes)}" if takes else f"tensors of {dtype} are moved and not reduced"
        raise ValueError(f"{what}: the backend 'tutti' has no {name} of {dtype}: {has}")
    return found
