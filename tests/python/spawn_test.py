"""Scripts whose place is known to torch.distributed: torch.multiprocessing.spawn, launchers of frameworks; and those
with two places, or none."""

import json
import multiprocessing
import os
import subprocess
import sys
import traceback
import warnings

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


def forget_the_launcher():
    rank = int(os.environ["TUTTI_RANK"])
    for name in [name for name in os.environ if name.startswith("TUTTI_") and name != "TUTTI_LIBRARY"]:
        del os.environ[name]
    return rank


def without_a_launcher(n, *arguments):
    return train(forget_the_launcher(), n, *arguments)


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


def as_lightning_starts_them(words, how, folder):
    """Rank 0 starts the other, and both know all but RANK by variables."""
    forget_the_launcher()
    os.environ.update(words)
    read, write = os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            os.environ["LOCAL_RANK"] = "1"
            os.write(write, json.dumps(train(1, 2, how, folder)).encode())
        except BaseException:  # noqa: BLE001
            traceback.print_exc()
        finally:
            os._exit(0)
    os.close(write)
    first = train(0, 2, how, folder)
    with os.fdopen(read) as f:
        second = json.load(f)
    os.waitpid(pid, 0)
    return [first, second]


LIGHTNING = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "1", "NODE_RANK": "0", "LOCAL_RANK": "0", "WORLD_SIZE": "2"}


@pytest.mark.parametrize("words", [LIGHTNING, {}])
def test_rank_that_starts_the_others_trains_with_them(tmp_path, words):
    wanted = [a["value"][1] for a in spawned(2, "torch", str(tmp_path))]
    for how in ("wrapper", "ddp"):
        (answer,) = forked.ranks(1, as_lightning_starts_them, words, how, str(tmp_path))
        assert answer.get("value") == [["shm", state] for state in wanted], answer


def one_a_node(folder):
    rank = forget_the_launcher()
    os.environ.update(SLURM_STEP_ID="0", SLURM_NTASKS="2", SLURM_PROCID=str(rank // 2), SLURM_STEP_NUM_NODES="2",
                      SLURM_JOB_ID="7", SLURM_STEP_NODELIST="a,b")
    return train(rank, 4, "ddp", folder)


@pytest.mark.slow
def test_slurm_tasks_that_spawn_train_in_one_run(tmp_path):
    said = [a["value"] for a in forked.ranks(4, one_a_node, str(tmp_path))]
    assert said == 4 * [said[0]] and said[0][0] == "shm"


@pytest.mark.slow
def test_torch_multiprocessing_spawn_trains_the_same(tmp_path):
    (tmp_path / "script.py").write_text(SCRIPT)
    done = subprocess.run([sys.executable, tmp_path / "script.py", tmp_path], env=processes.environment(), timeout=120)
    assert done.returncode == 0
    wanted = [a["value"] for a in spawned(2, "ddp", str(tmp_path))]
    assert [json.loads((tmp_path / str(r)).read_text()) for r in range(2)] == wanted


@pytest.mark.parametrize("late", ["prepare", "wrapper"])
def test_process_group_created_too_late_is_rejected(tmp_path, late):
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
def test_rank_mismatch_with_the_launcher_is_reported(wrapped):
    answers = forked.ranks(2, disagrees, 0, 2, wrapped)
    for rank, answer in enumerate(answers):
        assert answer["error"] == "StateError", answer
        assert "torch.distributed reports that this is rank 0 of 1" in answer["text"]
        assert f"launcher that it is rank {rank} of 2" in answer["text"] and "by one launcher" in answer["text"]


def test_mismatch_with_a_single_rank_launcher_is_reported(tmp_path):
    for rank, answer in enumerate(forked.ranks(2, by_a_launcher_of_one, str(tmp_path))):
        assert f"reports that this is rank {rank} of 2, and Tutti's launcher that it is rank 0 of 1" in answer["text"]


def contradicted(words, folder, wrapped):
    """Each rank's own variables, as RANK and WORLD_SIZE."""
    import torch.distributed as dist

    rank = forget_the_launcher()
    if words[rank] is not None:
        os.environ.update(RANK=words[rank][0], WORLD_SIZE=words[rank][1], MASTER_ADDR="127.0.0.1", MASTER_PORT="1")
    dist.init_process_group("gloo", init_method=f"file://{folder}/store", rank=rank, world_size=2)
    if wrapped:
        tutti.torch.DistributedDataParallel(torch.nn.Linear(2, 2))
    else:
        prepared("ddp")


@pytest.mark.parametrize("words, wrapped", [(["10"[r] + "2" for r in range(2)], False), ([None, "13"], True)])
def test_variables_that_contradict_the_group_are_named_on_all_ranks(tmp_path, words, wrapped):
    for rank, answer in enumerate(forked.ranks(2, contradicted, words, str(tmp_path), wrapped, timeout=30)):
        assert answer["error"] == "StateError", answer
        at = rank if words[rank] else 1
        place = f"(RANK={words[at][0]}, WORLD_SIZE={words[at][1]})"
        assert f"torch.distributed reports that this is rank {at} of 2, and torchrun's launcher" in answer["text"]
        assert place in answer["text"] and ("on rank 1 " in answer["text"]) == (at != rank)


def incomplete():
    forget_the_launcher()
    os.environ["WORLD_SIZE"] = "2"
    prepared("ddp")


def test_half_of_a_place_is_refused_without_a_group():
    (answer,) = forked.ranks(1, incomplete)
    assert answer["error"] == "ValueError" and "RANK is '(not set)' and WORLD_SIZE is '2'" in answer["text"]


def alone(how):
    """The warnings in a child of multiprocessing without a rank."""
    forget_the_launcher()
    context = multiprocessing.get_context("fork")
    said = context.SimpleQueue()

    def child():
        with warnings.catch_warnings(record=True) as told:
            warnings.simplefilter("always")
            if how == "wrapper":
                tutti.torch.DistributedDataParallel(torch.nn.Linear(2, 2)).close()
            else:
                prepared("ddp")[1].finish()
        said.put([str(w.message) for w in told])

    process = context.Process(target=child)
    process.start()
    answer = said.get()
    process.join()
    return answer


@pytest.mark.parametrize("how", ["wrapper", "prepare"])
def test_child_without_a_rank_is_warned_that_it_trains_alone(how):
    (answer,) = forked.ranks(1, alone, how)
    assert len(answer["value"]) == 1 and "nothing gives it a rank, so it trains alone" in answer["value"][0], answer


@pytest.mark.slow
def test_the_port_behind_torchruns_may_be_another_programs(run):
    def script():
        import json
        import os
        import socket

        import torch
        import tutti.torch

        taken = socket.create_server(("", int(os.environ["MASTER_PORT"]) + 1)) if os.environ["RANK"] == "0" else None
        found = []
        for _ in range(2):
            ddp = tutti.torch.DistributedDataParallel(torch.nn.Linear(2, 1), transport="tcp")
            found.append([ddp.world.rank, ddp.world.size])
            ddp.close()
        print(json.dumps([found, taken is not None]))

    ranks = run(script, n=2, launcher="torchrun").ranks
    assert [r.last for r in ranks] == [[[[r, 2]] * 2, r == 0] for r in range(2)]
