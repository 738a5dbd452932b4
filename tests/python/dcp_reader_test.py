"""tutti.torch.dcp: torch.distributed.checkpoint.load reads checkpoints of Tutti, with the bits that were trained, into
another number of ranks and another sharding; what cannot be loaded is refused, and nothing is filled in silence."""

import json
import os
import shutil
import subprocess

import forked
import processes
import pytest

pytestmark = [pytest.mark.torch, pytest.mark.slow,
              pytest.mark.filterwarnings("ignore:torch.distributed is disabled")]
torch = pytest.importorskip("torch")
import torch.distributed.checkpoint as dcp  # noqa: E402
from prepare_test import alone, prepared  # noqa: E402
from torch.distributed.checkpoint.state_dict import get_model_state_dict, get_optimizer_state_dict  # noqa: E402

import tutti.torch  # noqa: E402
from tutti import checkpoints  # noqa: E402
from tutti.errors import CorruptError  # noqa: E402
from tutti.torch.dcp import CheckpointReader  # noqa: E402

torch.set_num_threads(1)


def net():
    """Has what is stored unlike most: another order in memory, statistics, a frozen parameter, a buffer, tied weights,
    nothing."""
    torch.manual_seed(0)
    model = torch.nn.Sequential(
        torch.nn.Conv2d(2, 5, 3), torch.nn.BatchNorm2d(5), torch.nn.ReLU(), torch.nn.Flatten(), torch.nn.Linear(45, 7),
        torch.nn.Linear(7, 7), torch.nn.Linear(7, 7), torch.nn.Linear(7, 2))
    model[6].weight = model[5].weight
    model[5].register_parameter("none", torch.nn.Parameter(torch.zeros(0, 3), requires_grad=False))
    model[0].to(memory_format=torch.channels_last)
    model[4].bias.requires_grad_(False)
    model[4].register_buffer("shift", torch.arange(3))
    return model


def groups(model):
    return torch.optim.AdamW([{"params": model[:2].parameters(), "lr": 0.01},
                              {"params": [p for p in model[2:].parameters() if p.requires_grad], "lr": 0.02}],
                             betas=(0.8, 0.99))


def adam(model):
    return torch.optim.AdamW([p for p in model.parameters() if p.requires_grad], lr=0.01)


def sgd(model):
    return torch.optim.SGD([p for p in model.parameters() if p.requires_grad], lr=0.05, momentum=0.9)


RULES = {"adam": adam, "groups": groups, "sgd": sgd}


def loop(model, optimizer, rank):
    for step in range(3):
        x = torch.randn(4, 2, 5, 5, generator=torch.Generator().manual_seed(10 * step + rank))
        torch.nn.functional.cross_entropy(model(x), x.flatten(1).sum(1).gt(0).long()).backward()
        optimizer.step()
        optimizer.zero_grad()


def trained(method, rule, folder):
    """Trains, saves, and stores what the ranks have."""
    model, optimizer = prepared(method, net(), RULES[rule])
    loop(model, optimizer, optimizer.world.rank)
    optimizer.save(f"{folder}/run")
    rank = optimizer.world.rank
    with torch.no_grad():
        if "zero" not in method:
            state = optimizer.optimizer.state_dict()["state"]
            torch.save({"model": model.state_dict(), "state": state}, f"{folder}/has-{rank}")
    optimizer.close()


def resumed(folder, rule):
    """Torch's own optimiser continues from a checkpoint of an engine's."""
    model, optimizer = prepared("ddp", net(), RULES[rule])
    optimizer.load(f"{folder}/run")
    if optimizer.world.rank == 0:
        state = optimizer.optimizer.state_dict()["state"]
        torch.save({"model": model.state_dict(), "state": state}, f"{folder}/has-0")
    optimizer.close()


def same(a, b):
    assert a.dtype == b.dtype and a.shape == b.shape
    assert a.contiguous().reshape(-1).view(torch.uint8).equal(b.contiguous().reshape(-1).view(torch.uint8))


def some_state(model, optimizer):
    """Runs a step, so that there are moments to be filled."""
    loop(model, optimizer, 5)
    return {"model": get_model_state_dict(model), "optim": get_optimizer_state_dict(model, optimizer)}


@pytest.mark.parametrize("method, rule", [("ddp", "groups"), ("ddp", "sgd"), ("zero(stage=2)", "adam"),
                                          ("zero(stage=3)", "adam"), ("zero(stage=1)", "sgd"), ("powersgd", "adam")])
