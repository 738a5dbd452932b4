"""What passes between the parameters of a prepared model and the engine: gradients in, gradients and values out."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

import torch
from torch import nn

from .. import _abi
from ..engine import Engine
from ..errors import StateError
from ._bind import DTYPES, Binding, Bound, words
from ._cuda import HostStaging
from ._sent import Sent
from ._values import OnDevice

if TYPE_CHECKING:
    from ._units import Units


class Gradients:
    """The lowest part of a Run. Steps (_steps.py) adds passes and steps, Run (_run.py) opens and closes it."""

    model: nn.Module
    method: str
    statistics: list[torch.Tensor]  # of statistics_of()
    binding: Binding
    engine: Engine
    units: Units | None
    steps: int
    within: bool  # a step has begun, and has more passes
    _pass: _abi.tutti_pass | None  # in progress
    _factor: float  # by which gradients are multiplied: samples of the pass / divisor
    _given: list[bool]  # [parameter]: its gradient was handed over in this pass
    _sent: list[Sent]  # gradients that were handed over during backward
    _shown: bool
    _own: torch.Tensor | None  # the engine's client state: the running statistics
    _values: OnDevice | None
    _staging: HostStaging | None
    _versions: dict[Bound, int]
    _hooks: list[Any]

    # ---- tables whose rows are acquired ----

    def _hook_tables(self) -> None:
        of: dict[torch.Tensor, Bound] = {b.param: b for b in self.binding.bound if b.asks}
        if not of:
            return
        for _, child in self.binding.embeddings:
            if child.weight in of:
                self._hooks.append(
                    child.register_forward_pre_hook(
                        lambda _, args, named, b=of[child.weight]: self._before_rows(b, args, named), with_kwargs=True
                    )
                )
        tables = list(of.values())
        look = self.model.register_state_dict_pre_hook(lambda *_: self._check_rows(tables, "state_dict()"))
        self._hooks.append(look)

    def _check_rows(self, tables: Iterable[Bound], what: str) -> None:
        """Raises StateError if a table is read outside a pass and rows of it are at servers."""
        tensor = self.engine.method.layout.contents.tensor
        if self._shown or (self.steps == 0 and not self.within and self._pass is None):
            return
        for b in tables:
            if tensor[b.index].asked:
                raise StateError(
                    f"{what} reads '{b.name}', whose rows are at servers under method '{self.method}' and are here as "
                    "they were last read; train with the model itself in training mode, and look at it within "
                    "optimizer.evaluate()"
                )

    @torch._disable_dynamo
    def _before_rows(self, b: Bound, args: tuple[Any, ...], named: dict[str, Any]) -> None:
        """Called before an embedding reads rows: acquires them."""
        if self._pass is None or self._given[b.index]:
            self._check_rows([b], "a forward outside a pass")
            return
        ids = torch.unique((args[0] if args else named["input"]).detach())
        if len(ids) > 0 and 0 <= int(ids[0]) and int(ids[-1]) < b.param.size(0):  # else torch raises an error
            self.engine.rows_acquire(b.index, words(ids))

    def _announce_rows(self, b: Bound, grad: torch.Tensor) -> None:
        keep, grad = self._current().keep, grad.coalesce()
        ids, rows = grad.indices()[0], grad.values()
        if self._factor == 0:  # a batch that does not count
            ids, rows = ids[:0], rows[:0]
        with torch.no_grad():
            rows = (rows.float() if self._factor == 1 else rows.float() * self._factor).contiguous()
            if b.g is not None and keep:
                b.g.index_add_(0, ids, rows)
            elif b.g is not None:
                b.g.index_copy_(0, ids, rows)
        if b.g is None:
            self.engine.grad_ready_rows_from(b.index, words(ids), rows.data_ptr())
        else:
            self.engine.grad_ready_rows(b.index, words(ids))

    # ---- gradients ----

    def _check_backward(self, again: bool) -> None:
        """StateError: a gradient has come for which there is no pass, or again."""
        if self._pass is None:
            raise StateError(
                "backward without a forward in training mode since the last step: values may have changed in between; "
                "call the model itself and not its parts, and model.train() before"
            )
        if again:
            raise StateError(
                "a second backward before optimizer.step(): a pass has one; add the losses up, or give "
                "prepare(accumulate=N) and call step() after each. Where another model's loss goes through this one, "
                "as a generator's through its discriminator, freeze this one meanwhile: model.requires_grad_(False) "
                "before its forward, and True after the backward"
            )

    def _current(self) -> _abi.tutti_pass:
        """The pass in progress: there is one."""
        assert self._pass is not None, "outside a pass"
        return self._pass

    def _on_gradient(self, tensor: int, _param: torch.Tensor) -> None:
        b = self.binding.bound[tensor]
        self._check_backward(self._pass is not None and bool(self._given[b.index]))
        now = self._current()
        if now.exchange or now.keep or now.more or self.units is not None:
            self._give(b, during_backward=True)  # else in step(), and until then the script may change it

    def _give(self, b: Bound, during_backward: bool = False) -> None:
        """Hands the final gradient of a parameter over to the engine."""
        now, p = self._current(), b.param
        # gone: the step has several passes, and the next backward must not add to this gradient
        gone = now.keep or now.more
        if during_backward and self.units is None:
            sent = Sent(b, self.method, gone)
            self._sent.append(sent)
            grad, sent.grad = sent.grad, None if gone else sent.grad
        else:
            grad = p.grad
            if gone or self.units is not None:
                p.grad = None
        assert grad is not None, "the gradient that is handed over is not there"
        if self._staging is not None:
            self._staging.to_host(b.index, grad, None if now.keep else b.g)
        else:
            self._announce(b.index, grad)
        self._given[b.index] = True
        if self.units is not None:
            self.units.given(b)

    def _announce(self, tensor: int, grad: torch.Tensor) -> None:
        """Gives the engine a gradient that is in host memory."""
        now, b = self._current(), self.binding.bound[tensor]
        if grad.is_sparse and b.table:
            self._announce_rows(b, grad)
            return
        if grad.is_sparse:
            grad = grad.to_dense()
        if b.asks:
            raise StateError(
                f"the gradient of '{b.name}' is dense, but it is the weight of an embedding with sparse=True, and only "
                "rows of that are read; make it with sparse=False where the weight is used otherwise, too"
            )
        if b.g is None:
            self._hand_over(b, grad)
            return
        with torch.no_grad():
            if now.keep and self._factor != 0:
                b.g.add_(grad, alpha=self._factor)
            elif self._factor == 0:  # a batch that does not count
                if not now.keep:
                    b.g.zero_()
            elif self._factor != 1:
                torch.mul(grad, self._factor, out=b.g)
            elif not b.lies_in(grad):
                b.g.copy_(grad)
        self.engine.grad_ready(tensor)

    def _hand_over(self, b: Bound, grad: torch.Tensor) -> None:
        """Gives the engine a gradient for which it has no memory of its own: it copies it."""
        with torch.no_grad():
            one = grad if self._factor == 1 else grad * self._factor if self._factor != 0 else torch.zeros_like(grad)
            if one.dtype not in DTYPES or one.stride() != b.strides:
                one = torch.empty_strided(b.param.shape, b.strides, dtype=torch.float32).copy_(one)
        self.engine.grad_ready_from(b.index, one.data_ptr(), DTYPES[one.dtype])

    def _arrived(self) -> None:
        """Blocks until all gradients were given to the engine, so that no other thread calls it."""
        if self._staging is not None:
            self._staging.wait_announced()
            self._staging.wait_copied()  # the engine sets gradients that nobody has announced
        self._wait_copied()

    def _own_gradient(self, grad: torch.Tensor | None) -> torch.Tensor | None:
        """Returns this worker's gradient as the optimiser gets it, if it stays on the device."""
        if grad is not None and grad.is_sparse:
            grad = grad.to_dense()
        return grad if grad is None or self._factor == 1 else grad * self._factor

    def _exchanged(self, b: Bound) -> torch.Tensor:
        """Returns a gradient of the engine, on the device and in the type of the parameter."""
        if b.table:
            return b.sparse()
        if self._staging is None:
            return b.gradient if b.param.dtype == torch.float32 else b.gradient.to(b.param.dtype)
        grad = torch.empty_like(b.param)
        self._staging.to_device(b.index, b.gradient, grad)
        return grad

    # ---- values of parameters that are apart, and running statistics ----

    def _deliver(self) -> None:
        """Copies the engine's values to parameters on a device, if there are new ones."""
        if self._values is not None:
            self._values.deliver()

    def _wait_copied(self) -> None:
        """Call before the engine may change values."""
        if self._values is not None:
            self._values.wait_copied()

    def _bring(self) -> None:
        """The engine's callback: copies parameters on a device to the engine."""
        if self._values is not None:  # else they are in its memory, or in memory that it reads
            self._values.bring()

    def _take_written(self) -> None:
        """Takes over values that the script has written to parameters that are apart, before the first step, such as by
        model.load_state_dict(). A value of the engine that rounds to the written one stays: it is more precise."""
        if self.units is not None:
            self.units.take_written()
        for b, version in self._versions.items():
            if b.param._version == version:
                continue
            if self.steps or self.within:
                raise StateError(
                    f"parameter '{b.name}' was written to by the script since prepare(). Under tutti.torch.prepare the "
                    f"engine has the values of parameters that are {b.param.dtype}, on {b.param.device}; write before "
                    "the first step, or within the optimizer's step()"
                )
            self._versions[b] = b.param._version
            with torch.no_grad():
                now, x = b.param.cpu(), b.values
                x.copy_(torch.where(now == x.to(b.param.dtype), x, now.float()))
                if b.host is not None:
                    b.outside().copy_(now)

    def _put_own(self) -> None:
        """Copies the running statistics of the module to the engine."""
        if self._own is not None:
            with torch.no_grad():
                torch.cat([t.reshape(-1).cpu() for t in self.statistics], out=self._own)

    def _take_own(self) -> None:
        """Copies values and running statistics of the engine to the module."""
        self._deliver()
        if self._own is None:
            return
        with torch.no_grad():
            for t, own in zip(self.statistics, self._own.split([t.numel() for t in self.statistics]), strict=True):
                t.copy_(own.view(t.shape))
