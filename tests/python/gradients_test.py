"""What scripts do to .grad between backward and step(), under prepare: it counts as it does in torch, or it is an error
that names the parameter. Never is it without effect in silence."""

import re

import pytest

pytestmark = pytest.mark.torch
torch = pytest.importorskip("torch")

import forked  # noqa: E402
from prepare_test import EXCHANGING, STEPS, batch, cases, net, prepared, sgd, values  # noqa: E402

FIRST = "2.bias"  # whose gradient backward has first


def params(model):
    """As a script goes over them, and FIRST first."""
    return list(model.parameters())[::-1]


def clip(model, optimizer):
    torch.nn.utils.clip_grad_norm_(model.parameters(), 0.01)


def clip_value(model, optimizer):
    torch.nn.utils.clip_grad_value_(model.parameters(), 0.001)


def scale(model, optimizer):
    for p in params(model):
        p.grad.mul_(0.25)


def noise(model, optimizer):
    for p in params(model):
        p.grad = p.grad + torch.ones(p.shape)


def decay(model, optimizer):
    for p in params(model):
        p.grad.add_(p.detach(), alpha=0.1)


def by_hand(model, optimizer):
    """As in PCGrad, or with accumulation by hand: all gradients are new tensors."""
    for p in params(model):
        p.grad = torch.full(p.shape, 0.5)


def data_clamp(model, optimizer):
    for p in params(model):
        p.grad.data.clamp_(-0.001, 0.001)


def data_mul(model, optimizer):
    for p in params(model):
        p.grad.data.mul_(0.5)


def data_set(model, optimizer):
    for p in params(model):
        p.grad.data = torch.ones(p.shape)


def detached(model, optimizer):
    for p in params(model):
        g = p.grad.detach().view(-1)
        torch.ops.aten.mul_.Tensor(g.data, torch.tensor(2.0))


def by_numpy(model, optimizer):
    for p in params(model):
        p.grad.numpy()[...] = 1


def none(model, optimizer):
    for p in params(model):
        p.grad = None


def zeroed(model, optimizer):
    optimizer.zero_grad(set_to_none=False)


def one_element(model, optimizer):
    model[2].bias.grad[0] += 1


def unscaled(model, optimizer):
    g = [p.grad for p in params(model)]
    torch._amp_foreach_non_finite_check_and_unscale_(g, torch.zeros(1), torch.full((1,), 0.5))


WAYS = {f.__name__: f for f in (
    data_mul, clip, by_numpy, none, unscaled, clip_value, scale, noise, decay, by_hand, data_clamp, data_set, detached,
    zeroed, one_element,
)}  # fmt: skip


def changed(method, way, parts=1):
    model, optimizer = prepared(method, **({"accumulate": parts} if parts > 1 else {}))
    for step in range(STEPS):
        x, y = batch(step, optimizer.world.rank)
        torch.nn.functional.cross_entropy(model(x), y).backward()
        WAYS[way](model, optimizer)
        optimizer.step()
        optimizer.zero_grad()
    optimizer.finish()
    return values(model)


@pytest.mark.parametrize("way", cases(*WAYS))
@pytest.mark.parametrize("method, parts", cases(("ddp", 1), ("ddp", 2), ("zero", 1), ("zero(stage=3)", 1),
                                                ("powersgd", 1), ("parameter-server", 1)))
def test_changing_a_gradient_in_exchange_names_the_parameter(method, parts, way):
    (answer,) = forked.ranks(1, changed, method, way, parts)
    assert answer.get("error") == "StateError", answer
    assert "exchanges gradients while backward runs" in answer["text"], answer
    assert re.search(r"'[02]\.(weight|bias)'", answer["text"]), answer


@pytest.mark.parametrize("way", WAYS)
def test_each_kind_of_gradient_change_is_detected_under_ddp(way):
    (answer,) = forked.ranks(1, changed, "ddp", way)
    assert answer.get("error") == "StateError" and f"'{FIRST}'" in answer["text"], answer


@pytest.mark.parametrize("method", cases("local-sgd(period=2)", "lasgd", "bagua(algorithm=decentralized)", "d-psgd",
                                         "byteps(async=on)", "ad-psgd"))