def test_model_and_optimizer_have_the_trained_bits(method, rule, tmp_path):
    alone(trained, method, rule, str(tmp_path), n=2)
    if "zero" in method:
        alone(resumed, str(tmp_path), rule, n=2)
    has = torch.load(tmp_path / "has-0", weights_only=True)
    model = net()
    optimizer = RULES[rule](model)
    state = some_state(model, optimizer)
    for one in state["model"].values():
        one.fill_(9)
    dcp.load(state, storage_reader=CheckpointReader(tmp_path / "run"), no_dist=True)
    for name, value in has["model"].items():
        if "running" not in name:  # each worker has its own
            same(state["model"][name], value)
    names = {p: name for name, p in model.named_parameters()}
    order = [names[p] for group in optimizer.param_groups for p in group["params"]]
    assert set(state["optim"]["state"]) == set(order)
    for k, name in enumerate(order):
        for slot, value in has["state"][k].items():
            same(state["optim"]["state"][name][slot], value)
    assert [g["params"] for g in state["optim"]["param_groups"]] == [
        [names[p] for p in group["params"]] for group in optimizer.param_groups]
    assert [g["lr"] for g in state["optim"]["param_groups"]] == [g["lr"] for g in optimizer.param_groups]


def test_ranks_that_find_different_checkpoints_are_told(tmp_path, saved):
    for step in (2, 4):
        shutil.copytree(checkpoints.find(saved), tmp_path / f"of-{step}" / f"step-{step:08d}")
    plans = []
    for step in (2, 4):
        plans.append(CheckpointReader(tmp_path / f"of-{step}").prepare_local_plan(dcp.planner.LoadPlan([])))
    reader = CheckpointReader(tmp_path / "of-2")
    assert reader.prepare_global_plan(plans[:1]) == plans[:1]
    with pytest.raises(ValueError, match="have found different checkpoints: step-00000002, step-00000004; "):
        reader.prepare_global_plan(plans)


def test_own_models_and_statistics_are_averaged(tmp_path):
    alone(trained, "local-sgd(period=8)", "sgd", str(tmp_path), n=3)
    each = [torch.load(tmp_path / f"has-{r}", weights_only=True)["model"] for r in range(3)]
    assert not each[0]["0.weight"].equal(each[1]["0.weight"])
    state = {"model": net().state_dict()}
    dcp.load(state, storage_reader=CheckpointReader(tmp_path / "run"), no_dist=True)
    for name, value in state["model"].items():
        if value.is_floating_point():
            same(value, torch.stack([one[name].double() for one in each]).mean(0).float())
        else:
            same(value, each[0][name])
    # each worker has momenta of its own, and there is none to load
    with pytest.raises(dcp.api.CheckpointException, match="Missing key in checkpoint state_dict: optim.state"):
        dcp.load({"optim": {"state": {"0.weight": {"momentum_buffer": torch.zeros(5, 2, 3, 3)}}}},
                 storage_reader=CheckpointReader(tmp_path / "run"), no_dist=True)


SHARDED = """
import sys, torch, torch.distributed as dist, torch.distributed.checkpoint as dcp
from torch.distributed.checkpoint.state_dict import StateDictOptions, get_model_state_dict, get_optimizer_state_dict
from torch.distributed.checkpoint.state_dict import set_optimizer_state_dict
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from tutti.torch.dcp import CheckpointReader
dist.init_process_group("gloo")
shape = tuple(map(int, sys.argv[3].split("x")))
mesh = init_device_mesh("cpu", shape, mesh_dim_names=("replicate", "shard")[-len(shape):])
torch.manual_seed(dist.get_rank())
model = torch.nn.Sequential(torch.nn.Linear(5, 7), torch.nn.ReLU(), torch.nn.Linear(7, 2))
fully_shard(model, mesh=mesh)
optimizer = torch.optim.AdamW(model.parameters(), lr=0.5)
model(torch.ones(1, 5)).sum().backward()
optimizer.step()
state = {"model": get_model_state_dict(model), "optim": get_optimizer_state_dict(model, optimizer)}
dcp.load(state, storage_reader=CheckpointReader(sys.argv[1]))
set_optimizer_state_dict(model, optimizer, state["optim"])
whole = StateDictOptions(full_state_dict=True, cpu_offload=True)
model, optimizer = get_model_state_dict(model, options=whole), get_optimizer_state_dict(model, optimizer, options=whole)
if dist.get_rank() == 0:
    torch.save({"model": model, "optim": optimizer}, sys.argv[2])
dist.destroy_process_group()
"""


