"""The codec of a group: which of its calls go through it, and what a script can ask of it (docs/TORCH-DISTRIBUTED.md).

Gradients do: sums and averages of float32, bf16 and fp16 within a step (_sites.py), all-reduced or reduce-scattered,
of at least `minimum` elements. All else is exact: metrics, norms, flags and losses are outside of a backward or small.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch
import torch.distributed as dist

from ... import _abi
from ...errors import StateError
from .._versions import factor_of
from ._calls import Members
from ._coder import Coder, Setting, Shapes, traits_of
from ._options import Options
from ._reductions import Reduction, name_of
from ._shapes import shapes_of
from ._sites import Order, Site, Steps
from ._tensors import flat, put

_REDUCED = ("SUM", "AVG", "PREMUL_SUM")
_TAKEN = (torch.float32, torch.bfloat16, torch.float16)


class Coded:
    """A reduction through a codec, in the place of a Reduction. In float32; the result is rounded once to the tensor's
    type. factor: of each value before; times: of the mean."""

    def __init__(self, coder: Coder, place: int, moment: tuple[int, float], factor: Any, times: int):
        self._coder, self._place, self._moment = coder, place, moment
        self._factor = factor.detach().cpu() if isinstance(factor, torch.Tensor) else factor
        self._times = times

    def _begin(self) -> None:
        if self._place == 0:
            self._coder.begin(*self._moment)

    def _enter(self, t: torch.Tensor) -> torch.Tensor:
        x = flat(t).to(torch.float32)
        return x if self._factor is None else x * self._factor

    def _leave(self, x: torch.Tensor, t: torch.Tensor) -> None:
        put(x if self._times == 1 else x.mul_(self._times), t)

    def allreduce(self, members: Members, t: torch.Tensor) -> None:
        self._begin()
        x = self._enter(t)
        self._coder.allreduce(self._place, x)
        self._leave(x, t)

    def reduce_scatter(self, members: Members, out: torch.Tensor, parts: Sequence[torch.Tensor]) -> None:
        """parts as those of Reduction.reduce_scatter, which are not changed."""
        self._begin()
        whole = torch.cat([self._enter(t) for t in parts])
        counts = [t.numel() for t in parts] if len(parts) > 1 else [whole.numel() // members.size] * members.size
        mine = torch.empty(counts[members.index], dtype=torch.float32)
        self._coder.reduce_scatter(self._place, whole.split(counts), mine)
        self._leave(mine, out)


class Codec:
    """What a group keeps for its codec: residuals and the like, of each call, and figures.

    `epoch` and `lr` are for codecs that go by them (accordion): set them as training goes on. `coded` and `exact` count
    the calls with gradients that have gone through the codec, and that have not, since they were small or the order of
    calls was not known yet. `bytes_encoded` is what the codec has made of this rank's gradients.
    `shapes`: matrices, as (rows, columns), that a call of so many elements is made of; `use_shapes_of` fills it.
    """

    spec: str
    minimum: int
    epoch: int
    lr: float
    coded: int
    exact: int
    bytes_encoded: int

    def __init__(self, members: Members, options: Options, drain: Callable[[], None]):
        self.spec, self.minimum = options.codec, options.minimum
        self.epoch, self.lr = 0, 0.0
        self.coded = self.exact = self.bytes_encoded = 0
        self.shapes: dict[int, Shapes] = {}
        self._members, self._seed, self._drain = members, options.seed, drain
        self._votes = traits_of(self.spec) & _abi.TUTTI_CODEC_VOTES != 0
        self._steps = Steps()
        self._loaded: dict[str, Any] = {}

    # ---- calls ----

    def instead_of(self, exact: Reduction, call: str, op: Any, dtype: torch.dtype,
                   counts: Sequence[int]) -> Reduction | Coded:
        """`exact`, or what goes through the codec in its place. Refuses gradients of which it makes nothing. counts: as
        those of a Site. What it does depends on what all ranks give alike."""
        name = name_of(op)
        if name not in _REDUCED or not (dtype.is_floating_point or dtype.is_complex):
            return exact
        if self._members.size == 1 or not self._steps.is_open():
            return exact
        if sum(counts) < self.minimum or min(counts) == 0:
            self.exact += 1
            return exact
        self._check(call, name, dtype)
        order, place = self._steps.take(Site(call, name, str(dtype).removeprefix("torch."), tuple(counts)))
        if place is None:
            self.exact += 1
            return exact
        self.coded += 1
        return Coded(self._coder(order), place, (self.epoch, self.lr), factor_of(op) if name == "PREMUL_SUM" else None,
                     1 if name == "AVG" else self._members.size)

    def _check(self, call: str, name: str, dtype: torch.dtype) -> None:
        if dtype not in _TAKEN:
            raise ValueError(
                f"{call}: a gradient of {dtype} in a group whose codec is '{self.spec}', and codecs take float32, bf16 "
                "and fp16; reduce in one of them, or make this group without a codec"
            )
        if self._votes and name != "AVG":
            raise ValueError(
                f"{call}: a {name} through '{self.spec}', whose result is a vote of signs and has no sum; FSDP2 "
                "averages (ReduceOp.AVG), DistributedDataParallel does not: register tutti.torch.comm_hook there"
            )

    def _coder(self, order: Order) -> Coder:
        if order.coder is None:
            setting = Setting(self.spec, self._seed, self.shapes, self._count)
            order.coder = Coder(self._members, setting, order, self._loaded.pop(order.name, None))
        return order.coder

    def _count(self, made: int) -> None:
        self.bytes_encoded += made

    def step(self, name: str) -> contextlib.AbstractContextManager[None]:
        return self._steps.scope(name)

    # ---- what scripts ask ----

    def use_shapes_of(self, model: torch.nn.Module) -> None:
        """The matrices of a model that fully_shard has sharded, for this group's all-reduces or reduce-scatters.
        Without them a codec of matrices (powersgd) makes one of each call. Before the codec's first step."""
        if any(order.coder is not None for order in self._steps.orders.values()):
            raise StateError(f"use_shapes_of after the codec '{self.spec}' has begun; call it before the first "
                             "backward, or reset() before it")
        self.shapes.update(shapes_of(model))

    def reset(self) -> None:
        """Drops what the codec keeps, and learns the order of calls anew. On all ranks, between two steps."""
        self._drain()
        self._steps.forget()
        self._loaded = {}

    def state_dict(self) -> dict[str, Any]:
        """What this rank's codec keeps, between two steps: its own residuals. Each rank saves its own."""
        self._drain()
        orders = dict(self._loaded)
        for name, order in self._steps.orders.items():
            state = order.coder.state() if order.coder is not None else None
            if state is not None:
                orders[name] = state
        return {"spec": self.spec, "rank": self._members.index, "workers": self._members.size, "orders": orders}

    def load_state_dict(self, state: dict[str, Any], at_once: bool = False) -> None:
        """Goes on from what `state_dict()` gave on the same rank of as many. On all ranks, between two steps.

        at_once: the first step makes the same calls as those before the checkpoint, so it goes through the codec, and
        training continues as if it had not ended. This is so with FSDP2. It is not with DistributedDataParallel, whose
        first backward has other buckets. Without it the order is learned first, as in a run that begins.
        """
        if state["spec"] != self.spec:
            raise ValueError(f"the state is of codec '{state['spec']}', and this group's is '{self.spec}'")
        place = (state["rank"], state["workers"])
        if place != (self._members.index, self._members.size):
            raise ValueError(f"the state is of member {place[0]} of {place[1]}, and this is member "
                             f"{self._members.index} of {self._members.size}; residuals are one a rank: start without")
        self.reset()
        self._loaded = dict(state["orders"])
        for name, saved in self._loaded.items() if at_once else ():
            self._steps.order(name).fix([Site.loaded(site) for site in saved["sites"]])


def _of(group: dist.ProcessGroup | None) -> Codec | None:
    group = dist.group.WORLD if group is None else group
    if not hasattr(group, "_codec"):
        raise ValueError(f"a group of the backend '{dist.get_backend(group)}' has no codec; only those of 'tutti' have")
    codec: Codec | None = getattr(group, "_codec")
    return codec


def codec_of(group: dist.ProcessGroup | None = None) -> Codec:
    """The codec of a group; None: the default group. ValueError: it has none."""
    codec = _of(group)
    if codec is None:
        raise ValueError("this group has no codec; make it with tutti.torch.distributed.options(codec=...)")
    return codec


@contextlib.contextmanager
def gradients(name: str = "", group: dist.ProcessGroup | None = None) -> Iterator[None]:
    """All sums and averages within are one step's gradients, even outside of a backward.

        with tutti.torch.distributed.gradients("critic", group):
            loss.backward()

    name: of the model, where several are trained in one group, so that none gets what another one has left. Without a
    codec it does nothing. None: the default group. On all ranks.
    """
    codec = _of(group)
    with codec.step(name) if codec is not None else contextlib.nullcontext():
        yield
