"""`.grad` of a parameter between backward and step(), when the method has taken the gradient during backward.

The script may read it but not change it, since the exchange has begun. (Under torch's DistributedDataParallel `.grad`
is the mean, and a change has an effect. A method that has the mean in shards (zero), or applies it later (accumulate),
could not do that, so a change is refused under every method.)

Changes have to be detected. The version of a tensor does not change with `.data`, `.numpy()` or a GradScaler, and a
copy of each gradient in each step would be slow. So from backward to step() `.grad` is a `Handed`: the same memory with
a class that sees every access from Python. The first access makes a copy, with which step() compares. If the memory is
referenced elsewhere already (the script has kept a view of an older gradient) the copy is made at once.
"""

from __future__ import annotations

import sys
from typing import Any

import torch
from torch.utils import _pytree

from ..errors import StateError
from ._bind import Bound
from ._units import FACTS

_T = torch.Tensor
_UNSCALE = torch._amp_foreach_non_finite_check_and_unscale_
_COPIES = (_T.__deepcopy__, _T.__reduce_ex__)
_BITS = {1: torch.int8, 2: torch.int16, 4: torch.int32, 8: torch.int64}
_ON_ITS_WAY = (
    "method '{}' exchanges gradients while backward runs, so this one was on its way already. Change it before that, "
    "in a hook (parameter.register_hook) or in the loss; to clip give prepare(clip_norm=...) in place of "
    "clip_grad_norm_; in place of a GradScaler give prepare(loss_scale=...) and call optimizer.scale(loss).backward()"
)


class Handed(torch.Tensor):
    """A gradient that was handed over to the engine."""

    _sent: Sent | None = None  # None: the step is over, and this is an ordinary tensor

    @classmethod
    def __torch_function__(
        cls, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        kwargs = kwargs or {}
        if func not in FACTS:
            for t in _pytree.tree_leaves((args, kwargs)):
                if type(t) is Handed and t._sent is not None:
                    t._sent.touch(func)
        with torch._C.DisableTorchFunctionSubclass():
            if func in _COPIES:  # these depend on the class
                return func(args[0].as_subclass(_T), *args[1:], **kwargs)
            return func(*args, **kwargs)


def _holders(grad: torch.Tensor) -> tuple[int, int]:
    """Returns the number of references to the object and to its memory, with the caller's own."""
    return sys.getrefcount(grad), torch._C._storage_Use_Count(grad.untyped_storage()._cdata)


def _fresh() -> tuple[int, int]:
    """Returns _holders() of a gradient that only its parameter refers to."""
    p = torch.zeros(1, requires_grad=True)
    p.grad = torch.zeros(1)
    grad = p.grad
    assert grad is not None
    return _holders(grad)


_ALONE = _fresh()


def _same(a: torch.Tensor, b: torch.Tensor) -> bool:
    if a.is_sparse:
        a, b = a.coalesce(), b.coalesce()
        return torch.equal(a.indices(), b.indices()) and _same(a.values(), b.values())
    bits = _BITS[a.element_size()]  # compare bits, so that a NaN equals itself
    return torch.equal(a.view(bits), b.view(bits))


class Sent:
    """A gradient that was handed over to the engine, from backward to step().

    gone: it is added to others in the engine's memory, and its own memory is released. `.grad` then has its shape and
    type, but no values.
    """

    __slots__ = ("_at", "_copy", "_method", "_shown", "_version", "bound", "grad")

    def __init__(self, b: Bound, method: str, gone: bool) -> None:
        grad = b.param.grad
        assert grad is not None, "a gradient that was announced is not there"
        alone = not grad.is_sparse and _holders(grad) == _ALONE  # before this object refers to it, too
        self.bound, self._method = b, method
        self.grad: torch.Tensor | None = grad
        self._copy: torch.Tensor | None = None
        if gone:
            grad = torch.empty((), dtype=grad.dtype, device=grad.device).expand(grad.shape)
        elif not alone and not b.lies_in(grad):
            self._copy = grad.clone()
        # -1: not compared, since gradients that share memory share their version, too
        self._version = -1 if self._copy is not None else grad._version
        if grad.is_sparse:  # has no single memory that another class could refer to
            self._shown, self._at = grad, 0
            return
        self._at, self._shown = grad.data_ptr(), grad.as_subclass(Handed)
        self._shown._sent = self
        b.param.grad = self._shown

    def touch(self, what: Any) -> None:
        """Called before Python accesses the gradient by function `what`."""
        if what is _UNSCALE:
            raise StateError(f"a GradScaler divides the gradient of '{self.bound.name}': {self._why()}")
        if self.grad is None:
            raise StateError(
                f"the gradient of '{self.bound.name}' is read between backward and step(), and has been added to those "
                "of the step's other passes: " + self._why()
            )
        if self._copy is None and not self.bound.lies_in(self.grad):
            self._copy = self.grad.clone()

    def settle(self) -> None:
        """Called by step(): restores .grad. StateError: the script has changed or replaced it."""
        p, shown = self.bound.param, self._shown
        now = p.grad
        with torch._C.DisableTorchFunctionSubclass():
            same = now is not None and now is shown and self._version in (-1, now._version)
            same = now is not None and same and (now.is_sparse or now.data_ptr() == self._at)
        if not same or (self._copy is not None and self.grad is not None and not _same(self._copy, self.grad)):
            how = "taken away" if now is None else "replaced" if now is not shown else "changed"
            name = self.bound.name
            raise StateError(f"the gradient of '{name}' was {how} between backward and step(): {self._why()}")
        self.leave()

    def leave(self) -> None:
        if self.bound.param.grad is self._shown:
            self.bound.param.grad = self.grad
        if type(self._shown) is Handed:
            self._shown._sent = None

    def _why(self) -> str:
        return _ON_ITS_WAY.format(self._method)
