"""Untrained state, frozen parameters and buffers: rank 0's at the beginning, as under torch's class, and in
checkpoints."""

import pytest

pytestmark = pytest.mark.torch
torch = pytest.importorskip("torch")

import forked  # noqa: E402
from prepare_test import batch, cases, prepared, sgd  # noqa: E402

import tutti.torch  # noqa: E402


class Frozen(torch.nn.Module):
    """One of everything that a checkpoint might lose."""

    def __init__(self, seed):
        super().__init__()
        torch.manual_seed(seed)
        self.frozen = torch.nn.Linear(5, 7).requires_grad_(False)
        self.wide = torch.nn.Parameter(torch.randn(3, dtype=torch.float64), requires_grad=False)
        self.norm = torch.nn.BatchNorm1d(7, momentum=None)  # whose mean goes by num_batches_tracked
        self.spectral = torch.nn.utils.parametrizations.spectral_norm(torch.nn.Linear(7, 6))
        self.old = torch.nn.utils.spectral_norm(torch.nn.Linear(6, 2))
        self.register_buffer("seen", torch.randn(()))
        self.register_buffer("turned", torch.randn(2, dtype=torch.complex64))
        self.register_buffer("mask", torch.rand(7) > 0.5)
        self.register_buffer("passing", torch.randn(7), persistent=False)

    def forward(self, x):
        x = self.norm(self.frozen(x)) * (1 + self.mask) + self.passing
        if self.training:
            self.seen += x.detach().mean()
        return self.old(self.spectral(x)) * self.turned.abs()


def state(model):
    """All that the module has, but what is cut (stage 3), in words that JSON takes."""
    own = {**dict(model.named_parameters()), **dict(model.named_buffers())}
    own = {name: t for name, t in own.items() if type(t).__name__ != "Cut"}
    return {name: repr(t.detach().tolist()) for name, t in own.items()}


UNTRAINED = ("frozen.weight", "wide", "norm.num_batches_tracked", "old.weight_u", "seen", "turned", "mask", "passing")


def steps(model, optimizer, which, rank):
    for step in which:
        x, y = batch(step, rank)
        torch.nn.functional.cross_entropy(model(x), y).backward()
        optimizer.step()
        optimizer.zero_grad()


def first(method):
    model, optimizer = prepared(method, model=Frozen(torch.initial_seed() + rank_of() * 17))
    found = state(model)
    optimizer.close()
    return found


def rank_of():
    import os

    return int(os.environ["TUTTI_RANK"])


def by_torchs_class():
    """What rank 0 begins with is what all have under torch's DistributedDataParallel."""
    import torch.distributed as dist

    torch.manual_seed(0)
    model = Frozen(torch.initial_seed() + dist.get_rank() * 17)
    wrapped = torch.nn.parallel.DistributedDataParallel(model)
    return state(wrapped.module)


@pytest.mark.parametrize("method", cases("ddp", "zero", "local-sgd(period=2)", "ad-psgd", "zero(stage=3)", "asgd"))
def test_all_begin_with_rank_0s_frozen_parameters_and_buffers(method):
    torch.manual_seed(0)
    wanted = state(Frozen(torch.initial_seed()))
    with_torch = forked.script(SCRIPT.format(tests=repr(str(forked.processes.HERE))), 3)
    for rank in with_torch:
        assert rank.last == wanted
    torch.manual_seed(0)
    for answer in forked.ranks(3, first, method):
        said = answer.get("value", answer)
        assert said == {name: wanted[name] for name in said} and set(said) >= set(UNTRAINED), answer


SCRIPT = """
import sys, json
sys.path.insert(0, {tests})
import torch.distributed as dist
dist.init_process_group("gloo")
import untrained_test
print(json.dumps(untrained_test.by_torchs_class()))
import gloo
gloo.leave()
"""


def thawed():
    model, optimizer = prepared("ddp", model=Frozen(0))
    model.frozen.requires_grad_(True)
    steps(model, optimizer, range(1), 0)


def test_unfreezing_a_parameter_after_prepare_is_rejected():
    (answer,) = forked.ranks(1, thawed)
    assert answer["error"] == "ValueError" and "'frozen.weight' did not require a gradient" in answer["text"], answer


def saving(method, folder, how, seed=0):
    model, optimizer = prepared(method, model=Frozen(seed), optimizer=sgd)
    rank = optimizer.world.rank
    if how == "through":
        steps(model, optimizer, range(6), rank)
    elif how == "first":
        steps(model, optimizer, range(3), rank)
        optimizer.save(folder, keep=1)
        found = {name: text for name, text in state(model).items() if name not in ("passing",)}
        optimizer.close()
        return found
    elif how == "meanwhile":
        for begin, end in (0, 2), (2, 3):
            steps(model, optimizer, range(begin, end), rank)
            optimizer.save(folder, keep=1, wait=False)
        steps(model, optimizer, range(3, 5), rank)
        optimizer.save_end()
        optimizer.close()
        return None
    elif how == "look":
        optimizer.load(folder)
        found = {name: text for name, text in state(model).items() if name not in ("passing",)}
        optimizer.close()
        return found
    else:
        optimizer.load(folder)
        model.passing.copy_(Frozen(0).passing)  # as a constructor does that computes it
        steps(model, optimizer, range(3, 6), rank)
    with optimizer.evaluate():
        agreed = state(model)
    optimizer.finish()
    return agreed


