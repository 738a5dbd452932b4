"""Rows of the page's table of differences between the wrapper and torch's DistributedDataParallel (docs/PYTORCH.md)."""

import pathlib
import re

import pytest

pytestmark = pytest.mark.torch
torch = pytest.importorskip("torch")

import forked  # noqa: E402

import tutti  # noqa: E402
import tutti.torch  # noqa: E402

torch.set_num_threads(1)


class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.used, self.unused = torch.nn.Linear(4, 2), torch.nn.Linear(4, 2)

    def forward(self, x):
        return self.used(x)


def batch(rank):
    return torch.randn(8, 4, generator=torch.Generator().manual_seed(rank))


def mean_gradient():
    grads = []
    for rank in range(2):
        net = Net()
        net(batch(rank)).square().mean().backward()
        grads.append(net.used.weight.grad)
    return (grads[0] + grads[1]) / 2


def kept(views):
    ddp = tutti.torch.DistributedDataParallel(Net(), gradient_as_bucket_view=views)
    x = batch(ddp.rank)
    ddp(x).square().mean().backward()
    weight = ddp.module.used.weight
    first, was = weight.grad, weight.grad.clone()
    weight.grad = None
    ddp(2 * x).square().mean().backward()
    return torch.equal(first, was), torch.equal(weight.grad, was)


@pytest.mark.parametrize("views", [True, False])
def test_retained_gradient_is_overwritten_if_a_bucket_view(views):
    for answer in forked.ranks(2, kept, views):
        assert answer == {"value": [not views, False]}


def twice():
    ddp = tutti.torch.DistributedDataParallel(Net())
    loss = ddp(batch(ddp.rank)).square().mean()
    loss.backward(retain_graph=True)
    loss.backward()
    return torch.allclose(ddp.module.used.weight.grad, 2 * mean_gradient(), rtol=1e-6, atol=1e-7)


def test_a_second_backward_of_one_forward_is_exchanged_too():
    for answer in forked.ranks(2, twice):
        assert answer == {"value": True}


def by_hand():
    ddp = tutti.torch.DistributedDataParallel(Net())
    unused = ddp.module.unused
    unused.weight.grad = torch.full_like(unused.weight, float(1 + 2 * ddp.rank))
    ddp(batch(ddp.rank)).square().mean().backward()
    return unused.weight.grad.unique().tolist(), unused.bias.grad is None


@pytest.mark.filterwarnings("ignore:no gradient reached")
def test_a_gradient_that_was_set_by_hand_of_an_unused_parameter_is_exchanged():
    for answer in forked.ranks(2, by_hand):
        assert answer == {"value": [[2.0], True]}


SAMPLED = ("scadles", "hetero-ring", "ata", "palsgd", "dabmd", "biased-local-sgd")


def clipped(method):
    torch.manual_seed(0)
    model, name = torch.nn.Linear(4, 1), method.split("(")[0]
    momentum = 0.9 if name in ("qg-dsgdm", "gut", "saddle") else 0.0
    sampler = tutti.torch.sampler(64, 16) if name in SAMPLED else None
    model, optimizer = tutti.torch.prepare(model, torch.optim.SGD(model.parameters(), lr=0.05, momentum=momentum),
                                           method, validation=lambda: 1.0, sampler=sampler, batch=16)  # fmt: skip
    if sampler is not None:
        next(iter(sampler))

    def closure():
        optimizer.zero_grad()
        loss = model(torch.ones(8, 4)).square().mean()
        loss.backward()
        return loss

    loss = closure()
    torch.nn.utils.clip_grad_norm_(model.parameters(), 0.01)
    optimizer.step(**({"closure": closure} if name == "saddle" else {"loss": loss}))


@pytest.mark.slow
def test_the_page_names_the_methods_that_refuse_clip_grad_norm():
    page = " ".join((pathlib.Path(__file__).parents[2] / "docs/PYTORCH.md").read_text().split())
    said = re.search(r"These refuse `clip_grad_norm_`.*?after backward: (.*?)\. Not so (.*?)\. Under", page)
    refusing, taking = (re.findall("`(.*?)`", words) for words in said.groups())
    found = []
    for method in [m.name for m in tutti.methods() if "pipeline-schedule" not in m.traits] + taking:
        (answer,) = forked.ranks(1, clipped, method)
        if "value" not in answer:
            assert answer["error"] == "StateError" and "exchanges gradients while" in answer["text"], (method, answer)
            found.append(method)
    assert sorted(found) == sorted(refusing)
