"""What stands in `.grad` between backward and step(), once a method has taken the gradient during backward.

The script may read it but not change it: the exchange has begun. Under torch's DistributedDataParallel
`.grad` is the mean there, and what a script does to it counts. A method that keeps the mean in parts (zero), applies
it later, or several passes after (accumulate) has no such mean to show, so a change is refused everywhere.

Torch's version of a tensor does not show all changes: `.data`, `.numpy()` and a GradScaler leave it as it was. To
compare each gradient with a copy would read and write all of them once more in every step, for the few that touch
them. So `.grad` is a `Handed` from backward to step(), the same memory by another class, which sees whatever Python
does with it. The first touch makes a copy, and step() compares. Where the memory is referenced elsewhere already
(a gradient that was there before this backward, and the script has kept a view of it) the copy is made at once.
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
    """A gradient that was handed over."""

    _sent: Sent | None = None  # None: the step is over, and it is a tensor as any

    @classmethod
    def __torch_function__(
        cls, func: Any, types: Any, args: tuple = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        kwargs = kwargs or {}
        if func not in FACTS:
            for t in _pytree.tree_leaves((args, kwargs)):
                if type(t) is Handed and t._sent is not None:
                    t._sent.touch(func)
        with torch._C.DisableTorchFunctionSubclass():
            if func in _COPIES:  # which go by the class
                return func(args[0].as_subclass(_T), *args[1:], **kwargs)
            return func(*args, **kwargs)


def _holders(grad: torch.Tensor) -> tuple[int, int]:
    """References to the object and to its memory. The caller has one of each."""
    return sys.getrefcount(grad), torch._C._storage_Use_Count(grad.untyped_storage()._cdata)


def _fresh() -> tuple[int, int]:
    """_holders() of a gradient that only its parameter references."""
    p = torch.zeros(1, requires_grad=True)
    p.grad = torch.zeros(1)
    grad = p.grad
    return _holders(grad)


_ALONE = _fresh()


def _same(a: torch.Tensor, b: torch.Tensor) -> bool:
    if a.is_sparse:
        a, b = a.coalesce(), b.coalesce()
        return torch.equal(a.indices(), b.indices()) and _same(a.values(), b.values())
    bits = _BITS[a.element_size()]  # a NaN is no other than itself
    return torch.equal(a.view(bits), b.view(bits))


class Sent:
    """A gradient that is with the engine, and what stands in its parameter's .grad meanwhile.

    gone: it was added to others in the engine's memory, and its own is let go. What is in .grad then can be asked what
    it is, and not what its values are.
    """

    __slots__ = ("_at", "_copy", "_method", "_shown", "_version", "bound", "grad")

    def __init__(self, b: Bound, method: str, gone: bool) -> None:
        grad = b.param.grad
        alone = not grad.is_sparse and _holders(grad) == _ALONE  # before anybody else here has it
        self.bound, self._method = b, method
        self.grad: torch.Tensor | None = grad
        self._copy: torch.Tensor | None = None
        if gone:
            grad = torch.empty((), dtype=grad.dtype, device=grad.device).expand(grad.shape)
        elif not alone and not b.lies_in(grad):
            self._copy = grad.clone()
        # Where gradients share memory it rises by the others.
        self._version = -1 if self._copy is not None else grad._version
        if grad.is_sparse:  # it has no memory of its own to be shown by another class
            self._shown, self._at = grad, 0
            return
        self._at, self._shown = grad.data_ptr(), grad.as_subclass(Handed)
        self._shown._sent = self
        b.param.grad = self._shown

    def touch(self, what: Any) -> None:
        """Something is about to be done with it."""
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
        """step() has come: the script's own stands in .grad again. StateError: it is not what was handed over."""
        p, shown = self.bound.param, self._shown
        now = p.grad
        with torch._C.DisableTorchFunctionSubclass():
            same = now is shown and self._version in (-1, now._version)
            same = same and (now.is_sparse or now.data_ptr() == self._at)
        if not same or (self._copy is not None and not _same(self._copy, self.grad)):
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
