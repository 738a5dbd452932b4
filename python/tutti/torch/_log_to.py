"""log_to=: rank 0 gives each line of metrics.jsonl, as the record writes it, to what draws curves of it.

The library writes the files of "tensorboard", "csv" and "prometheus" into the record's folder
(src/record/log_to.c), and answers at metrics_port= (src/record/port.c). "wandb" and
"mlflow" are packages, and an object with log(figures, step), or a callable of the same arguments, is the script's.
These get the numbers of a line by the same names as the curves of TensorBoard: "train_loss",
"wait_seconds_by_worker/0".
"""

from __future__ import annotations

import difflib
import importlib
import importlib.util
import json
import os
import re
import sys
import warnings
from collections.abc import Callable, Iterator, Sequence
from typing import Any, BinaryIO, Protocol

import torch

_FILES = ("tensorboard", "csv", "prometheus")
_PACKAGES = ("wandb", "mlflow")
_AXIS = "tutti_step"  # the name of the step at W&B
_PLACES = ("epoch", "samples", "wall_seconds", "bytes_sent_total")  # of lines of all kinds


class Logger(Protocol):
    """What a script may give to log_to=."""

    def log(self, figures: dict[str, float], step: int) -> object: ...


One = str | Logger | Callable[[dict[str, float], int], object]
Given = One | Sequence[One] | None


def numbers(row: dict[str, Any]) -> dict[str, float]:
    """The numbers of a line of metrics.jsonl but its step, by the names of their curves (tutti_record_scalars)."""
    tensor = row.get("tensor")
    coded = isinstance(tensor, str)
    evaluates = not coded and "train_loss" not in row
    found: dict[str, float] = {}

    def go(name: str, value: Any) -> None:
        if isinstance(value, (int, float)) and not isinstance(value, bool):
            found[name] = value
        elif isinstance(value, list) and not coded:
            for i, one in enumerate(value):
                go(f"{name}/{i}", one)
        elif isinstance(value, dict):
            for member, one in value.items():
                go(f"{name}/{member}", one)

    for name, value in row.items():
        if name != "step":
            placed = f"evaluation/{name}" if evaluates and name in _PLACES else name
            go(f"codec/{tensor}/{name}" if coded else placed, value)
    return found


# ---- where lines go ----
class _Wandb:
    """The run of W&B that there is, or one that begins here and ends with the record.

    W&B drops figures whose step is before its own, which each log() of a script without step= moves on. So the step is
    a figure, too: the axis of ours."""

    def __init__(self, folder: str, facts: dict[str, Any]):
        self._wandb: Any = importlib.import_module("wandb")
        self._begun = self._wandb.run is None
        self._placed: set[str] = set()  # names, or "group/*", that have the axis
        if self._begun:
            self._wandb.init(name=os.path.basename(os.path.abspath(folder)), config=facts)

    def log(self, figures: dict[str, float], step: int) -> None:
        for name in figures:
            group, slash, _ = name.partition("/")
            place = f"{group}/*" if slash else name
            if place not in self._placed:
                self._wandb.define_metric(place, step_metric=_AXIS)
                self._placed.add(place)
        self._wandb.log({**figures, _AXIS: step})

    def close(self, ended: bool) -> None:
        if self._begun:
            self._wandb.finish(exit_code=0 if ended else 1)


class _Mlflow:
    """The active run of MLflow, or one that begins here and ends with the record."""

    def __init__(self, folder: str, facts: dict[str, Any]):
        self._mlflow: Any = importlib.import_module("mlflow")
        self._begun = self._mlflow.active_run() is None
        if self._begun:
            self._mlflow.start_run(run_name=os.path.basename(os.path.abspath(folder)))
            self._mlflow.log_params({name: str(value)[:500] for name, value in facts.items()})

    def log(self, figures: dict[str, float], step: int) -> None:
        """MLflow takes names of these characters, and up to 1000 figures a call."""
        named = [(re.sub(r"[^/\w.\- ]", "_", name), value) for name, value in figures.items()]
        for i in range(0, len(named), 1000):
            self._mlflow.log_metrics(dict(named[i : i + 1000]), step=step)

    def close(self, ended: bool) -> None:
        if self._begun:
            self._mlflow.end_run("FINISHED" if ended else "FAILED")


