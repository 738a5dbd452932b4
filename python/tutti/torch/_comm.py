"""Communication hooks of torch's (register_comm_hook), called in the place of the engine's exchange.

torch's own buckets are made by its Reducer. Those here have what hooks ask of a dist.GradBucket: one flat tensor of
gradients in the order of backward, of one type, at most 25 MiB unless a single parameter is larger.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch
from torch import nn

from ._bind import Bound

_CAP = 25 << 20  # bytes, as torch's default


class Bucket:
    """What a hook is given: dist.GradBucket, which Python cannot make."""

    def __init__(self, index: int, bound: Sequence[Bound], zeros: bool):
        self.bound, self.last, self._index = bound, False, index
        first = bound[0].param
        self._buffer = torch.zeros(sum(b.param.numel() for b in bound), dtype=first.dtype, device=first.device)
        for b, place in self.places(self._buffer):
            if b.param.grad is not None and not zeros:
                place.copy_(b.param.grad)

    def places(self, flat: torch.Tensor) -> Iterator[tuple[Bound, torch.Tensor]]:
        """Each parameter's part of such a tensor, shaped as the parameter."""
        at = flat.storage_offset()
        for b in self.bound:
            yield b, flat.as_strided(b.param.shape, b.strides, at)
            at += b.param.numel()

    def index(self) -> int:
        return self._index

    def is_last(self) -> bool:
        return self.last

    def buffer(self) -> torch.Tensor:
        return self._buffer

    def set_buffer(self, buffer: torch.Tensor) -> None:
        self._buffer = buffer

    def parameters(self) -> list[nn.Parameter]:
        return [b.param for b in self.bound]

    def gradients(self) -> list[torch.Tensor]:
        return [place for _, place in self.places(self._buffer)]

    def take(self, result: Any) -> torch.Tensor:
        """What the hook's future holds, flat."""
        if isinstance(result, (list, tuple)) and len(result) == 1:
            result = result[0]
        if not isinstance(result, torch.Tensor) or result.numel() != self._buffer.numel():
            raise ValueError(
                f"a communication hook gave {type(result).__name__} for a bucket of {self._buffer.numel()} elements; "
                "its future holds one tensor of as many"
            )
        return result.detach().contiguous().view(-1)


def _cut(bound: Sequence[Bound]) -> list[list[Bound]]:
    """Those of each bucket: as they are full, the rest in the order in which they began."""
    full: list[list[Bound]] = []
    open_: dict[torch.dtype, list[Bound]] = {}
    for b in bound:
        of = open_.setdefault(b.param.dtype, [])
        of.append(b)
        if sum(o.param.numel() for o in of) * b.param.element_size() >= _CAP:
            full.append(open_.pop(b.param.dtype))
    return full + list(open_.values())


@torch.no_grad()
def exchange(
    hook: Callable[[Any, Any], torch.futures.Future[Any]], state: object, bound: Sequence[Bound], zeros: bool
) -> Iterator[tuple[Bound, torch.Tensor]]:
    """Each parameter with its exchanged gradient. zeros: this worker has none."""
    buckets = [Bucket(k, of, zeros) for k, of in enumerate(_cut(bound))]
    buckets[-1].last = True
    for bucket, future in [(bucket, hook(state, bucket)) for bucket in buckets]:
        yield from bucket.places(bucket.take(future.wait()))
