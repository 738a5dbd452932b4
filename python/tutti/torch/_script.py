"""`tutti plan SCRIPT`: times the first training passes of a script, and plans with them.

python -m tutti.torch._script PROGRAM SCRIPT [flags of tutti plan] [-- arguments of the script]

The script runs as it is, as the only process of a run of torchrun. A hook of PyTorch for all modules finds the first
that is called in training and with gradients. A pass begins when it is called, and ends when the last gradient is
ready. After some passes the script is ended, and PROGRAM makes the plan. What the script prints goes to stderr.
"""

from __future__ import annotations

import contextlib
import json
import os
import runpy
import socket
import subprocess
import sys
import tempfile
import threading
import time
from typing import Any, NoReturn

import torch
from torch import nn
from torch.nn.modules.module import register_module_forward_pre_hook
from torch.optim.optimizer import register_optimizer_step_post_hook, register_optimizer_step_pre_hook

from ._measure import WARM, Clock, params_of, samples_of

_PASSES = 5  # that are timed, after the first WARM


class _Enough(BaseException):
    """Ends the script. Not an Exception, which a script may catch."""


class _Refused(BaseException):
    """Ends the script with a sentence."""


class Watch:
    """Times the passes of the first module that trains. content: the measurements, as of measure(); None: too few."""

    def __init__(self) -> None:
        self.content: dict[str, Any] | None = None
        self.passes = 0
        self._thread = threading.get_ident()
        self._module: nn.Module | None = None
        self._clock: Clock | None = None
        self._in_forward = self._open = False  # of a pass; a pass whose gradients may still come
        self._saved: Any = None
        self._batch = 0
        self._stepping: list[float] = []
        self._search: list[Any] = []  # hooks until the module is found: compiled modules would have them in their code
        self._hooks: list[Any] = []

    def __enter__(self) -> Watch:
        self._search = [register_module_forward_pre_hook(self._called)]
        self._hooks = [
            register_optimizer_step_pre_hook(self._step_begins),
            register_optimizer_step_post_hook(self._step_ends),
        ]
        return self

    def __exit__(self, *_: object) -> None:
        for h in self._search + self._hooks:
            h.remove()

    def _called(self, module: nn.Module, args: Any) -> None:
        """Any module is called, and none has been found. The first that trains is called by no other that does."""
        if torch.compiler.is_compiling() or threading.get_ident() != self._thread or not self._trains(module):
            return
        for h in self._search:
            h.remove()
        self._search = []
        inner = module.module if isinstance(module, nn.parallel.DistributedDataParallel) else module
        try:
            self._clock = Clock(inner, params_of(inner))
        except (TypeError, ValueError) as error:
            raise _Refused(str(error)) from error
        self._module = module
        self._clock.__enter__()
        self._begins(module, args, {})
        self._hooks += [
            module.register_forward_pre_hook(self._begins, with_kwargs=True),  # from the next call on
            module.register_forward_hook(self._returned, always_call=True),
        ]

    @staticmethod
    def _trains(module: nn.Module) -> bool:
        return torch.is_grad_enabled() and module.training and any(p.requires_grad for p in module.parameters())

    def _begins(self, module: nn.Module, args: Any, kwargs: dict[str, Any]) -> None:
        if not self._trains(module) or self._clock is None:
            return
        self._end_pass()
        with contextlib.suppress(ValueError):  # no tensor among these
            self._batch = max(self._batch, samples_of([*args, *kwargs.values()]))
        self._clock.begin(kept=self.passes == 0)
        self._saved = self._clock.saved()
        self._saved.__enter__()
        self._in_forward = self._open = True

    def _returned(self, *_: Any) -> None:
        if self._in_forward and self._clock is not None:
            self._saved.__exit__(None, None, None)
            self._clock.middle()
            self._in_forward = False

    def _end_pass(self) -> None:
        if not self._open or self._clock is None or not self._clock.went_back:
            return
        self._clock.end(at_last=True)
        self._open = False
        self.passes += 1
        if self.passes == WARM + _PASSES:
            if self._batch == 0:
                raise _Refused("the module is called with no tensor whose first size could be the number of samples; "
                               "tutti.plan(..., batch=N) takes it from you")
            self._clock.__exit__()
            self.content = self._clock.content(self._batch)
            raise _Enough

    def _step_begins(self, optimizer: torch.optim.Optimizer, *_: Any) -> None:
        if self._module is not None:
            ours = set(self._module.parameters())
            if any(p.requires_grad and p not in ours for group in optimizer.param_groups for p in group["params"]):
                raise _Refused(f"an optimizer of the script trains parameters that are not in the "
                               f"{type(self._module).__name__} which is called first; give a module that has all of "
                               "them to tutti.plan")
        self._end_pass()
        self._stepping.append(time.perf_counter())

    def _step_ends(self, *_: Any) -> None:
        began = self._stepping.pop()
        if self._clock is not None and not self._stepping:
            self._clock.stepped(time.perf_counter() - began)


def _environment() -> None:
    """The variables of torchrun, for the only process of a run."""
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        port = s.getsockname()[1]
    for name in ("RANK", "LOCAL_RANK", "GROUP_RANK"):
        os.environ[name] = "0"
    for name in ("WORLD_SIZE", "LOCAL_WORLD_SIZE"):
        os.environ[name] = "1"
    os.environ |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}


def measured(script: str, arguments: list[str]) -> dict[str, Any]:
    """Runs the script until enough of its passes are timed."""
    _environment()
    sys.argv = [script, *arguments]
    sys.path.insert(0, os.path.dirname(os.path.abspath(script)))
    sys.stdout.flush()
    out = os.dup(1)
    os.dup2(2, 1)
    watch = Watch()
    try:
        with watch:
            runpy.run_path(script, run_name="__main__")
    except _Enough:
        pass
    except _Refused as why:
        _fail(str(why))
    except SystemExit:
        pass
    finally:
        sys.stdout.flush()
        os.dup2(out, 1)
        os.close(out)
    if watch.content is None:
        _fail(f"{script} ended after {watch.passes} training passes in its own process, and {WARM + _PASSES} are "
              "needed; let it train longer, and not in processes that it starts")
    return watch.content


def _fail(sentence: str) -> NoReturn:
    print(f"tutti plan: {sentence}", file=sys.stderr)
    sys.exit(2)


def main() -> None:
    program, script, *rest = sys.argv[1:]
    at = rest.index("--") if "--" in rest else len(rest)
    flags, arguments = rest[:at], rest[at + 1 :]
    if not os.path.exists(script):
        _fail(f"there is no script '{script}'")
    here, environment = os.getcwd(), dict(os.environ)
    content = measured(script, arguments)
    os.chdir(here)
    with tempfile.TemporaryDirectory(prefix="tutti-plan-") as folder:
        file = os.path.join(folder, "net.json")
        with open(file, "w") as f:
            json.dump(content, f)
        words = [program, "plan", "--model", f"measured(file={file})", *flags]
        sys.exit(subprocess.run(words, env=environment).returncode)


if __name__ == "__main__":
    main()
