"""Methods that compute a batch again at other values, through tutti.torch.prepare: what the closure is called for, and
that nothing but the gradient of the second look is kept. A perturbation too small to move a weight must change
nothing at all: the same bits as without it, in a module with batch norms and dropout."""

import logging

import pytest

pytestmark = pytest.mark.torch
torch = pytest.importorskip("torch")

import forked  # noqa: E402

import tutti.torch  # noqa: E402

torch.set_num_threads(1)
STEPS = 4
NO_CLOSURE = "method 'saddle' computes a batch again at other values within a step, for which it needs"


def net(draws=True):
    torch.manual_seed(0)
    between = [torch.nn.BatchNorm1d(7), torch.nn.Dropout(0.5)] if draws else []
    return torch.nn.Sequential(torch.nn.Linear(5, 7), *between, torch.nn.ReLU(), torch.nn.Linear(7, 2))


def batch(step, rank):
    x = torch.randn(8, 5, generator=torch.Generator().manual_seed(100 * step + rank))
    return x, x.sum(1).gt(0).long()


def prepared(method, model, lr=0.1, **options):
    logging.disable()
    return tutti.torch.prepare(model, torch.optim.SGD(model.parameters(), lr=lr, momentum=0.9), method, **options)


def everything(model):
    return [t.flatten().tolist() for t in model.state_dict().values()]


def closure_of(model, optimizer, step, calls=None):
    x, y = batch(step, optimizer.world.rank)

    def closure():
        optimizer.zero_grad()
        loss = torch.nn.functional.cross_entropy(model(x), y)
        loss.backward()
        if calls is not None:
            calls.append((step, float(loss.detach()), [p.flatten().tolist() for p in model.parameters()]))
        return loss

    return closure


def train(method, way, draws=True):
    model, optimizer = prepared(method, net(draws))
    losses = []
    for step in range(STEPS):
        closure = closure_of(model, optimizer, step)
        if way == "closure":
            losses.append(float(optimizer.step(closure)))
        elif way == "before":
            losses.append(float(closure()))
            assert optimizer.step(closure) is None
        else:
            losses.append(float(closure()))
            optimizer.step()
        losses.append(float(torch.rand(())))  # the generator is where it was
    optimizer.finish()
    return losses, everything(model)


@pytest.mark.parametrize("variant, n", [("q", 1), ("q", 2), ("n", 1)])
def test_second_pass_over_a_batch_has_no_side_effects(variant, n):
    plain = "saddle(rho=0)" if variant == "q" else "qg-dsgdm"
    first = None
    for method, way in (
        (plain, "plain"),
        (f"saddle(rho=1e-30,variant={variant})", "closure"),
        (f"saddle(rho=1e-30,variant={variant})", "before"),
    ):
        if variant == "n" and way == "plain":
            method = "single"
        answers = forked.ranks(n, train, method, way)
        assert all("value" in a for a in answers), answers
        first = first or answers
        assert answers == first, (method, way)


def by_hand(rho, lr):
    """SAM and heavy-ball momentum in plain torch: the first passes' losses and the model."""
    model = net(draws=False)
    params, buffers, losses = list(model.parameters()), [torch.zeros_like(p) for p in model.parameters()], []
    for step in range(STEPS):
        x, y = batch(step, 0)

        def gradients(x=x, y=y):
            loss = torch.nn.functional.cross_entropy(model(x), y)
            return loss, torch.autograd.grad(loss, params)

        loss, g = gradients()
        losses.append(float(loss.detach()))
        with torch.no_grad():
            norm = torch.cat([t.flatten() for t in g]).norm() + 1e-12
            kept = [p.clone() for p in params]
            for p, t in zip(params, g, strict=True):
                p += rho * t / norm
        _, g = gradients()
        with torch.no_grad():
            for p, k, b, t in zip(params, kept, buffers, g, strict=True):
                b.mul_(0.9).add_(t)
                p.copy_(k - lr * b)
    return losses, everything(model)


def test_one_worker_is_sam():
    losses, model = by_hand(0.5, 0.1)
    ((got, values),) = (a["value"] for a in forked.ranks(1, train, "saddle(rho=0.5,variant=n)", "closure", False))
    assert got[::2] == pytest.approx(losses, rel=1e-5)
    for a, b in zip(values, model, strict=True):
        assert a == pytest.approx(b, rel=1e-4, abs=1e-6)


def passes(method):
    model, optimizer = prepared(method, net())
    calls = []
    for step in range(2):
        optimizer.step(closure_of(model, optimizer, step, calls))
    counted = optimizer.figures()["samples"]
    optimizer.finish()
    return [step for step, _, _ in calls], counted, calls[0][2] == calls[1][2]


@pytest.mark.parametrize(
    "method, expected",
    [
        ("saddle", [0, 0, 1, 1]),
        ("saddle(sam_every=2)", [0, 0, 1]),
        ("saddle(variant=n,rho=0)", [0, 0, 1, 1]),
        ("saddle(variant=n)", [0, 0, 0, 0, 1, 1, 1, 1]),
    ],
)
def test_the_closure_is_called_for_each_pass(method, expected):
    for answer in forked.ranks(2, passes, method):
        called, counted, same = answer["value"]
        assert called == expected and counted == 4
        assert same == (method == "saddle(variant=n,rho=0)")  # the neighbour's model, which is mine in the first step


def without(way):
    method, accumulate = "saddle(rho=0)" if way == "one pass" else "saddle", 2 if way == "accumulate" else 1
    model, optimizer = prepared(method, net(), accumulate=accumulate)
    closure = closure_of(model, optimizer, 0)
    if way in ("closure", "one pass"):
        optimizer.step(closure)
    closure()
    optimizer.step()


@pytest.mark.parametrize(
    "way, words",
    [
        ("none", NO_CLOSURE),
        ("closure", NO_CLOSURE),
        ("one pass", "step(closure) cannot be had"),
        ("accumulate", "method 'saddle': accumulate is 2, but the second pass is over all samples of the step at once"),
    ],
)
def test_invalid_options_are_rejected(way, words):
    (answer,) = forked.ranks(1, without, way)
    assert answer["error"] == "ValueError" and words in answer["text"], answer


def wrapped():
    tutti.torch.DistributedDataParallel(net(), method="saddle")


def test_wrapper_rejects_methods_that_recompute_batches():
    (answer,) = forked.ranks(1, wrapped)
    assert answer["error"] == "ValueError" and "saddle" in answer["text"], answer
