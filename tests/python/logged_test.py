"""log(): what a script evaluates is in its record by name, at its step, in all forms; what cannot be is refused."""

import csv
import json
import math
import pathlib
import re
import subprocess
import warnings

import dist_cases
import processes
import pytest
from distributed_test import on_ranks

pytestmark = pytest.mark.torch
torch = pytest.importorskip("torch")

import tutti.torch  # noqa: E402
from log_to_test import Kept, curves, rounded, rows  # noqa: E402

BOTH = pytest.mark.parametrize("way", ["wrapper", "prepare"])


def begin(way: str, folder: pathlib.Path | None, **more: object):
    torch.manual_seed(0)
    net = torch.nn.Linear(3, 1)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.25)
    if way == "wrapper":
        model = ours = tutti.torch.DistributedDataParallel(net, trace=folder, **more)
    else:
        model, optimizer = tutti.torch.prepare(net, optimizer, trace=folder, **more)
        ours = optimizer

    def step() -> None:
        optimizer.zero_grad()
        model(torch.ones(2, 3)).square().mean().backward()
        optimizer.step()

    return ours, step, ours.close if way == "wrapper" else ours.finish


@BOTH
def test_figures_are_in_lines_curves_table_summary_and_page_at_their_steps(tmp_path, way):
    kept, folder = Kept(), tmp_path / "t"
    ours, step, end = begin(way, folder, log_to=["tensorboard", "csv", "prometheus", kept])
    step()
    ours.log(test_accuracy=0.25, test_loss=torch.tensor(2.5))
    for _ in range(2):
        step()
    ours.log({"val/f1": torch.tensor([[0.125]])}, test_accuracy=0.5)
    assert kept.got[-1][0] == 3 and kept.got[-1][1]["val/f1"] == 0.125  # at once
    ours.log({"val/f1": math.inf, "test_loss": float("nan")})
    end()
    lines = rows(folder)
    told = [line for line in lines if "train_loss" not in line]
    assert [line["step"] for line in told] == [1, 3, 3]
    places = {"step", "samples", "wall_seconds", "bytes_sent_total"}
    assert [{n: v for n, v in line.items() if n not in places} for line in told] == [
        {"test_accuracy": 0.25, "test_loss": 2.5}, {"val/f1": 0.125, "test_accuracy": 0.5},
        {"val/f1": None, "test_loss": None},
    ]  # fmt: skip
    assert 0 < told[0]["wall_seconds"] < told[1]["wall_seconds"]
    board = [(s, f) for s, f in curves(folder) if "evaluation/wall_seconds" in f]
    assert [(s, f.get("test_accuracy"), f.get("val/f1")) for s, f in board] == [
        (1, 0.25, None), (3, 0.5, 0.125), (3, None, None)
    ]  # fmt: skip
    assert board == [(s, {n: rounded(v) for n, v in f.items()}) for s, f in kept.got if "evaluation/wall_seconds" in f]
    with open(folder / "metrics.csv", newline="") as f:
        table = list(csv.DictReader(f))
    told = [(r["step"], r["test_accuracy"], r["test_loss"], r["val/f1"]) for r in table if not r["other_seconds"]]
    assert told == [("1", "0.25", "2.5", ""), ("3", "0.5", "", "0.125"), ("3", "", "", "")]
    assert len(table) == len(lines)
    prom = (folder / "metrics.prom").read_text()
    assert re.search(r'^tutti_test_accuracy\{run="t"\} 0.5$', prom, re.M) and "tutti_val_f1{" not in prom
    summary = json.loads((folder / "summary.json").read_text())
    assert summary["logged"] == {"test_accuracy": 0.5, "test_loss": None, "val/f1": None}
    assert (summary["final_test_accuracy"], summary["final_test_loss"]) == (0.5, None)
    subprocess.run([processes.build() / "bin/tutti", "report", folder, "--pictures", "off"], check=True)
    page = (folder / "report.html").read_text()
    assert "val/f1" in page and "test accuracy" in page


def test_rank_0s_figures_count_and_others_may_leave_the_call_out(run, tmp_path):
    def script():
        import sys

        import torch

        import tutti.torch

        net = torch.nn.Linear(3, 1)
        ddp = tutti.torch.DistributedDataParallel(net, trace=sys.argv[1])
        for k in range(3):
            ddp(torch.ones(2, 3)).sum().backward()
            if k == 0:
                ddp.log(score=10 + ddp.rank)
            if k == 1 and ddp.rank == 0:
                ddp.log(score=20)
            if k == 2 and ddp.rank == 1:
                ddp.log(score=30, other=1)
        ddp.close()

    run(script, args=[tmp_path / "t"])
    told = [line for line in rows(tmp_path / "t") if "score" in line]
    assert [(line["step"], line["score"]) for line in told] == [(1, 10), (2, 20)]
    assert json.loads((tmp_path / "t/summary.json").read_text())["logged"] == {"score": 20}


