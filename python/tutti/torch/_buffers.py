"""Broadcasts tensors that the engine does not train: buffers and frozen parameters."""

from collections.abc import Sequence

import torch

from ..world import World

_ALIGN = 16  # bytes: any type may be viewed from there on


class Copies:
    """Broadcasts lists of tensors, each list as one message. Its memory is kept for the next list of equal shapes."""

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
        """Copies the root's values into the tensors of all ranks, which have equal shapes and types. Collective.

        The versions of the tensors do not change, so that a backward can use what its forward has saved of a buffer.
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