def plain(folder):
    model = torch.nn.Sequential(torch.nn.Linear(5, 7), torch.nn.ReLU(), torch.nn.Linear(7, 2))
    model, optimizer = prepared("ddp", model, lambda m: torch.optim.AdamW(m.parameters(), lr=0.01))
    for _ in range(2):
        model(torch.ones(3, 5)).square().sum().backward()
        optimizer.step()
        optimizer.zero_grad()
    optimizer.save(f"{folder}/run")
    if optimizer.world.rank == 0:
        torch.save({"model": model.state_dict(), "state": optimizer.optimizer.state_dict()["state"]}, f"{folder}/has")
    optimizer.close()


@pytest.mark.parametrize("mesh", ["3", "2x2"])
def test_fsdp2_continues_a_run_of_two_workers(mesh, tmp_path):
    alone(plain, str(tmp_path), n=2)
    has = torch.load(tmp_path / "has", weights_only=True)
    forked.script(SHARDED, 3 if mesh == "3" else 4, [tmp_path / "run", tmp_path / "got", mesh])
    got = torch.load(tmp_path / "got", weights_only=True)
    assert got["model"].keys() == has["model"].keys()
    for k, (name, value) in enumerate(has["model"].items()):
        same(got["model"][name], value)
        for slot, moment in has["state"][k].items():
            same(got["optim"]["state"][name][slot], moment)
    assert got["optim"]["param_groups"][0]["lr"] == 0.01


def wrapped(folder):
    model = tutti.torch.DistributedDataParallel(net(), "ddp")
    optimizer = adam(model.module)
    loop(model, optimizer, model.world.rank)
    model.save(f"{folder}/run")
    if model.world.rank == 0:
        torch.save(model.module.state_dict(), f"{folder}/has")
    model.close()


def test_checkpoints_of_the_wrapper_have_the_parameters(tmp_path):
    alone(wrapped, str(tmp_path), n=2)
    has = torch.load(tmp_path / "has", weights_only=True)
    wanted = {name: torch.empty_like(value) for name, value in net().named_parameters() if value.requires_grad}
    dcp.load(wanted, storage_reader=CheckpointReader(tmp_path / "run", model=""), no_dist=True)
    for name, value in wanted.items():
        same(value, has[name])


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    folder = tmp_path_factory.mktemp("saved")
    alone(plain, str(folder), n=2)
    return folder / "run"


def wanted(**other):
    return {"model": {"0.weight": torch.zeros(7, 5), "0.bias": torch.zeros(7)} | other}


def test_what_does_not_fit_is_refused(saved, tmp_path):
    def load(state, **options):
        dcp.load(state, storage_reader=CheckpointReader(saved, **options), no_dist=True)

    with pytest.raises(dcp.api.CheckpointException, match=r"Size mismatch .*\[7, 5\].*\[5, 7\]"):
        load(wanted(**{"0.weight": torch.zeros(5, 7)}))
    with pytest.raises(dcp.api.CheckpointException, match="'model.0.weight' is torch.float32 .*cast=True"):
        load(wanted(**{"0.weight": torch.zeros(7, 5, dtype=torch.bfloat16)}))
    with pytest.raises(dcp.api.CheckpointException, match="Missing key in checkpoint state_dict: model.1.weight"):
        load(wanted(**{"1.weight": torch.zeros(7, 5)}))
    half, full = wanted(**{"0.weight": torch.zeros(7, 5, dtype=torch.bfloat16)}), wanted()
    load(half, cast=True)
    load(full)
    same(half["model"]["0.weight"], full["model"]["0.weight"].bfloat16())
    with pytest.raises(ValueError, match="no checkpoint at .*no-such"):
        CheckpointReader(tmp_path / "no-such")


def rewritten(saved, to, change):
    """Saves the values again with other facts, since a manifest is closed by a hash."""
    def again(directory):
        from tutti.engine import Engine, Param, World

        with checkpoints.Checkpoint(checkpoints.find(saved)) as c:
            facts = change(dict(c.facts))
            shapes = {i.tensor: i.count for i in c.items if i.state == "x"}
        with World() as world, Engine(world, [Param(n, (k,)) for n, k in shapes.items()], method="ddp") as engine:
            engine.save(directory, facts if isinstance(facts, str) else json.dumps(facts))

    alone(again, str(to), n=1)
    return to


