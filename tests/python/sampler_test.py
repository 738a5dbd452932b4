"""tutti.torch.sampler: the library's order of samples, cut as base.h cuts it.

What base.h promises is stated here once more, by other means: an epoch is every sample once, a step's samples do not
depend on how it is cut, and the order is that of tutti_permuted.
"""

import logging

import pytest

pytestmark = pytest.mark.torch
torch = pytest.importorskip("torch")

import forked  # noqa: E402

import tutti.torch  # noqa: E402
from tutti._library import library as _c  # noqa: E402
from tutti.errors import StateError  # noqa: E402

torch.set_num_threads(1)


def of(workers, samples=100, batch=8, **options):
    return [tutti.torch.sampler(samples, batch, 5, rank=r, workers=workers, **options) for r in range(workers)]


def flat(batches):
    return [i for batch in batches for i in batch]


@pytest.mark.parametrize("workers", [1, 2, 3, 7])
@pytest.mark.parametrize("accumulate", [1, 3])
def test_an_epoch_is_every_sample_once_and_the_next_another_order(workers, accumulate):
    samplers = of(workers, samples=112 * 3, accumulate=accumulate)
    epochs = []
    for _ in range(2):
        batches = [list(s) for s in samplers]
        assert all(len(b) == len(s) for b, s in zip(batches, samplers, strict=True))
        epochs.append([flat(b) for b in batches])
        assert sorted(flat(epochs[-1])) == list(range(112 * 3))
    assert epochs[0] != epochs[1]


def test_sample_order_matches_the_library():
    """Position p of epoch e is tutti_share_sample's, which takes worker 0's first batch, then worker 1's, and so on."""
    samplers = of(2)
    steps = list(zip(*samplers, strict=True))
    order = flat(flat(steps))
    share = samplers[0]._share
    assert order[:96] == [_c.tutti_share_sample(share, 0, p) for p in range(96)]


def test_a_steps_samples_are_the_same_however_it_is_cut():
    even, uneven = of(2), of(2, shares="3:1")
    for (a, b), (c, d) in list(zip(zip(*even, strict=True), zip(*uneven, strict=True), strict=True))[:6]:
        assert a + b == c + d
        assert (len(c), len(d)) == (12, 4)


def test_workers_without_last_step_samples_still_get_a_batch():
    batches = [list(s) for s in of(3, samples=25, batch=8)]
    assert [len(b) for b in batches] == [2, 2, 2]
    assert [len(b[1]) for b in batches] == [1, 1, 1]  # one sample is left, and two workers' do not count


def test_sampler_resumes_from_its_state_dict():
    whole, (resumed,) = of(1, samples=50), of(1, samples=50)
    first, second = list(whole[0]), list(whole[0])
    half = of(1, samples=50)[0]
    taken = [b for _, b in zip(range(3), half, strict=False)]
    resumed.load_state_dict(half.state_dict())
    assert taken + list(resumed) == first
    assert list(resumed) == second
    resumed.set_epoch(0)
    assert list(resumed) == first


def test_workers_sample_only_from_their_own_part():
    parts = [list(range(0, 30)), list(range(30, 100))]
    for s, part in zip(of(2, parts=parts), parts, strict=True):
        assert set(flat(s)) <= set(part)
    for s, part in zip(of(2, parts=parts, shares="data", batch=10), parts, strict=True):
        assert sorted(flat(s)) == part  # in proportion, all see theirs once


@pytest.mark.parametrize(
    "options, words",
    [
        ({"batch": 0}, "batch is 0; it must be at least 1"),
        ({"shares": "1:2:3"}, "a weight for each of the 2 workers"),
        ({"shares": "quick"}, "write even, data, or a weight"),
        ({"shares": "data"}, "give parts"),
        ({"parts": [[0, 1], []]}, "each has one that is not empty"),
        ({"parts": [[0, 1], [1, 2]]}, "must be in exactly one part"),
    ],
)
def test_invalid_sampler_options_are_rejected(options, words):
    with pytest.raises(ValueError, match=words):
        of(2, **options)


def test_sampler_outside_a_run_is_rejected():
    with pytest.raises(StateError, match="in no run yet"):
        list(tutti.torch.sampler(10, 2))


# ---- with prepare ----


