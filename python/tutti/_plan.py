"""tutti.plan: which methods would be how fast for a module of PyTorch, before it trains with any of them.

The module is timed here (torch/_measure.py). Its shapes and times become a file, which the command `tutti plan` takes
as --model 'measured(file=F)' (docs/PLAN.md): it runs each method in the simulator, with the method's own code and
messages.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from ._library import built
from .errors import Error, in_python


@dataclass(frozen=True, slots=True)
class Planned:
    """What a method would take. A step is one batch of each worker."""

    method: str
    codec: str  # "": none
    seconds: float  # of a step
    waiting: float  # share of the workers' time in which they wait for messages, 0 to 1
    memory: float  # bytes, of the worker that has most
    sent: float  # bytes in a step, by all ranks, over the number of workers
    effect: str  # on the course of training: "exact", "compressed", "local" ... (docs/PLAN.md)
    reason: str


class Plan:
    """A plan. Printed, it is the table of `tutti plan` with its reasons.

    methods: what was simulated, the fastest first. refused: for (method, codec) that cannot do this run, why.
    measured: what was timed, as the file has it. json: all of it, as docs/PLAN.md describes it.
    """

    def __init__(self, text: str, plan: dict[str, Any], measured: dict[str, Any]):
        self._text, self.json, self.measured = text, plan, measured
        self.methods = [
            Planned(m["method"], m["codec"], m["seconds_a_step"], m["exposed_share"], m["memory_bytes"],
                    m["bytes_sent_a_step"], m["effect"], m["reason"])
            for m in plan["methods"]
        ]
        self.refused: dict[tuple[str, str], str] = {(m["method"], m["codec"]): m["why"] for m in plan["refused"]}
        self.fastest = self._row("fastest")
        """The method with the shortest step, whatever it does to the course of training."""
        self.fastest_synchronous = self._row("fastest_synchronous")
        """The same among those that use the gradients of all workers in each step, as ddp; None: none of these."""

    def _row(self, name: str) -> Planned | None:
        found = self.json[name]
        wanted = (found["method"], found["codec"]) if found else None
        return next((m for m in self.methods if (m.method, m.codec) == wanted), None)

    def __str__(self) -> str:
        return self._text

    def __repr__(self) -> str:
        return f"<tutti.Plan of {len(self.methods)} methods for {self.json['workers']} workers>"


def _command() -> str:
    """Returns the program `tutti`: that of the library which is loaded, else the package's, else the one in PATH."""
    library = os.environ.get("TUTTI_LIBRARY")
    beside = os.path.join(os.path.dirname(os.path.abspath(library)), "../bin/tutti") if library else ""
    found = beside if os.path.exists(beside) else built("bin", "tutti") or shutil.which("tutti")
    if found is None:
        raise Error("tutti.plan runs the command 'tutti', which is neither in this installation nor in PATH; install "
                    "tutti again")
    return found


def _run(words: list[str]) -> str:
    done = subprocess.run([_command(), *words], capture_output=True, text=True)
    if done.returncode < 0:
        raise Error(f"tutti {words[0]} was ended by signal {-done.returncode}")
    if done.returncode == 0:
        return done.stdout
    said = in_python(done.stderr.strip().removeprefix("tutti: "))
    raise ValueError(said) if done.returncode == 2 else Error(said)


def _platform(network: str | os.PathLike[str] | None, workers: int, folder: str) -> list[str]:
    """Returns the flags for a network: a file, a spec of `tutti platform`, or None."""
    if network is None:
        return []
    text = os.fspath(network)
    if os.path.exists(text):
        return ["--platform", os.path.abspath(text)]
    if not re.fullmatch(r"\s*[a-z][a-z-]*\s*(\(.*\))?\s*", text):
        raise ValueError(f"network is {text!r}: no such file, and no spec of `tutti platform` such as "
                         "'cluster(rate=1Gbps,latency=50us)'")
    name, _, options = text.strip().partition("(")
    options = options.rpartition(")")[0]
    if name.strip() == "cluster" and not re.search(r"(^|,)\s*n\s*=", options):
        text = f"cluster(n={workers}{',' if options.strip() else ''}{options})"
    with open(os.path.join(folder, "platform.xml"), "w") as f:
        f.write(_run(["platform", text]))
    return ["--platform", os.path.join(folder, "platform.xml")]


def _list(values: str | Iterable[str]) -> str:
    return values if isinstance(values, str) else ",".join(values)


def plan(
    module: Any,
    sample: Any,
    *,
    workers: int,
    loss: Callable[[Any], Any] | None = None,
    optimizer: Any = None,
    network: str | os.PathLike[str] | None = None,
    methods: str | Iterable[str] = "",
    codecs: str | Iterable[str] = "",
    batch: int | None = None,
    passes: int = 5,
    file: str | os.PathLike[str] | None = None,
    options: Mapping[str, object] | None = None,
) -> Plan:
    """Times a pass of a module on the CPU and ranks methods by the time of a step with `workers` such workers.

    sample: a worker's batch: a tensor, a tuple or list of what the module is called with, or a dict of names. loss:
    from the module's output to the loss that backward begins with; None: the output if it is one number, its `loss` if
    it has one (as transformers' models), else the mean of its values. optimizer: a step of it is timed, too. The
    module's values, gradients and buffers, the optimizer's state and PyTorch's random numbers are then as before.

    network: a platform file, or a spec of `tutti platform` such as "cluster(rate=1Gbps,latency=50us)"; None: links
    between processes of this machine, which are measured. methods, codecs: as of `tutti plan`; default: all methods,
    no codec. batch: samples of `sample`; None: the first size of its first tensor. passes: that are timed, after two
    others; times are their medians. file: where the measurements are kept, for later plans with `tutti plan`. options:
    more of `tutti plan` and of `tutti train`, as {"over": 48, "slow": "3:2", "optimizer": "adam"}.

    Blocks until all methods are simulated, at most options["minutes"] (10).
    """
    from .torch._measure import measure

    if isinstance(workers, bool) or not isinstance(workers, int) or workers < 1:
        raise ValueError(f"workers is {workers!r}; it must be a whole number from 1 on")
    measured = measure(module, sample, loss=loss, optimizer=optimizer, batch=batch, passes=passes)
    if file is not None:
        with open(file, "w") as f:
            json.dump(measured, f, indent=1)
    with tempfile.TemporaryDirectory(prefix="tutti-plan-") as folder:
        kept = "" if file is None else os.fspath(file)
        net = kept if kept and not re.search("[,()]", kept) else os.path.join(folder, "net.json")
        if net != kept:
            with open(net, "w") as f:
                json.dump(measured, f)
        more = {name.replace("_", "-"): value for name, value in (options or {}).items()}
        out = str(more.setdefault("out", os.path.join(folder, "plan")))
        words = ["plan", "--model", f"measured(file={net})", "-n", str(workers), "--quiet"]
        words += _platform(network, workers, folder)
        for name, value in (("methods", _list(methods)), ("codecs", _list(codecs))):
            words += [f"--{name}", value] if value else []
        words += [f"--{name}={given}" for name, given in more.items()]
        text = _run(words)
        with open(os.path.join(out, "plan.json")) as f:
            return Plan(text, json.load(f), measured)
