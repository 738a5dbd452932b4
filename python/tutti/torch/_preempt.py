"""Preemption: a run saves a checkpoint and ends when a signal asks for it, and continues there when the script is
started again.

    model, optimizer = tutti.torch.prepare(model, optimizer, checkpoint="DIR")
    scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 100)
    optimizer.also(scheduler=scheduler)
    for step in range(optimizer.figures()["steps"], 1000):

A handler notes the signal. Before the first forward of a step, when the script's schedulers have had their turn, the
ranks ask each other whether one has noted any. If so, all of them save after the same step, and end with 128 + signal.

    DIR/step-00001200-optimizer/script-00000.safetensors   what the script has on a rank: torch's random state, and the
                                                           objects of also(). All other files are of _saved.py

torch's random state is put back just before the first forward. In resume() it would be too early: iter(loader), which
the script calls after that, draws from it.
"""

from __future__ import annotations

import collections
import contextlib
import copy
import dataclasses
import json
import multiprocessing.context
import multiprocessing.util
import os
import pathlib
import signal
import sys
import threading
import time
import warnings
import weakref
from collections.abc import Callable, Mapping
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, Protocol, cast

import torch

from .. import _abi
from ..engine import Engine
from ..errors import CorruptError, StateError
from ..world import World
from . import _claim, _saved
from ._buffers import Copies
from ._runs import weakly

if TYPE_CHECKING:
    from .ddp import DistributedDataParallel

_PATH_MOST = 4096
# A second signal ends the process at once. One that comes within this time is the first one again:
# a launcher and its process group may both send it.
_ECHO_S = 1.0
_NOT_FORKED = (multiprocessing.context.SpawnProcess, multiprocessing.context.ForkServerProcess)
_ENDS_THEM = (
    b"tutti: a signal asks for the end, and workers of a DataLoader here are not forked: a launcher that sends it to "
    b"all processes ends them, and the rank then fails before it has saved; give the DataLoader "
    b"multiprocessing_context='fork'\n"
)
_KINDS = {"dict": dict, "counter": collections.Counter, "list": list, "tuple": tuple}


@dataclasses.dataclass(frozen=True)
class Checkpoints:
    """Where a run saves itself, and when: `checkpoint=` of prepare() and of the wrapper.

    directory: its checkpoints, on a file system of all ranks.
    every: steps between checkpoints, and one in finish(); 0: only when a signal ends the run.
    keep: the newest that stay; 0: all.
    resume: "auto": continues from the newest whole checkpoint in `directory`, or begins if there is none. "": begins,
        and `directory` must have none. Else a checkpoint, or a directory of them.
    ask_every: steps after which ranks ask each other for a signal, under methods in which they do not wait for each
        other in every step anyway.
    wait: False: checkpoints of `every` are copied to memory, and a thread writes them during the next steps. What has
        failed is raised by the next one. That of a signal and the last one are waited for.
    """

    directory: str | os.PathLike[str]
    every: int = 0
    keep: int = 0
    resume: str | os.PathLike[str] = "auto"
    ask_every: int = 10
    wait: bool = True

    def __post_init__(self) -> None:
        for name, least in (("every", 0), ("keep", 0), ("ask_every", 1)):
            value = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, int) or value < least:
                raise ValueError(f"Checkpoints: {name} is {value!r}; it must be a number from {least}")
        if not isinstance(self.wait, bool):
            raise ValueError(f"Checkpoints: wait is {self.wait!r}; it must be True or False")
        for name in ("directory", "resume"):
            value = getattr(self, name)
            if not isinstance(value, (str, os.PathLike)) or "\n" in os.fspath(value):
                raise ValueError(f"Checkpoints: {name} is {value!r}; it is the name of a folder")
        if not os.fspath(self.directory):
            raise ValueError("Checkpoints: directory is empty; it is the name of a folder")


