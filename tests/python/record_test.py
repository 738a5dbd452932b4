"""trace=: the record of a script's run has what its engine says it did, of all ranks, and `tutti report` makes a page
of it."""

import json
import os
import pathlib
import signal
import subprocess

import processes
import pytest

pytestmark = pytest.mark.torch
torch = pytest.importorskip("torch")

import tutti.torch  # noqa: E402

STEPS = 4
BOTH = pytest.mark.parametrize("way", ["wrapper", "prepare"])


def script():
    import json
    import os
    import sys

    import torch

    import tutti.torch

    way, folder, steps = sys.argv[1], sys.argv[2] or None, int(sys.argv[3])
    torch.set_num_threads(1)
    torch.manual_seed(0)
    net = torch.nn.Sequential(torch.nn.Linear(40, 30), torch.nn.ReLU(), torch.nn.Linear(30, 2))
    if os.environ.get("OTHER") and os.environ["RANK" if "RANK" in os.environ else "TUTTI_RANK"] == "1":
        folder = os.environ["OTHER"]
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    try:
        if way == "wrapper":
            model = ours = tutti.torch.DistributedDataParallel(net, trace=folder)
        else:
            model, optimizer = tutti.torch.prepare(net, optimizer, batch=8, trace=folder)
            ours = optimizer
    except ValueError as e:
        print("refused", e, flush=True)
        sys.exit(0)
    for step in range(steps):
        optimizer.zero_grad()
        loss = model(torch.ones(8, 40)).square().mean()
        loss.backward()
        ours.log(loss=loss)
        optimizer.step()
        print("step", step, flush=True)
    print(json.dumps(ours.figures()), flush=True)


def events(folder: pathlib.Path) -> list[dict]:
    return json.loads((folder / "trace.json").read_text())


def summary(folder: pathlib.Path) -> dict:
    return json.loads((folder / "summary.json").read_text())


def report(folder: pathlib.Path) -> subprocess.CompletedProcess:
    return subprocess.run([processes.build() / "bin/tutti", "report", folder, "--pictures", "off"], check=True,
                          capture_output=True, text=True)  # fmt: skip


def nested(spans: list[dict]) -> bool:
    """Does each span of a thread lie within another as a whole, or beside it? Times have 3 digits after the point."""
    open_ends: list[float] = []
    for e in sorted(spans, key=lambda e: (e["ts"], -e["dur"])):
        while open_ends and open_ends[-1] <= e["ts"] + 0.002:
            open_ends.pop()
        if open_ends and e["ts"] + e["dur"] > open_ends[-1] + 0.002:
            return False
        open_ends.append(e["ts"] + e["dur"])
    return True


@BOTH
def test_one_argument_makes_trace_summary_and_page(run, tmp_path, way):
    folder = tmp_path / "trace"
    result = run(script, args=[way, folder, STEPS])
    figures = [json.loads(rank.out.splitlines()[-1]) for rank in result.ranks]
    of, all_events = summary(folder), events(folder)
    spans = [e for e in all_events if e["ph"] == "X"]
    for rank in (0, 1):
        mine = [e for e in spans if e["pid"] == rank]
        for what in ("forward", "backward"):
            assert [e["args"]["step"] for e in mine if e["name"] == what] == list(range(STEPS))
        assert all(nested([e for e in mine if e["tid"] == tid]) for tid in (0, 1))
        row = of["by_worker"][rank]
        assert (row["steps"], row["bytes_sent"]) == (STEPS, figures[rank]["bytes_sent"])
        ready = [e for e in all_events if e["pid"] == rank and e.get("cat") == "ready"]
        assert len(ready) == 4 * STEPS  # of each parameter in each step
    exchanges = [{(e["args"]["step"], e["name"]): e for e in spans if (e["pid"], e["cat"]) == (rank, "exchange")}
                 for rank in (0, 1)]  # fmt: skip
    assert len(exchanges[0]) >= STEPS and exchanges[0].keys() == exchanges[1].keys()
    for key, a in exchanges[0].items():  # one clock: none is over before the other has begun
        b = exchanges[1][key]
        assert a["ts"] <= b["ts"] + b["dur"] + 0.002 and b["ts"] <= a["ts"] + a["dur"] + 0.002
    assert any(e["cat"] == "wait" for e in spans)
    assert of["bytes_sent_total"] == sum(f["bytes_sent"] for f in figures) > 0
    assert of["samples"] == (8 * 2 * STEPS if way == "prepare" else None)
    rows = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    assert [row["step"] for row in rows] == [1, 2, 4]
    assert all(len(row["wait_seconds_by_worker"]) == 2 for row in rows)
    assert rows[1]["train_loss"] > 0
    assert sorted(p.name for p in folder.iterdir()) == ["config.json", "metrics.jsonl", "summary.json", "trace.json"]
    assert report(folder).stderr == ""
    page = (folder / "report.html").read_text()
    assert "script.py, 2 workers over shm" in page and "Sequential" in page


