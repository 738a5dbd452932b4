"""log_to=: what draws curves gets each line of the record once, with its numbers, and what cannot be is refused before
a run begins."""

import csv
import importlib.util
import json
import os
import pathlib
import re
import socket
import struct
import sys
import types
import warnings

import pytest

pytestmark = pytest.mark.torch
torch = pytest.importorskip("torch")

import processes  # noqa: E402
import tutti.torch  # noqa: E402
from tutti.torch import _log_to  # noqa: E402

sys.path.append(str(processes.HERE.parent))
import exposition  # noqa: E402
from ports import free_port  # noqa: E402

STEPS = 5
NAMES = [1, 2, 4, 5]  # steps of the record's lines: 5 at the end
BOTH = pytest.mark.parametrize("way", ["wrapper", "prepare"])


def train(way: str, folder: pathlib.Path | None, log_to: object, steps: int = STEPS, **more: object) -> None:
    torch.manual_seed(0)
    net = torch.nn.Linear(3, 1)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.25)
    if way == "wrapper":
        model = ours = tutti.torch.DistributedDataParallel(net, trace=folder, log_to=log_to, **more)
    else:
        model, optimizer = tutti.torch.prepare(net, optimizer, trace=folder, log_to=log_to, **more)
        ours = optimizer
    for _ in range(steps):
        optimizer.zero_grad()
        loss = model(torch.ones(2, 3)).square().mean()
        ours.log(loss=loss)  # the wrapper's step is in backward
        loss.backward()
        optimizer.step()
    ours.close() if way == "wrapper" else ours.finish()


def rows(folder: pathlib.Path) -> list[dict]:
    return [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]