def plan_of(checkpoint: str | os.PathLike[str] | Checkpoints | None) -> Checkpoints | None:
    """Returns what checkpoint= means. ValueError: it cannot be had in this process."""
    if checkpoint is None:
        return None
    plan = checkpoint if isinstance(checkpoint, Checkpoints) else Checkpoints(checkpoint)
    if threading.current_thread() is not threading.main_thread():
        raise ValueError("checkpoint= needs the main thread, which alone gets signals; call it there")
    if _of_this_process() is not None:
        raise ValueError(
            "checkpoint= of a second run in this process: a signal asks for one checkpoint, after a step of one run. "
            "Give it to one of them, and the other model and its optimizer to also() there"
        )
    return plan


def fingerprint(plan: Checkpoints | None) -> str:
    """Returns the line that all ranks compare before the engine opens, so that none waits for others alone."""
    if plan is None:
        return ""
    directory, resume = os.fspath(plan.directory), os.fspath(plan.resume)
    return f"checkpoint={directory} {plan.every} {plan.keep} {resume} {plan.ask_every} {plan.wait}\n"


# ---- signals ----
class _Signals:
    """Notes the first signal that asks for the end. It has no reference to the run."""

    def __init__(self) -> None:
        self.first = 0  # 0: none yet
        self._since = 0.0
        self._before: dict[int, Any] = {}
        for number in (signal.SIGTERM, *([signal.SIGUSR1] if "SLURM_JOB_ID" in os.environ else [])):
            if signal.getsignal(number) != signal.SIG_IGN:
                self._before[number] = signal.signal(number, self._note)

    def _note(self, number: int, _frame: object) -> None:
        if self.first == 0:
            self.first, self._since = number, time.monotonic()
            # A DataLoader's workers that were spawned get the signal, too, and die of it. The
            # DataLoader's handler of SIGCHLD would raise here, and the step would fail.
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            if any(child.daemon and isinstance(child, _NOT_FORKED) for child in multiprocessing.active_children()):
                with contextlib.suppress(OSError):  # its reader may be gone
                    os.write(2, _ENDS_THEM)  # not by logging, which this may have interrupted
        elif time.monotonic() - self._since >= _ECHO_S:
            signal.signal(number, signal.SIG_DFL)
            os.kill(os.getpid(), number)

    def put_back(self, forked: bool = False) -> None:
        for number, before in self._before.items():
            if signal.getsignal(number) == self._note:
                if forked and number != signal.SIGTERM:
                    # Slurm sends SIGUSR1 to all processes of a step: forked workers of a
                    # DataLoader ignore it
                    before = signal.SIG_IGN
                elif before is None:  # a handler that was not installed by Python, which cannot be put back
                    before = signal.SIG_DFL
                signal.signal(number, before)
        self._before = {}


_of_run: weakref.ref[Preemption] | None = None  # of the one run of this process with checkpoint=


def _of_this_process() -> Preemption | None:
    return None if _of_run is None else _of_run()


# ---- forked processes ----
_child = False  # this process was forked from one that has a run with checkpoint=


def _forked() -> None:
    """In a forked child: the run is not its own."""
    global _child
    of = _of_this_process()
    if of is not None:
        of.close(forked=True)
        _child = True


def _end_when_parent_asks() -> None:
    """A thread's: waits for a SIGTERM that the parent has sent, or for the parent's end, and ends this process."""
    parent = os.getppid()
    while signal.sigwaitinfo({signal.SIGTERM}).si_pid != parent and os.getppid() == parent:
        pass
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGTERM})
    os.kill(os.getpid(), signal.SIGTERM)


def _ignore_launchers(_: object) -> None:
    """In a forked daemon of multiprocessing, such as a worker of a DataLoader. Launchers send SIGTERM to all processes
    of a rank, and the rank still needs batches until it has saved. So only the parent's SIGTERM ends the daemon."""
    if _child and multiprocessing.current_process().daemon:
        signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})
        threading.Thread(target=_end_when_parent_asks, name="tutti SIGTERM", daemon=True).start()


