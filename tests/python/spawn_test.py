"""Scripts whose place is known to torch.distributed alone: torch.multiprocessing.spawn."""

import json
import os
import subprocess
import sys

import pytest

pytestmark = pytest.mark.torch
torch = pytest.importorskip("torch")

import forked  # noqa: E402
import processes  # noqa: E402
from prepare_test import prepared  # noqa: E402

import tutti.torch  # noqa: E402

SCRIPT = """
import json, sys
import torch.multiprocessing as mp
import spawn_test

def train(rank, folder):
    with open(f"{folder}/{rank}", "w") as f:
        json.dump(spawn_test.train(rank, 2, "ddp", folder), f)

if __name__ == "__main__":
    mp.spawn(train, (sys.argv[1],), nprocs=2)
"""


def train(rank, n, how, folder, late=False):
    """Transport and state of the model after a few steps of such a script."""
    import gloo
    import torch.distributed as dist

    torch.set_num_threads(1)
    torch.manual_seed(rank)
    model = torch.nn.Sequential(torch.nn.Linear(4, 3), torch.nn.BatchNorm1d(3), torch.nn.Linear(3, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    if late == "prepare":
        model, optimizer = tutti.torch.prepare(model, optimizer, how)
    elif late:
        model = tutti.torch.DistributedDataParallel(model)
    dist.init_process_group("gloo", init_method=f"file://{folder}/{how}.store", rank=rank, world_size=n)
    dist.barrier()  # a rank that fails below must not exit while another one still connects to it
    if how == "torch":
        model = torch.nn.parallel.DistributedDataParallel(model, broadcast_buffers=False)
    elif how == "wrapper":
        model = tutti.torch.DistributedDataParallel(model, broadcast_buffers=False)
    elif not late:
        model, optimizer = tutti.torch.prepare(model, optimizer, how)
    g = torch.Generator().manual_seed(rank)
    for _ in range(4):
        x = torch.randn(8, 4, generator=g)
        (model(x) - x.sum(1, keepdim=True)).square().mean().backward()
        optimizer.step()
        optimizer.zero_grad()
    world = getattr(model if how == "wrapper" else optimizer, "world", None)
    transport = world and world.transport
    if how not in ("torch", "wrapper"):
        optimizer.finish()
    state = {k.removeprefix("module."): v.tolist() for k, v in model.state_dict().items() if "running" not in k}
    gloo.leave()
    return [transport, state]


def without_a_launcher(n, *arguments):
    rank = int(os.environ["TUTTI_RANK"])
    for name in [name for name in os.environ if name.startswith("TUTTI_") and name != "TUTTI_LIBRARY"]:
        del os.environ[name]
    return train(rank, n, *arguments)


def spawned(n, *arguments):
    return forked.ranks(n, without_a_launcher, n, *arguments)


@pytest.mark.parametrize("n", [2, pytest.param(3, marks=pytest.mark.slow)])
def test_a_spawned_script_trains_as_under_torchs_class(tmp_path, n):
    wanted = [a["value"][1] for a in spawned(n, "torch", str(tmp_path))]
    for how in ("ddp", "wrapper"):
        said = [a["value"] for a in spawned(n, how, str(tmp_path))]
        for (transport, state), other in zip(said, wanted, strict=True):
            assert transport == "shm"
            for name, values in state.items():  # three have another order of sums
                torch.testing.assert_close(torch.tensor(values), torch.tensor(other[name]), rtol=0,
                                           atol=0 if n == 2 else 1e-6)


@pytest.mark.slow
@pytest.mark.parametrize("method", ["local-sgd(period=2)", "ad-psgd", "zero", "parameter-server"])
def test_other_methods_spawn_as_well(tmp_path, method):
    said = spawned(3, method, str(tmp_path))
    assert said[0]["value"][1] == said[1]["value"][1] == said[2]["value"][1]


@pytest.mark.slow
def test_torchs_own_spawn(tmp_path):
    (tmp_path / "script.py").write_text(SCRIPT)
    done = subprocess.run([sys.executable, tmp_path / "script.py", tmp_path], env=processes.environment(), timeout=120)
    assert done.returncode == 0
    wanted = [a["value"] for a in spawned(2, "ddp", str(tmp_path))]
    assert [json.loads((tmp_path / str(r)).read_text()) for r in range(2)] == wanted


@pytest.mark.parametrize("late", ["prepare", "wrapper"])
def test_a_group_that_is_made_after_the_world_is_a_sentence(tmp_path, late):
    for answer in spawned(2, "ddp", str(tmp_path), late):
        assert answer["error"] == "StateError", answer
        assert "torch.distributed has 2 ranks, and Tutti's world has size 1" in answer["text"]
        assert "Call init_process_group before" in answer["text"]


def disagrees(rank, size, wrapped):
    import torch.distributed as dist

    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    assert (dist.get_rank(), dist.get_world_size()) != (rank, size)
    if wrapped:
        tutti.torch.DistributedDataParallel(torch.nn.Linear(2, 2))
    else:
        prepared("ddp")


def by_a_launcher_of_one(folder):
    import torch.distributed as dist

    # two ranks; their launcher's variables state that each of them is alone
    rank = int(os.environ["TUTTI_RANK"])
    os.environ.update(TUTTI_SIZE="1", TUTTI_RANK="0")
    dist.init_process_group("gloo", init_method=f"file://{folder}/store", rank=rank, world_size=2)
    prepared("ddp")


@pytest.mark.parametrize("wrapped", [False, True])
def test_who_disagrees_with_the_launcher_hears_both_sizes(wrapped):
    answers = forked.ranks(2, disagrees, 0, 2, wrapped)
    for rank, answer in enumerate(answers):
        assert answer["error"] == "StateError", answer
        assert "torch.distributed reports that this is rank 0 of 1" in answer["text"]
        assert f"launcher that it is rank {rank} of 2" in answer["text"] and "by one launcher" in answer["text"]


def test_a_launcher_of_one_that_had_its_say_is_named(tmp_path):
    for rank, answer in enumerate(forked.ranks(2, by_a_launcher_of_one, str(tmp_path))):
        assert f"reports that this is rank {rank} of 2, and Tutti's launcher that it is rank 0 of 1" in answer["text"]