CASES = [
    ({"accuracy": torch.ones(3)}, ValueError, "log(accuracy=...) was given values of shape (3,); a figure is one"),
    ({"accuracy": torch.ones(0)}, ValueError, "values of shape (0,)"),
    ({"accuracy": "0.9"}, TypeError, "log(accuracy=...) was given '0.9'; a figure is a number, or a tensor of one"),
    ({"accuracy": None}, TypeError, "was given None"),
    ({"accuracy": True}, TypeError, "was given True"),
    ({"accuracy": [0.9]}, TypeError, "was given [0.9]"),
    ({"accuracy": torch.tensor(1j)}, TypeError, "a figure is a number"),
    ({"accuracy": 10**400}, ValueError, "beyond those of 64 bits"),
    ({"loss": torch.ones(2)}, ValueError, "log(loss=...) was given values of shape (2,)"),
    ({"loss": 1.0, "accuracy": 0.9}, ValueError, "log(loss=...) is the training loss of a batch"),
    ({}, ValueError, "log() was given no figure"),
    ({"step": 3}, ValueError, "a figure is called 'step', and this name is the record's own"),
    ({"train_loss": 3}, ValueError, "'train_loss', and this name is the record's own"),
    ({"evaluation/x": 3}, ValueError, "'evaluation/x', and this name is the record's own"),
    ({"codec-lost": 3}, ValueError, "the record's own"),
    ({"a_by_worker": 3}, ValueError, "the record's own"),
    ({"tutti-step": 3}, ValueError, "the record's own"),
    ({"": 3}, ValueError, "a figure is called ''"),
    ({"a b": 3}, ValueError, "a figure is called 'a b'; names have up to 79 letters, digits and _ - . /"),
    ({"a/0": 3}, ValueError, "a figure is called 'a/0'"),
    ({"a/": 3}, ValueError, "a figure is called 'a/'"),
    ({"a" * 80: 3}, ValueError, "a figure is called 'aaa"),
    ({"é": 3}, ValueError, "a figure is called"),
    ({"a,b\n": 3}, ValueError, "a figure is called"),
    ({3: 3}, TypeError, "a figure called 3; a name is a str"),
    ({"test_accuracy": 93.5}, ValueError, "test_accuracy is 93.5; it is a fraction of 1, not a percentage"),
]


@pytest.mark.parametrize("recorded", [False, True])
def test_what_cannot_be_a_figure_is_refused_with_and_without_a_record(tmp_path, recorded):
    ours, step, end = begin("wrapper", tmp_path / "t" if recorded else None)
    step()
    for figures, kind, sentence in CASES:
        with pytest.raises(kind, match=re.escape(sentence)):
            ours.log(figures)
    with pytest.raises(ValueError, match="log.. was given accuracy twice"):
        ours.log({"accuracy": 1}, accuracy=1)
    with pytest.raises(TypeError, match="a dict or keywords, and was given a float"):
        ours.log(0.5)
    ours.log({"a" * 79: 1})
    end()
    if recorded:
        assert [line for line in rows(tmp_path / "t") if "train_loss" not in line][0]["a" * 79] == 1


def test_a_page_has_so_many_figures_and_says_how_many_more_there_are(tmp_path):
    ours, step, end = begin("wrapper", tmp_path / "t")
    step()
    ours.log({f"f{k}": k for k in range(70)})
    end()
    subprocess.run([processes.build() / "bin/tutti", "report", tmp_path / "t", "--pictures", "off"], check=True)
    page = (tmp_path / "t/report.html").read_text()
    assert "f63" in page and "f64" not in page and "6 more figures are in metrics.jsonl" in page


@BOTH
def test_a_figure_after_the_end_of_the_record_is_a_warning(tmp_path, way):
    ours, step, end = begin(way, tmp_path / "t")
    step()
    end()
    with pytest.warns(UserWarning, match="log.accuracy=.... comes after the end of the run's record") as seen:
        ours.log(accuracy=1)
    assert seen[0].filename == __file__
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        other, step, end = begin(way, None)
        step()
        end()
        other.log(accuracy=1)  # there is none


def stepped(rank, n, folder):
    """A script whose groups are of the backend."""
    import torch.distributed as dist

    import tutti.torch.distributed as backend

    dist_cases.start(folder, rank, n, "tutti", pg_options=backend.options(trace=folder + "/t"))
    x = torch.nn.Parameter(torch.ones(2))
    optimizer = torch.optim.SGD([x], lr=0.1)
    for _ in range(2):
        x.grad = torch.ones(2)
        dist.all_reduce(x.grad)
        optimizer.step()
    backend.log(loss=0.5)
    backend.log(test_loss=0.25, f1=rank)
    dist.destroy_process_group()
    return True


@pytest.mark.slow
def test_a_record_of_calls_has_figures_too(tmp_path):
    assert on_ranks(2, stepped, str(tmp_path)) == [True, True]
    told = [line for line in rows(tmp_path / "t") if "f1" in line]
    assert [(line["step"], line["test_loss"], line["f1"]) for line in told] == [(2, 0.25, 0)]
    summary = json.loads((tmp_path / "t/summary.json").read_text())
    assert summary["logged"] == {"test_loss": 0.25, "f1": 0} and summary["final_test_loss"] == 0.25