os.register_at_fork(after_in_child=_forked)
# Called later than _forked(), when current_process() is the child; _Signals only has to be there.
multiprocessing.util.register_after_fork(_Signals, _ignore_launchers)


# ---- a script's objects ----
def _encode(value: Any, at: str, tensors: dict[str, torch.Tensor]) -> Any:
    """Returns a part of a state_dict() as JSON, with its tensors by number. ValueError: it has something else."""
    if value is None or isinstance(value, (bool, int, float, str)):
        return value
    if isinstance(value, torch.Tensor) and value.dtype in _saved.DTYPES:
        name = str(len(tensors))
        tensors[name] = value
        return {"tensor": name}
    if isinstance(value, Mapping):
        kind = "counter" if isinstance(value, collections.Counter) else "dict"  # MultiStepLR has one
        return {kind: [[_encode(k, at, tensors), _encode(v, f"{at}[{k!r}]", tensors)] for k, v in value.items()]}
    if isinstance(value, (list, tuple)):
        kind = "list" if isinstance(value, list) else "tuple"
        return {kind: [_encode(v, f"{at}[{k}]", tensors) for k, v in enumerate(value)]}
    what = f"a tensor of {value.dtype}" if isinstance(value, torch.Tensor) else f"a {type(value).__name__}"
    raise ValueError(
        f"also(): {at} is {what}; a state_dict() that is stored has numbers, texts, None, tensors, and lists, tuples "
        "and dictionaries of them"
    )


def _decode(value: Any, tensors: Mapping[str, torch.Tensor]) -> Any:
    """Returns what _encode() was given."""
    if not isinstance(value, dict):
        return value
    ((kind, inner),) = value.items()
    if kind == "tensor":
        return tensors[inner]
    if kind in ("list", "tuple"):
        return _KINDS[kind](_decode(v, tensors) for v in inner)
    return _KINDS[kind]({_decode(k, tensors): _decode(v, tensors) for k, v in inner})


def _states(objects: Mapping[str, Any], tensors: dict[str, torch.Tensor]) -> dict[str, Any]:
    """Returns the states of objects of also() as JSON, and adds their tensors."""
    return {name: _encode(o.state_dict(), f"the state_dict() of '{name}': it", tensors) for name, o in objects.items()}


# ---- a run ----
class Saves(Protocol):
    """A run that can be saved: all ranks call its functions between the same two steps."""

    world: World
    engine: Engine
    replicas_equal: bool

    def save_here(self, directory: str, keep: int, wait: bool) -> None: ...

    def save_ends_here(self) -> None:
        """Waits for what save_here(wait=False) has begun."""

    def load(self, directory: str) -> None: ...

    def close(self) -> None:
        """Calls close() of its Preemption, too."""


