"""What the other ranks learn when one ends: which rank, why, and what corrects it, once."""

import signal

import pytest

pytestmark = pytest.mark.torch

SCRIPT = """
import os, sys, torch, tutti.torch
how, method, servers = sys.argv[1:]
torch.manual_seed(0)
rank = int(os.environ["TUTTI_RANK"])
model = torch.nn.Linear(4, 1)
inner = torch.optim.SGD(model.parameters(), lr=0.05)
model, optimizer = tutti.torch.prepare(model, inner, method, servers=int(servers))
for k in range(10**9):
    if k == 5 and rank == 1 and how == "exits":
        sys.exit(0)
    x = torch.randn(8, 4)
    if k == 5 and rank == 1 and how == "nan":
        x = x * float("nan")
    optimizer.zero_grad()
    model(x).square().mean().backward()
    optimizer.step()
    if k == 20:
        print("under way", flush=True)
"""


@pytest.mark.slow
@pytest.mark.parametrize("method, servers", [
    ("byteps", 0), ("parameter-server", 1),
    *(pytest.param(*p, marks=pytest.mark.long) for p in (("byteps", 1), ("parameter-server", 0)))])
def test_early_exit_of_a_rank_is_reported_with_advice(run, method, servers):
    done = run(SCRIPT, n=2 + servers, launcher="variables", args=["exits", method, servers], code=1)
    said = "step 6: rank 1 is gone without a failure: its program has ended before this rank's; let all ranks"
    assert said in done.ranks[0].err, done


@pytest.mark.slow
@pytest.mark.parametrize("method", ["ddp", "parameter-server"])
def test_healthy_rank_reports_the_nan_of_another_rank(run, method):
    done = run(SCRIPT, launcher="variables", args=["nan", method, 0], code=1)
    # a rank learns it where it waits for messages, or from its server, which misses a shard
    assert "worker 1 failed: worker 1: the gradient of bias is nan" in done.ranks[0].err, done
    assert "because of rank" not in done.ranks[0].err


@pytest.mark.slow
@pytest.mark.parametrize("method", ["byteps", pytest.param("asgd", marks=pytest.mark.long)])
def test_a_server_that_is_killed_is_the_only_cause(run, method):
    going = run.start(SCRIPT, n=3, launcher="tutti", args=["trains", method, 1])
    going.says(0, "under way")
    going.kill(2, signal.SIGTERM)
    done = going.wait(code=None)
    for rank in done.ranks[:2]:
        said = [line for line in rank.err.splitlines() if "PeerError" in line]
        assert len(said) == 1 and said[0].count("is lost, and with it its slice") == 1, done
        assert "server of rank 2 is lost" in said[0] and "was killed by signal 15 (SIGTERM))" in said[0], done
