"""A call whose tensors are on an accelerator: their stand-ins in pinned host memory, on which the library works.

    the caller's stream   gradient ──┐                                    ┌── what wait() is before
    side stream                      └─ to host                 back ─────┘
    the group's thread                        synchronize, call

`issue` returns at once. Work.wait() blocks the host until the call has been made, as no event can be waited for before
it is recorded; the copy back is waited for by the caller's current stream alone. With tensors in host memory nothing of
this happens: a stand-in is the tensor itself.
"""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from typing import Any

import torch

from .. import _streams
from ._tensors import plain

class Staged:
    """The tensors of one call. Make stand-ins by reads, writes and updates where the call is issued; then `enter` and
    `leave` around the work on them, on the group's thread; then `wait`."""

    def __init__(self) -> None:
        self._streams: _streams.Streams | None = None
        self._before: Any = None  # the event after which the tensors are final
        self._coming: list[Any] = []  # events of copies to the host
        self._back: list[tuple[torch.Tensor, torch.Tensor]] = []  # tensor, stand-in
        self._left: Any = None  # the event of the last copy back
        self._given = self._got = 0  # bytes

    def bytes(self) -> int:
        """The larger of what the call is given and of what it gives."""
        return max(self._given, self._got)

    def _stand_in(self, t: torch.Tensor) -> torch.Tensor:
        """Host memory for it; the tensor itself if it is there."""
        streams = _streams.of_device(t.device)
        if streams is None:
            return t
        if self._streams is None:
            self._streams, self._before = streams, streams.record()
        return streams.pinned(t.shape, t.dtype)

    def _aside(self) -> _streams.Streams:
        assert self._streams is not None, "copies are made on streams"
        return self._streams

    def reads(self, t: torch.Tensor) -> torch.Tensor:
        self._given += t.numel() * t.element_size()
        host = self._stand_in(t)
        if self._streams is not None and host is not t:
            source = t.detach() if plain(t) else t.detach().resolve_conj().resolve_neg()
            self._coming.append(self._streams.copy(host, source, self._before))
        return host

    def writes(self, t: torch.Tensor) -> torch.Tensor:
        self._got += t.numel() * t.element_size()
        host = self._stand_in(t)
        if host is not t:
            self._back.append((t.detach(), host))
        return host

    def updates(self, t: torch.Tensor) -> torch.Tensor:
        host = self.reads(t)
        if host is not t:
            self._back.append((t.detach(), host))
        return host

    def enter(self) -> None:
        """Blocks until the inputs are in host memory."""
        coming, self._coming = self._coming, []
        for event in coming:
            self._aside().synchronize(event)

    def leave(self) -> None:
        """Queues the copies of the results. Does not block."""
        back, self._back = self._back, []
        for t, host in back:  # after what the caller still did with the tensor
            self._left = self._aside().copy(t, host, self._before)

    def wait(self) -> None:
        """After leave(): the caller's current stream waits for the results."""
        if self._left is not None:
            self._aside().stream_wait(self._left)

    def settle(self) -> contextlib.AbstractContextManager[Any]:
        """Within, a future that is completed has the results on the stream that brings them."""
        return contextlib.nullcontext() if self._streams is None else self._streams.aside()


def devices(tensors: Sequence[torch.Tensor]) -> list[int | str | torch.device] | None:
    """Those of a future with these results."""
    return list({t.device for t in tensors if t.device.type != "cpu"}) or None


class Several(Staged):
    """Those of coalesced calls, each of which has entered and left by itself."""

    def __init__(self, staged: Sequence[Staged | None]):
        super().__init__()
        self._all = [one for one in staged if one is not None]
        self._streams = next((one._streams for one in self._all if one._streams is not None), None)

    def wait(self) -> None:
        for one in self._all:
            one.wait()