class Preemption:
    """The signals and checkpoints of a run, on one rank. All ranks make its calls together.

    run: since it refers to this object, give a weak proxy, or an object that has one (_Wrapped)."""

    def __init__(self, plan: Checkpoints, run: Saves, device: torch.device, optimizer: torch.optim.Optimizer | None):
        global _of_run
        self._plan, self._run, self._device = plan, run, device
        self._directory = os.fspath(plan.directory)
        self._ask_every = 1 if run.replicas_equal else plan.ask_every
        self._objects: dict[str, Any] = {}  # of also()
        self._loaded: dict[str, Any] = {}  # their states in the checkpoint, until also() takes them
        self._random: dict[str, torch.Tensor] = {}  # torch's random state, until the first forward
        self._optimizers = [] if optimizer is None else [optimizer]  # whose groups the checkpoint has
        self._settings: list[list[dict[str, Any]]] = []  # of each of these: its groups as they were loaded
        self._newest = ""  # path of the checkpoint that was loaded or saved last
        self._steps = -1  # of the whole run: those made; -1: before the first forward
        self._saved = -1  # likewise: those in the newest checkpoint
        self._claim: _claim.Claim | None = None  # of the folder, on rank 0
        self._signals = _Signals()
        _of_run = weakref.ref(self)

    def close(self, forked: bool = False) -> None:
        global _of_run
        if threading.current_thread() is threading.main_thread():
            self._signals.put_back(forked)
        if self._claim is not None:
            self._claim.close()
            self._claim = None
        if _of_this_process() is self:
            _of_run = None

    # ---- to continue ----
    def resume(self) -> None:
        """Claims the folder, and loads the checkpoint that the plan names, if there is one."""
        refused = self._from_rank_0(self._take_folder)
        if refused:
            raise ValueError(refused)
        found = self._from_rank_0(self._look)
        if not found:
            return
        self._run.load(found)
        self._newest = found
        self._settings = [self._groups(o) for o in self._optimizers]
        self._read(found)
        self._say(f"continues from checkpoint '{found}'")

    def _from_rank_0(self, call: Callable[[], str]) -> str:
        """Returns on all ranks what the call returns on rank 0, which alone makes it."""
        text = torch.zeros(_PATH_MOST, dtype=torch.uint8)
        if self._run.world.rank == 0:
            said = os.fsencode(call())[:_PATH_MOST]
            text[: len(said)] = torch.tensor(list(said), dtype=torch.uint8)
        Copies(self._run.world).broadcast([text])
        return os.fsdecode(bytes(text.tolist()).rstrip(b"\0"))

    def _take_folder(self) -> str:
        """Returns why the folder cannot be had; "": it is this run's."""
        try:
            self._claim = _claim.Claim(self._directory)
        except ValueError as e:
            return str(e)
        return ""

    def _look(self) -> str:
        """Returns the checkpoint to continue from; "": there is none."""
        resume, world = os.fspath(self._plan.resume), self._run.world
        if resume not in ("", "auto"):
            return world.find_checkpoint(resume)
        try:
            found = world.find_checkpoint(self._directory)
        except ValueError:  # there is none
            return ""
        except CorruptError:  # there are some, and none is valid
            if resume:
                raise
            found = self._directory
        if not resume:
            raise ValueError(
                f"resume='' begins a run, and there are checkpoints of an earlier one in '{self._directory}' "
                f"('{found}'); take another directory, remove them, or leave resume at 'auto'"
            )
        return found

    def _file(self, checkpoint: str, rank: int) -> pathlib.Path:
        """Returns the file of what the script has on a rank."""
        return pathlib.Path(checkpoint + "-optimizer") / f"script-{rank:05d}.safetensors"

    def _read(self, checkpoint: str) -> None:
        """Reads what the script had on this rank; a rank that the saved run did not have reads rank 0's. Random states
        are taken by as many workers only, each its own."""
        world = self._run.world
        mine = self._file(checkpoint, world.rank)
        path = mine if mine.exists() else self._file(checkpoint, 0)
        if not path.exists():  # a checkpoint of the script's own call of save(), which has no such file
            return
        tensors, words = _saved.read(path)
        try:
            self._loaded = {name: _decode(state, tensors) for name, state in json.loads(words["objects"]).items()}
            same = path == mine and int(words["workers"]) == world.size
            self._random = {name: t for name, t in tensors.items() if same and name.startswith("random")}
        except (ValueError, KeyError, TypeError) as e:
            raise CorruptError(f"'{path}' is not as it is saved here ({e!r}); take another checkpoint") from None

    @staticmethod
    def _groups(optimizer: torch.optim.Optimizer) -> list[dict[str, Any]]:
        """Returns the settings of an optimizer's groups, such as lr."""
        return [copy.deepcopy({k: v for k, v in g.items() if k != "params"}) for g in optimizer.param_groups]

    def also(self, objects: Mapping[str, Any]) -> None:
        if self._steps >= 0:
            raise StateError("also() after the first forward; call it before, since the run may continue from a state")
        for name, o in objects.items():
            if not callable(getattr(o, "state_dict", None)) or not callable(getattr(o, "load_state_dict", None)):
                raise TypeError(f"also(): '{name}' is a {type(o).__name__}, without state_dict() and load_state_dict()")
            if name in self._objects:
                raise ValueError(f"also(): there is a '{name}' already; give each object a name of its own")
            if self._newest and name not in self._loaded:
                raise ValueError(
                    f"checkpoint '{self._newest}' has no state of '{name}', only of: "
                    f"{', '.join(self._loaded) or 'none'}; call also() as the script did that saved it, or begin in "
                    "another directory"
                )
        _states(objects, {})  # raises now, not at the first checkpoint, if a state cannot be stored
        self._objects |= objects
        if not self._newest:
            return
        for name, o in objects.items():
            o.load_state_dict(self._loaded.pop(name))
            if isinstance(o, torch.optim.Optimizer):
                self._optimizers.append(o)
                self._settings.append(self._groups(o))
        # A scheduler has set the rate when it was made: the loaded one is put back.
        for optimizer, settings in zip(self._optimizers, self._settings, strict=True):
            for group, of in zip(optimizer.param_groups, settings, strict=True):
                group.update(copy.deepcopy(of))

    def _first(self) -> None:
        """Before the first step of this process."""
        self._steps = self._saved = int(self._run.engine.figures()["steps"])
        if self._loaded:
            warnings.warn(
                f"checkpoint '{self._newest}' also has the state of {', '.join(self._loaded)}, and this script has not "
                "given it to also(): it begins anew",
                stacklevel=2,
            )
        if "random" in self._random:
            torch.set_rng_state(self._random["random"])
        if "random-device" in self._random and self._device.type != "cpu":
            torch.get_device_module(self._device).set_rng_state(self._random["random-device"], self._device)
        self._loaded, self._random = {}, {}

    # ---- to save ----
    def step_begins(self) -> None:
        """Before the first forward of each step. SystemExit: a signal has ended the run."""
        if self._steps < 0:
            self._first()
        self._meet(asks=(self._steps - self._saved) % self._ask_every == 0, last=False)
        self._steps += 1

    def finishes(self) -> None:
        """After the last step. SystemExit: as above; what the script does after its steps is done when it is started
        again."""
        if self._steps < 0:
            self._first()
        self._meet(asks=True, last=True)

    def _meet(self, asks: bool, last: bool) -> None:
        """Saves if it is due or a rank has noted a signal, which ends the run. asks: ranks ask each other for one."""
        engine, every = self._run.engine, self._plan.every
        was = engine.doing(_abi.TUTTI_DOING_OUTSIDE)
        by = int(self._run.world.reduce([float(self._signals.first)], "max")[0]) if asks else 0
        due = every > 0 and (last or self._steps % every == 0)
        if (by or due) and self._steps != self._saved:
            self._save(self._plan.wait or by > 0 or last)
        elif by or last:  # none is due now, and a thread may still write the newest
            self._run.save_ends_here()
        engine.doing(was)
        if by:
            self._end(by)

    def _save(self, wait: bool) -> None:
        """Saves a checkpoint. wait: False: a thread writes it."""
        run, tensors = self._run, {"random": torch.get_rng_state()}
        if self._device.type != "cpu":
            tensors["random-device"] = torch.get_device_module(self._device).get_rng_state(self._device)
        states = _states(self._objects, tensors)
        checkpoint = _saved.next_of(run, self._directory)
        path = self._file(checkpoint, run.world.rank)
        path.parent.mkdir(parents=True, exist_ok=True)
        # before the checkpoint, so that each complete checkpoint has it
        _saved.write(path, tensors, {"workers": str(run.world.size), "objects": json.dumps(states)})
        run.save_here(self._directory, self._plan.keep, wait)
        self._newest, self._saved = checkpoint, self._steps

    def _end(self, by: int) -> None:
        """Ends the run and this process, since a signal has asked for it."""
        run = self._run
        run.world.barrier()  # no rank leaves while another still needs it
        run.engine.part()
        there = f"continues from checkpoint '{self._newest}'" if self._newest else "begins, since no step was made"
        self._say(f"ends by signal {by} ({signal.Signals(by).name}); started again, the script {there}")
        run.close()
        raise SystemExit(128 + by)

    def _say(self, what: str) -> None:
        if self._run.world.rank == 0:
            sys.stderr.write(f"tutti: {what}\n")  # at once: other ranks write to it, too
            sys.stderr.flush()