_MAKE: dict[str, Callable[[str, dict[str, Any]], Any]] = {"wandb": _Wandb, "mlflow": _Mlflow}


class LogTo:
    """What log_to= and metrics_port= mean, read before anything is opened."""

    def __init__(self, files: str, others: list[str | Logger | Callable[..., object]], port: str = ""):
        self.files = files  # as the library takes it: "tensorboard,csv"
        self._others = others
        self.port = port  # likewise: "9400"

    @property
    def asked(self) -> bool:
        return bool(self.files or self._others or self.port)

    def check_folder(self, folder: str) -> None:
        if not folder and self.asked:
            raise ValueError(
                f"{'log_to=' if self.files or self._others else 'metrics_port='} gives on what the record of the run "
                "has; name its folder, too: trace='runs/one', or TUTTI_TRACE_DIR in the environment"
            )

    def fingerprint(self) -> str:
        """Of all ranks the same. The objects of a script are rank 0's own matter."""
        of_files = f"log_to={self.files}\n" if self.files else ""
        return of_files + (f"metrics_port={self.port}\n" if self.port else "")

    def of_index(self, index: int) -> LogTo:
        """Of the ranks of a local_group the first one's figures go to packages, objects and the port; the others have
        files."""
        return self if index == 0 else LogTo(self.files, [])

    def in_parts(self) -> Parts:
        """Of a run that has one record after another."""
        return Parts(self.files, self._others, self.port)

    def begin(self, folder: str, facts: dict[str, Any]) -> Sender | None:
        """On rank 0, when the record is open. None: only the library has something to write."""
        return Sender(folder, facts, self._others) if self._others else None


class Parts(LogTo):
    """What begins at a package goes on in the next record of this process."""

    _sent: PartSender | None = None

    def begin(self, folder: str, facts: dict[str, Any]) -> Sender | None:
        if not self._others:
            return None
        if self._sent is None:
            self._sent = PartSender(folder, facts, self._others, os.path.dirname(folder))
        else:
            self._sent.follow(folder)
        return self._sent

    def end(self, ended: bool) -> None:
        """After the last record of this process. ended: the run did not fail."""
        if self._sent is not None:
            self._sent.end(ended)


def plan_of(log_to: Given, metrics_port: int | str | None = None) -> LogTo:
    """Returns what log_to= and metrics_port= mean. ValueError, TypeError: it cannot be."""
    files: list[str] = []
    others: list[str | Logger | Callable[..., object]] = []
    for one in _each(log_to):
        if not isinstance(one, str):
            if not callable(getattr(one, "log", None)) and not callable(one):
                raise TypeError(f"log_to has {one!r}; give a name, an object with log(figures, step), or a callable")
            others.append(one)
        elif one not in _FILES + _PACKAGES:
            raise ValueError(_unknown(one))
        elif one in files or one in others:
            raise ValueError(f"log_to has '{one}' twice")
        elif one in _FILES:
            files.append(one)
        else:
            _check_package(one)
            others.append(one)
    return LogTo(",".join(files), others, _place_of(metrics_port))


def _place_of(port: int | str | None) -> str:
    """As the library takes it, which checks what a text has."""
    if port is None:
        return ""
    if isinstance(port, bool) or not isinstance(port, (int, str)) or port == "" or "\0" in str(port):
        raise TypeError(f"metrics_port={port!r}; give a port of this host, 9400, or an address with it, '0.0.0.0:9400'")
    if isinstance(port, str) or 1 <= port <= 65535:
        return str(port)
    raise ValueError(f"metrics_port={port}; ports are from 1 to 65535")


