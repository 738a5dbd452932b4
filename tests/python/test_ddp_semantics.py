"""What DistributedDataParallel promises in addition to the bits: the checks of ddp_checks.py, on real processes."""

import pathlib

import forked
import pytest

pytestmark = [pytest.mark.torch, pytest.mark.slow]
SCRIPT = pathlib.Path(__file__).with_name("ddp_checks.py")


def wrong(ranks):
    """Checks that are not right on a rank, with their messages."""
    return [(rank, name, said) for rank, r in enumerate(ranks) for name, said in r.last.items()
            if said != "right"]


def but_compiled():
    """The checks without torch.compile, which takes longer than all others together. What it makes of a module does not
    depend on who has started the ranks; torchrun with two workers and tutti with three have these checks, too."""
    import ddp_checks
    return [check.__name__ for check in ddp_checks.CHECKS if "compile" not in check.__name__]


def test_every_check_is_right_with_two_workers(run, tmp_path):
    assert wrong(run(SCRIPT, n=2, launcher="torchrun", timeout=120, env={"TMPDIR": str(tmp_path)}).ranks) == []


@pytest.mark.long
def test_every_check_is_right_with_three_workers(run, tmp_path):
    assert wrong(run(SCRIPT, n=3, launcher="tutti", timeout=150, env={"TMPDIR": str(tmp_path)}).ranks) == []


@pytest.mark.long
def test_every_check_but_those_of_compile_is_right_under_mpirun(run, tmp_path):
    ranks = run(SCRIPT, n=2, launcher="mpirun", timeout=150, env={"TMPDIR": str(tmp_path)}, args=but_compiled()).ranks
    assert wrong(ranks) == [] and [list(r.last) for r in ranks] == [but_compiled()] * 2


def test_every_check_but_those_of_compile_is_right_by_variables_alone(tmp_path, monkeypatch):
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    ranks = forked.script(SCRIPT.read_text(), 2, but_compiled(), timeout=150)
    assert wrong(ranks) == [] and [list(r.last) for r in ranks] == [but_compiled()] * 2


def test_one_process_trains_as_without_the_wrapper(run):
    run("""
        import torch, warnings
        from torch import nn
        from tutti.torch import DistributedDataParallel
        warnings.simplefilter("error")
        torch.manual_seed(1)
        x = torch.randn(4, 6)
        plain = nn.Sequential(nn.Linear(6, 8), nn.Tanh(), nn.Linear(8, 3))
        same = nn.Sequential(nn.Linear(6, 8), nn.Tanh(), nn.Linear(8, 3))
        same.load_state_dict(plain.state_dict())
        wrapped = DistributedDataParallel(same)
        coded = DistributedDataParallel(nn.Linear(6, 3), codec="ef(topk(ratio=0.1))")
        for model in (plain, wrapped):
            optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
            for step in range(5):
                optimizer.zero_grad()
                model(x + step).square().sum().backward()
                optimizer.step()
            with torch.no_grad():
                model(x)
        for a, b in zip(plain.parameters(), same.parameters(), strict=True):
            assert torch.equal(a, b) and torch.equal(a.grad, b.grad)
        with wrapped.no_sync(), wrapped.join():
            wrapped(x).sum().backward()
        coded(x).sum().backward()
        assert coded.engine.figures()["steps"] == 1
    """, n=1, launcher="variables")