@pytest.mark.parametrize("method", ["hetpipe(stages=2)", pytest.param("wavelet", marks=pytest.mark.slow)])
def test_a_pipeline_has_a_line_for_each_call(run, tmp_path, method):
    def stages():
        import sys

        import torch

        import tutti.torch

        torch.set_num_threads(1)
        net = torch.nn.Sequential(torch.nn.Linear(6, 5), torch.nn.ReLU(), torch.nn.Linear(5, 3))
        data = torch.utils.data.TensorDataset(torch.ones(32, 6), torch.arange(32) % 3)
        pipe = tutti.torch.pipeline(net, torch.optim.SGD(net.parameters(), lr=0.1), torch.nn.CrossEntropyLoss(), data,
                                    sys.argv[1], batch=4, trace=sys.argv[2], log_to="csv")
        for _ in range(2):
            print(pipe.epoch(), flush=True)
        pipe.log(test_accuracy=0.5)
        try:
            pipe.log(loss=1.0)
        except ValueError as e:
            print(e, flush=True)
        print(pipe.step(1), flush=True)
        pipe.finish()

    folder = tmp_path / "stages"
    result = run(stages, args=[method, folder])
    losses = [float(result.ranks[0].out.splitlines()[k]) for k in (0, 1, 3)]
    assert "record the training loss by themselves" in result.ranks[1].out.splitlines()[2]
    rows = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    calls = [row for row in rows if "train_loss" in row]
    each = 32 // (2 * 4)
    assert [row["step"] for row in calls] == [each, 2 * each, 2 * each + 1]
    assert [row["train_loss"] for row in calls] == pytest.approx(losses)
    assert [row["test_accuracy"] for row in rows if "test_accuracy" in row] == [0.5]
    assert summary(folder)["steps"] == 2 * each + 1 and summary(folder)["final_test_accuracy"] == 0.5
    for rank in (0, 1):
        spans = {e["name"].rstrip(" 0") for e in events(folder) if e["ph"] == "X" and e["pid"] == rank}
        assert {"stage forward", "stage backward"} <= spans
    assert sorted(p.name for p in folder.iterdir()) == ["config.json", "metrics.csv", "metrics.jsonl", "summary.json",
                                                        "trace.json"]
    assert report(folder).stderr == ""
    assert "script.py, 2 workers over shm" in (folder / "report.html").read_text()


@pytest.mark.slow
def test_the_environment_gives_each_run_a_folder(run, tmp_path):
    def two():
        import torch

        import tutti.torch

        for _ in range(2):
            net = torch.nn.Linear(3, 1)
            model = tutti.torch.DistributedDataParallel(net)
            model(torch.ones(2, 3)).sum().backward()
            model.close()

    run(two, env={"TUTTI_TRACE_DIR": tmp_path / "t"})
    assert summary(tmp_path / "t")["steps"] == 1 and summary(tmp_path / "t/2")["steps"] == 1
    run(two, env={"TUTTI_TRACE_DIR": tmp_path / "t/2", "TUTTI_TRACE_OVERWRITE": "1"})
    assert summary(tmp_path / "t/2")["steps"] == 1 and summary(tmp_path / "t/2/2")["steps"] == 1


