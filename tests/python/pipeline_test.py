"""tutti.torch.pipeline: a model in stages under methods that drive. What is computed is what their recursions say, at
the values that they say, wherever the model is cut; what cannot be is a sentence."""

import contextlib
import pathlib
import signal

import pytest

pytestmark = pytest.mark.torch
torch = pytest.importorskip("torch")

import forked  # noqa: E402
from prepare_test import alone, cases  # noqa: E402
from torch import nn  # noqa: E402
from torch.nn import functional as F  # noqa: E402

import tutti.torch  # noqa: E402

torch.set_num_threads(1)
SAMPLES, STEP = 60, 24  # so the last step of an epoch is cut


def net():
    torch.manual_seed(0)
    return nn.Sequential(
        nn.Linear(12, 15), nn.ReLU(), nn.Linear(15, 16), nn.LayerNorm(16), nn.Sequential(nn.Linear(16, 10), nn.Tanh()),
        nn.Linear(10, 3),
    )  # fmt: skip


def data(samples=SAMPLES):
    x = torch.randn(samples, 12, generator=torch.Generator().manual_seed(1))
    return torch.utils.data.TensorDataset(x, x[:, :3].argmax(1))


def sgd(model):
    return torch.optim.SGD(model.parameters(), lr=0.1)


def momentum(model):
    return torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.5, weight_decay=0.01)


def adam(model):
    return torch.optim.AdamW(model.parameters(), lr=0.01)


def pipe_of(method, model=None, rule=sgd, dataset=None, **options):
    model = model if model is not None else net()
    options.setdefault("batch", STEP // len_of_run())
    loss = options.pop("loss", F.cross_entropy)
    return tutti.torch.pipeline(model, rule(model), loss, dataset or data(), method, **options)


def len_of_run():
    import os

    return int(os.environ["TUTTI_SIZE"])


def values(model):
    return [p.detach().flatten().tolist() for p in model.parameters()]


def train(method, epochs=2, rule=sgd, make=net, **options):
    """Losses of the epochs, and the values in the end."""
    model = make()
    pipe = pipe_of(method, model, rule, **options)
    losses = [pipe.epoch() for _ in range(epochs)]
    pipe.finish()
    return losses, values(model)


def close(mine, theirs, within=2e-6):
    for a, b in zip(mine, theirs, strict=True):
        torch.testing.assert_close(torch.tensor(a), torch.tensor(b), rtol=1e-4, atol=within)


def micro_batches(epochs, size, samples=SAMPLES, step=STEP):
    """Of one pipeline, in the library's order, of each step: (input, target). A last step's last ones are empty."""
    x, y = data(samples).tensors
    for epoch in range(epochs):
        for batch in order(epoch, samples, step):
            yield [(x[batch[k : k + size]], y[batch[k : k + size]]) for k in range(0, step, size)]


def order(epoch, samples, step):
    sampler = tutti.torch.sampler(samples, step, rank=0, workers=1)
    sampler.set_epoch(epoch)
    return [list(batch) for batch in sampler]


def recursion(delay, micro, epochs=2, rule=sgd):
    """Each micro-batch makes an update along its gradient at the values of `delay` micro-batches ago."""
    model, now, total, losses = net(), net(), [], []
    optimizer = rule(now)
    versions = [[p.detach().clone() for p in now.parameters()]] * delay
    for step in micro_batches(epochs, micro):
        for x, y in step:
            if len(x) == 0:
                versions = [*versions[1:], versions[-1]]
                continue
            with torch.no_grad():
                for p, v in zip(model.parameters(), versions[0], strict=True):
                    p.copy_(v)
            model.zero_grad()
            loss = F.cross_entropy(model(x), y)
            loss.backward()
            total.append((loss.item() * len(x), len(x)))
            for p, q in zip(now.parameters(), model.parameters(), strict=True):
                p.grad = q.grad.clone()
            optimizer.step()
            versions = [*versions[1:], [p.detach().clone() for p in now.parameters()]]
    each = len(total) // epochs
    for e in range(epochs):
        part = total[e * each : (e + 1) * each]
        losses.append(sum(loss for loss, _ in part) / sum(n for _, n in part))
    return losses, values(now)


# ---- what is computed ----


@pytest.mark.parametrize("rule", cases(sgd, momentum, adam))
def test_one_at_a_time_is_plain_torch_wherever_it_is_cut(rule):
    losses, trained = recursion(1, STEP, rule=rule)
    one = alone(train, "hetpipe(stages=1,in_flight=1)", 2, rule, n=1)[0]
    close(one[1], trained)
    assert one[0] == pytest.approx(losses, rel=1e-5)
    for n in (2, 3):
        for answer in alone(train, f"hetpipe(stages={n},in_flight=1)", 2, rule, n=n):
            assert answer == one


@pytest.mark.parametrize("n, flight", cases((2, 4), (1, 3), (3, 6), (2, 2), (2, 8)))
def test_each_backward_sees_the_values_that_its_forward_saw(n, flight):
    losses, trained = recursion(flight, STEP // flight)
    for answer in alone(train, f"hetpipe(stages={n},in_flight={flight})", n=n):
        close(answer[1], trained)
        assert answer[0] == pytest.approx(losses, rel=1e-4)