def test_gradient_changes_match_torch_without_exchange_in_backward(method):
    for way, change in WAYS.items():
        model = net()
        optimizer = sgd(model)
        for step in range(STEPS):
            x, y = batch(step, 0)
            torch.nn.functional.cross_entropy(model(x), y).backward()
            change(model, optimizer)
            optimizer.step()
            optimizer.zero_grad()
        (answer,) = forked.ranks(1, changed, method, way)
        assert "value" in answer, (way, answer)
        for mine, theirs in zip(answer["value"], values(model), strict=True):
            atol = 1e-6 if "async" in method else 0  # there the update is a difference of models
            torch.testing.assert_close(torch.tensor(mine), torch.tensor(theirs), rtol=0, atol=atol, msg=way)


def looks(method):
    """A script that looks at gradients in every way and changes none, and keeps them over steps."""
    model, optimizer = prepared(method)
    kept, norms = [], []
    for step in range(STEPS):
        x, y = batch(step, optimizer.world.rank)
        torch.nn.functional.cross_entropy(model(x), y).backward()
        norms.append(float(torch.stack([p.grad.norm() for p in model.parameters()]).norm()))
        kept += [p.grad.numpy().sum() + float(p.grad.data.max()) for p in model.parameters()]
        grads = [p.grad for p in model.parameters()]
        optimizer.step()
        assert all(type(p.grad) is torch.Tensor for p in model.parameters())
        for g in grads:
            g.mul_(2)  # what happens after the step has no effect
        optimizer.zero_grad(set_to_none=step % 2 == 0)
    optimizer.finish()
    return [values(model), norms]


@pytest.mark.parametrize("method", ["ddp", "zero"])
def test_reading_gradients_changes_nothing(method):
    first, second = forked.ranks(2, looks, method)
    plain = forked.ranks(2, unlooked, method)
    assert [first["value"][0], second["value"][0]] == [a["value"] for a in plain]
    assert first["value"][1] != second["value"][1]


def unlooked(method):
    model, optimizer = prepared(method)
    for step in range(STEPS):
        x, y = batch(step, optimizer.world.rank)
        torch.nn.functional.cross_entropy(model(x), y).backward()
        optimizer.step()
        optimizer.zero_grad()
    optimizer.finish()
    return values(model)


def kept_view(how):
    """One flat memory for all gradients, as fused clipping has it, that is changed by ways without a version."""
    model, optimizer = prepared("ddp")
    flat = torch.zeros(sum(p.numel() for p in model.parameters()))
    for p, g in zip(model.parameters(), flat.split([p.numel() for p in model.parameters()]), strict=True):
        p.grad = g.view_as(p)
    reader = flat.numpy()
    for step in range(STEPS):
        flat.zero_()
        x, y = batch(step, optimizer.world.rank)
        torch.nn.functional.cross_entropy(model(x), y).backward()
        if how == "data":
            flat.data.mul_(0.5)
        elif how == "numpy":
            reader *= 0.5
        optimizer.step()
    optimizer.finish()
    return values(model)


def test_changes_through_retained_gradient_memory_are_detected():
    assert forked.ranks(1, kept_view, None) == forked.ranks(1, unlooked, "ddp")
    for how in ("data", "numpy"):
        (answer,) = forked.ranks(1, kept_view, how)
        assert answer.get("error") == "StateError" and "was changed between backward and step()" in answer["text"], how


def hand_set(method, model, optimizer, rank, wrapped):
    """A parameter that backward does not reach has a gradient of the script's."""
    for step in range(STEPS):
        a, b = (t * 0.1 for t in batch(step, rank))
        wrapped(a).square().mean().backward()
        model.unused.grad = torch.full((3,), float(rank + 1))
        optimizer.step()
        optimizer.zero_grad()


class Partly(torch.nn.Module):
    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.inner = torch.nn.Linear(5, 2)
        self.unused = torch.nn.Parameter(torch.ones(3))

    def forward(self, x):
        return self.inner(x)


def sets_unused(method):
    model, optimizer = prepared(method, model=Partly())
    hand_set(method, model, optimizer, optimizer.world.rank, model)
    optimizer.finish()
    return model.unused.tolist()


