"""`tutti why` of scripts that hang: the backend of torch.distributed, and the wrapper. One rank does not come."""

import json
import os
import subprocess
import sys
import time

import processes
import pytest

pytestmark = [pytest.mark.torch, pytest.mark.slow]
pytest.importorskip("torch")
TUTTI = str(processes.build() / "bin/tutti")

BACKEND = """
import sys, time, torch, torch.distributed as dist
from datetime import timedelta
import tutti.torch.distributed
dist.init_process_group("tutti", timeout=timedelta(seconds=float(sys.argv[1])))
x = torch.ones(1000)
dist.all_reduce(x)
if dist.get_rank() == 1:
    time.sleep(600)
dist.all_reduce(x)
"""
WRAPPER = """
import time, torch
import tutti.torch
model = tutti.torch.DistributedDataParallel(torch.nn.Linear(8, 4), method="ddp")
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for step in range(10):
    if step == 3 and model.world.rank == 1:
        time.sleep(600)
    optimizer.zero_grad()
    model(torch.ones(2, 8)).sum().backward()
    optimizer.step()
"""


def start(tmp_path, script, *arguments, **more):
    path = tmp_path / "script.py"
    path.write_text(script)
    return subprocess.Popen([TUTTI, "run", "-n", "2", "--", sys.executable, str(path), *map(str, arguments)],
                            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                            env=processes.environment(more), cwd=tmp_path)


def answer(run, patience=60):
    """The first answer that names rank 1. Ranks that start may wait for each other, too."""
    by = time.monotonic() + patience
    while True:
        done = subprocess.run([TUTTI, "why", str(run.pid), "--json"], capture_output=True, text=True)
        found = json.loads(done.stdout) if done.returncode == 0 else {}
        if found.get("certain") and found["diagnosis"].startswith("rank 1 "):
            return found
        assert run.poll() is None, run.communicate()
        assert time.monotonic() < by, (found, done.stderr)
        time.sleep(0.1)


def test_a_rank_that_does_not_call_all_reduce_is_named(tmp_path):
    run = start(tmp_path, BACKEND, 300)
    try:
        found = answer(run)
        process = found["ranks"][1]["process"]
        assert found["diagnosis"].startswith(
            "rank 1 has not entered all-reduce 2 of 1000 elements, in which rank 0 has waited for "), found
        assert f"; its process {process} is in code of its own, in no call of Tutti" in found["diagnosis"], found
    finally:
        run.terminate()
        run.communicate(timeout=60)


def test_half_of_a_timeout_writes_the_flight_record(tmp_path):
    run = start(tmp_path, BACKEND, 4, TUTTI_TRACE_DIR=str(tmp_path / "trace"))
    _, err = run.communicate(timeout=120)
    path = tmp_path / "trace" / "flight-0.json"
    assert "all_reduce, call 2 of this group, has used half of its 4 s; the last events of rank 0 are in " in err
    assert str(path) in err
    flight = json.loads(path.read_text())
    assert flight["rank"] == 0 and [e["number"] for e in flight["events"] if e["kind"] == "collective"][-1] >= 1
    assert run.returncode == 1, err  # as without it


def test_the_wrapper_shows_step_and_piece(tmp_path):
    run = start(tmp_path, WRAPPER)
    try:
        found = answer(run)
        assert found["diagnosis"].startswith("rank 1 has not entered all-reduce "), found
        assert found["ranks"][0]["step"] == 3 and "exchange of piece 0" in found["ranks"][0]["in"], found
        assert os.path.exists(f"/proc/{found['ranks'][1]['process']}")
    finally:
        run.terminate()
        run.communicate(timeout=60)
