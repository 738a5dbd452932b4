"""What a script reports into the record of its run: the loss of a batch, and figures of evaluations by name.

The names are the library's to check (src/record/logged.c). A figure that is no number, NaN or infinite, is null in the
record, as a loss is.
"""

from __future__ import annotations

import json
import math
import numbers
import warnings
from collections.abc import Mapping
from typing import Any

import torch

from ..errors import check
from ._record import Begun


def number(name: str, value: Any, read: bool) -> float:
    """The value of a figure: a number, or a tensor or an array of one. read=False: only looks at what it is, and does
    not wait for the device that has it."""
    shape = getattr(value, "shape", None)
    if shape is not None and math.prod(shape) != 1:
        raise ValueError(f"log({name}=...) was given values of shape {tuple(shape)}; a figure is one number, say their "
                         "mean()")
    if isinstance(value, torch.Tensor) and value.dtype is not torch.bool and not value.is_complex():
        value = value.detach().item() if read else 0.0
    elif shape is not None and callable(getattr(value, "item", None)):
        value = value.item()
    if isinstance(value, bool) or not isinstance(value, numbers.Real):
        raise TypeError(f"log({name}=...) was given {value!r:.60}; a figure is a number, or a tensor of one")
    try:
        return float(value)
    except OverflowError:
        raise ValueError(f"log({name}=...) was given a number beyond those of 64 bits") from None


def log(record: Begun | None, call: Any, figures: Mapping[str, Any] | None, loss: Any, more: Mapping[str, Any]) -> None:
    """call: the function of the library that adds figures to such a record."""
    if figures is not None and not isinstance(figures, Mapping):
        raise TypeError(f"log() takes figures by name, a dict or keywords, and was given a {type(figures).__name__}")
    given = {**(figures or {}), **more}
    twice = [name for name in more if figures and name in figures]
    if loss is not None and "loss" in given or twice:
        raise ValueError(f"log() was given {(twice or ['loss'])[0]} twice")
    loss = given.pop("loss", loss)
    if loss is None and not given:
        raise ValueError("log() was given no figure: log(loss=loss) is the loss of a batch, log(test_accuracy=0.9) a "
                         "figure of an evaluation")
    if loss is not None and given:
        raise ValueError("log(loss=...) is the training loss of a batch, of which the record has means; with figures "
                         f"of an evaluation ({next(iter(given))}) call theirs test_loss, or give loss= in a call of "
                         "its own")
    if loss is not None:
        value = number("loss", loss, record is not None)
        if record is not None:
            record.loss(value)
        return
    named = {}
    for name, value in given.items():
        if not isinstance(name, str):
            raise TypeError(f"log() was given a figure called {name!r:.60}; a name is a str")
        value = number(name, value, record is not None)
        named[name] = value if math.isfinite(value) else None
    text = json.dumps(named).encode()
    check(call, None, text)
    if record is not None and record.is_over():
        warnings.warn(f"log({next(iter(named))}=...) comes after the end of the run's record (finish(), close()), "
                      "which does not have it; call it before, say within evaluate()", stacklevel=3)
    elif record is not None:
        record.log(text)
