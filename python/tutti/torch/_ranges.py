"""Ranges of torch.profiler: where a script's time goes within this package, by method, tensor and collective.

Each name is that of a call, so that key_averages() adds up the same calls:

    tutti:step (ddp)                        a call of the engine that may wait, and its method
    tutti:grad_ready (0.weight)             a gradient is handed over; without a lane it is exchanged, too
    tutti:rows_acquire (table.weight)       rows of a table are fetched
    tutti:unit_acquire (0.weight, 0.bias)   the values of a unit are fetched; tutti:unit_release in the same way
    tutti:all_reduce                        the wait for a call of the backend
    tutti:all_reduce (qsgd(bits=8))         the same, encoded by that codec

Without a profiler a call reads one flag. A range begins and ends on one thread: in PyTorch 2.13 an asynchronous one
(`_call_end_callbacks_on_future`) that ends after its profile writes to memory that the profile has freed.
"""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any

from torch.autograd import profiler

from ..engine import Engine

_NONE = contextlib.nullcontext()
_SHOWN = 4  # names of a unit's tensors


def ranged(name: str) -> AbstractContextManager[Any]:
    """A range of that name, where a profiler records."""
    return profiler.record_function(f"tutti:{name}") if profiler._is_profiler_enabled else _NONE


class ProfiledEngine(Engine):
    """An engine whose calls are ranges while a profiler records."""


def _method(engine: Engine, *_: Any) -> str:
    return str(engine.method.ops.contents.name.decode())


def _tensor(engine: Engine, tensor: int, *_: Any) -> str:
    return engine.params[tensor].name


def _unit(engine: Engine, unit: int, *_: Any) -> str:
    names = [p.name for p in engine.params if p.unit == unit]
    return ", ".join(names[:_SHOWN]) + (f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else "")


def _within(call: Callable[..., Any], name: str, of: Callable[..., str]) -> Callable[..., Any]:
    @functools.wraps(call)
    def within(self: Engine, *arguments: Any, **named: Any) -> Any:
        if not profiler._is_profiler_enabled:
            return call(self, *arguments, **named)
        with ranged(f"{name} ({of(self, *arguments)})"):
            return call(self, *arguments, **named)

    return within


for _of, _calls in {
    _method: ("pass_begin", "pass_end", "step", "drive", "more", "more_epochs", "more_samples", "finish", "eval_begin",
              "eval_end", "save"),
    _tensor: ("grad_ready", "grad_ready_from", "grad_ready_rows", "grad_ready_rows_from", "rows_acquire"),
    _unit: ("unit_acquire", "unit_release"),
}.items():  # fmt: skip
    for _call in _calls:
        _name = "grad_ready" if _call.startswith("grad_ready") else _call
        setattr(ProfiledEngine, _call, _within(getattr(Engine, _call), _name, _of))