# ---- the wrapper ----
class _Wrapped:
    """A DistributedDataParallel as Saves."""

    def __init__(self, ddp: DistributedDataParallel, frozen_equal: bool):
        self.ddp = cast("DistributedDataParallel", weakref.proxy(ddp))
        self.world, self.engine = ddp.world, ddp.engine
        self.replicas_equal = bool(ddp.engine.method.traits & _abi.TUTTI_REPLICAS_EQUAL)
        self._keep: tuple[str, int] | None = None  # directory and keep of the last save
        # statistics of batch norms are stored with the other buffers: the engine has none here
        self._module: Any = SimpleNamespace(world=ddp.world, engine=ddp.engine, model=ddp.module, binding=ddp._binding,
                                            statistics=[], replicas_equal=frozen_equal)  # fmt: skip

    def save_here(self, directory: str, keep: int, wait: bool) -> None:
        _saved.save_module(self._module, directory)
        self.ddp.save(directory, keep=keep, wait=wait)
        _saved.prune(self._module, directory, keep, None if wait else int(self.engine.figures()["steps"]))
        self._keep = (directory, keep)

    def save_ends_here(self) -> None:
        self.ddp.save_end()
        if self._keep is not None:
            _saved.prune(self._module, *self._keep)

    def load(self, directory: str) -> None:
        self.ddp.load(directory)
        _saved.load_module(self._module, directory)

    def close(self) -> None:
        self.ddp.close()


