"""Parameters that a script puts elsewhere, or replaces, after the module was wrapped or prepared."""

import re

import pytest

pytestmark = pytest.mark.torch
torch = pytest.importorskip("torch")

import forked  # noqa: E402
from prepare_test import batch, cases, net, prepared, values  # noqa: E402

import tutti.torch  # noqa: E402


def new_data(model):
    for p in model.parameters():
        p.data = p.data * 2 + 1


def vector(model):
    flat = torch.nn.utils.parameters_to_vector(model.parameters())
    torch.nn.utils.vector_to_parameters(flat * 2 + 1, model.parameters())


def transposed(model):
    """The same memory, in another order."""
    model[0].weight.data = (model[0].weight.data * 2 + 1).t().contiguous().t()
    model[2].weight.data = model[2].weight.data.flatten().flip(0).view_as(model[2].weight)


def swapped(model):
    a, b = model[0].bias, model[2].bias
    a.data, b.data = torch.ones(7), torch.zeros(2)


def assigned(model):
    model.load_state_dict({k: v * 2 + 1 for k, v in model.state_dict().items()}, assign=True)


def head(model):
    model[2] = torch.nn.Linear(7, 2)


def bare(model):
    model[0].bias = torch.nn.Parameter(torch.zeros(7))


def reshaped(model):
    model[0].bias.data = torch.zeros(9)


def parametrized(model):
    """The same parameters elsewhere in the module."""
    torch.nn.utils.parametrize.register_parametrization(model[0], "weight", torch.nn.Identity())


WAYS = {f.__name__: f for f in (new_data, vector, transposed, swapped, assigned, head, bare, reshaped, parametrized)}


def step(wrapped, optimizer, at, rank):
    x, y = batch(at, rank)
    torch.nn.functional.cross_entropy(wrapped(x), y).backward()
    optimizer.step()
    optimizer.zero_grad()


def by_torch(way):
    """What is to come out: one worker's, with the mean of both gradients."""
    model = net()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for at in range(3):
        if at == 1:
            WAYS[way](model)
        for rank in range(2):
            x, y = batch(at, rank)
            (torch.nn.functional.cross_entropy(model(x), y) / 2).backward()
        optimizer.step()
        optimizer.zero_grad()
    return values(model)


def saving(way, folder):
    model = net()
    ddp = tutti.torch.DistributedDataParallel(model)
    optimizer = torch.optim.SGD(ddp.parameters(), lr=0.1)
    step(ddp, optimizer, 0, ddp.rank)
    WAYS[way](model)
    for at in (1, 2):
        step(ddp, optimizer, at, ddp.rank)
    ddp.save(folder)
    found = values(model)
    ddp.close()
    return found


def loading(folder, way):
    model = net()
    ddp = tutti.torch.DistributedDataParallel(model)
    if way:
        WAYS[way](model)
    ddp.load(folder)
    found = values(model)
    ddp.close()
    return found


HONOURED = ["new_data", "vector", "transposed", "swapped"]


@pytest.mark.parametrize("way", HONOURED)
def test_wrapper_saves_and_loads_the_current_module_parameters(tmp_path, way):
    first, second = (a["value"] for a in forked.ranks(2, saving, way, str(tmp_path)))
    assert first == second
    for mine, theirs in zip(first, by_torch(way), strict=True):
        torch.testing.assert_close(torch.tensor(mine), torch.tensor(theirs), rtol=0, atol=1e-6)
    for after in ("", way):
        for answer in forked.ranks(2, loading, str(tmp_path), after):
            assert answer == {"value": first}, after


REPLACED = [("assigned", "'0.weight' and 3 more have been replaced|'2.bias' and 3 more have been replaced"),
            ("head", "'2.(weight|bias)' and 1 more have been replaced"), ("bare", "'0.bias' has been replaced")]


@pytest.mark.parametrize("way, words", REPLACED)
def test_a_replaced_parameter_is_named_at_the_next_forward(tmp_path, way, words):
    for answer in forked.ranks(2, saving, way, str(tmp_path)):
        assert answer["error"] == "StateError", answer
        assert re.search(words, answer["text"]) and "before the module is wrapped" in answer["text"]


def saved_at_once(way, folder):
    model = net()
    ddp = tutti.torch.DistributedDataParallel(model)
    WAYS[way](model)
    ddp.save(folder)


@pytest.mark.parametrize("way", ["assigned", "head", "bare", "reshaped"])
def test_replaced_parameter_is_named_when_saving(tmp_path, way):
    (answer,) = forked.ranks(1, saved_at_once, way, str(tmp_path))
    assert answer["error"] == "StateError" and "before the module is wrapped" in answer["text"], answer
    assert not list(tmp_path.iterdir())


def under_prepare(method, way):
    model, optimizer = prepared(method)
    step(model, optimizer, 0, optimizer.world.rank)
    WAYS[way](model)
    step(model, optimizer, 1, optimizer.world.rank)


@pytest.mark.parametrize("method", cases("ddp", "local-sgd(period=2)", "zero(stage=3)"))
@pytest.mark.parametrize("way, words", [("head", "'2.(weight|bias)' and 1 more"), ("bare", "'0.bias' has been")])
def test_replaced_parameter_is_named_under_prepare(method, way, words):
    for answer in forked.ranks(2, under_prepare, method, way):
        assert answer["error"] == "StateError", answer
        assert re.search(words, answer["text"]) and "before the module is wrapped" in answer["text"]


def test_parameter_moved_within_the_module_keeps_training():
    (answer,) = forked.ranks(1, under_prepare, "ddp", "parametrized")
    assert answer == {"value": None}
