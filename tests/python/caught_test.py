"""A refusal that a script catches: prepare() and the wrapper may be called again, under every launcher, and no rank is
left waiting for one that has been refused alone."""

import pytest

pytestmark = pytest.mark.torch

SCRIPT = """
import os, torch, tutti.torch

rank = int(os.environ.get("TUTTI_RANK") or os.environ["RANK"])


def attempt(name, method, ddp=False, **options):
    torch.manual_seed(0)
    model = torch.nn.Linear(4, 1)
    try:
        if ddp:
            return tutti.torch.DistributedDataParallel(model, method, **options)
        return tutti.torch.prepare(model, torch.optim.SGD(model.parameters(), lr=0.1), method, **options)
    except ValueError as error:
        print(f"{name}: {error}", flush=True)


attempt("all", "ddp", codec="topk(ratio=7)")
attempt("samples", "dabmd", batch=8)
attempt("alone", "ddp", codec="topk(ratio=7)" if rank == 1 else None)
attempt("first", "ddp", codec="topk(ratio=7)" if rank == 0 else None)
attempt("unlike", "ddp" if rank == 0 else "bagua")
attempt("wrapper", "ata", ddp=True)
ddp = attempt("taken", "ddp", ddp=True)
ddp.close()
model, optimizer = attempt("taken", "ddp")
for k in range(3):
    torch.manual_seed(10 * k + rank)
    optimizer.zero_grad()
    model(torch.randn(8, 4)).square().mean().backward()
    optimizer.step()
optimizer.finish()
print("weight", model.weight.tolist(), flush=True)
attempt("at the end", "ddp", codec="topk(ratio=7)")
"""
RATIO = "codec 'topk': option 'ratio' is 7"


LONG = [pytest.param(name, marks=pytest.mark.long) for name in ("torchrun", "variables")]


@pytest.mark.parametrize("launcher", ["tutti", *LONG])
def test_training_continues_after_an_option_error_is_caught(run, launcher):
    done = run(SCRIPT, launcher=launcher)
    said = [dict(line.split(": ", 1) for line in rank.out.splitlines() if ": " in line) for rank in done.ranks]
    for rank in (0, 1):
        assert RATIO in said[rank]["all"] and RATIO in said[rank]["at the end"], done
        assert "a loader of equal batches will not do" in said[rank]["samples"], done
        assert "worker 1 has method 'bagua" in said[rank]["unlike"], done
        assert "deals out the passes of a step" in said[rank]["wrapper"], done
    for name, refused in (("alone", 1), ("first", 0)):
        assert said[refused][name].startswith(RATIO), done
        assert said[1 - refused][name] == f"worker {refused} refuses its options: {said[refused][name]}", done
    weights = [[line for line in rank.out.splitlines() if line.startswith("weight")] for rank in done.ranks]
    assert weights[0] == weights[1] and len(weights[0]) == 1, done


UNCAUGHT = """
import os, torch, tutti.torch

model = torch.nn.Linear(4, 1)
tutti.torch.prepare(model, torch.optim.SGD(model.parameters(), lr=0.1), "ddp",
                    codec="topk(ratio=7)" if os.environ["TUTTI_RANK"] == "1" else None)
"""


@pytest.mark.slow
def test_uncaught_option_error_ends_all_ranks_with_its_reason(run):
    done = run(UNCAUGHT, code=1)
    assert f"ValueError: {RATIO}" in done.ranks[1].err, done
    assert f"ValueError: worker 1 refuses its options: {RATIO}" in done.ranks[0].err, done
