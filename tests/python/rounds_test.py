"""Goal: a script whose method makes local steps trains in rounds of logical shares (elastic_shares=, elastic=True).
Each share begins its round with the common model and a new optimizer, and the bits do not depend on the number of
workers, on losses and on newcomers. Method: any number of workers against one, and against plain torch by hand: as many
models and optimizers as shares, averaged in the engine's order."""

import copy
import os
import re
import signal

import pytest
import torch
import torch.nn.functional as F

import forked
import tutti.torch
from elastic_checkpoint_test import kill_all, newest, starts_at
from elastic_test import SCRIPT, Elastic, equal
from prepare_test import alone

SHARES, EACH, PERIOD = 4, 2, 3  # samples of a pass; local steps of a round


def net(norm):
    torch.manual_seed(0)
    between = [torch.nn.BatchNorm1d(7, momentum=0.3), torch.nn.Dropout(0.4)] if norm else []
    model = torch.nn.Sequential(torch.nn.Linear(5, 7), *between, torch.nn.ReLU(), torch.nn.Linear(7, 2))
    model.register_parameter("idle", torch.nn.Parameter(torch.ones(3)))  # never has a gradient
    return model


def groups(model):
    return [{"params": [p for p in model.parameters() if p.dim() > 1], "weight_decay": 0.1},
            {"params": [p for p in model.parameters() if p.dim() == 1], "lr": 0.02}]


RULES = {
    "sgd": lambda model: torch.optim.SGD(groups(model), lr=0.1, momentum=0.9, weight_decay=0.01),
    "adamw": lambda model: torch.optim.AdamW(groups(model), lr=0.01),
    "adagrad": lambda model: torch.optim.Adagrad(groups(model), lr=0.05, initial_accumulator_value=0.1),
}


def samples(n):
    draw = torch.Generator().manual_seed(3)
    return torch.randn(n, 5, generator=draw), torch.randint(0, 2, (n,), generator=draw)


def values(model):
    return [t.tolist() for t in model.state_dict().values() if t.is_floating_point()]


def rounds(method, rule, n=40, accumulate=1, norm=True, dtype=torch.float32, shares="even"):
    """Of 40 samples the shares have none in the last local step of an epoch, of 34 some of them have none in two."""
    model = net(norm).to(dtype)
    optimizer = RULES[rule](model)
    first = copy.deepcopy(optimizer.state_dict()["state"])
    sampler = tutti.torch.sampler(n, EACH, 5, accumulate=accumulate, shares=shares)
    model, optimizer = tutti.torch.prepare(model, optimizer, method, sampler=sampler, elastic_shares=SHARES)
    (x, y), passes = samples(n), 0
    for _ in range(2):
        for ids in sampler:
            passes += 1
            F.cross_entropy(model(x[ids].to(dtype)).float(), y[ids]).backward()
            optimizer.step()
            optimizer.zero_grad()
    assert passes == 2 * len(sampler)
    assert str(optimizer.optimizer.state_dict()["state"]) == str(first)
    steps = optimizer.figures()["steps"]
    optimizer.finish()
    return [steps, values(model)]


