"""All-reduce of sparse tensors (COO), such as the gradients of an embedding with sparse=True.

Each rank has rows of its own. All get everybody's rows, and add those of one place in the order of ranks: the same
bits everywhere. A rank receives, of each other one, 8 bytes and the values for each row that it has; so where most
rows are in use, a dense gradient is cheaper.
"""

from __future__ import annotations

import zlib
from collections.abc import Sequence

import torch

from ._calls import Members
from ._reductions import name_of

_NARROW = (torch.float16, torch.bfloat16)
_FLOATS = (torch.float32, torch.float64, *_NARROW)
_INTEGERS = (torch.int8, torch.uint8, torch.int16, torch.int32, torch.int64)


def is_sparse(t: torch.Tensor) -> bool:
    return t.layout == torch.sparse_coo and t.device.type == "cpu"


def _places(t: torch.Tensor) -> torch.Tensor:
    """Of a coalesced tensor: the number of each of its rows, as if all sparse dimensions were one."""
    numbers = torch.zeros(t._nnz(), dtype=torch.int64)
    for indices, length in zip(t.indices(), t.shape, strict=False):
        numbers = numbers * length + indices
    return numbers


def _indices(numbers: torch.Tensor, shape: Sequence[int]) -> torch.Tensor:
    """The reverse of _places()."""
    rows = []
    for length in reversed(shape):
        rows.append(numbers % max(length, 1))
        numbers = numbers // max(length, 1)
    return torch.stack(rows[::-1]) if rows else numbers.new_empty(0, len(numbers))


class SparseSum:
    """The sum of sparse tensors, or their mean: each value times 1/n, and then the sum. It stands in the place of a
    Reduction. fp16 and bf16 are summed as fp32 and rounded once."""

    def __init__(self, what: str, op: object, dtype: torch.dtype):
        name = name_of(op)
        if not (name == "SUM" and dtype in (*_FLOATS, *_INTEGERS) or name == "AVG" and dtype in _FLOATS):
            raise ValueError(
                f"{what}: the backend 'tutti' has no {name} of sparse tensors of {dtype}: it has SUM of floating-point "
                "and integer ones, and AVG of the first; give it a dense tensor, as to_dense() makes one"
            )
        self._what, self._mean = what, name == "AVG"

    def allreduce(self, members: Members, t: torch.Tensor) -> None:
        # a tensor from outside of inference mode keeps parts that an optimizer may change
        with torch.inference_mode(t.is_inference()), torch.no_grad():
            mine = t.detach().coalesce()
            counts = self._counts(members, mine)
            places = torch.empty(sum(counts), dtype=torch.int64)
            members.allgather(_places(mine), counts, places)
            row = mine.values().shape[1:].numel()
            values = torch.empty(sum(counts) * row, dtype=t.dtype)
            members.allgather(mine.values().contiguous().view(-1), [n * row for n in counts], values)
            t.copy_(self._summed(places, values.view(-1, row), counts, mine))

    def _counts(self, members: Members, mine: torch.Tensor) -> list[int]:
        """The rows of each member. All see what all have, so all raise where shapes differ."""
        form = f"{mine.dtype} {tuple(mine.shape)} {mine.sparse_dim()}"
        heads = torch.empty(2 * members.size, dtype=torch.int64)
        members.allgather(torch.tensor([mine._nnz(), zlib.crc32(form.encode())]), [2] * members.size, heads)
        forms = heads[1::2].tolist()
        if len(set(forms)) > 1:
            unlike = [r for r, of_r in enumerate(forms) if of_r != forms[members.index]]
            raise ValueError(
                f"{self._what}: this rank's sparse tensor is of {mine.dtype}, of shape {tuple(mine.shape)}, of which "
                f"{mine.sparse_dim()} dimensions are sparse; those of ranks {unlike} of the group are not"
            )
        return heads[::2].tolist()

    def _summed(self, places: torch.Tensor, values: torch.Tensor, counts: Sequence[int],
                like: torch.Tensor) -> torch.Tensor:
        numbers, slots = torch.unique(places, sorted=True, return_inverse=True)
        dtype = torch.float32 if like.dtype in _NARROW else like.dtype
        # -0.0 + v has the bits of v
        total = torch.full((len(numbers), values.shape[1]), -0.0 if dtype.is_floating_point else 0, dtype=dtype)
        for slot, of_one in zip(slots.split(list(counts)), values.split(list(counts)), strict=True):
            of_one = of_one.to(dtype)
            total[slot] += of_one * (1 / len(counts)) if self._mean else of_one
        shape = (len(numbers), *like.values().shape[1:])
        return torch.sparse_coo_tensor(_indices(numbers, like.shape[:like.sparse_dim()]),
                                       total.to(like.dtype).view(shape), like.shape, is_coalesced=True,
                                       check_invariants=False)