@pytest.mark.slow
def test_folders_that_differ_or_cannot_be_are_refused_on_all_ranks(run, tmp_path):
    full = tmp_path / "full"
    full.mkdir()
    (full / "notes.txt").write_text("mine")
    for way, folder, other, sentence in (
        ("wrapper", tmp_path / "a", tmp_path / "b", "trace"),
        ("prepare", full, None, "it has 'notes.txt'; give this run another one, or say that an earlier record may be "
         "removed (trace_overwrite=True)"),
    ):  # fmt: skip
        result = run(script, args=[way, folder, 1], env={"OTHER": other and str(other)}, code=None)
        for rank in result.ranks:
            assert rank.out.startswith("refused") and sentence in rank.out, str(result)
    assert not (tmp_path / "a").exists() and os.listdir(full) == ["notes.txt"]


def test_a_killed_rank_leaves_what_was_written(run, tmp_path):
    folder = tmp_path / "trace"
    job = run.start(script, args=["wrapper", folder, 10**6])
    job.says(1, "step 20")
    job.kill(1, signal.SIGKILL)
    job.wait(code=None)
    assert not (folder / "summary.json").exists()
    assert "the ends of 0 of 2 ranks" in report(folder).stderr
    for rank in (0, 1):
        steps = {e["args"]["step"] for e in events(folder) if e.get("cat") == "exchange" and e["pid"] == rank}
        assert steps >= set(range(19))
    assert "has not ended, or was cut off" in (folder / "report.html").read_text()


def test_without_a_folder_nothing_is_recorded():
    net = torch.nn.Linear(3, 1)
    model = tutti.torch.DistributedDataParallel(net)
    model(torch.ones(2, 3)).sum().backward()
    model.log(loss=1.0)
    assert model._record is None and not net._forward_hooks and not net._forward_pre_hooks
    assert model.engine._options.trace_events == 0
    model.close()


def test_a_worker_alone_is_recorded(tmp_path):
    net = torch.nn.Linear(3, 1)
    model = tutti.torch.DistributedDataParallel(net, trace=tmp_path)
    for _ in range(3):
        model(torch.ones(2, 3)).sum().backward()
    model.close()
    assert summary(tmp_path)["steps"] == 3
    spans = [e["name"] for e in events(tmp_path) if e["ph"] == "X"]
    assert [name for name in spans if name in ("forward", "backward")] == ["forward", "backward"] * 3


def with_codec():
    import sys

    import torch

    import tutti.torch

    net = torch.nn.Linear(40, 30)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    net, optimizer = tutti.torch.prepare(net, optimizer, codec="ef(topk(ratio=0.1))", codec_cost="explain",
                                         codec_report=2, trace=sys.argv[1])  # fmt: skip
    for _ in range(4):
        optimizer.zero_grad()
        net(torch.ones(8, 40)).square().mean().backward()
        optimizer.step()


@pytest.mark.slow
def test_a_codec_is_measured_before_and_while_it_is_used(run, tmp_path):
    result = run(with_codec, args=[tmp_path / "t"])
    assert result.ranks[0].err.count("codec-cost: predicted") == 1 and "codec-cost" not in result.ranks[1].err
    rows = [json.loads(line) for line in (tmp_path / "t/metrics.jsonl").read_text().splitlines()]
    measured = [(row["step"], row["tensor"]) for row in rows if "tensor" in row]
    assert measured == [(step, name) for step in (2, 4) for name in ("weight", "bias")]
    assert [row["tensor"] for row in summary(tmp_path / "t")["codec_report"]] == ["weight", "bias"]
    assert report(tmp_path / "t").returncode == 0


def test_a_codec_cost_that_is_none_is_refused():
    net = torch.nn.Linear(3, 1)
    with pytest.raises(ValueError, match="codec_cost is 'on'; it must be 'off', 'explain' or 'auto-off'"):
        tutti.torch.DistributedDataParallel(net, codec_cost="on")
    with pytest.raises(ValueError, match="codec_cost is 'on'"):
        tutti.torch.prepare(net, torch.optim.SGD(net.parameters(), lr=0.1), codec_cost="on")