@pytest.mark.parametrize("given", [
    (f"local-sgd(period={PERIOD})", "sgd"), (f"local-sgd(period={PERIOD})", "adamw", 34, 2, False),
    (f"diloco(period={PERIOD})", "adamw"), (f"slowmo(period={PERIOD},beta=0.5)", "adagrad"),
    (f"local-sgd(period={PERIOD},outer=sgd(lr=0.7,momentum=0.9))", "sgd", 34, 1, False, torch.bfloat16),
    (f"palsgd(period={PERIOD},form=elastic,mix_rate=2)", "sgd"),
])
def test_rounds_have_the_same_bits_with_any_number_of_workers(given):
    one = alone(rounds, *given)[0]
    n, accumulate = given[2:4] if len(given) > 3 else (40, 1)
    assert one[0] == 2 * -(-n // (SHARES * EACH * PERIOD * accumulate))
    for n in (2, 3, 4):
        assert alone(rounds, *given, n=n) == [one] * n


def test_weights_deal_the_shares_and_no_bit_depends_on_it():
    given = f"local-sgd(period={PERIOD})", "adamw", 34, 1, False, torch.float32
    assert alone(rounds, *given, "5:0", n=2) == alone(rounds, *given) * 2


def by_hand(rule, n):
    """Two epochs of local-sgd in plain torch."""
    common, (x, y) = net(False), samples(n)
    worker = [tutti.torch.sampler(n, EACH, 5, rank=k, workers=SHARES) for k in range(SHARES)]
    batches = [[ids for _ in range(2) for ids in w] for w in worker]
    for begin in range(0, len(batches[0]), PERIOD):
        results = []
        for of in batches:
            model = copy.deepcopy(common)
            optimizer = RULES[rule](model)
            for ids in of[begin:begin + PERIOD]:
                optimizer.zero_grad()
                F.cross_entropy(model(x[ids]), y[ids]).backward()
                optimizer.step()
            results.append([p.detach() / SHARES for p in model.parameters()])
        with torch.no_grad():
            for p, a, b, c, d in zip(common.parameters(), *results, strict=True):
                p.copy_((a + b) + (c + d))
    return values(common)


@pytest.mark.parametrize("rule", RULES)
def test_a_round_is_local_steps_of_a_new_optimizer_for_each_share(rule):
    n = 2 * SHARES * EACH * PERIOD
    assert alone(rounds, f"local-sgd(period={PERIOD})", rule, n, 1, False)[0] == [4, by_hand(rule, n)]


def broken_off():
    model, (x, y) = net(False), samples(24)
    begun = [p.detach().clone() for p in model.parameters()]
    model, optimizer = tutti.torch.prepare(model, RULES["sgd"](model), "local-sgd(period=3)", elastic_shares=2,
                                           sampler=tutti.torch.sampler(24, 2, 5))
    ids = next(iter(tutti.torch.sampler(24, 2, 5, rank=0, workers=2)))
    F.cross_entropy(model(x[ids]), y[ids]).backward()
    optimizer.step()
    optimizer.finish()
    one = net(False)
    rule = RULES["sgd"](one)
    F.cross_entropy(one(x[ids]), y[ids]).backward()
    rule.step()
    mean = [a / 2 + b / 2 for a, b in zip(one.parameters(), begun, strict=True)]
    return all(torch.equal(p, m) for p, m in zip(model.parameters(), mean, strict=True))


def test_a_loop_that_ends_in_the_middle_of_a_round_makes_no_more_local_steps():
    assert alone(broken_off) == [True]


def rows():
    return torch.randn(5, 5, 3, generator=torch.Generator().manual_seed(3))


def normed():
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.BatchNorm1d(5, momentum=0.3), torch.nn.Flatten(), torch.nn.Linear(15, 2))
    sampler = tutti.torch.sampler(5, 2, 5)
    model, optimizer = tutti.torch.prepare(model, torch.optim.SGD(model.parameters(), lr=0.1), "local-sgd(period=2)",
                                           sampler=sampler, elastic_shares=2)
    seen = []
    for ids in sampler:
        seen.append(list(ids))
        model(rows()[ids]).square().mean().backward()
        optimizer.step()
        optimizer.zero_grad()
    optimizer.finish()
    return [seen, model[0].running_mean.tolist()]


def test_a_batch_that_does_not_count_changes_no_statistics():
    """Share 1 has no samples in its second local step."""
    seen, found = alone(normed)[0]
    means = []
    assert sorted(i for ids in seen[:3] for i in ids) == list(range(5)) and len(seen[3]) == 2
    for batches in (seen[:2], seen[2:3]):
        norm = torch.nn.BatchNorm1d(5, momentum=0.3)
        for ids in batches:
            norm(rows()[ids])
        means.append(norm.running_mean)
    torch.testing.assert_close(torch.tensor(found), (means[0] + means[1]) / 2)


def saving(folder, how):
    sampler = tutti.torch.sampler(48, EACH, 5)
    model = net(True)
    model, optimizer = tutti.torch.prepare(model, RULES["adamw"](model), "diloco(period=2)", sampler=sampler,
                                           elastic_shares=SHARES)
    (x, y), done = samples(48), 0
    if how == "resumed":
        optimizer.load(folder)
        done = 1
    for epoch in range(done, 3):
        for ids in sampler:
            F.cross_entropy(model(x[ids]), y[ids]).backward()
            optimizer.step()
            optimizer.zero_grad()
        if how == "saved" and epoch == 0:
            optimizer.save(folder)
    optimizer.finish()
    return values(model)


def test_a_run_is_resumed_with_another_number_of_workers(tmp_path):
    whole = alone(saving, str(tmp_path), "saved", n=3)
    assert alone(saving, str(tmp_path), "resumed", n=2) == whole[:2]


# ---- workers that come and go ----

LOCAL = SCRIPT.replace("elastic=True)", "elastic=True, method='diloco(period=2)')").replace(
    "nn.functional", "assert not optimizer.optimizer.state or optimizer._run.within; nn.functional", 1)