def varint(data: bytes, k: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        value |= (data[k] & 127) << shift
        k, shift = k + 1, shift + 7
        if data[k - 1] < 128:
            return value, k


def fields(data: bytes) -> list[tuple[int, object]]:
    """The fields of a message, by the wire format of protocol buffers."""
    found, k = [], 0
    while k < len(data):
        key, k = varint(data, k)
        if key & 7 == 0:
            value, k = varint(data, k)
        else:
            size, k = {1: (8, k), 5: (4, k)}.get(key & 7) or varint(data, k)
            value, k = data[k : k + size], k + size
        found.append((key >> 3, value))
    return found


def curves(folder: pathlib.Path) -> list[tuple[int, dict[str, float]]]:
    """What a file of events has. Its CRCs are looked at by tests/record."""
    [board] = folder.glob("events.out.tfevents.*")
    raw, at, found = board.read_bytes(), 0, []
    while at < len(raw):
        length = struct.unpack("<Q", raw[at : at + 8])[0]
        event = dict(fields(raw[at + 12 : at + 12 + length]))
        at += 16 + length
        if 5 in event:
            values = [dict(fields(value)) for _, value in fields(event[5])]
            found.append((event[2], {v[1].decode(): struct.unpack("<f", v[2])[0] for v in values}))
    return found


def rounded(value: float) -> float:
    return struct.unpack("<f", struct.pack("<f", value))[0]


class Kept:
    """Of a script: keeps what it is given."""

    def __init__(self) -> None:
        self.got: list[tuple[int, dict[str, float]]] = []

    def log(self, figures: dict[str, float], step: int) -> None:
        self.got.append((step, figures))


@BOTH
def test_files_and_objects_have_the_numbers_of_the_lines(tmp_path, way):
    kept, called = Kept(), []
    train(way, tmp_path / "t", ["tensorboard", "csv", kept, lambda figures, step: called.append((step, figures))])
    lines = rows(tmp_path / "t")
    assert [line["step"] for line in lines] == NAMES and lines[0]["train_loss"] > 0
    told = [(line["step"], _log_to.numbers(line)) for line in lines]
    assert kept.got == called == told
    assert told[0][1].keys() >= {"train_loss", "wall_seconds", "compute_seconds_by_worker/0"}
    assert curves(tmp_path / "t") == [(step, {n: rounded(v) for n, v in of.items()}) for step, of in told]
    with open(tmp_path / "t/metrics.csv", newline="") as f:
        table = list(csv.DictReader(f))
    assert [(int(row["step"]), float(row["train_loss"])) for row in table if row["train_loss"]] == [
        (line["step"], line["train_loss"]) for line in lines if line["train_loss"] is not None
    ]


def test_names_of_numbers_are_those_of_the_library():
    row = {"step": 3, "a": 1, "b": None, "c": "x", "d": True, "e": [2, None, 3], "f": {"m": 4, "w": [5, 6]}}
    assert _log_to.numbers(row) == {"a": 1, "e/0": 2, "e/2": 3, "f/m": 4, "f/w/0": 5, "f/w/1": 6}
    assert _log_to.numbers({"step": 3, "tensor": "fc.weight", "lost": 0.5, "counts": [1, 2]}) == {
        "codec/fc.weight/lost": 0.5
    }


# ---- Prometheus ----
def latest(folder: pathlib.Path, lines: list[dict]) -> dict[str, dict]:
    """What Prometheus reads after these lines of a record."""
    found: dict[str, dict] = {}
    for line in lines:
        for name, value in [("step", line["step"]), *_log_to.numbers(line).items(), *((n, None) for n in line)]:
            of, _, worker = name.partition("/")
            labels = (("run", folder.name), ("worker", worker)) if worker else (("run", folder.name),)
            if value is not None:
                found.setdefault(f"tutti_{of}", {})[labels] = value
            elif name in line and line[name] is None:
                found.get(f"tutti_{of}", {}).pop(labels, None)
    return {name: of for name, of in found.items() if of}


@BOTH
def test_prometheus_has_the_latest_figures_in_a_file_and_at_a_port(tmp_path, way):
    port, folder, seen = free_port(), tmp_path / "t", []

    def look(_figures, step):
        if step < STEPS:  # the last line is written when the record, and its port, are closed
            seen.append(exposition.read(exposition.get(port)))

    train(way, folder, ["prometheus", look], metrics_port=port)
    lines = rows(folder)
    assert seen == [latest(folder, lines[: k + 1]) for k in range(len(NAMES) - 1)]
    assert exposition.read((folder / "metrics.prom").read_text()) == latest(folder, lines)
    assert seen[0]["tutti_train_loss"] and "worker" in str(seen[0]["tutti_compute_seconds_by_worker"])
    with pytest.raises(OSError, match="refused"):
        exposition.get(port)


@BOTH
def test_a_port_of_another_program_is_refused_and_nothing_is_left(tmp_path, way):
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        port = other.getsockname()[1]
        with pytest.raises(ValueError, match=f"metrics-port {port} cannot be had: another program, or"):
            train(way, tmp_path / "t", None, metrics_port=str(port))
    assert not (tmp_path / "t").exists() or os.listdir(tmp_path / "t") == []


def test_a_second_run_of_a_process_needs_a_port_of_its_own_and_leaves_the_first_and_what_is_there(tmp_path):
    port = free_port()
    train("wrapper", tmp_path / "old", None)
    before = {p.name: p.read_bytes() for p in (tmp_path / "old").iterdir()}
    net = torch.nn.Linear(3, 1)
    first = tutti.torch.DistributedDataParallel(net, trace=tmp_path / "first", metrics_port=port)
    with pytest.raises(ValueError, match=f"metrics-port {port} cannot be had: .* or another run of this one, has it"):
        train("wrapper", tmp_path / "old", None, metrics_port=port, trace_overwrite=True)
    assert {p.name: p.read_bytes() for p in (tmp_path / "old").iterdir()} == before
    first.log(f1=0.5)
    assert exposition.read(exposition.get(port))["tutti_f1"]
    first.close()
    train("wrapper", tmp_path / "third", None, metrics_port=port)


@pytest.mark.parametrize(
    ("given", "kind", "sentence"),
    [
        (0, ValueError, "metrics_port=0; ports are from 1 to 65535"),
        (65536, ValueError, "metrics_port=65536"),
        (True, TypeError, "metrics_port=True; give a port"),
        (9400.0, TypeError, "metrics_port=9400.0; give a port"),
        ("", TypeError, "metrics_port=''"),
        ("host:9400", ValueError, "metrics-port is 'host:9400'; give a port from 1 to 65535"),
        ("192.0.2.1:9400", ValueError, "it is no address of this host"),
    ],
)
def test_a_port_that_cannot_be_is_refused(tmp_path, given, kind, sentence):
    with pytest.raises(kind, match=re.escape(sentence)):
        train("wrapper", tmp_path / "t", None, metrics_port=given)
    assert not (tmp_path / "t").exists() or os.listdir(tmp_path / "t") == []


def test_a_port_shows_a_record():
    with pytest.raises(ValueError, match="metrics_port= gives on what the record of the run has; name its folder"):
        train("wrapper", None, None, metrics_port=9400)


# ---- stand-ins for packages ----
def stand_in_wandb(calls: list, run: object) -> types.ModuleType:
    module = types.ModuleType("wandb")
    module.run = run

    def init(**given):
        module.run = object()
        calls.append(("init", sorted(given), given["config"]["model"]))

    module.init = init
    module.define_metric = lambda name, step_metric: calls.append(("define_metric", name, step_metric))
    module.log = lambda figures: calls.append(("log", figures.pop("tutti_step"), sorted(figures)))
    module.finish = lambda exit_code: calls.append(("finish", exit_code))
    return module


def stand_in_mlflow(calls: list, run: object) -> types.ModuleType:
    module = types.ModuleType("mlflow")
    module.active_run = lambda: run
    module.start_run = lambda run_name: calls.append(("start_run", run_name))
    module.log_params = lambda params: calls.append(("log_params", params["model"]))
    module.log_metrics = lambda figures, step: calls.append(("log_metrics", step, sorted(figures)))
    module.end_run = lambda status: calls.append(("end_run", status))
    return module


def test_wandb_gets_a_run_that_ends_with_the_record(tmp_path, monkeypatch):
    calls: list = []
    monkeypatch.setitem(sys.modules, "wandb", stand_in_wandb(calls, None))
    train("prepare", tmp_path / "t", "wandb")
    names = [(row["step"], sorted(_log_to.numbers(row))) for row in rows(tmp_path / "t")]
    assert [call for call in calls if call[0] != "define_metric"] == [
        ("init", ["config", "name"], "Linear"), *(("log", *of) for of in names), ("finish", 0)
    ]  # fmt: skip
    defined = [call[1:] for call in calls if call[0] == "define_metric"]
    assert sorted(defined) == [(name, "tutti_step") for name in sorted({re.sub("/.*", "/*", n) for n in names[0][1]})]
    assert not (tmp_path / "t/wandb").exists()


def test_mlflow_gets_a_run_that_ends_with_the_record(tmp_path, monkeypatch):
    calls: list = []
    monkeypatch.setitem(sys.modules, "mlflow", stand_in_mlflow(calls, None))
    train("wrapper", tmp_path / "t", ["csv", "mlflow"])
    names = [(row["step"], sorted(_log_to.numbers(row))) for row in rows(tmp_path / "t")]
    assert calls == [
        ("start_run", "t"), ("log_params", "Linear"), *(("log_metrics", *of) for of in names), ("end_run", "FINISHED")
    ]  # fmt: skip


def test_a_run_of_the_script_stays_open(tmp_path, monkeypatch):
    calls: list = []
    monkeypatch.setitem(sys.modules, "wandb", stand_in_wandb(calls, object()))
    monkeypatch.setitem(sys.modules, "mlflow", stand_in_mlflow(calls, object()))
    train("prepare", tmp_path / "t", "wandb,mlflow")
    assert [call[:2] for call in calls if call[0] != "define_metric"] == [
        (name, step) for step in NAMES for name in ("log", "log_metrics")
    ]


def test_mlflow_gets_names_that_it_takes_and_so_many_at_a_time(monkeypatch):
    calls: list = []
    monkeypatch.setitem(sys.modules, "mlflow", stand_in_mlflow(calls, object()))
    figures = {f"wait/{i}": 0.5 for i in range(1500)} | {"codec/fc[0]:a.weight/lost": 1.0}
    _log_to._Mlflow("", {}).log(figures, 3)
    assert [(name, step, len(names)) for name, step, names in calls] == [
        ("log_metrics", 3, 1000), ("log_metrics", 3, 501)
    ]  # fmt: skip
    assert "codec/fc_0__a.weight/lost" in calls[1][2]


def test_ctrl_c_while_a_package_begins_ends_the_run(tmp_path, monkeypatch):
    module = stand_in_wandb([], None)

    def init(**_given):
        raise KeyboardInterrupt

    module.init = init
    monkeypatch.setitem(sys.modules, "wandb", module)
    with pytest.raises(KeyboardInterrupt):
        train("prepare", tmp_path / "t", "wandb")
    train("prepare", tmp_path / "u", "csv")
    assert len(rows(tmp_path / "u")) == len(NAMES)


@BOTH
def test_a_run_that_nobody_closes_gives_its_last_line_before_a_package_ends(run, tmp_path, way):
    def script():
        import atexit
        import sys
        import types

        import torch

        import tutti.torch

        wandb = types.ModuleType("wandb")
        wandb.run = None
        wandb.init = lambda **_: atexit.register(print, "package ends", flush=True)
        wandb.define_metric = lambda *_, **__: None
        wandb.log = lambda figures: print("got", figures["tutti_step"], flush=True)
        wandb.finish = lambda exit_code: print("finish", exit_code, flush=True)
        sys.modules["wandb"] = wandb
        net = torch.nn.Linear(3, 1)
        optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
        if sys.argv[2] == "wrapper":
            model = tutti.torch.DistributedDataParallel(net, trace=sys.argv[1], log_to="wandb")
        else:
            model, optimizer = tutti.torch.prepare(net, optimizer, trace=sys.argv[1], log_to="wandb")
        for _ in range(3):
            model(torch.ones(2, 3)).sum().backward()
            optimizer.step()

    first, second = run(script, args=[tmp_path / "t", way]).ranks
    assert first.out.split("\n")[:5] == ["got 1", "got 2", "got 3", "finish 0", "package ends"], first
    assert second.out.strip() == ""


def test_what_fails_is_warned_of_once_and_the_run_goes_on(tmp_path):
    kept = Kept()

    def fails(figures, step):
        raise ConnectionError(f"no network at step {step}")

    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        train("prepare", tmp_path / "t", [fails, kept])
    assert [(w.filename, str(w.message)) for w in told if "log_to" in str(w.message)] == [
        (__file__, "log_to: fails gets no more figures, since it has failed: ConnectionError('no network at step 1')")
    ]
    assert [step for step, _ in kept.got] == NAMES


# ---- what is refused ----
@pytest.mark.parametrize("name", ["wandb", "mlflow"])
def test_a_package_that_is_missing_is_refused_before_a_run_begins(tmp_path, monkeypatch, name):
    monkeypatch.setitem(sys.modules, name, None)
    with pytest.raises(ValueError, match=f"the package {name} is not installed here: pip install {name}"):
        train("prepare", tmp_path / "t", name)
    assert os.listdir(tmp_path) == []


@pytest.mark.parametrize(
    ("given", "kind", "sentence"),
    [
        ("tensorbord", ValueError, "there are tensorboard, csv, prometheus, wandb, mlflow.*did you mean 'tensorboard'"),
        (["csv", "csv"], ValueError, "log_to has 'csv' twice"),
        ("csv,csv", ValueError, "log_to has 'csv' twice"),
        ("csv,", ValueError, "log_to has ''"),
        ([3], TypeError, "log_to has 3; give a name, an object with log"),
    ],
)
@BOTH
def test_what_cannot_be_is_refused(tmp_path, way, given, kind, sentence):
    with pytest.raises(kind, match=sentence):
        train(way, tmp_path / "t", given)
    assert os.listdir(tmp_path) == []


@BOTH
def test_figures_come_of_a_record(way):
    with pytest.raises(ValueError, match="name its folder, too: trace='runs/one'"):
        train(way, None, "tensorboard")


@pytest.mark.parametrize("way", ["wrapper"])
def test_a_file_that_cannot_be_is_refused_and_nothing_is_left(tmp_path, way):
    folder = tmp_path / "t"
    (folder / "metrics.csv").mkdir(parents=True)
    (folder / "metrics.csv/mine").touch()
    net = torch.nn.Linear(3, 1)
    with pytest.raises(OSError, match=r"metrics\.csv"):
        tutti.torch.DistributedDataParallel(net, trace=folder, trace_overwrite=True, log_to="csv")
    assert os.listdir(folder) == ["metrics.csv"]


@pytest.mark.skipif(
    importlib.util.find_spec("tensorboard") is None, reason="tensorboard is not installed: its reader has no say"
)
def test_tensorboards_own_reader_agrees(tmp_path):
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    train("prepare", tmp_path / "t", "tensorboard")
    accumulator = EventAccumulator(str(tmp_path / "t"))
    accumulator.Reload()
    wanted = [(line["step"], rounded(line["train_loss"])) for line in rows(tmp_path / "t") if line["train_loss"]]
    assert [(e.step, e.value) for e in accumulator.Scalars("train_loss")] == wanted


def test_only_rank_0_gives_figures_on(run, tmp_path):
    def script():
        import sys

        import torch

        import tutti.torch

        net = torch.nn.Linear(3, 1)
        model = tutti.torch.DistributedDataParallel(
            net, trace=sys.argv[1], log_to=["tensorboard", lambda figures, step: print("got", step, flush=True)]
        )
        for _ in range(2):
            model(torch.ones(2, 3)).sum().backward()
        model.close()
        print("end", flush=True)

    first, second = run(script, args=[tmp_path / "t"]).ranks
    assert first.out.split("\n")[:3] == ["got 1", "got 2", "end"] and "got" not in second.out
    assert [step for step, _ in curves(tmp_path / "t")] == [1, 2]