def train(method, shares, epochs=2, samples=100, loaders=0):
    logging.disable()
    torch.manual_seed(0)
    x = torch.randn(samples, 6)
    y = x.sum(1, keepdim=True)
    data = torch.utils.data.TensorDataset(x, y, torch.arange(samples))
    model = torch.nn.Linear(6, 1)
    sampler = tutti.torch.sampler(data, 8, 3, shares=shares)
    model, optimizer = tutti.torch.prepare(
        model,
        torch.optim.SGD(model.parameters(), lr=0.02),
        method,
        sampler=sampler,
        validation=lambda: (model(x) - y).square().mean(),
    )
    seen, sizes = [], []
    for _ in range(epochs):
        for x_, y_, i in torch.utils.data.DataLoader(data, batch_sampler=sampler, num_workers=loaders):
            (model(x_) - y_).square().mean().backward()
            optimizer.step()
            optimizer.zero_grad()
            seen += i.tolist()
            sizes.append(len(i))
    figures = optimizer.figures()
    optimizer.finish()
    return {"w": model.weight.flatten().tolist(), "seen": seen, "sizes": sizes, "samples": figures["samples"]}


def test_unequal_shares_train_to_the_same_model():
    """The mean over a step's samples does not depend on which worker computes them: equal up to the order of a sum."""
    models = []
    for workers, shares in ((1, "even"), (2, "even"), (2, "3:1"), (2, "0:1")):
        answers = [a["value"] for a in forked.ranks(workers, train, "ddp", shares, 2, 96)]
        models.append(torch.tensor(answers[0]["w"]))
        assert answers[0]["w"] == answers[-1]["w"]
    torch.testing.assert_close(models[1], models[2], rtol=1e-5, atol=1e-6)
    torch.testing.assert_close(models[1], models[3], rtol=1e-5, atol=1e-6)
    assert not torch.allclose(models[0], models[1])  # half the batch, twice the steps


@pytest.mark.slow
def test_prefetching_loaders_change_nothing_if_the_order_is_fixed():
    here, ahead = (forked.ranks(2, train, "ddp", "even", 2, 96, loaders) for loaders in (0, 2))
    assert here == ahead


def test_prefetching_loaders_are_rejected_if_the_method_assigns_samples():
    (answer,) = forked.ranks(1, train, "ad-psgd", "even", 2, 96, 2)
    assert "give the DataLoader num_workers=0" in answer["text"], answer


@pytest.mark.slow
@pytest.mark.parametrize("method", ["ad-psgd", "asgd", "oscars"])
def test_asynchronous_workers_together_read_every_sample_once_per_epoch(method):
    answers = [a["value"] for a in forked.ranks(3, train, method, "even", 2, 96)]
    assert sorted(flat(a["seen"] for a in answers)) == sorted(list(range(96)) * 2)


@pytest.mark.parametrize("method", ["palsgd(mix_prob=0.4,period=5)", "palsgd(mix_prob=0.3,period=3,coin=shared)"])
def test_mixing_steps_consume_no_batch(method):
    """Mixing steps come between those of the loop: an epoch is every sample once, and no batch is thrown away."""
    answers = [a["value"] for a in forked.ranks(3, train, method, "even", 2, 96)]
    seen = flat(a["seen"] for a in answers)
    assert sorted(seen) == sorted(list(range(96)) * 2)
    assert all(a["samples"] == 192 for a in answers)
    assert answers[0]["w"] == answers[1]["w"] == answers[2]["w"]


@pytest.mark.slow
@pytest.mark.parametrize("method", ["dabmd(compute_ms=5)", "scadles(rates=40:9:20,batch_min=1,simulate_clock=on)"])
def test_time_limited_passes_read_every_sample_once_per_epoch(method):
    answers = [a["value"] for a in forked.ranks(3, train, method, "even", 2, 96)]
    assert sorted(flat(a["seen"] for a in answers)) == sorted(list(range(96)) * 2)
    assert all(a["w"] == answers[0]["w"] and a["samples"] == 192 for a in answers)


@pytest.mark.slow
@pytest.mark.parametrize("method", ["ata", "hetero-ring"])
def test_sample_assigning_methods_read_every_sample_once_per_epoch(method):
    """ata gives a worker that it has not tried yet one task of two, and no more."""
    answers = [a["value"] for a in forked.ranks(2, train, f"{method}", "even", 3, 96)]
    seen = flat(a["seen"] for a in answers)
    assert sorted(seen) == sorted(list(range(96)) * 3)
