"""Exceptions for failures of the library. Their text is the sentence that the command would print."""

import re
from collections.abc import Callable

from . import _abi

# --option in a sentence becomes argument=; a command, such as `tutti methods`, stays as it is.
_OPTION = re.compile(
    r"\b(?:tutti|docker) [a-z][^;()`]*"
    r"|--([a-z][a-z-]*)(?: ('[^']*'|\d+|[A-Z]\b|on\b|off\b|tcp\b|shm\b))?"
)
_HELD_OUT = "give --validation N, say 1000 (engine_options.evaluate)"
_RULES = {"sgd": "torch.optim.SGD", "adam": "torch.optim.Adam", "adamw": "torch.optim.AdamW"}


def _argument(option: re.Match[str]) -> str:
    name: str | None = option[1]
    value: str | None = option[2]
    if name is None:
        return str(option[0])
    rule = re.fullmatch(r"'(\w+)(\(.*\))'", value or "")
    if name == "optimizer" and rule and rule[1] in _RULES:
        return _RULES[rule[1]] + rule[2]
    if value is None:
        return name.replace("-", "_")
    return name.replace("-", "_") + "=" + (value if value[0] == "'" or value[0].isdigit() or value.isupper()
                                           else f"'{value}'")


def in_python(text: str) -> str:
    """Rewrites a sentence of the library for callers in Python: "--method 'dgc'" becomes method='dgc'."""
    return _OPTION.sub(_argument, text.replace(_HELD_OUT, "give validation=f, which gives the mean loss of some"))


class Error(RuntimeError):
    """A run failed. The text states what is wrong, where, and what mends it."""


class PeerError(Error):
    """A worker that this call needs is lost. rank: that worker."""

    def __init__(self, text: str, rank: int):
        super().__init__(text)
        self.rank = rank


class CorruptError(Error):
    """A message or a file violates its format."""


class NumberError(Error, ArithmeticError):
    """A value that has to be finite is not."""


class StateError(Error):
    """A call out of order."""


def _exception(status: int, error: _abi.tutti_error) -> Exception:
    text: str = in_python(error.text.decode(errors="replace"))
    if status == _abi.TUTTI_ERR_USAGE:
        return ValueError(text)
    if status == _abi.TUTTI_ERR_MEMORY:
        return MemoryError(text)
    if status == _abi.TUTTI_TIMEOUT:
        return TimeoutError(text)
    if status == _abi.TUTTI_ERR_IO:
        return OSError(error.cause, text) if error.cause else OSError(text)
    if status == _abi.TUTTI_ERR_PEER:
        return PeerError(text, error.rank)
    if status == _abi.TUTTI_ERR_CORRUPT:
        return CorruptError(text)
    if status == _abi.TUTTI_ERR_NUMBER:
        return NumberError(text)
    return StateError(text) if status == _abi.TUTTI_ERR_STATE else Error(text)


def check(call: Callable[..., int], *arguments: object) -> bool:
    """Calls call(*arguments, err) and raises an exception if it failed. Returns False for TUTTI_CLOSED, else True."""
    error = _abi.tutti_error()
    status = call(*arguments, error)
    if status in (_abi.TUTTI_OK, _abi.TUTTI_CLOSED):
        return status == _abi.TUTTI_OK
    raise _exception(status, error)