def _each(log_to: Given) -> Iterator[Any]:
    if isinstance(log_to, str):
        yield from log_to.split(",")
    elif isinstance(log_to, (list, tuple)):
        yield from log_to
    elif log_to is not None:
        yield log_to


def _unknown(name: str) -> str:
    near = difflib.get_close_matches(name, _FILES + _PACKAGES, 3)
    hint = f"; did you mean {' or '.join(repr(n) for n in near)}?" if near else ""
    return f"log_to has '{name}'; there are {', '.join(_FILES + _PACKAGES)}, and what has log(figures, step){hint}"


def _check_package(name: str) -> None:
    """On all ranks, so that none waits for a rank 0 that was refused."""
    try:
        found = importlib.util.find_spec(name) is not None
    except ValueError:  # a module of that name without a spec: it is there
        found = True
    if not found:
        raise ValueError(f"log_to has '{name}', but the package {name} is not installed here: pip install {name}")


def _warn(text: str) -> None:
    """Of the line of the script that has come here, which may be by hooks of torch."""
    ours = (os.path.dirname(os.path.dirname(__file__)), os.path.dirname(torch.__file__))
    depth, frame = 1, sys._getframe()
    while frame.f_back is not None and frame.f_code.co_filename.startswith(ours):
        depth, frame = depth + 1, frame.f_back
    warnings.warn(text, stacklevel=depth)


class Sender:
    """Gives the lines of a record, each once, to packages and objects. What fails is warned of once, and gets no more:
    the run goes on."""

    def __init__(self, folder: str, facts: dict[str, Any], others: list[Any], name: str = ""):
        """name: the folder by which a package calls the run; "": this one."""
        self._file: BinaryIO | None = None
        self._part = b""  # of a line that is not whole yet
        self._to: list[Any] = []
        if not self._open(folder):
            return
        for one in others:
            to = self._try(one, _MAKE[one], name or folder, facts) if isinstance(one, str) else one
            if to is not None:
                self._to.append(to)

    def _open(self, folder: str) -> bool:
        self._part = b""
        try:
            self._file = open(os.path.join(folder, "metrics.jsonl"), "rb")  # noqa: SIM115
        except OSError as e:
            _warn(f"log_to: nothing gets figures: {e}")
        return self._file is not None

    def _try(self, of: object, call: Callable[..., Any], *arguments: object) -> Any:
        try:
            return call(*arguments)
        except Exception as e:
            self._to = [one for one in self._to if one is not of]
            what = of if isinstance(of, str) else getattr(of, "__name__", type(of).__name__.strip("_").lower())
            _warn(f"log_to: {what} gets no more figures, since it has failed: {e!r}")
            return None

    def _lines(self) -> list[bytes]:
        """Those since the last call."""
        if self._file is None or not self._to:
            return []
        try:
            *lines, self._part = (self._part + self._file.read()).split(b"\n")
        except OSError as e:
            _warn(f"log_to: nothing gets more figures: {e}")
            self._to = []
            return []
        return lines

    def send(self) -> None:
        """Gives the lines since the last call."""
        for line in self._lines():
            row = json.loads(line)
            figures = numbers(row)
            for one in list(self._to):
                log = getattr(one, "log", None)
                self._try(one, log if callable(log) else one, dict(figures), row["step"])

    def close(self, ended: bool) -> None:
        """After the record's last line."""
        self._close_file()
        self.end(ended)

    def _close_file(self) -> None:
        self.send()
        if self._file is not None:
            self._file.close()
            self._file = None

    def end(self, ended: bool) -> None:
        """Ends what has begun here; the objects of a script stay open."""
        for one in list(self._to):
            if isinstance(one, (_Wandb, _Mlflow)):
                self._try(one, one.close, ended)
        self._to = []


class PartSender(Sender):
    """The same for one record after another."""

    def follow(self, folder: str) -> None:
        """The next record is open."""
        self._open(folder)

    def close(self, ended: bool) -> None:
        self._close_file()