REST = {"tied": {}, "statistics": [], "optimizer": []}


@pytest.mark.parametrize("said, sentence", [
    ({}, "does not have the shapes of its tensors: an older version"),
    ({"torch": 3}, "is not one of this version"),
    ({"torch": {"format": 2}}, "format 2 is of another version"),
    ({"torch": {"format": 1, "parameters": {}, **REST}}, "no such tensor"),
    ({"torch": {"format": 1, "parameters": {"0.bias": [[8]]}, **REST}}, r"7 elements of .0.bias., and describes"),
    ({"torch": {"format": 1, "parameters": {"0.bias": [[7], [1]]}, **REST}}, "order of 1"),
    ({"torch": {"format": 1, "parameters": {"0.bias": [[-7]]}, **REST}}, "a list of sizes"),
    ({"torch": {"format": 1, "parameters": {"0.bias": []}, **REST}}, "IndexError|index"),
])
def test_facts_that_do_not_describe_the_tensors_are_refused(said, sentence, saved, tmp_path):
    at = rewritten(saved, tmp_path / "again", lambda _: said)
    with pytest.raises((CorruptError, ValueError), match=sentence):
        CheckpointReader(at)


def test_a_changed_byte_is_refused_by_name(saved, tmp_path):
    shutil.copytree(saved, tmp_path / "run")
    at = checkpoints.find(tmp_path / "run")
    (name,) = [n for n in os.listdir(at) if n.startswith("rank-00000")]
    path = os.path.join(at, name)
    whole = wanted()
    dcp.load(whole, storage_reader=CheckpointReader(at), no_dist=True)
    with open(path, "r+b") as f:
        raw = f.read()
        where = raw.index(whole["model"]["0.weight"].numpy().tobytes()[:16]) + 3
        f.seek(where)
        f.write(bytes([raw[where] ^ 4]))
    with pytest.raises(dcp.api.CheckpointException, match="x/0.weight@0.*damaged"):
        dcp.load(wanted(), storage_reader=CheckpointReader(at), no_dist=True)


def test_a_changed_byte_of_the_optimizers_file_is_refused_by_name(saved, tmp_path):
    shutil.copytree(saved, tmp_path / "run")
    path = tmp_path / "run" / (os.path.basename(checkpoints.find(saved)) + "-optimizer") / "rank-00000.safetensors"
    raw = path.read_bytes()
    path.write_bytes(raw[:-5] + bytes([raw[-5] ^ 1]) + raw[-4:])
    with pytest.raises(CorruptError, match="tensor '[0-3]/exp_avg_sq' does not have the hash"):
        CheckpointReader(tmp_path / "run")


@pytest.mark.parametrize("method", ["d-psgd", "asgd"])
def test_a_run_of_the_trainer_takes_its_shapes_from_the_state(method, tmp_path):
    subprocess.run([processes.build() / "bin/tutti", "train", "--model", "mlp(hidden=16)", "--data", "mnist",
                    "-n", "2", "--method", method, "--steps", "2", "--checkpoint-every", "2",
                    "--out", tmp_path / "run"], check=True, env=processes.environment(), capture_output=True)
    at = checkpoints.find(tmp_path / "run")
    with checkpoints.Checkpoint(at) as c, checkpoints.TensorFile(tmp_path / "run/model.safetensors") as f:
        counts = {i.tensor for i in c.items if i.state in ("x", "server.values")}
        has = {t.name: torch.from_numpy(f.read(t.name)) for t in f.tensors if t.name in counts}
    state = {name: torch.zeros_like(value) for name, value in has.items()}
    with pytest.raises(ValueError, match="is of `tutti train`, which stores no shapes"):
        CheckpointReader(at, model="")
    dcp.load(state, storage_reader=CheckpointReader(at, state, model=""), no_dist=True)
    for name, value in has.items():
        same(state[name], value)
    first = next(iter(state))
    with pytest.raises(ValueError, match=f"'{first}' has shape .3. in the state_dict, and"):
        CheckpointReader(at, state | {first: torch.zeros(3)}, model="")
