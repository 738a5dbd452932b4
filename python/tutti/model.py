"""A model in stages, as a client offers it to methods that drive (pipeline.h): Engine(model=...) takes a Stages."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from . import _abi


@dataclass(frozen=True, slots=True)
class Unit:
    """A unit of the model (tutti_model_unit). cut: a stage may begin here. Of a sample: operations of forward and
    backward, floats that enter where a stage begins here, bytes that forward keeps until backward is over."""

    cut: bool
    forward: float
    backward: float
    enters: int
    kept: int


class Stages:
    """What a method that drives calls, from within Engine's own calls. Addresses are those of the engine's memory, and
    None where there is none; an exception ends the call during which it was raised."""

    units: Sequence[Unit]
    samples: int  # of a micro-batch at most
    whole: str | None = None  # why it cannot be cut at all
    seconds: Sequence[float] | None = None  # workers x units, where the method asks for what was measured

    def open(self, first: int, end: int, slots: int, samples: int, apart: bool) -> None:
        """This worker's stage is these units."""
        raise NotImplementedError

    def forward(self, slot: int, now: _abi.tutti_pass, values: int, entered: int | None, leaves: int | None) -> bool:
        """Begins it, and says whether it is over with its first unit."""
        raise NotImplementedError

    def backward(
        self, slot: int, now: _abi.tutti_pass, values: int, slope: int | None, gradient: int, back: int | None
    ) -> tuple[bool, float]:
        """The same; and the sum of the samples' losses, where it is over."""
        raise NotImplementedError

    def go_on(self, slot: int) -> tuple[bool, float]:
        """The next unit of what was begun there."""
        raise NotImplementedError

    def held(self) -> int:
        """Bytes that slots have now."""
        raise NotImplementedError


def _at(pointer: Any) -> int | None:
    return ctypes.addressof(pointer.contents) if pointer else None


def described(stages: Stages, guard: Callable[[Callable[..., None]], Callable[..., int]]) -> _abi.tutti_model:
    """The library's view of it. guard: makes of a function that raises one that gives a status and takes an error."""

    def opens(first: int, end: int, slots: int, samples: int, apart: bool) -> None:
        stages.open(first, end, slots, samples, apart)

    def forward(slot: int, now: Any, values: Any, entered: Any, leaves: Any, over: Any) -> None:
        over[0] = stages.forward(slot, now.contents, _at(values), _at(entered), _at(leaves))

    def backward(
        slot: int, now: Any, values: Any, slope: Any, gradient: Any, back: Any, over: Any, loss: Any
    ) -> None:  # fmt: skip
        over[0], loss[0] = stages.backward(slot, now.contents, _at(values), _at(slope), _at(gradient), _at(back))

    def go_on(slot: int, over: Any, loss: Any) -> None:
        over[0], loss[0] = stages.go_on(slot)

    kinds = dict(_abi.tutti_model._fields_)
    unit = (_abi.tutti_model_unit * max(len(stages.units), 1))()
    for to, u in zip(unit, stages.units, strict=False):
        to.cut, to.forward, to.backward, to.enters = u.cut, u.forward, u.backward, u.enters
        to.kept = to.given = u.kept
    model = _abi.tutti_model(
        whole=stages.whole and stages.whole.encode(),
        units=len(stages.units),
        unit=unit,
        samples=stages.samples,
        open=kinds["open"](guard(opens)),
        forward=kinds["forward"](guard(forward)),
        backward=kinds["backward"](guard(backward)),
        go_on=kinds["go_on"](guard(go_on)),
        held=kinds["held"](lambda _self: stages.held()),
    )
    if stages.seconds is not None:
        model.seconds = (ctypes.c_double * len(stages.seconds))(*stages.seconds)
    return model