class OfWrapper(Preemption):
    """Preemption of a DistributedDataParallel, which does not see the optimizer: also() gives it. A step is over when
    the last optimizer of also() has made its step(). A forward before that accumulates gradients, which a checkpoint
    would not have, so nothing is saved there."""

    def __init__(self, plan: Checkpoints, ddp: DistributedDataParallel, frozen_equal: bool):
        self._wrapped = _Wrapped(ddp, frozen_equal)
        super().__init__(plan, self._wrapped, ddp.device, None)
        self._hook: Any = None  # of the last optimizer of also()
        self._stepped = True  # the step is over: the next forward is the first of another one

    def also(self, objects: Mapping[str, Any]) -> None:
        super().also(objects)
        for o in objects.values():
            if isinstance(o, torch.optim.Optimizer):
                if self._hook is not None:
                    self._hook.remove()
                self._hook = o.register_step_post_hook(weakly(self._after_step))

    def _after_step(self, *_: object) -> None:
        self._stepped = True

    def forward_begins(self) -> None:
        """Before each forward in training mode."""
        if not self._stepped:
            return
        ddp = self._wrapped.ddp
        if self._hook is None:
            raise StateError(
                "checkpoint= of the wrapper, which does not know the optimizer: call ddp.also(optimizer=optimizer) "
                "before the first forward, with schedulers and a GradScaler if there are any"
            )
        if ddp._comm_hooks or ddp._join is not None:
            what = "register_comm_hook" if ddp._comm_hooks else "join"
            raise StateError(
                f"checkpoint= together with {what}(): its steps are not the engine's, which the checkpoints have; "
                "leave one of them out"
            )
        self._stepped = False
        self.step_begins()
