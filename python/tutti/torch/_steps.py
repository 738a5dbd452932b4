"""Passes and steps of the run of a prepared model and its optimizer.

A pass begins before a forward in training mode and ends in step(). If the method exchanges gradients, they are handed
over during backward, so that exchange and backward overlap; if not, in step(). Calls of the engine never overlap:
autograd runs the hooks of a backward one after another, and step() comes after them.

An iteration of the loop is a step of the method, with two exceptions: with accumulate=N a step is N iterations, and
under a method that updates between the passes of a step (hermes) an iteration is a pass.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import torch
from torch import nn

from .. import _abi
from ..errors import StateError
from ..world import World
from . import _codec, _place, _serve
from ._bind import warn_unscaled
from ._gradients import Gradients

if TYPE_CHECKING:
    from . import _preempt, _record
    from ._cuda import Device
    from ._meet import Meetings
    from ._rounds import Rounds

_NO_CLOSURE = (
    "method '{}' computes a batch again at other values within a step, for which it needs optimizer.step(closure): a "
    "function that clears the gradients, computes the loss, calls backward() and returns the loss"
)


class Steps(Gradients):
    """The part of a Run that makes passes and steps."""

    steps: int
    passes: int = 0
    within: bool
    preempt: _preempt.Preemption | None = None  # of checkpoint=
    rounds: Rounds | None = None  # a step of the run is a round of local steps
    optimizer: torch.optim.Optimizer
    servers: int
    world: World
    record: _record.Record | None
    itself: bool  # the method makes the update
    replicas_equal: bool
    is_async: bool
    again: bool  # the method computes a batch again (TUTTI_RECOMPUTES)
    closes: bool  # only after a pass it is known whether it was the step's last
    overlaps: bool
    finished: bool
    named: Any  # ids of the samples of the pass, if the method names them; None: it does not
    _device: Device | None  # None: the host
    _meetings: Meetings | None
    _validation: Callable[[], Any] | None
    _ended: bool
    _resting: bool  # ranks that only serve wait for the next call, which rank 0 has to send
    _places: list[int]
    _lr: float
    _costs: int
    _stays: bool  # the gradient of the last pass is on the device alone
    _of_all: bool  # the gradients of the update are those of all workers
    _several: bool  # a step of the optimizer has several passes (accumulate)
    _draws: torch.Tensor | None  # state of torch's generator before the first pass of the step
    _spans: list[tuple[int, int, int]]

    # ---- a pass ----

    @torch._disable_dynamo
    def _before_forward(self, module: nn.Module, _args: Any) -> None:
        if module.training and torch.is_grad_enabled() and self._trains():
            self.begin()

    def _trains(self) -> bool:
        """Returns whether a parameter is trained. None is in a GAN's discriminator while its generator trains."""
        return any(b.param.requires_grad for b in self.binding.bound)

    @property
    def in_pass(self) -> bool:
        return self._pass is not None

    def begin(self) -> _abi.tutti_pass:
        """Returns the current pass. Begins one if there is none."""
        while self._pass is None:
            self._begin_or_close()
        return self._pass

    def _begin_or_close(self) -> bool:
        """Begins a pass. False: the step had no more passes, and was ended."""
        self._check_training()
        if self.steps == 0:
            _place.check(self.world)
        if self._meetings is not None:
            self._meetings.begins(self.steps + 1)
        if self.preempt is not None and not self.within:
            self.preempt.step_begins()
        if self._resting:
            self._notify_servers("train")
            self._resting = False
        p = self._begin_pass()
        if p is None:
            if not self.within:
                self._given = [False] * len(self.binding.bound)
            self._end_step()
            return False
        # If the method assigns passes, a batch has the samples of all of this worker's passes.
        dealt = bool(self.engine.share().passes_of)
        self._spans = [(p.epoch, p.position, p.samples)]
        self.named = p.ids[: p.samples] if p.ids else None
        while dealt and p.more:
            self.engine.pass_end()
            p = self._begin_pass()
            assert p is not None, "a pass that was announced (more) has not come"
            self._spans.append((p.epoch, p.position, p.samples))
        samples = self.engine.method.samples if dealt else p.samples
        self._factor = samples / p.divisor if p.divisor else 0.0
        if self.engine.share().logical:  # what a share draws does not depend on the worker that computes it
            torch.manual_seed(self._seed_of(p))
        self._pass, self._given = p, [False] * len(self.binding.bound)
        if self.units is not None:
            self.units.pass_begins()
        if self.again and not p.again:
            self._draws = torch.get_rng_state()
        return True

    def _seed_of(self, p: _abi.tutti_pass) -> int:
        seed = self.engine.share().seed
        return int(seed * 0x9E3779B97F4A7C15 + p.epoch * 0xC2B2AE3D27D4EB4F + p.position) % (1 << 63)

    def _begin_pass(self) -> _abi.tutti_pass | None:
        self._take_written()
        self._wait_copied()
        warn_unscaled(self.engine)
        shared = self.engine.share().logical != 0
        if shared:
            self._put_own()
        p = self.engine.pass_begin()
        if shared:  # a share begins with the running statistics with which the step began
            self._take_own()
        assert p is not None or self.closes, "a pass that was announced (more) has not come"
        if self.rounds is not None and self.engine.round_begins():
            self.rounds.begin()
        self._deliver()
        return p

    def more_epochs(self, epochs: int) -> bool:
        """Returns whether this worker has another pass before the run has done `epochs` epochs."""
        self._check_training()
        if self._pass is not None or self.within:
            return True
        while self._more(epochs):
            if not self.closes or self._begin_or_close():
                return True
        return False

    def _more(self, epochs: int) -> bool:
        if self._resting:  # ranks that only serve take part in handing out samples
            self._notify_servers("train")
            self._resting = False
        more = self.engine.more_epochs(epochs)
        self._resting = not more and self.is_async
        return more

    def spans(self) -> list[tuple[int, int, int]]:
        """Returns (epoch, position, number) of each range of samples of the current pass."""
        self.begin()
        return self._spans

    def pass_over(self) -> bool:
        """Ends the current pass and returns True if it has no samples, so that the loop needs no batch for it. Only for
        methods that decide how many samples a step has."""
        if self.engine.takes() == 0 or self.begin().samples > 0:
            return False
        self._arrived()
        for b in self.binding.bound:
            if b.table:
                self.engine.grad_ready_rows(b.index, ())
            else:
                with torch.no_grad():
                    b.gradient.zero_()
                self.engine.grad_ready(b.index)
            self._given[b.index] = True
        self._end_pass(None)
        return True

    def loss_scale(self) -> float:
        return float(self.begin().scale)

    def _check_training(self) -> None:
        if self._ended or self.finished:
            raise StateError("the run is over: optimizer.finish() or close() was called, and nothing trains any more")
        if self._shown:
            raise StateError("a forward in training mode within evaluate(): call model.eval(), or use torch.no_grad()")
        self.binding.check_module()
        self.binding.check_frozen()
        if self.units is not None:
            self.units.check()
            return
        for b, place in zip(self.binding.bound, self._places, strict=True):
            if b.param.data_ptr() != place:
                raise StateError(
                    f"parameter '{b.name}' has other memory than prepare() left it in, which no worker would see; do "
                    "to(), half() and load_state_dict(assign=True) before prepare()"
                )

    # ---- a step ----

    def step(self, loss: float | None, closure: Callable[[], Any] | None, losses: torch.Tensor | None) -> Any:
        """Optimizer.step(). Returns what the closure returned in the step's first pass; None: no closure."""
        self._check_training()
        if losses is not None and loss is None:
            loss = float(losses.detach().mean())
        if losses is not None and self._pass is not None:
            self._write(losses)
        if loss is not None:
            self.log(loss)
        if not self.again:
            self._end_pass(loss)
            return None
        if closure is None:
            raise ValueError(_NO_CLOSURE.format(self.method))
        first = None
        if self._pass is None or all(b.param.grad is None for b in self.binding.bound):
            self.begin()
            with torch.enable_grad():
                first = closure()
        if loss is None and first is not None:
            loss = float(first.detach() if isinstance(first, torch.Tensor) else first)
        self._end_pass(loss)
        while self.within:
            self._look_again(closure)
        for b in self.binding.bound:
            b.param.grad = None  # else the next step would assume that backward was called before it
        return first

    def _write(self, losses: torch.Tensor) -> None:
        """Gives the method the loss of each sample, if it uses them."""
        p = self._current()
        if losses.dim() != 1 or (p.samples > 0 and len(losses) != p.samples):  # else one that does not count
            raise ValueError(
                f"step(losses=...): losses are of shape {tuple(losses.shape)}, and this batch has {p.samples} "
                "samples; give each sample's loss, as lossf(..., reduction='none') has them"
            )
        if p.losses and p.samples:
            ctypes.memmove(p.losses, losses.detach().float().cpu().contiguous().data_ptr(), 4 * p.samples)

    def _look_again(self, closure: Callable[[], Any]) -> None:
        """Computes the batch again at the values that the method has set, with the same random numbers. The buffers of
        the model are restored."""
        buffers = [(b, b.clone()) for b in self.model.buffers()]
        for b in self.binding.bound:
            b.param.grad = None
        self.begin()
        with torch.random.fork_rng(devices=[]), torch.enable_grad():
            assert self._draws is not None, "the step's first pass has noted it"
            torch.set_rng_state(self._draws)
            closure()
        with torch.no_grad():
            for buffer, was in buffers:
                buffer.copy_(was)
        self._end_pass(None)

    def _end_pass(self, loss: float | None) -> None:
        if self._pass is None:
            raise StateError("step() without a pass: there was no forward in training mode since the last one")
        for sent in self._sent:
            sent.settle()
        self._sent = []
        if self.units is not None:
            self.units.check_gradients()
        else:
            for b in self.binding.bound:  # gradients not handed over yet, also those that the script has set
                if not self._given[b.index] and b.param.grad is not None and not self._pass.stays:
                    self._give(b)
        self._arrived()
        if self.units is not None:
            self.units.pass_ends()
        shared = bool(self.engine.share().logical)
        if shared and self._pass.samples == 0:  # a batch that does not count has changed them
            self._take_own()
        elif shared or self._device is None:  # else before the calls that read them (_rest): it waits for the device
            self._put_own()
        now, self._pass = self._pass, None
        self.passes += 1
        self._stays = now.stays
        self._of_all = self.overlaps and (self.replicas_equal or now.exchange) and self.rounds is None
        self.engine.pass_end(0.0 if loss is None else loss * now.samples)
        self.within = now.more
        if not now.more:
            self._end_step()
        elif self.closes:
            self._begin_or_close()

    def _end_step(self) -> None:
        self.optimizer._opt_called = True  # type: ignore[attr-defined]  # torch's schedulers warn if no update came
        self._tell_lr()
        self.engine.step()
        if self.engine.share().logical:  # the mean over the shares
            self._take_own()
        if self.rounds is not None:
            self.rounds.begin()
            for b in self.binding.bound:  # the next pass of its share may be another worker's
                b.param.grad = None
        self.within = False
        self.steps += 1
        if self.record is not None:
            self.record.step()
        if self._costs:
            self._costs = 0
            _codec.tell(self.engine)

    def _tell_lr(self) -> None:
        lr = float(self.optimizer.param_groups[0]["lr"])
        if self.steps == 0 and self.itself and lr == self._lr:
            return  # the spec of the optimizer has it
        if lr != self._lr or self.steps == 0:
            self.engine.lr(lr)
            self._lr = lr

    def _update(self, factor: float) -> None:
        """The engine's callback: runs the user's optimiser on the engine's values and gradients."""
        groups = self.optimizer.param_groups
        grads = [b.param.grad for b in self.binding.bound]
        all_have = self._of_all or (self.within if self.rounds is None else self._several)
        rates = [group["lr"] for group in groups]
        self._deliver()
        try:
            for b, grad in zip(self.binding.bound, grads, strict=True):
                # without gradients of other workers an unused parameter has none, as in torch
                if self._stays:
                    b.param.grad = self._own_gradient(grad)
                elif all_have or grad is not None or self._given[b.index]:
                    b.param.grad = self._exchanged(b)
            if self._stays:
                assert self._values is not None, "gradients stay on a device"
                self._values.finite.note(
                    [(b, b.param.grad) for b in self.binding.bound if b.param.grad is not None], self.steps
                )
            for group in groups:
                if factor != 1:
                    group["lr"] = group["lr"] * factor
            self.optimizer.step() if self.rounds is None else self.rounds.step()
        finally:
            for group, lr in zip(groups, rates, strict=True):
                group["lr"] = lr
            for b, grad in zip(self.binding.bound, grads, strict=True):
                b.param.grad = grad
        self._wait_copied()
        for b in self._versions:
            self._versions[b] = b.param._version

    def _evaluate(self) -> float:
        assert self._validation is not None, "the engine was given it"
        training = self.model.training
        self._deliver()
        try:
            self.model.eval()
            with torch.no_grad():
                return float(self._validation())
        finally:
            self.model.train(training)

    def _notify_servers(self, what: str, directory: str = "", keep: int = 0) -> None:
        """On rank 0: tells ranks that only serve which call comes next."""
        if self.servers and self.world.rank == 0:
            _serve.notify(self, what, directory, keep)

    def log(self, loss: float) -> None:
        if self.record is not None:
            self.record.loss(loss)
