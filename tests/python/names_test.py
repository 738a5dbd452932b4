"""Methods that choose samples, under the user's own loop: the sampler gives what a pass names, and step(losses=...)
reports each sample's loss."""

import logging

import pytest

pytestmark = pytest.mark.torch
torch = pytest.importorskip("torch")

import forked  # noqa: E402

import tutti.torch  # noqa: E402

torch.set_num_threads(1)
SAMPLES, BATCH = 240, 4


def train(method, epochs=3, tell="losses"):
    """Each sample is as hard as its number: the slow worker ought to get large ones."""
    logging.disable()
    torch.manual_seed(0)
    x = torch.randn(SAMPLES, 6)
    hard = torch.arange(SAMPLES) / SAMPLES * 5
    data = torch.utils.data.TensorDataset(x, torch.arange(SAMPLES))
    model = torch.nn.Linear(6, 1)
    sampler = tutti.torch.sampler(data, BATCH, 3)
    model, optimizer = tutti.torch.prepare(model, torch.optim.SGD(model.parameters(), lr=0.001), method,
                                           sampler=sampler)
    seen = []
    for _ in range(epochs):
        seen.append([])
        for x_, i in torch.utils.data.DataLoader(data, batch_sampler=sampler):
            losses = (model(x_).flatten() * 0.01).square() + hard[i]
            losses.mean().backward()
            if tell == "losses":
                optimizer.step(losses=losses)
            elif tell == "one":
                optimizer.step(losses=losses.mean())
            else:
                optimizer.step()
            optimizer.zero_grad()
            seen[-1] += i.tolist()
    figures = optimizer.figures()
    optimizer.finish()
    return {"w": model.weight.flatten().tolist(), "seen": seen, "samples": figures["samples"]}


def test_slow_workers_train_on_hard_samples_and_models_agree():
    answers = [a["value"] for a in forked.ranks(3, train, "biased-local-sgd(steps=7:1:7)")]
    assert all(a["w"] == answers[0]["w"] for a in answers)
    assert all(a["samples"] == 3 * SAMPLES for a in answers)
    for epoch in range(3):  # as many samples as an epoch has; a worker's own and the list
        assert sum(len(a["seen"][epoch]) for a in answers) == SAMPLES
        slow = answers[1]["seen"][epoch]
        assert len(set(slow)) == len(slow) == SAMPLES / 15
        if epoch > 0:
            # the top quarter of a draw of a quarter of all
            assert sum(slow) / len(slow) > 0.7 * SAMPLES
    again = [a["value"] for a in forked.ranks(3, train, "biased-local-sgd(steps=7:1:7)")]
    assert again == answers


def test_without_bias_each_sample_is_used_once_per_epoch():
    answers = [a["value"] for a in forked.ranks(2, train, "biased-local-sgd(steps=5:1,bias_ratio=1)", 2, "")]
    for epoch in range(2):
        assert sorted(answers[0]["seen"][epoch] + answers[1]["seen"][epoch]) == list(range(SAMPLES))


@pytest.mark.parametrize(
    ("tell", "sentence"),
    [
        ("", "the loss of sample 0 of 4 was not reported in step 0"),
        ("one", "step(losses=...): losses are of shape (), and this batch has 4 samples; give each sample's loss"),
    ],
)
def test_missing_or_misshapen_sample_losses_are_rejected(tell, sentence):
    answers = forked.ranks(2, train, "biased-local-sgd(steps=5:1)", 2, tell)
    assert any(sentence in a.get("text", "") for a in answers), answers