def test_manually_set_gradient_of_unused_parameter_is_applied():
    model = Partly()
    optimizer = sgd(model)
    for _ in range(STEPS):
        model.unused.grad = torch.full((3,), 1.5)
        optimizer.step()
    assert [a["value"] for a in forked.ranks(2, sets_unused, "ddp")] == [model.unused.tolist()] * 2


def rows(how):
    torch.manual_seed(0)
    model = torch.nn.EmbeddingBag(9, 4, sparse=True, mode="sum")
    model, optimizer = prepared("ddp", model=model, optimizer=plain_sgd)
    for step in range(3):
        model(torch.tensor([[1, 2 + step], [2, 7]])).square().sum().backward()
        if how == "values":
            model.weight.grad._values().data.mul_(0.5)
        elif how == "replaced":
            model.weight.grad = model.weight.grad * 0.5
        elif how == "unscaled":
            torch._amp_foreach_non_finite_check_and_unscale_(
                [model.weight.grad._values()], torch.zeros(1), torch.full((1,), 0.5)
            )
        else:
            model.weight.grad.coalesce().values().sum()
        optimizer.step()
        optimizer.zero_grad()


@pytest.mark.parametrize("how", [None, "values", "replaced", "unscaled"])
def test_changes_of_sparse_gradients_are_detected(how):
    (answer,) = forked.ranks(1, rows, how)
    assert answer == {"value": None} if how is None else "'weight' was " in answer["text"], answer


# ---- GradScaler ----


def scaled(method, how):
    torch.manual_seed(0)
    model = torch.nn.Linear(4, 1)
    model, optimizer = prepared(method, model=model, optimizer=OPTIMIZERS[how])
    scaler = torch.amp.GradScaler("cpu", enabled=how != "disabled")
    g = torch.Generator().manual_seed(optimizer.world.rank)
    for _ in range(3):
        x = torch.randn(8, 4, generator=g)
        loss = (model(x) - x.sum(1, keepdim=True)).square().mean()
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()
        optimizer.zero_grad()
    optimizer.finish()
    return values(model)


def plain_sgd(model):
    return torch.optim.SGD(model.parameters(), lr=0.1)


OPTIMIZERS = {
    "sgd": plain_sgd,
    "disabled": plain_sgd,
    "fused": lambda model: torch.optim.SGD(model.parameters(), lr=0.1, fused=True),  # divides by the scale itself
}


@pytest.mark.parametrize("how", ["sgd", "fused"])
@pytest.mark.parametrize("method", cases("ddp", "zero", "powersgd", "zero(stage=2)", "zero(stage=3)", "pipe-sgd"))
def test_a_grad_scaler_is_refused_in_the_first_step(method, how):
    for answer in forked.ranks(2, scaled, method, how):
        assert answer.get("error") == "StateError", answer
        assert "GradScaler" in answer["text"] and "optimizer.scale(loss)" in answer["text"], answer


def test_disabled_grad_scaler_has_no_effect():
    assert forked.ranks(2, scaled, "ddp", "disabled") == forked.ranks(2, scaled, "parameter-server", "disabled")


@pytest.mark.parametrize("how", ["sgd", "fused"])
@pytest.mark.parametrize("method", cases("local-sgd(period=2)", "d-psgd", "lasgd"))
def test_grad_scaler_unscales_gradients_that_are_not_exchanged(method, how):
    with_scaler, without = (forked.ranks(2, scaled, method, h) for h in (how, "disabled"))
    for a, b in zip(with_scaler, without, strict=True):
        for x, y in zip(a["value"], b["value"], strict=True):
            torch.testing.assert_close(torch.tensor(x), torch.tensor(y), rtol=1e-5, atol=1e-6)


@pytest.mark.slow
@pytest.mark.parametrize("method", EXCHANGING)
def test_exchanging_methods_either_honour_or_reject_a_grad_scaler(method):
    answers = forked.ranks(2, scaled, method, "sgd")
    without = forked.ranks(2, scaled, method, "disabled")
    for a, b in zip(answers, without, strict=True):
        if "value" in a:
            for x, y in zip(a["value"], b["value"], strict=True):
                torch.testing.assert_close(torch.tensor(x), torch.tensor(y), rtol=1e-4, atol=1e-4)
        else:
            assert "GradScaler" in a["text"], a
