"""finish() in the middle of an accumulation: what there is of it is applied, divided by the whole count, as a loop of
torch's own with (loss / N).backward() applies its last, shorter one."""

import pytest

pytestmark = pytest.mark.torch
torch = pytest.importorskip("torch")

import forked  # noqa: E402

import tutti.torch  # noqa: E402

torch.set_num_threads(1)
COUNT, ITERATIONS = 3, 5


def net():
    torch.manual_seed(0)
    return torch.nn.Linear(4, 1)


def batch(step, rank):
    return torch.randn(8, 4, generator=torch.Generator().manual_seed(10 * step + rank))


def accumulated(method):
    model = net()
    inner = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    model, optimizer = tutti.torch.prepare(model, inner, method, accumulate=COUNT)
    for k in range(ITERATIONS):
        optimizer.zero_grad()
        model(batch(k, optimizer.world.rank)).square().mean().backward()
        optimizer.step()
    optimizer.finish()
    return [p.flatten().tolist() for p in model.state_dict().values()]


def by_hand(n):
    model, factor = net(), 1 / COUNT
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    for first in range(0, ITERATIONS, COUNT):
        of_ranks = []
        for rank in range(n):
            total = [torch.zeros_like(p) for p in model.parameters()]
            for k in range(first, min(first + COUNT, ITERATIONS)):
                grads = torch.autograd.grad(model(batch(k, rank)).square().mean(), list(model.parameters()))
                for t, g in zip(total, grads, strict=True):
                    t.add_(g, alpha=factor)
            of_ranks.append(total)
        for p, *gs in zip(model.parameters(), *of_ranks, strict=True):
            p.grad = sum(gs) / n
        optimizer.step()
    return [p.flatten().tolist() for p in model.parameters()]


@pytest.mark.parametrize("method, n", [("ddp", 1), ("ddp", 2), ("zero", 2), ("zero(stage=3)", 2)])
def test_incomplete_accumulation_is_applied_at_finish(method, n):
    answers = forked.ranks(n, accumulated, method)
    if "stage" not in method:
        assert answers == [{"value": by_hand(n)}] * n
    for ours, hand in zip(answers[0]["value"], by_hand(n), strict=True):  # stage 3 sums each pass over the ranks
        assert ours == pytest.approx(hand, rel=1e-5)
