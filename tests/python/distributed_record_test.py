"""trace= of the backend 'tutti': the record of a script whose groups are ours has their calls, of all ranks on one
clock, and `tutti report` makes a page of it."""

import json
import os
import pathlib
import signal
import warnings

import dist_cases
import pytest
from distributed_test import on_ranks
from record_test import events, nested, report, summary

pytestmark = pytest.mark.torch
torch = pytest.importorskip("torch")

import torch.distributed as dist  # noqa: E402

import tutti.torch.distributed as backend  # noqa: E402

STEPS = 4


def trained(rank, n, folder, codec):
    """FSDP2 of a small model, calls of a group of two, a message. Returns whether the record was open and is closed."""
    from torch.distributed.fsdp import fully_shard

    trace = os.path.join(folder, "trace")
    dist_cases.start(folder, rank, n, "tutti", pg_options=backend.options(trace=trace, codec=codec, minimum=1,
                                                                          log_to="csv"))
    torch.manual_seed(0)
    net = torch.nn.Sequential(torch.nn.Linear(8, 6), torch.nn.ReLU(), torch.nn.Linear(6, 2))
    fully_shard(net)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    pair = dist.new_group([0, 1])
    for step in range(STEPS):
        loss = net(torch.ones(4, 8)).square().mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        backend.log(loss=float(step))
        if rank < 2:
            dist.all_reduce(torch.ones(1000), group=pair)
    other = torch.ones(3)
    if rank == 0:
        dist.send(other, 1)
    elif rank == 1:
        dist.recv(other, 0)
    dist.barrier()
    record = dist.group.WORLD._shared.record
    dist.destroy_process_group()
    return record is not None and record._at is None


def spans(trace, rank, category):
    return [e for e in trace if e["ph"] == "X" and (e["pid"], e["cat"]) == (rank, category)]


@pytest.mark.parametrize(("n", "codec", "transport"), [(2, "qsgd(bits=8)", ""),
                                                       pytest.param(3, "", "tcp", marks=pytest.mark.slow)])
def test_the_record_has_the_calls_of_all_groups_and_ranks(tmp_path, n, codec, transport):
    assert on_ranks(n, trained, str(tmp_path), codec, transport=transport) == [True] * n
    folder = tmp_path / "trace"
    trace, of = events(folder), summary(folder)
    for rank in range(n):
        calls, waits = spans(trace, rank, "call"), spans(trace, rank, "wait")
        names = {e["args"]["name"]: e["tid"] for e in trace if (e["name"], e["pid"]) == ("thread_name", rank)}
        assert sum(name.startswith("group ") for name in names) == (2 if rank < 2 else 1), names
        pairs = [e for e in calls if e["name"] == "all_reduce" and e["args"]["bytes"] == 4000]
        assert len(pairs) == (STEPS if rank < 2 else 0)
        assert [e["args"]["step"] for e in pairs] == list(range(1, STEPS + 1))[: len(pairs)]
        assert len({e["tid"] for e in pairs}) == (1 if rank < 2 else 0)
        for tid in {e["tid"] for e in calls + waits}:
            assert nested([e for e in calls + waits if e["tid"] == tid])
        assert any(e["tid"] == 0 for e in waits)
        gathered = [e for e in calls if e["name"].startswith("all_gather")]
        assert len(gathered) >= STEPS and all(e["args"]["bytes"] > 0 and e["args"]["codec"] == "" for e in gathered)
        reduced = [e for e in calls if e["name"].startswith("reduce_scatter")]
        assert len(reduced) == STEPS
        coded = [e["args"]["codec"] for e in reduced]
        assert coded == ["", "", codec, codec], coded  # the first two show the order of calls
        assert of["by_worker"][rank]["steps"] == STEPS and of["by_worker"][rank]["bytes_sent"] > 0
        assert of["by_worker"][rank]["exposed_comm_seconds"] > 0
    messages = [[(e["name"], e["args"]["bytes"]) for e in spans(trace, rank, "call") if e["name"] in ("send", "recv")]
                for rank in (0, 1)]  # fmt: skip
    assert messages == [[("send", 12)], [("recv", 12)]]
    barriers = [next(e for e in spans(trace, rank, "call") if e["name"] == "barrier") for rank in range(n)]
    for e in barriers:  # one clock: it ends after all have begun
        assert all(e["ts"] + e["dur"] >= other["ts"] - 0.002 for other in barriers)
    assert of["method"] == "torch.distributed" and of["codec"] == (codec or "fp32")
    found = {(row["call"], row["codec"], row["calls"]) for row in of["calls"]}
    assert ("all_reduce", "", STEPS) in found and ("barrier", "", 1) in found, found
    rows = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    assert [(row["step"], row["train_loss"]) for row in rows] == [(1, None), (2, 0), (4, 1.5)]
    assert sorted(p.name for p in folder.iterdir()) == ["config.json", "metrics.csv", "metrics.jsonl", "summary.json",
                                                        "trace.json"]
    assert report(folder).stderr == ""
    page = (folder / "report.html").read_text()
    assert "all_reduce" in page and "Calls" in page


