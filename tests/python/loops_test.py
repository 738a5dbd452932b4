"""Loops as scripts have them under tutti.torch.prepare: scaled losses, compiled modules, a trainer with a schedule,
accumulation and validation."""

import pytest

pytestmark = [pytest.mark.torch, pytest.mark.slow]
torch = pytest.importorskip("torch")

import forked  # noqa: E402
from prepare_test import alone, batch, loop, net, prepared, values  # noqa: E402

import tutti.torch  # noqa: E402

torch.set_num_threads(1)


# ---- scaled losses ----


def scaled(method, spec, overflow, half):
    """Each step's values. overflow: the step in which rank 1's gradient is not finite."""
    model, optimizer = prepared(method, net().half() if half else None, **({"loss_scale": spec} if spec else {}))
    rank, seen, scales = optimizer.world.rank, [], []
    for step in range(5):
        x, y = batch(step, rank)
        out = model(x.half() if half else x).float()
        loss = torch.nn.functional.cross_entropy(out, y)
        if step == overflow and rank == 1:
            loss = loss * float("inf")
        (optimizer.scale(loss) if spec else loss).backward()
        optimizer.step()
        optimizer.zero_grad()
        scales.append(optimizer.figures()["loss_scale"])
        with optimizer.evaluate():
            seen.append(values(model))
    optimizer.finish()
    return seen, scales


@pytest.mark.parametrize("method", ["ddp", "d-psgd", "powersgd(rank=1)"])
def test_a_scale_of_a_power_of_two_changes_no_bit(method):
    plain, wide = alone(scaled, method, "", -1, False, n=2), alone(scaled, method, "static(scale=8)", -1, False, n=2)
    assert [a[0] for a in plain] == [a[0] for a in wide] and wide[0][1] == [8.0] * 5


@pytest.mark.parametrize("half", [False, True])
def test_overflow_on_one_worker_skips_the_step_on_all(half):
    (seen, scales), (other, _) = alone(scaled, "ddp", "dynamic(init=64)", 2, half, n=2)
    assert seen == other
    assert seen[2] == seen[1] and seen[1] != seen[0] and seen[3] != seen[2]
    assert scales[:2] == [64.0] * 2 and scales[2] < 64


# ---- compiled modules ----


def compiled(method, how):
    torch._dynamo.reset()
    model = net()
    inner = model
    if how == "before":
        model = torch.compile(model, backend="aot_eager")
    elif how == "in place":
        model.compile(backend="aot_eager")
    model, optimizer = prepared(method, model)
    called = torch.compile(model, backend="aot_eager") if how == "after" else model
    loop(called, optimizer, range(4), optimizer.world.rank)
    optimizer.finish()
    return values(inner)


@pytest.mark.parametrize("method, how", [
    ("ddp", "before"), *(pytest.param(*p, marks=pytest.mark.long) for p in (("ddp", "after"), ("d-psgd", "in place")))])
def test_a_compiled_module_trains_to_the_same_bits(method, how):
    forked.compiler()
    assert alone(compiled, method, how, n=2) == alone(compiled, method, "", n=2)


# ---- loops in the manner of trainers ----


class Trainer:
    """As Accelerate and Lightning have it: the loop knows neither the network nor the workers."""

    def __init__(self, model, optimizer, schedule, **options):
        self.model, self.optimizer = tutti.torch.prepare(model, optimizer, **options)
        self.schedule = schedule(self.optimizer)

    def fit(self, batches, accumulate):
        for number, (x, y) in enumerate(batches):
            torch.nn.functional.cross_entropy(self.model(x), y).backward()
            self.optimizer.step()  # a pass; the method's step in every accumulate-th
            self.optimizer.zero_grad()
            if (number + 1) % accumulate == 0:
                self.schedule.step()

    def validate(self, x, y):
        self.model.eval()
        with self.optimizer.evaluate(), torch.no_grad():
            loss = float(torch.nn.functional.cross_entropy(self.model(x), y))
        self.model.train()
        return loss


def trained(method, codec):
    import logging

    logging.disable()
    model = net(norm=True)
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.02)
    trainer = Trainer(model, optimizer, lambda o: torch.optim.lr_scheduler.OneCycleLR(o, 0.02, total_steps=13),
                      method=method, codec=codec, accumulate=2)
    rank = trainer.optimizer.world.rank
    before = trainer.validate(*batch(1000, 0))
    for epoch in range(3):
        trainer.fit([batch(8 * epoch + k, rank) for k in range(8)], 2)
    after = trainer.validate(*batch(1000, 0))
    said = trainer.optimizer.state_dict()
    trainer.optimizer.finish()
    return before, after, values(model), said["param_groups"][0]["lr"]


@pytest.mark.parametrize("method, codec", [("ddp", "ef(topk(ratio=0.5))"), ("local-sgd(period=3)", None),
                                           ("d-psgd", None)])
def test_a_trainer_with_schedule_accumulation_and_validation_trains(method, codec):
    first, second = alone(trained, method, codec, n=2)
    assert first == second
    before, after, _, rate = first
    assert after < before and rate < 1e-4