def run(method, folder, how, seed=0, n=2):
    answers = forked.ranks(n, saving, method, str(folder), how, seed)
    assert all("value" in a for a in answers), answers
    return [a["value"] for a in answers]


@pytest.mark.parametrize("method", cases("ddp", "local-sgd(period=2)", "zero", "zero(stage=3)", "d-psgd", "powersgd"))
def test_checkpoint_includes_frozen_parameters_and_buffers(method, tmp_path):
    """A module that is built again, with other random numbers, continues to the same bits."""
    through = run(method, tmp_path, "through")
    run(method, tmp_path, "first")
    assert run(method, tmp_path, "then", 1) == through


@pytest.mark.parametrize("method", cases("ddp", "local-sgd(period=2)", "zero"))
def test_checkpoint_in_the_background_is_that_of_its_step(method, tmp_path):
    """The second waits for the first and replaces it, files of the module and of torch's optimizer included."""
    through = run(method, tmp_path, "through")
    run(method, tmp_path, "meanwhile")
    assert {path.name.split("-")[1] for path in tmp_path.iterdir()} == {"00000003"}
    assert run(method, tmp_path, "then", 1) == through


def test_workers_restore_own_buffers_and_new_ones_rank_0s(tmp_path):
    saved = run("ddp", tmp_path, "first")
    assert saved[0]["seen"] != saved[1]["seen"] and saved[0]["frozen.weight"] == saved[1]["frozen.weight"]
    fewer = run("ddp", tmp_path, "look", 1, n=1)
    more = run("ddp", tmp_path, "look", 1, n=3)
    for name in ("seen", "mask", "turned", "wide", "frozen.weight", "norm.num_batches_tracked", "old.weight_u"):
        assert fewer[0][name] == saved[0][name] == more[2][name] and more[1][name] == saved[1][name], name


def unlike(folder):
    model = torch.nn.Sequential(torch.nn.Linear(5, 7), torch.nn.BatchNorm1d(7), torch.nn.Linear(7, 2))
    model[2].bias.requires_grad_(False)
    _, optimizer = prepared("ddp", model=model)
    optimizer.save(folder)
    optimizer.close()


def unlike_then(folder, how):
    model = torch.nn.Sequential(torch.nn.Linear(5, 7), torch.nn.BatchNorm1d(7), torch.nn.Linear(7, 2))
    model[2].bias.requires_grad_(False)
    if how == "more":
        model.register_buffer("extra", torch.zeros(2))
    elif how == "wide":
        model[2].bias = torch.nn.Parameter(torch.zeros(2, dtype=torch.float64), requires_grad=False)
    _, optimizer = prepared("ddp", model=model)
    optimizer.load(folder)


def test_checkpoint_of_a_different_module_is_rejected(tmp_path):
    forked.ranks(1, unlike, str(tmp_path))
    for how, words in (("more", "'extra' of checkpoint"), ("wide", "'2.bias' is torch.float32 [2] in checkpoint")):
        (answer,) = forked.ranks(1, unlike_then, str(tmp_path), how)
        assert answer["error"] == "ValueError" and words in answer["text"], answer
    for old in tmp_path.glob("*-optimizer/module-*"):
        old.unlink()
    with_warning = forked.ranks(1, unlike_then, str(tmp_path), "")
    assert with_warning == [{"value": None}]


def staged(folder, how):
    torch.manual_seed(5 * rank_of() + (50 if how == "look" else 0))
    model = torch.nn.Sequential(
        torch.nn.Linear(5, 7), torch.nn.Linear(7, 7).requires_grad_(False), torch.nn.ReLU(), torch.nn.Linear(7, 2)
    )
    x, y = batch(0, 0)
    data = torch.utils.data.TensorDataset(x, y)
    pipe = tutti.torch.pipeline(model, torch.optim.SGD([p for p in model.parameters() if p.requires_grad], lr=0.1),
                                torch.nn.CrossEntropyLoss(), data, "hetpipe(stages=2)", batch=2)
    if how == "look":
        pipe.load(folder)
    else:
        pipe.step(2)
        pipe.save(folder)
    found = model[1].weight.tolist()
    pipe.finish()
    return found


def test_pipeline_stages_use_and_save_rank_0s_frozen_parameters(tmp_path):
    first = forked.ranks(2, staged, str(tmp_path), "first")
    assert "value" in first[0] and first[0] == first[1], first
    assert forked.ranks(2, staged, str(tmp_path), "look") == first
