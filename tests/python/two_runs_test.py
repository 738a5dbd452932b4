"""Two runs in one process, as for a GAN: two models and two optimizers, whose steps alternate, against plain torch."""

import os

import pytest

pytestmark = pytest.mark.torch
torch = pytest.importorskip("torch")

import forked  # noqa: E402

import tutti.torch  # noqa: E402

torch.set_num_threads(1)
STEPS, RANKS = 4, 2
lossf = torch.nn.functional.binary_cross_entropy_with_logits


def nets():
    torch.manual_seed(0)
    return [
        torch.nn.Sequential(torch.nn.Linear(n, 8), torch.nn.ReLU(), torch.nn.Linear(8, out))
        for n, out in ((3, 4), (4, 1))
    ]


def batch(step, rank):
    draw = torch.Generator().manual_seed(100 * step + rank)
    return torch.randn(6, 4, generator=draw) + 1, torch.randn(6, 3, generator=draw)


def label(value):
    return torch.full((6, 1), float(value))


def discriminate(gen, dis, real, noise, loop):
    """D's backward: one of each loss, as torch's own example has it ("usual"), or one of the sum."""
    fake = gen(noise)
    losses = lossf(dis(real), label(1)), lossf(dis(fake.detach()), label(0))
    if loop != "usual":
        (losses[0] + losses[1]).backward()
    else:
        losses[0].backward()
        losses[1].backward()
    return fake


def generate(dis, fake, loop):
    """G's backward, through a D that is frozen meanwhile or is not."""
    if loop == "frozen":
        dis.requires_grad_(False)
    lossf(dis(fake), label(1)).backward()
    if loop == "frozen":
        dis.requires_grad_(True)


def optimizers(gen, dis, momentum=0.9):
    return [torch.optim.SGD(m.parameters(), lr=0.1, momentum=momentum) for m in (gen, dis)]


def trained(method, loop):
    """A rank's models under Tutti."""
    rank = int(os.environ["TUTTI_RANK"])
    gen, dis = nets()
    of_gen, of_dis = optimizers(gen, dis)
    if method == "wrapper":
        run_gen, run_dis = tutti.torch.DistributedDataParallel(gen), tutti.torch.DistributedDataParallel(dis)
    else:
        run_gen, of_gen = tutti.torch.prepare(gen, of_gen, method)
        run_dis, of_dis = tutti.torch.prepare(dis, of_dis, method)
    for step in range(STEPS):
        real, noise = batch(step, rank)
        of_dis.zero_grad()
        fake = discriminate(run_gen, run_dis, real, noise, loop)
        of_dis.step()
        of_gen.zero_grad()
        generate(run_dis, fake, loop)
        of_gen.step()
    if method != "wrapper":
        of_gen.finish()
        of_dis.finish()
    return [p.tolist() for m in (gen, dis) for p in m.parameters()]


def mean(tensors):
    return (tensors[0] + tensors[1]) / 2


def by_hand(period, loop):
    """All ranks in one process. period 0: gradients are averaged over them; else models are, every `period` steps."""
    ranks = [nets() for _ in range(RANKS)]
    opts = [optimizers(*r) for r in ranks]

    def step(which, k):
        params = list(zip(*[r[which].parameters() for r in ranks], strict=True))
        if period == 0:
            for ps in params:
                g = mean([p.grad for p in ps])
                for p in ps:
                    p.grad = g.clone()
        for r in range(RANKS):
            opts[r][which].step()
        if period > 0 and (k + 1) % period == 0:
            for ps in params:
                x = mean([p.detach() for p in ps])
                for p in ps:
                    p.data.copy_(x)

    for k in range(STEPS):
        fakes = []
        for r, (gen, dis) in enumerate(ranks):
            opts[r][1].zero_grad()
            fakes.append(discriminate(gen, dis, *batch(k, r), loop))
        step(1, k)
        for r, (_, dis) in enumerate(ranks):
            opts[r][0].zero_grad()
            generate(dis, fakes[r], loop)
        step(0, k)
    return [p.tolist() for m in ranks[0] for p in m.parameters()]


def flat(values):
    return torch.cat([torch.tensor(v).flatten() for v in values])


WRAPPED = [("wrapper", 0)]
PREPARED = [("ddp", 0), ("zero", 0), ("local-sgd(period=2)", 2)]
FREEZE = "freeze this one meanwhile: model.requires_grad_(False)"


@pytest.mark.parametrize("method, period", WRAPPED + PREPARED)
def test_a_gan_trains_as_in_torch(method, period):
    answers = forked.ranks(RANKS, trained, method, "frozen")
    assert answers == [{"value": by_hand(period, "frozen")}] * RANKS


def test_wrapper_supports_an_unfrozen_discriminator():
    """As torch's do, whose exchange of D's gradients in G's backward zero_grad() undoes."""
    answers = forked.ranks(RANKS, trained, "wrapper", "usual")
    assert answers[0] == answers[1]
    torch.testing.assert_close(flat(answers[0]["value"]), flat(by_hand(0, "usual")), rtol=1e-5, atol=1e-7)


@pytest.mark.parametrize("method, loop, words", [
    ("ddp", "usual", "a second backward before optimizer.step(): a pass has one; add the losses up"),
    ("ddp", "added", FREEZE), ("zero", "added", FREEZE),
    ("local-sgd(period=2)", "usual", "finish() within a pass"),
    ("zero(stage=3)", "frozen", "no other model's loss can go through it; take zero(stage=2)"),
])  # fmt: skip
def test_prepare_rejects_unsupported_gan_loops_with_advice(method, loop, words):
    for answer in forked.ranks(RANKS, trained, method, loop):
        assert answer["error"] == "StateError" and words in answer["text"], answer
        assert loop == "frozen" or "requires_grad_(False)" in answer["text"], answer


def one_after_the_other():
    """Runs of one process need not be open at once."""
    found = []
    for method in ("ddp", "local-sgd(period=2)", "zero"):
        model = nets()[1]
        model, optimizer = tutti.torch.prepare(model, torch.optim.SGD(model.parameters(), lr=0.1), method)
        for step in range(2):
            optimizer.zero_grad()
            lossf(model(batch(step, optimizer.world.rank)[0]), label(1)).backward()
            optimizer.step()
        optimizer.finish()
        found.append([p.tolist() for p in model.parameters()])
    return found


def test_consecutive_runs_work_in_one_process():
    a, b = forked.ranks(RANKS, one_after_the_other)
    assert a == b and a["value"][0] == a["value"][2] != a["value"][1]


def with_servers(first, second):
    gen, dis = nets()
    of_gen, of_dis = optimizers(gen, dis, 0.0)
    tutti.torch.prepare(gen, of_gen, "asgd" if first else "ddp", servers=first)
    tutti.torch.prepare(dis, of_dis, "asgd" if second else "ddp", servers=second)


@pytest.mark.parametrize("first, second", [(1, 0), (0, 1), (1, 1)])
def test_second_run_with_dedicated_servers_is_rejected(first, second):
    answers = forked.ranks(RANKS, with_servers, first, second)
    assert answers[0]["error"] == "ValueError" and "ranks that only serve are in one run" in answers[0]["text"], answers
    assert "error" in answers[1], answers  # it was serving, or is refused the same way
