"""diloco under tutti.torch.prepare, against the same rule written with PyTorch: torch.optim.SGD(nesterov=True) as the
outer optimizer, torch.lerp for what a worker keeps. Equal to the bit."""

import pytest

pytestmark = pytest.mark.torch
torch = pytest.importorskip("torch")

import forked  # noqa: E402

torch.set_num_threads(1)
STEPS, WORKERS = 13, 2
OUTER = "outer=sgd(lr=0.7,momentum=0.9,nesterov=true)"


def net():
    torch.manual_seed(0)
    return torch.nn.Sequential(torch.nn.Linear(5, 7), torch.nn.ReLU(), torch.nn.Linear(7, 2))


def inner(model):
    return torch.optim.AdamW(model.parameters(), lr=0.01)


def train(model, optimizer, step, rank):
    x = torch.randn(4, 5, generator=torch.Generator().manual_seed(100 * step + rank))
    torch.nn.functional.cross_entropy(model(x), (x.sum(1) > 0).long()).backward()
    optimizer.step()
    optimizer.zero_grad()


def values(model):
    return [p.flatten().tolist() for p in model.parameters()]


def prepared(options):
    import tutti.torch

    model = net()
    model, optimizer = tutti.torch.prepare(model, inner(model), f"diloco({options},{OUTER})")
    seen = []
    for step in range(STEPS):
        train(model, optimizer, step, optimizer.world.rank)
        seen.append(values(model))
    optimizer.close()
    return seen


def outer_step(fragment, moved, momentum):
    for theta, d in zip(fragment, moved, strict=True):
        theta.grad = d
    momentum.step()


def by_torch(period, fragments, delay, mix):
    """The values of each worker after each step."""
    models = [net() for _ in range(WORKERS)]
    optimizers = [inner(m) for m in models]
    theta = [p.detach().clone().requires_grad_() for p in net().parameters()]
    parts = [[0, 1, 2, 3]] if fragments == 1 else [[0], [1, 2, 3]]  # 35 and 7 + 14 + 2 elements
    outer = [torch.optim.SGD([theta[i] for i in part], lr=0.7, momentum=0.9, nesterov=True) for part in parts]
    every = period // fragments
    seen = [[] for _ in models]
    for step in range(STEPS):
        for rank, (model, optimizer) in enumerate(zip(models, optimizers, strict=True)):
            train(model, optimizer, step, rank)
        x = [list(m.parameters()) for m in models]
        with torch.no_grad():
            if (step + 1 + delay) % every == 0:
                out = ((step + 1 + delay) // every - 1) % fragments
                moved = [sum((theta[i] - of[i]) for of in x) / WORKERS for i in parts[out]]
            if (step + 1) % every == 0:
                part = ((step + 1) // every - 1) % fragments
                outer_step([theta[i] for i in parts[part]], moved, outer[part])
                for of in x:
                    for i in parts[part]:
                        of[i].copy_(torch.lerp(theta[i], of[i], mix))
        for rank, model in enumerate(models):
            seen[rank].append(values(model))
    return seen


@pytest.mark.parametrize("period, fragments, delay, mix", [(3, 1, 0, 0.0), (6, 2, 1, 0.25), (4, 2, 1, 0.7)])
def test_outer_step_is_that_of_torch_to_the_bit(period, fragments, delay, mix):
    options = f"period={period},fragments={fragments},delay={delay},mix={mix}"
    answers = forked.ranks(WORKERS, prepared, options)
    assert [a.get("value", a) for a in answers] == by_torch(period, fragments, delay, mix)
