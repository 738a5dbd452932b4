"""Interface of a model in stages, for methods that run the passes of stages themselves (tutti_model of pipeline.h).

A client implements Stages and gives it to Engine(model=...). The terms are those of pipeline.h.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from . import _abi
from ._library import members


@dataclass(frozen=True, slots=True)
class Unit:
    """A unit of the model (tutti_model_unit). All figures are of one sample."""

    cut: bool  # a stage may begin with this unit
    forward: float  # FLOPs
    backward: float  # FLOPs
    enters: int  # floats of the unit's input, where a stage begins with it
    kept: int  # bytes that forward keeps until the end of backward


class Stages:
    """The callbacks of the method, which calls them within calls of the Engine. Addresses are of the engine's memory;
    None: there is no such memory. An exception ends the call of the Engine during which it was raised."""

    units: Sequence[Unit]
    samples: int  # most samples of a micro-batch
    whole: str | None = None  # why the model cannot be partitioned; None: it can
    seconds: Sequence[float] | None = None  # [workers x units]: measured times; None: not measured

    def open(self, first: int, end: int, slots: int, samples: int, apart: bool) -> None:
        """Makes units [first, end) this worker's stage, with slots for that many micro-batches of at most `samples`
        samples. apart: several slots may be in progress at a time."""
        raise NotImplementedError

    def forward(
        self, slot: int, now: _abi.tutti_pass, values: int | None, entered: int | None, leaves: int | None
    ) -> bool:
        """Begins the forward of a micro-batch and computes its first unit. Returns whether that was the last one.

        entered: output of the previous stage; leaves: where the output is to be written; None in the first, last stage.
        """
        raise NotImplementedError

    def backward(
        self, slot: int, now: _abi.tutti_pass, values: int | None, slope: int | None, gradient: int | None,
        back: int | None
    ) -> tuple[bool, float]:  # fmt: skip
        """Begins the backward and computes its first unit. Returns whether that was the last one, and then the sum of
        the samples' losses (0 except in the last stage).

        slope: gradient of the output; gradient: where the gradient of the values is to be written, or added with
        now.keep; back: where the gradient of the input is to be written.
        """
        raise NotImplementedError

    def go_on(self, slot: int) -> tuple[bool, float]:
        """Computes the next unit of the forward or backward in that slot. Returns the same as backward()."""
        raise NotImplementedError

    def held(self) -> int:
        """Returns how many bytes of activations the slots have now."""
        raise NotImplementedError


def _at(pointer: Any) -> int | None:
    return ctypes.addressof(pointer.contents) if pointer else None


def described(stages: Stages, guard: Callable[[Callable[..., None]], Callable[..., int]]) -> _abi.tutti_model:
    """Returns the C structure for stages. guard: wraps a function that may raise into one that returns a status."""

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

    kinds = members(_abi.tutti_model)
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