ROUNDS = 4 * 3  # 56 samples, 4 shares of 2 x 3


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory):
    run = Elastic(tmp_path_factory.mktemp("rounds"), "one", 1, script=LOCAL)
    text = run.end()
    assert f"step {run.pids()[0]} {ROUNDS}" in text
    return run.model()


def test_a_worker_that_is_killed_in_a_round_comes_back_and_the_model_is_the_same(tmp_path, undisturbed):
    run = Elastic(tmp_path, "killed", 3, delay=0.4, script=LOCAL)
    for _ in range(3):
        run.until(r"^begins")
    run.until(r"^step \d+ 2$")
    os.kill(run.pids()[1], signal.SIGKILL)
    assert int(run.until(r"^begins \d+ (\d+)")[1]) > 0
    text = run.end()
    assert "was killed by signal 9 (SIGKILL); the run goes on" in text
    assert text.count("ended") == 3 and equal(run.model(), undisturbed)


@pytest.mark.slow
def test_all_are_killed_and_it_continues_with_the_same_bits(tmp_path, undisturbed):
    saved = tmp_path / "saved"
    plan = f"tutti.torch.Checkpoints({str(saved)!r}, every=2)"
    script = LOCAL.replace("elastic=True,", f"elastic=True, checkpoint={plan},")
    run = Elastic(tmp_path, "killed", 3, delay=0.1, script=script)
    run.until(r"^step \d+ 5$")
    kill_all(run)
    assert newest(saved).name == "step-00000004"
    run = Elastic(tmp_path, "again", 4, script=script)
    assert starts_at(run.end()) == {4} and equal(run.model(), undisturbed)


DEALT = SCRIPT  # the first process to come is slow, if the command has one more argument
for was, now in (
    ("sampler(data, 3, seed=1)", "sampler(data, 2, seed=1, shares='auto')"),
    ("elastic=True)", "elastic=True, elastic_shares=14)"),
    ("model, optimizer =", """try:
    os.close(os.open(out + ".slow", os.O_CREAT | os.O_EXCL))
    slow = len(sys.argv) > 4
except FileExistsError:
    slow = False
model, optimizer ="""),
    ("        nn.functional", "        time.sleep(0.1 * slow)\n        nn.functional"),
    ("    with optimizer.evaluate()", """    dealt = optimizer._run.elastic.speeds._dealt
    print(f"dealt {optimizer.world.rank} {slow} {dealt}\\n", end="", flush=True)
    with optimizer.evaluate()"""),
):
    assert was in DEALT
    DEALT = DEALT.replace(was, now, 1)


def test_shares_are_dealt_by_speed_and_no_bit_depends_on_it(tmp_path):
    one = Elastic(tmp_path, "one", 1, script=DEALT)
    one.end()
    run = Elastic(tmp_path, "speeds", 3, script=DEALT, arguments=["slow"])
    rank, dealt = re.findall(r"dealt (\d) True \[(.*)\]", run.end())[-1]
    shares = [int(n) for n in dealt.split(",")]
    assert equal(run.model(), one.model())
    assert sum(shares) == 14 and 1 <= shares.pop(int(rank)) < min(shares)


# ---- what cannot be ----


def test_an_evaluation_within_a_round_is_refused(tmp_path):
    step = "        optimizer.step()\n"
    script = LOCAL.replace(step, step + "        optimizer.evaluate().__enter__()\n")
    run = Elastic(tmp_path, "within", 1, more=["--restarts", "0"], script=script)
    assert "evaluate() within a round of local steps, when the module has the model of one share" in run.end(1)


def used(model):
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    F.mse_loss(model(torch.ones(1, 2)), torch.ones(1, 1)).backward()
    optimizer.step()
    return optimizer


class Counting(torch.optim.SGD):
    def step(self, closure=None):
        super().step(closure)
        self.param_groups[0]["done"] = self.param_groups[0].get("done", 0) + 1


def counting(_rank=0):
    model = torch.nn.Linear(2, 1)
    model, optimizer = tutti.torch.prepare(model, Counting(model.parameters(), lr=0.1), "local-sgd", elastic_shares=2,
                                           sampler=tutti.torch.sampler(8, 2))
    F.mse_loss(model(torch.ones(1, 2)), torch.ones(1, 1)).backward()
    optimizer.step()


def test_an_optimizer_that_cannot_begin_anew_is_refused():
    model = torch.nn.Linear(2, 1)
    with pytest.raises(ValueError, match=re.escape("has made steps already (its state has 'momentum_buffer')")):
        tutti.torch.prepare(model, used(model), "local-sgd", sampler=tutti.torch.sampler(8, 2), elastic_shares=2)
    (answer,) = forked.ranks(1, counting)
    assert "Counting changes 'done' of its groups in a step" in answer["text"]
