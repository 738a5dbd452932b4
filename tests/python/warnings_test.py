"""Nothing here makes torch warn: with warnings as errors, each of them as often as it is given."""

import warnings

import pytest

pytestmark = pytest.mark.torch
torch = pytest.importorskip("torch")

import forked  # noqa: E402

import tutti.torch  # noqa: E402

torch.set_num_threads(1)


def trained(method, sparse, wrapper=False, **options):
    warnings.simplefilter("error")
    torch.set_warn_always(True)
    torch.manual_seed(0)
    layers = [torch.nn.EmbeddingBag(9, 4, sparse=True)] if sparse else [torch.nn.Linear(4, 4)]
    model = torch.nn.Sequential(*layers, torch.nn.BatchNorm1d(4), torch.nn.Linear(4, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    x = torch.arange(12).view(6, 2) % 9 if sparse else torch.ones(6, 4)
    if wrapper:
        model = tutti.torch.DistributedDataParallel(model, method, **options)
    else:
        model, optimizer = tutti.torch.prepare(model, optimizer, method, **options)

    def closure():
        optimizer.zero_grad()
        loss = model(x).square().mean()
        loss.backward()
        return loss

    for k in range(3):
        if "saddle" in method:
            optimizer.step(closure)
        else:
            loss = closure()
            optimizer.step(**({} if wrapper else {"loss": loss}))
    if not wrapper:
        with optimizer.evaluate():
            model.eval()
            model(x)
        model.train()
        optimizer.finish()


def halved(method):
    """The warnings of two steps under autocast with fp16."""
    model = torch.nn.Linear(4, 1)
    model, optimizer = tutti.torch.prepare(model, torch.optim.SGD(model.parameters(), lr=0.1), method)
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        for _ in range(2):
            with torch.autocast("cpu", dtype=torch.float16):
                loss = model(torch.ones(2, 4)).square().mean()
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
    optimizer.finish()
    return [str(w.message) for w in said]


@pytest.mark.parametrize("method, times", [("backup-workers(backup=0)", 1), ("parameter-server", 0)])
def test_fp16_without_loss_scale_warns_once(method, times):
    for answer in forked.ranks(2, halved, method):
        said = [m.split(",")[0] for m in answer["value"]]
        assert said == ["method 'backup-workers' cannot skip a step"] * times, answer


@pytest.mark.parametrize("method, sparse, wrapper", [
    ("saddle", False, False), ("ddp", True, False), ("ddp", True, True),
    *(pytest.param(*p, marks=pytest.mark.slow) for p in [
        ("ddp", False, False), ("ddp", False, True), ("zero", False, False), ("zero(stage=3)", False, False),
        ("local-sgd(period=2)", False, False), ("local-sgd(period=2)", True, False), ("parallax", True, False),
        ("powersgd", False, False), ("oscars", False, False),
    ]),
])  # fmt: skip
def test_it_trains_with_warnings_as_errors(method, sparse, wrapper):
    for answer in forked.ranks(2, trained, method, sparse, wrapper):
        assert answer == {"value": None}