def by_environment(rank, n, folder, other):
    if rank == 1 and other:
        os.environ["TUTTI_TRACE_DIR"] = other
    else:
        os.environ["TUTTI_TRACE_DIR"] = os.path.join(folder, "t")
    try:
        dist_cases.start(folder, rank, n, "tutti")
    except ValueError as e:
        return str(e)
    group = dist.new_group([0, 1])
    try:
        dist.new_group([0, 1], pg_options=backend.options(trace=folder))
    except ValueError as e:
        refused = str(e)
    dist.all_reduce(torch.ones(4), group=group)
    dist.destroy_process_group()
    return refused


def test_the_environment_names_the_folder_and_a_part_of_the_world_has_none_of_its_own(tmp_path):
    for told in on_ranks(2, by_environment, str(tmp_path), ""):
        assert "give trace= to init_process_group" in told
    assert [row["call"] for row in summary(tmp_path / "t")["calls"]] == ["all_reduce"]


@pytest.mark.slow
def test_folders_that_differ_or_are_full_are_refused_on_all_ranks(tmp_path):
    for told in on_ranks(2, by_environment, str(tmp_path), str(tmp_path / "other")):
        assert "worker 1 has trace" in told
    assert not (tmp_path / "t").exists() and not (tmp_path / "other").exists()
    (tmp_path / "t").mkdir()
    (tmp_path / "t/notes.txt").write_text("mine")
    (tmp_path / "again").mkdir()
    for told in on_ranks(2, full, str(tmp_path / "again"), str(tmp_path / "t")):
        assert "it has 'notes.txt'" in told and "(trace_overwrite=True)" in told


def full(rank, n, folder, trace):
    try:
        dist_cases.start(folder, rank, n, "tutti", pg_options=backend.options(trace=trace))
    except ValueError as e:
        return str(e)
    return ""


def beside(rank, n, folder):
    """An axis of a mesh whose default group is Gloo's."""
    from torch.distributed.device_mesh import init_device_mesh

    trace = os.path.join(folder, "trace")
    dist_cases.start(folder, rank, n, "gloo")
    mesh = init_device_mesh("cpu", (2, 2), mesh_dim_names=("replicate", "shard"),
                            backend_override={"replicate": ("tutti", backend.options(trace=trace))})
    dist.all_reduce(torch.ones(5), group=mesh.get_group("replicate"))
    dist.destroy_process_group()


def full_logger(rank, n, folder):
    """Rank 0's package does not begin; the world is closed, and can be made again."""
    class Logger:
        def log(self, figures, step):
            raise RuntimeError("no room")

    dist_cases.start(folder, rank, n, "tutti",
                     pg_options=backend.options(trace=os.path.join(folder, "trace"), log_to=Logger()))
    optimizer = torch.optim.SGD([torch.ones(2, requires_grad=True)], lr=0.1)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        optimizer.step()
        dist.all_reduce(torch.ones(5))
        dist.destroy_process_group()
    optimizer.step()  # of no record any more
    return [str(w.message) for w in caught]


@pytest.mark.slow
def test_a_logger_that_fails_is_a_warning_and_the_run_goes_on(tmp_path):
    first, second = on_ranks(2, full_logger, str(tmp_path))
    assert any("no room" in text for text in first) and second == []
    assert summary(tmp_path / "trace")["steps"] == 1


@pytest.mark.slow
def test_a_world_of_some_ranks_has_a_folder_of_its_own(tmp_path):
    on_ranks(4, beside, str(tmp_path))
    for part in ("ranks-0-2", "ranks-1-3"):
        folder = pathlib.Path(tmp_path, "trace", part)
        assert [(row["call"], row["bytes"]) for row in summary(folder)["calls"]] == [("all_reduce", 20)]


def loses_a_rank(rank, n, folder):
    dist_cases.start(folder, rank, n, "tutti", pg_options=backend.options(trace=os.path.join(folder, "trace")))
    dist.all_reduce(torch.ones(5))
    if rank == 1:
        os.kill(os.getpid(), signal.SIGKILL)
    try:
        dist.all_reduce(torch.ones(5))
    except Exception as e:  # noqa: BLE001
        told = type(e).__name__
    dist.destroy_process_group()
    return told


@pytest.mark.slow
def test_a_rank_that_is_lost_leaves_the_others_calls(tmp_path):
    assert on_ranks(2, loses_a_rank, str(tmp_path), killed=[1])[0] == "PeerError"
    folder = tmp_path / "trace"
    assert not (folder / "summary.json").exists()
    assert report(folder).returncode == 0
    assert [e["name"] for e in spans(events(folder), 0, "call")] == ["all_reduce"]


def test_options_are_checked_where_they_are_given():
    with pytest.raises(ValueError, match="there are tensorboard"):
        backend.options(log_to="tensorbord")
