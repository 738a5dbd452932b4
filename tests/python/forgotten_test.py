"""A script that ends without finish(), where its workers have different models, reports it and fails."""

import subprocess
import sys

import processes
import pytest

pytestmark = pytest.mark.torch

SCRIPT = """
import atexit, os, sys
atexit.register(lambda: print("the script's own", flush=True))
import torch
import tutti.torch

method, how = sys.argv[1:]
torch.manual_seed(0)
model = torch.nn.Linear(4, 1)
model, optimizer = tutti.torch.prepare(model, torch.optim.SGD(model.parameters(), lr=0.05), method)
for step in range(0 if how == "untrained" else 3):
    model(torch.randn(8, 4)).square().mean().backward()
    optimizer.step()
    optimizer.zero_grad()
if how == "finish":
    optimizer.finish()
elif how == "close":
    optimizer.close()
elif how == "deleted":
    del model, optimizer
elif how == "raises":
    raise ValueError("the script's own error")
elif how == "exits":
    sys.exit(int(os.environ.get("CODE", 0)))
elif how == "interactive":  # a session in which something else has failed once
    sys.ps1, sys.last_value = ">>> ", ValueError("an earlier line")
print("the last line", flush=True)
"""


def said(rank, name="optimizer.finish"):
    return f"has trained and ends without {name}(): under method" in rank.err


@pytest.mark.parametrize("how, method", [
    ("forgets", "local-sgd(period=8)"),
    *(pytest.param(*p, marks=pytest.mark.slow) for p in [
        ("deleted", "local-sgd(period=8)"), ("interactive", "local-sgd(period=8)"),
    ]),
    *(pytest.param(*p, marks=pytest.mark.long) for p in [
        ("exits", "local-sgd(period=8)"), ("forgets", "ad-psgd"), ("forgets", "d-psgd"), ("forgets", "single"),
    ]),
])  # fmt: skip
def test_every_rank_reports_its_missing_finish_and_fails(run, how, method):
    # torchrun ends the others when one has failed, which would make their words a matter of time
    done = run(SCRIPT, launcher="variables", args=[method, how], code=1)
    for rank in done.ranks:
        assert said(rank) and f"'{method}'" in rank.err, done
        assert "the script's own" in rank.out, done  # what else is to be done at exit is done
        assert ("the last line" in rank.out) == (how != "exits"), done


def test_a_code_of_the_scripts_own_stays_after_a_missing_finish(run):
    for rank in run(SCRIPT, launcher="variables", args=["local-sgd(period=8)", "exits"], code=3,
                    env={"CODE": "3"}).ranks:
        assert said(rank) and "the script's own" in rank.out


@pytest.mark.slow
def test_launchers_return_an_error_after_a_missing_finish(run):
    for launcher in ("torchrun", "tutti"):
        done = run(SCRIPT, launcher=launcher, args=["local-sgd(period=8)", "forgets"], code=None)
        assert done.code != 0 and any(said(rank) for rank in done.ranks), done


@pytest.mark.slow
@pytest.mark.parametrize("how, method", [
    ("finish", "local-sgd(period=8)"), ("forgets", "ddp"),
    *(pytest.param(*p, marks=pytest.mark.long) for p in [("close", "local-sgd(period=8)"), ("forgets", "zero")])])
def test_no_error_if_finished_or_no_finish_is_needed(run, how, method):
    done = run(SCRIPT, launcher="variables", args=[method, how])
    assert not any(rank.err for rank in done.ranks), done


@pytest.mark.slow
def test_missing_finish_is_ignored_alone_and_after_errors(run):
    assert not said(run(SCRIPT, n=1, launcher="variables", args=["local-sgd", "forgets"]).ranks[0])
    for rank in run(SCRIPT, launcher="variables", args=["local-sgd", "raises"], code=1).ranks:
        assert not said(rank)


CHILDREN = """
import sys
import torch
import torch.distributed as dist
import torch.multiprocessing as mp

def train(rank, store, how):
    import tutti.torch

    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method="file://" + store, rank=rank, world_size=2)
    model = torch.nn.Linear(4, 1)
    model, optimizer = tutti.torch.prepare(model, torch.optim.SGD(model.parameters(), lr=0.05), "local-sgd(period=8)")
    for step in range(3):
        model(torch.randn(8, 4)).square().mean().backward()
        optimizer.step()
        optimizer.zero_grad()
    if how == "finish":
        optimizer.finish()
    dist.destroy_process_group()

if __name__ == "__main__":
    import tutti.torch
    ranks = [mp.get_context(sys.argv[1]).Process(target=train, args=(r, sys.argv[2], sys.argv[3])) for r in range(2)]
    for p in ranks:
        p.start()
    for p in ranks:
        p.join()
    print([p.exitcode for p in ranks])
"""


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["fork", pytest.param("spawn", marks=pytest.mark.long)])
def test_multiprocessing_children_report_their_missing_finish(tmp_path, kind):
    (tmp_path / "script.py").write_text(CHILDREN)
    for how, codes in (("finish", "[0, 0]"), ("forgets", "[1, 1]")):
        done = subprocess.run([sys.executable, tmp_path / "script.py", kind, tmp_path / how, how], text=True,
                              env=processes.environment(), timeout=120, capture_output=True)
        assert done.stdout.strip() == codes, done
        assert done.stderr.count("has trained and ends without optimizer.finish()") == (2 if how == "forgets" else 0)
