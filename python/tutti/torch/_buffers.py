"""Buffers and frozen parameters of rank 0 for all: what the engine does not train."""

from collections.abc import Sequence

import torch

from ..engine import World

_ALIGN = 16  # bytes: any type may be viewed from there on


class Copies:
    """Tensors of one rank come to all others, in one broadcast. It keeps the memory of the last one."""

    def __init__(self, world: World):
        self.world = world
        self._key: list[tuple[torch.dtype, torch.Size]] = []
        self._flat = torch.empty(0, dtype=torch.uint8)
        self._views: list[torch.Tensor] = []

    def _make_room(self, tensors: Sequence[torch.Tensor]) -> None:
        key = [(t.dtype, t.shape) for t in tensors]
        if key == self._key:
            return
        self._key = key
        spans, end = [], 0
        for t in tensors:
            spans.append((end, end + t.numel() * t.element_size()))
            end = -(-spans[-1][1] // _ALIGN) * _ALIGN
        self._flat = torch.zeros(end, dtype=torch.uint8)
        self._views = [self._flat[a:b].view(t.dtype).view(t.shape) for (a, b), t in zip(spans, tensors, strict=True)]

    @torch.no_grad()
    def broadcast(self, tensors: Sequence[torch.Tensor], root: int = 0) -> None:
        """The root's values stand in the tensors of all ranks, which have the same shapes and types on each.

        For autograd nothing has changed: what a forward has saved of a buffer is still good for its backward.
        """
        if not tensors or self.world.size == 1:
            return
        self._make_room(tensors)
        mine = self.world.rank == root
        if mine:
            torch._foreach_copy_(self._views, list(tensors))
        self.world.broadcast(self._flat.data_ptr(), self._flat.numel(), root)
        if not mine:
            kept = tuple(t for t in tensors if not t.is_inference())  # those of inference mode have no version
            with torch.autograd._unsafe_preserve_version_counter(kept):
                torch._foreach_copy_(list(tensors), self._views)
