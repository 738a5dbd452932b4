"""prepare(): any method under the user's own loop.

    model, optimizer = tutti.torch.prepare(model, optimizer, method="ad-psgd(graph=exponential)")
    for x, y in loader:
        loss = lossf(model(x), y)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
    optimizer.finish()

The model stays the object it was, with hooks. Under zero(stage=3) its parameters have values while their modules run
(_units.py). A forward in training mode begins the method's pass: there new values
arrive, or are waited for. Where the method exchanges gradients each is sent as soon as backward has it. Where it does
not they are handed over in step(), so until then the user may change them. optimizer.step() is the
method's step. The user's torch optimiser makes the update within it wherever the method leaves that to the client.
"""

import contextlib
import sys
from collections.abc import Callable, Iterator
from typing import Any, Self

import torch
from torch import nn

from ..engine import World
from . import _serve
from ._run import Run
from ._runs import check_second, run_of
from .sampler import BatchSampler


class Optimizer(torch.optim.Optimizer):
    """The user's optimiser, whose step() is a step of the method. Groups, state and hooks are those of the inner one,
    so schedulers may hold either."""

    _step_supports_amp_scaling = False  # of the inner one it would be true: a GradScaler sets members there, not here

    def __init__(self, run: Run) -> None:  # the base class would make groups of its own
        self._run = run
        self.optimizer = run.optimizer

    def __getattr__(self, name: str) -> Any:
        if name in ("optimizer", "_run"):
            raise AttributeError(name)
        return getattr(self.optimizer, name)

    @property
    def world(self) -> World:
        """This process among all: rank and size."""
        return self._run.world

    def figures(self) -> dict[str, int | float]:
        """Times, bytes, steps and samples of this rank so far (tutti_figures)."""
        return self._run.figures()

    @property
    def state(self) -> Any:  # type: ignore[override]
        return self.optimizer.state

    @property
    def param_groups(self) -> list[dict[str, Any]]:  # type: ignore[override]
        return self.optimizer.param_groups

    @property
    def defaults(self) -> dict[str, Any]:  # type: ignore[override]
        return self.optimizer.defaults

    def add_param_group(self, param_group: dict[str, Any]) -> None:
        raise ValueError("a prepared optimizer takes no more parameters: all workers have agreed on what there is; add "
                         "them before tutti.torch.prepare()")

    def zero_grad(self, set_to_none: bool = True) -> None:
        self.optimizer.zero_grad(set_to_none)

    def step(  # type: ignore[override]
        self, closure: Callable[[], Any] | None = None, *, loss: Any = None, losses: torch.Tensor | None = None
    ) -> Any:
        """Ends the pass, and with the step's last one the step. `loss`: the mean loss of this batch, for methods that
        use it (oscars). `losses`: each sample's, for methods that choose samples (biased-local-sgd).

        closure: for methods that compute a batch again at other values (saddle), and for them alone. It clears the
        gradients, computes the batch's loss, calls backward() and returns the loss. It is called for each pass of the
        step, except for the first where backward() was called before. step() then returns the loss of the first.
        Dropout drops the same in all of them, and the model's buffers stay as the first has left them."""
        if closure is not None and not self._run.again:
            raise ValueError("step(closure) cannot be had: a closure computes gradients again within the step, after "
                             "they have been exchanged; call backward() and then step()")
        if isinstance(loss, torch.Tensor):
            loss = loss.detach()
        return self._run.step(None if loss is None else float(loss), closure, losses)

    def scale(self, loss: torch.Tensor) -> torch.Tensor:
        """loss times the scale of this pass (prepare(loss_scale=...)); the method divides it out of the gradients."""
        return loss * self._run.loss_scale()

    def state_dict(self) -> dict[str, Any]:
        """That of the torch optimizer, and under "tutti" what the method keeps on this rank: tensors, numbers and
        texts, as torch.save takes them. If the method has services or is asynchronous, all workers must call it, since
        they quiesce first. Once the run is over a method keeps nothing."""
        return self._run.state_dict()

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Before the first step. Without "tutti" the method begins from scratch. Load the model.state_dict() that was
        saved with this into the model, too."""
        self._run.load_state_dict(state_dict)

    @contextlib.contextmanager
    def evaluate(self) -> Iterator[None]:
        """Within it the model that all agree on stands in the module. All workers call it after the same steps
        (asynchronous ones: whenever they like, and the last is waited for)."""
        self._run.show()
        try:
            yield
        finally:
            self._run.resume()

    def save(self, directory: str, *, keep: int = 0) -> None:
        """A checkpoint of model and method by all workers, a new one a step; the newest `keep` stay (0: all)."""
        self._run.save(directory, keep)

    def load(self, directory: str) -> None:
        """Resumes from a checkpoint, or from the newest in that directory. By all workers, before the first step."""
        self._run.load(directory)

    def finish(self) -> None:
        """Ends the run: all workers call it, pending exchanges complete, and the model that all agree on stands in the
        module for good, in memory of its own. A step that has begun is made with the passes that it has (accumulate).
        Under zero(stage=3) the model stays in parts: forwards without training and model.state_dict() gather it, on
        all workers, until close()."""
        self._run.finish()

    def close(self) -> None:
        """Leaves the run as it is. Others that still need this worker are notified."""
        self._run.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: object) -> None:
        if kind is None:
            self.finish()
        else:
            self._run.fail(error)

    def __repr__(self) -> str:
        return f"tutti({self._run.method}): {self.optimizer!r}"

    def __getstate__(self) -> Any:
        raise TypeError("a prepared optimizer is part of a run of several processes and cannot be pickled or copied; "
                        "use state_dict()")


def prepare(model: nn.Module, optimizer: torch.optim.Optimizer, method: str = "ddp", *, codec: str | None = None,
            transport: str | None = None, servers: int = 0, batch: int = 1, accumulate: int = 1,
            validation: Callable[[], Any] | None = None, collective: str | None = None, clip_norm: float = 0.0,
            nonfinite: str = "stop", loss_scale: str | None = None, seed: int = 0,
            steps: int = 0, sampler: BatchSampler | None = None) -> tuple[nn.Module, Optimizer]:
    """Joins the run that this process was started in, and returns the model and an optimizer that train in it.

    method, codec: specs, as `tutti methods` and `tutti codecs` list them. transport: None finds it.
    servers: number of the last ranks that only serve. There prepare() does not return: it serves until the others
        have finished and then ends the process in order (SystemExit).
    batch: samples in a batch of the loop. Used only by methods that assign samples, and by figures.
    accumulate: backward passes a step. Each iteration of the loop stays as it is; step() is the method's step in every
        `accumulate`-th, and gradients are divided by it here, not by the user. Where a loop ends in the middle of a
        step, what there is of it is applied, divided by the whole count as well.
    validation: returns the mean loss of the model as it stands on samples held out of training, the same ones on all
        ranks. For methods that use it.
    clip_norm: of the exchanged gradient, in place of clip_grad_norm_ between backward and step.
    nonfinite: "stop" or "skip" a step with a gradient that is not finite.
    steps: of each worker in the whole run, where known.
    sampler: of tutti.torch.sampler(): then batch, accumulate and seed are the sampler's, each worker's gradient counts
        by its samples, and methods that assign samples do so by it. Methods that choose samples need it.

    Raises ValueError, before anything is done, where this method, model and optimizer do not go together."""
    if run_of(model) is not None:
        raise ValueError("this model was prepared already; its optimizer is the one that prepare() gave then")
    if isinstance(optimizer, Optimizer):
        raise TypeError("this optimizer was prepared already; give the torch optimizer inside it and a new model")
    check_second(servers)
    run = Run(model, optimizer, method, codec=codec, transport=transport, servers=servers, batch=batch,
              accumulate=accumulate, validation=validation, collective=collective, clip_norm=clip_norm,
              nonfinite=nonfinite, loss_scale=loss_scale, seed=seed, steps=steps, sampler=sampler)
    if run.only_serves:
        _serve.until_finished(run)
        sys.exit(0)
    return model, Optimizer(run)


def evaluate(model: nn.Module) -> contextlib.AbstractContextManager[None]:
    """optimizer.evaluate() of a prepared model, for code that has no optimizer at hand."""
    run = run_of(model)
    if run is None:
        raise ValueError("this model is in no run: give it to tutti.torch.prepare() or pipeline() before")
    return _shown(run)


@contextlib.contextmanager
def _shown(run: Run) -> Iterator[None]:
    run.show()
    try:
        yield
    finally:
        run.resume()
