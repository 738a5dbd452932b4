"""prepare(): trains with any method in the user's own loop.

    model, optimizer = tutti.torch.prepare(model, optimizer, method="ad-psgd(graph=exponential)")
    for x, y in loader:
        loss = lossf(model(x), y)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
    optimizer.finish()

The model stays the same object and gets hooks. Under zero(stage=3) its parameters have values only while their modules
run (_units.py). A forward in training mode begins a pass of the method, which may wait for new values. If the method
exchanges gradients, each is sent as soon as backward has computed it. If not, they are handed over in step(), and the
user may change them until then. optimizer.step() makes the method's step. In it the user's torch optimiser makes the
update, unless the method makes it itself.
"""

import contextlib
import functools
import os
import sys
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import torch
import torch.distributed as dist
from torch import nn

from .._library import library as _c
from ..errors import StateError
from ..world import World
from . import _elastic, _log_to, _logged, _preempt, _serve
from ._fsdp_run import FsdpRun, is_sharded_module
from ._local_run import LocalRun
from ._run import Run
from ._runs import check_second, run_of
from .sampler import BatchSampler


class Optimizer(torch.optim.Optimizer):
    """Wraps the user's optimiser; step() makes a step of the method. Groups, state and hooks are those of the user's
    optimiser, so schedulers may be given either."""

    _step_supports_amp_scaling = False  # a GradScaler would set members of this object, not of the inner optimiser

    def __init__(self, run: Run) -> None:  # without super().__init__(), which would make other groups
        self._run = run
        self.optimizer: torch.optim.Optimizer = run.optimizer

    def __getattr__(self, name: str) -> Any:
        if name in ("optimizer", "_run", "_elastic"):
            raise AttributeError(name)
        return getattr(self.optimizer, name)

    @property
    def world(self) -> World:
        """The run, with this process's rank and the number of ranks."""
        return self._run.whole

    def figures(self) -> dict[str, int | float]:
        """Returns times, bytes, steps and samples of this rank so far (tutti_figures)."""
        return self._run.figures()

    def log(self, figures: Mapping[str, Any] | None = None, /, *, loss: Any = None, **more: Any) -> None:
        """Adds to the record (trace=): loss, the mean loss of a batch of this worker, as step(loss=...) does; or
        figures of an evaluation by name, test_accuracy=0.9 or {"val/f1": 0.5}, after the steps so far. Rank 0's count,
        the other ranks may leave the call out. Without a record figures are only checked."""
        _logged.log(self._run.record, _c.tutti_record_log, figures, loss, more)

    @property
    def state(self) -> Any:  # type: ignore[override]  # torch has an attribute
        return self.optimizer.state

    @property
    def param_groups(self) -> list[dict[str, Any]]:  # type: ignore[override]  # torch has an attribute
        return self.optimizer.param_groups

    @property
    def defaults(self) -> dict[str, Any]:  # type: ignore[override]  # torch has an attribute
        return self.optimizer.defaults

    def add_param_group(self, param_group: dict[str, Any]) -> None:
        raise ValueError("a prepared optimizer takes no more parameters: all workers have agreed on what there is; add "
                         "them before tutti.torch.prepare()")

    def zero_grad(self, set_to_none: bool = True) -> None:
        self.optimizer.zero_grad(set_to_none)

    def step(
        self, closure: Callable[[], Any] | None = None, *, loss: Any = None, losses: torch.Tensor | None = None
    ) -> Any:
        """Ends the pass; after the last pass of a step makes the step.

        loss: mean loss of this batch, for methods that use it (oscars).
        losses: the loss of each sample, for methods that choose samples (biased-local-sgd).
        closure: only for methods that compute a batch again at other values (saddle). It clears the gradients, computes
            the batch's loss, calls backward() and returns the loss. It is called for each pass of the step, but not for
            the first if backward() was called before. step() then returns the loss of the first pass. Dropout is the
            same in all passes, and the model's buffers stay as the first pass has left them."""
        if closure is not None and not self._run.again:
            raise ValueError("step(closure) cannot be had: a closure computes gradients again within the step, after "
                             "they have been exchanged; call backward() and then step()")
        if isinstance(loss, torch.Tensor):
            loss = loss.detach()
        return self._run.step(None if loss is None else float(loss), closure, losses)

    def scale(self, loss: torch.Tensor) -> torch.Tensor:
        """Returns loss times the scale of this pass (prepare(loss_scale=...)). The method divides gradients by it."""
        return loss * self._run.loss_scale()

    def state_dict(self) -> dict[str, Any]:
        """Returns the state_dict() of the torch optimizer, with the method's state on this rank under "tutti": tensors,
        numbers and texts, for torch.save. If the method has services or is asynchronous, all workers must call it,
        since they quiesce first. After the end of the run there is no "tutti"."""
        return self._run.state_dict()

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Loads a state_dict(), before the first step. Without "tutti" in it the method begins from scratch. Also load
        the model.state_dict() that was saved with it into the model."""
        self._run.load_state_dict(state_dict)

    @contextlib.contextmanager
    def evaluate(self) -> Iterator[None]:
        """Context in which the module has the model that all workers agree on. All workers call it after the same
        number of steps (under asynchronous methods after any number), and wait for the last one."""
        self._run.show()
        try:
            yield
        finally:
            self._run.resume()

    def save(self, directory: str, *, keep: int = 0, wait: bool = True) -> None:
        """Saves a checkpoint of model and method in a new folder of `directory`. All workers. Keeps the newest `keep`
        checkpoints (0: all). wait=False: returns when model and method are copied to memory, and a thread writes them.
        The checkpoint is there after the next save(), save_end() or finish(), which raise what has failed."""
        self._run.save(directory, keep, wait)

    def save_end(self) -> None:
        """Waits for the checkpoint of save(wait=False), if one is under way. All workers."""
        self._run.save_end()

    def load(self, directory: str) -> None:
        """Resumes from a checkpoint, or from the newest in that directory. All workers, before the first step."""
        self._run.load(directory)

    def also(self, **objects: Any) -> None:
        """Stores the state_dict() of each object, such as a scheduler, in each checkpoint of prepare(checkpoint=). If
        the run continues from one, it is loaded here. Before the first forward, when all of them are made."""
        if self._run.preempt is None:
            raise StateError("also() is for prepare(checkpoint=DIR); beside other checkpoints a script stores its own")
        self._run.preempt.also(objects)

    def finish(self, results: Callable[[], Any] | None = None) -> None:
        """Ends the run. All workers call it. Pending exchanges complete, and the module gets the model that all agree
        on, in memory of its own. A step that has begun is made with the passes that it has (accumulate). Under
        zero(stage=3) each worker keeps its part of the model until close(): forwards without training and
        model.state_dict() gather the values, on all workers.
        results: only with elastic=True: writes what the run is for. It is called on rank 0 before any worker has
        finished, and again, there or on another one, if a worker is lost meanwhile. So it writes a file under another
        name, and renames it (os.replace)."""
        if results is not None:
            raise ValueError("finish(results) is for prepare(elastic=True); elsewhere write them after finish(), on "
                             "rank 0")
        self._run.finish()

    def close(self) -> None:
        """Leaves the run without finish(). Workers that still need this one are notified."""
        self._run.close()

    def __enter__(self) -> "Optimizer":
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: object) -> None:
        if error is None:
            self.finish()
        else:
            self._run.fail(error)

    def __repr__(self) -> str:
        return f"tutti({self._run.method}): {self.optimizer!r}"

    def __getstate__(self) -> Any:
        raise TypeError("a prepared optimizer is part of a run of several processes and cannot be pickled or copied; "
                        "use state_dict()")


class ElasticOptimizer(Optimizer):
    """Of prepare(elastic=True): its run is that of the present epoch."""

    def __init__(self, elastic: _elastic.Elastic) -> None:  # without super().__init__(), which has one run
        self._elastic = elastic
        self.optimizer = elastic.optimizer

    @property
    def _run(self) -> Run:  # type: ignore[override]  # an attribute there
        return self._elastic.run

    def finish(self, results: Callable[[], Any] | None = None) -> None:
        if not self._run.ended and not self._run.finished:
            self._elastic.finish(results)


def prepare(model: nn.Module, optimizer: torch.optim.Optimizer, method: str = "ddp", *, codec: str | None = None,
            transport: str | None = None, servers: int = 0, batch: int = 1, accumulate: int = 1,
            elastic_shares: int = 0, elastic: bool = False, validation: Callable[[], Any] | None = None,
            collective: str | None = None, clip_norm: float = 0.0, nonfinite: str = "stop",
            loss_scale: str | None = None, seed: int = 0,
            steps: int = 0, sampler: BatchSampler | None = None, trace: str | os.PathLike[str] | None = None,
            trace_overwrite: bool = False, log_to: _log_to.Given = None, metrics_port: int | str | None = None,
            codec_cost: str = "off", codec_report: int = 0,
            checkpoint: str | os.PathLike[str] | _preempt.Checkpoints | None = None,
            local_group: dist.ProcessGroup | None = None) -> tuple[nn.Module, Optimizer]:
    """Joins the run that this process was started in, and returns the model and an optimizer that train in it.

    method, codec: specs, as `tutti methods` and `tutti codecs` list them.
    transport: None: chosen from the launcher's environment.
    servers: the number of ranks, the last ones, that only serve. On these prepare() does not return: it serves until
        the workers have finished, and then ends the process (SystemExit).
    batch: samples in a batch of the loop, for methods that assign samples, and for figures.
    accumulate: backward passes in a step. The loop stays as it is: every `accumulate`-th call of step() makes a step,
        and gradients are divided by `accumulate` here, not by the user. If the loop ends in the middle of a step, the
        gradients so far are applied, divided by `accumulate`, too.
    elastic_shares: shares into which a step is cut, of which each worker computes several: the run has the same bits
        with any number of workers up to it, and when it is resumed with another. A call of step() is one pass of one
        share, and every worker's last one makes the step. Each pass seeds torch's random numbers by its samples.
        For the methods ddp, bytescheduler and zero; and for local-sgd, diloco and slowmo, whose step is a round then:
        a pass is of a local step of a share, which begins with the optimizer as it is here. 0: none.
    elastic: the workers of this run come, leave and are lost, and the run has the same bits (`tutti run --workers
        FEWEST:MOST`). Needs sampler=, whose iteration number k is epoch k, and finish(). elastic_shares is MOST unless
        it is given. Whoever comes runs the script from its beginning, and gets the state here.
    validation: returns the mean loss of the present model on samples held out of training, the same on all ranks. For
        methods that use it.
    clip_norm: largest norm of the exchanged gradient, in place of clip_grad_norm_; 0: no clipping.
    nonfinite: "stop" the run, or "skip" the step, if a gradient is not finite.
    steps: of each worker in the whole run; 0: not known.
    sampler: of tutti.torch.sampler(). batch, accumulate and seed are then the sampler's, gradients are weighted by
        their number of samples, and methods that assign samples do so through it. Methods that choose samples need it.
    trace: a folder for a trace of all ranks, figures and a summary, of which `tutti report DIR` makes a page. None:
        TUTTI_TRACE_DIR; without that nothing is recorded. trace_overwrite: an earlier record there is removed. With
        elastic=True there is one of each membership, trace/members-1 and so on.
    log_to: what else gets the figures of the record: "tensorboard", "csv" and "prometheus", files in its folder;
        "wandb", "mlflow"; an object with log(figures, step) or such a callable; or a list of them. On rank 0.
    metrics_port: a port where rank 0 answers GET /metrics with the latest figures, as Prometheus reads them: 9400, for
        this host alone, or "0.0.0.0:9400".
    codec_cost: "explain": measure codec and network before the first step, and log what an exchange takes with it and
        without. "auto-off": likewise, and send gradients as they are where that is predicted to take over 5 % longer.
    codec_report: steps between measurements of what the codec loses, which the record (trace=) has; 0: never.
    checkpoint: a folder, or tutti.torch.Checkpoints(folder, every=N, ...). At SIGTERM, under Slurm at SIGUSR1 too, all
        ranks save there after the same step and end with 128 + signal. If there is a checkpoint in it the run continues
        from it: optimizer.figures()["steps"] is the number of steps made. Needs finish(). With elastic=True all save
        if all get SIGTERM, and end with 0.
    local_group: a process group of the ranks of this one's host: gradients are summed in it, by NCCL or Gloo, in every
        step, and the method works between hosts. Each rank exchanges its shard with one rank of each other host
        (_local.py). For ddp, qsgd, nuqsgd, local-sgd and diloco. world stays that of all ranks. Of a module that
        fully_shard() has sharded it is the group of its mesh: FSDP2 works in it, and the method between hosts.

    Raises ValueError, before anything is done, if this method, model and optimizer do not match."""
    if run_of(model) is not None:
        raise ValueError("this model was prepared already; its optimizer is the one that prepare() gave then")
    if isinstance(optimizer, Optimizer):
        raise TypeError("this optimizer was prepared already; give the torch optimizer inside it and a new model")
    check_second(servers)
    if elastic:
        return model, ElasticOptimizer(_elastic.Elastic(
            model, optimizer, method, codec=codec, transport=transport, servers=servers, batch=batch,
            accumulate=accumulate, elastic_shares=elastic_shares, validation=validation, collective=collective,
            clip_norm=clip_norm, nonfinite=nonfinite, loss_scale=loss_scale, seed=seed, steps=steps, sampler=sampler,
            trace=trace, trace_overwrite=trace_overwrite, log_to=_log_to.plan_of(log_to, metrics_port),
            codec_cost=codec_cost, codec_report=codec_report, checkpoint=_preempt.plan_of(checkpoint),
            local_group=local_group))
    make: Callable[..., Run] = Run
    if local_group is not None:
        make = functools.partial(FsdpRun if is_sharded_module(model) else LocalRun, local_group=local_group)
    run = make(model, optimizer, method, codec=codec, transport=transport, servers=servers, batch=batch,
               accumulate=accumulate, elastic_shares=elastic_shares, validation=validation, collective=collective,
               clip_norm=clip_norm, nonfinite=nonfinite, loss_scale=loss_scale, seed=seed, steps=steps, sampler=sampler,
               trace=trace, trace_overwrite=trace_overwrite, log_to=_log_to.plan_of(log_to, metrics_port),
               codec_cost=codec_cost, codec_report=codec_report,
               checkpoint=_preempt.plan_of(checkpoint))
    if run.only_serves:
        _serve.until_finished(run)
        sys.exit(0)
    return model, Optimizer(run)


def evaluate(model: nn.Module) -> contextlib.AbstractContextManager[None]:
    """Returns optimizer.evaluate() of a prepared model, for code that does not have the optimizer."""
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
