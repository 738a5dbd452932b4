"""Which call is which: what a codec keeps (a residual, a factor) belongs to a call of a backward, and the same call
comes again in the next one.

A tensor that is reduced has no name. But gradients come in the same order in every backward, on all ranks. So a call is
known by its place in that order, and what it must have in common with the call of that place in earlier steps is its
Site. The order is not assumed: the first steps are sent without the codec until two in a row have made the same calls
(DistributedDataParallel changes its buckets after the first). From then on a call that is not the expected one is an
error, and so is a backward that ends too early. Neither can give a call what another one has left.

A step is a backward of autograd, or what a script has put into `gradients(name)`. Each name has an order of its own.
"""

from __future__ import annotations

import contextlib
import warnings
from collections.abc import Iterator
from dataclasses import astuple, dataclass
from typing import TYPE_CHECKING, Any

import torch

from ...errors import StateError

if TYPE_CHECKING:
    from ._coder import Coder

_PATIENCE = 16  # steps of which no two in a row were equal, until that is said
_MENDS = (
    "If this backward is another model's, run it within `with tutti.torch.distributed.gradients(name, group):`, a name "
    "for each model, or give that model a group of its own. If the model itself has changed, call "
    "codec_of(group).reset() on all ranks before. If it uses other parameters from step to step, let FSDP2 reduce all "
    "of them (set_reduce_scatter_unused_params)"
)


@dataclass(frozen=True)
class Site:
    """What a call has in common with those of its place. counts: elements; of a reduce-scatter, those of each part."""

    call: str
    operation: str
    dtype: str
    counts: tuple[int, ...]

    def __str__(self) -> str:
        parts = "" if len(self.counts) == 1 else f" in {len(self.counts)} parts"
        return f"{self.call} ({self.operation}) of {sum(self.counts)} elements of {self.dtype}{parts}"

    def saved(self) -> list[Any]:
        return list(astuple(self))

    @staticmethod
    def loaded(saved: list[Any]) -> Site:
        call, operation, dtype, counts = saved
        return Site(call, operation, dtype, tuple(counts))


class Order:
    """The calls of a step, in order. fixed: those of every step; None: not known yet. coder: what they go through."""

    def __init__(self, name: str):
        self.name = name
        self.forget()

    def forget(self) -> None:
        self.fixed: tuple[Site, ...] | None = None
        self.coder: Coder | None = None
        self._last: list[Site] | None = None
        self._now: list[Site] = []
        self._steps = 0

    def fix(self, sites: list[Site]) -> None:
        self.forget()
        self.fixed = tuple(sites)

    def _of_what(self) -> str:
        return f"the backward of '{self.name}'" if self.name else "this backward"

    def begin(self) -> None:
        """A step begins; the one before it is over."""
        if self.fixed is None and self._now:
            self._steps += 1
            if self._now == self._last:
                self.fixed = tuple(self._now)
            elif self._steps == _PATIENCE:
                warnings.warn(
                    f"{_PATIENCE} times, {self._of_what()} has made other calls than the time before, so nothing has "
                    f"gone through the group's codec yet; in PyTorch, checkpoint(use_reentrant=True) does this, too: "
                    f"a step can be put into gradients() as a whole. {_MENDS}",
                    stacklevel=2,
                )
            self._last = self._now
        self._now = []

    def next(self, site: Site) -> int | None:
        """The place of the call that comes now; None: places are not known yet."""
        self._now.append(site)
        place = len(self._now) - 1
        if self.fixed is None:
            return None
        if place < len(self.fixed) and self.fixed[place] == site:
            return place
        wanted = f"was {self.fixed[place]}" if place < len(self.fixed) else "did not exist"
        text = (
            f"{self._of_what()} has made {site} as its call {place + 1} with a codec, which in those before {wanted}. "
            f"What the codec has kept belongs to other calls, so nothing was sent, and it was dropped. {_MENDS}"
        )
        self.forget()
        raise StateError(text)

    def is_whole(self) -> bool:
        """False: calls are missing at the end of the step."""
        return self.fixed is None or len(self._now) in (0, len(self.fixed))

    def end(self) -> None:
        if self.is_whole():
            return
        text = (
            f"{self._of_what()} has ended after {len(self._now)} calls with a codec, and those before made "
            f"{len(self.fixed or ())}: {(self.fixed or ())[len(self._now)]} is missing. Do not use these gradients; "
            f"what the codec had kept was dropped. {_MENDS}"
        )
        self.forget()
        raise StateError(text)


class Steps:
    """The orders of a group, and the step that is in progress."""

    def __init__(self) -> None:
        self.orders: dict[str, Order] = {}
        self._scope: Order | None = None
        self._task = -1  # of autograd, whose backward is the step
        self._waited = False

    def order(self, name: str) -> Order:
        return self.orders.setdefault(name, Order(name))

    def is_open(self) -> bool:
        """Is this call within a step, so that it is of gradients?"""
        return self._scope is not None or torch._C._current_graph_task_id() != -1

    def take(self, site: Site) -> tuple[Order, int | None]:
        """Within a step: the order to which this call belongs, and its place."""
        if self._scope is not None:
            return self._scope, self._scope.next(site)
        order, task = self.order(""), torch._C._current_graph_task_id()
        if task != self._task:
            self._task, self._waited = task, False
            order.begin()
            torch.autograd.Variable._execution_engine.queue_callback(self._ends)
        return order, order.next(site)

    def _ends(self) -> None:
        """The backward is over, but for other callbacks, which may make calls as well: FSDP2's does. Those that were
        there before have been called, and one more time is waited for those that have come since."""
        order = self.order("")
        if not order.is_whole() and not self._waited:
            self._waited = True
            torch.autograd.Variable._execution_engine.queue_callback(self._ends)
            return
        order.end()

    @contextlib.contextmanager
    def scope(self, name: str) -> Iterator[None]:
        """All calls within are one step's."""
        if self._scope is not None:
            raise StateError(f"gradients('{name}') within gradients('{self._scope.name}') of the same group; end one "
                             "before the next begins")
        self._scope = self.order(name)
        self._scope.begin()
        try:
            yield
            self._scope.end()
        finally:
            self._scope = None

    def forget(self) -> None:
        for order in self.orders.values():
            order.forget()
