"""The library's collectives, on flat contiguous tensors in host memory.

What only moves values moves bytes, so that it takes every dtype. Only sums and comparisons ask for a type.

Members compare what the library cannot see: the dtype of what it moves, and the earlier calls. Without that a rank with
another dtype of the same size, or another root of a broadcast, would continue with wrong values.
"""

from __future__ import annotations

import ctypes
import zlib
from collections import deque
from collections.abc import Sequence

import torch

from ... import _abi
from ..._library import library as _c
from ...errors import check
from ...world import World

WIRE = {
    torch.float32: _abi.TUTTI_F32,
    torch.float64: _abi.TUTTI_F64,
    torch.bfloat16: _abi.TUTTI_BF16,
    torch.float16: _abi.TUTTI_F16,
    torch.int64: _abi.TUTTI_I64,
    torch.int32: _abi.TUTTI_I32,
    torch.int8: _abi.TUTTI_I8,
    torch.uint8: _abi.TUTTI_U8,
}


_BITS = 0x7FF  # the largest number that the library compares (comm.h: tutti_group_compare)
_KEPT = 32  # calls that are remembered, to be named


def _bytes(t: torch.Tensor) -> int:
    return t.numel() * t.element_size()


class Members:
    """The members of a group: ranks of `world`, in the group's order. One thread at a time makes its calls."""

    ranks: list[int]
    context: int
    size: int
    index: int

    def __init__(self, world: World, ranks: Sequence[int], context: int):
        self._world, self.ranks, self.context = world, list(ranks), context
        self._array = (ctypes.c_int * len(ranks))(*ranks)  # which the library borrows
        self._group = self._own_copy()
        self.size, self.index = len(ranks), self._group.index
        self.made: deque[tuple[int, str]] = deque(maxlen=_KEPT)  # the last calls, numbered; any thread reads them
        self._number = self._history = 0

    def _own_copy(self) -> _abi.tutti_group:
        group: _abi.tutti_group = _c.tutti_group_of(self._world._at, self._array, len(self.ranks), self.context)
        return group

    def _begins(self, call: str) -> None:
        """call: its arguments that are equal on all members, in words. The hash of all such words is compared."""
        self._number += 1
        self._history = zlib.crc32(call.encode(), self._history)
        check(_c.tutti_group_compare, self._group, self._history % _BITS + 1)
        self.made.append((self._number, call))

    def _values(self, t: torch.Tensor) -> _abi.tutti_buffer:
        return self._world._host(t.data_ptr(), t.numel(), WIRE[t.dtype])

    def _raw(self, t: torch.Tensor | None) -> _abi.tutti_buffer:
        if t is None:
            return self._world._host(0, 0, _abi.TUTTI_U8)
        return self._world._host(t.data_ptr(), _bytes(t), _abi.TUTTI_U8)

    def allreduce(self, x: torch.Tensor, operation: int) -> None:
        self._begins(f"all_reduce of {x.numel()} {x.dtype}")
        check(_c.tutti_allreduce, self._group, operation, self._values(x))

    def reduce(self, x: torch.Tensor, operation: int, root: int) -> None:
        self._begins(f"reduce of {x.numel()} {x.dtype} to index {root}")
        check(_c.tutti_reduce, self._group, operation, root, self._values(x))

    def reduce_scatter(self, x: torch.Tensor, counts: Sequence[int], mine: torch.Tensor, operation: int) -> None:
        """What x then holds is undefined."""
        self._begins(f"reduce_scatter of {x.numel()} {x.dtype}")
        if len(set(counts)) == 1:
            check(_c.tutti_reduce_scatter, self._group, operation, self._values(x), self._values(mine))
        else:
            check(_c.tutti_reduce_scatter_v, self._group, operation, self._array_of(counts), self._values(x),
                  self._values(mine))

    @staticmethod
    def _array_of(counts: Sequence[int], element: int = 1) -> ctypes.Array[ctypes.c_ulong]:
        return (ctypes.c_ulong * len(counts))(*(n * element for n in counts))

    def allgather(self, mine: torch.Tensor, counts: Sequence[int], whole: torch.Tensor) -> None:
        """counts: elements of each member."""
        self._begins(f"all_gather of {whole.numel()} {mine.dtype}")
        if len(set(counts)) == 1:
            check(_c.tutti_allgather, self._group, self._raw(mine), self._raw(whole))
        else:
            sizes = self._array_of(counts, mine.element_size())
            check(_c.tutti_allgather_v, self._group, sizes, self._raw(mine), self._raw(whole))

    def gather(self, mine: torch.Tensor, whole: torch.Tensor | None, root: int) -> None:
        self._begins(f"gather of {mine.numel()} {mine.dtype} to index {root}")
        check(_c.tutti_gather_parts, self._group, root, self._raw(mine), self._raw(whole))

    def scatter(self, whole: torch.Tensor | None, mine: torch.Tensor, root: int) -> None:
        self._begins(f"scatter of {mine.numel()} {mine.dtype} from index {root}")
        check(_c.tutti_scatter_parts, self._group, root, self._raw(whole), self._raw(mine))

    def alltoall(self, x: torch.Tensor, to: Sequence[int], out: torch.Tensor, come: Sequence[int],
                 then: str = "") -> None:
        """to, come: elements for each member, and of each. then: what all make of them."""
        self._begins(f"all_to_all of {x.dtype}{then}")
        counts = self._array_of([*to, *come], x.element_size())
        check(_c.tutti_alltoall_v, self._group, counts, self._raw(x), self._raw(out))

    def broadcast(self, x: torch.Tensor, root: int) -> None:
        self._begins(f"broadcast of {x.numel()} {x.dtype} from index {root}")
        check(_c.tutti_broadcast, self._group, root, self._raw(x))

    def barrier(self) -> None:
        self._begins("barrier")
        check(_c.tutti_barrier, self._group)

    def close(self) -> None:
        """No call is in progress, and none follows."""
        check(_c.tutti_group_compare, self._group, 0)

    def give_up(self) -> None:
        """This member comes to no further collective, and the others do not wait for it. Any thread."""
        _c.tutti_group_give_up(self._own_copy(), self._world.rank)
