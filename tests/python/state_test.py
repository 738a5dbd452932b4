"""optimizer.state_dict() of a prepared optimizer has what the method keeps: a run continues from it in new processes
to the same bits, and mismatches give an error message."""

import pytest

pytestmark = [pytest.mark.torch, pytest.mark.slow]
torch = pytest.importorskip("torch")

import forked  # noqa: E402
from prepare_test import alone, batch, loop, net, prepared, sgd, values  # noqa: E402

import tutti.torch  # noqa: E402
from tutti.errors import StateError  # noqa: E402

torch.set_num_threads(1)


def plain(model):
    return torch.optim.SGD(model.parameters(), lr=0.01)


def halves(model, optimizer, steps, rank):
    for step in steps:
        x, y = batch(step, rank)
        torch.nn.functional.cross_entropy(model(x.bfloat16()), y).backward()
        optimizer.step()
        optimizer.zero_grad()


def going(method, options, folder, how):
    """Six steps, or three whose state goes to a file, or three more from there."""
    options = dict(options)
    rule = plain if options.pop("plain", False) else sgd
    half = options.pop("half", False)
    late = options.pop("late", False)  # the model is loaded before prepare()
    steps = halves if half else loop
    model = net().bfloat16() if half else net()
    saved = None
    if how == "then":
        torch.manual_seed(7)
        for p in model.parameters():
            torch.nn.init.normal_(p)
    if how == "then" and late:
        model.load_state_dict(torch.load(f"{folder}/0", weights_only=True)["model"])
    model, optimizer = prepared(method, model, rule, **options)
    rank = optimizer.world.rank
    if how == "through":
        steps(model, optimizer, range(6), rank)
    elif how == "first":
        steps(model, optimizer, range(3), rank)
        torch.save({"model": model.state_dict(), "optimizer": optimizer.state_dict()}, f"{folder}/{rank}")
        optimizer.world.barrier()
        optimizer.close()
        return None
    else:
        saved = torch.load(f"{folder}/{rank}", weights_only=True)
        if not late:
            model.load_state_dict(saved["model"])
        optimizer.load_state_dict(saved["optimizer"])
        assert optimizer.figures()["steps"] == 3
        steps(model, optimizer, range(3, 6), rank)
    optimizer.finish()
    return values(model)


SAME = [
    ("ddp", {"half": True}),
    ("powersgd(rank=1)", {}),
    ("d-psgd", {"codec": "topk(ratio=0.2)"}),
    ("parameter-server", {}),
    ("ddp", {}),
    ("ddp", {"late": True}),
    ("ddp", {"codec": "ef(topk(ratio=0.2))"}),
    ("ddp", {"loss_scale": "dynamic(init=8)"}),
    ("local-sgd(period=2,outer=sgd(lr=0.7,momentum=0.5))", {}),
    ("local-sgd(period=2,outer=sgd(lr=0.7,momentum=0.5))", {"half": True}),
    ("accordion(mode=batch)", {}),
    ("signum", {"plain": True}),
    ("demo(topk=4,chunk=16)", {"plain": True}),
    ("onebit-adam(freeze_step=2)", {"plain": True}),
    ("dgc", {"plain": True}),
    ("sgp", {}),
    ("sgp(overlap=1)", {}),
    ("backup-workers(backup=0)", {"plain": True}),  # else the gradients of a late worker are dropped
    ("zero", {}),
    ("pipe-sgd(width=3,warmup=1)", {}),  # two gradients are pending
    ("pipe-sgd(width=2,warmup=0)", {"codec": "ef(topk(ratio=0.2))"}),
    ("slowmo(period=2)", {}),
    ("diloco(period=4,fragments=2,delay=1)", {}),
    ("noloco(period=2)", {}),
    ("palsgd(period=2,mix_prob=0.3,warmup=0)", {}),
]


@pytest.mark.parametrize("method, options", SAME)
def test_run_resumed_from_a_state_dict_is_bit_identical(method, options, tmp_path):
    through = alone(going, method, options, str(tmp_path), "through", n=2)
    alone(going, method, options, str(tmp_path), "first", n=2)
    assert alone(going, method, options, str(tmp_path), "then", n=2) == through


# ---- methods that decide how many samples a step has, or which ----

SAMPLES, LOOPS = 180, 2


def chosen(method, folder, how, stop=0):
    """Two epochs by the sampler, or what is up to the first rest from step `stop` on, or what is left then."""
    torch.manual_seed(0)
    x = torch.randn(SAMPLES, 6)
    hard = torch.arange(SAMPLES) / SAMPLES
    data = torch.utils.data.TensorDataset(x, torch.arange(SAMPLES))
    model = torch.nn.Linear(6, 1)
    if how == "then":
        torch.nn.init.normal_(model.weight)
    sampler = tutti.torch.sampler(data, 4, 3)
    model, optimizer = prepared(method, model, plain, sampler=sampler)
    rank, seen, epochs = optimizer.world.rank, [], LOOPS
    if how == "then":
        saved = torch.load(f"{folder}/{rank}", weights_only=True)
        model.load_state_dict(saved["model"])
        optimizer.load_state_dict(saved["optimizer"])
        epochs -= optimizer.figures()["samples"] // SAMPLES
    for _ in range(epochs):
        for x_, i in torch.utils.data.DataLoader(data, batch_sampler=sampler):
            losses = (model(x_).flatten() - x_.sum(1)).square() + hard[i]
            losses.mean().backward()
            optimizer.step(losses=losses)
            optimizer.zero_grad()
            seen += i.tolist()
            if how != "first" or optimizer.figures()["steps"] < stop:
                continue
            try:
                state = optimizer.state_dict()
            except StateError as e:  # this worker's step continues
                assert "state_dict() within a step" in str(e)
                continue
            torch.save({"model": model.state_dict(), "optimizer": state}, f"{folder}/{rank}")
            optimizer.world.barrier()
            optimizer.close()
            return {"seen": seen, "names": sorted(state["tutti"]["state"])}
    optimizer.finish()
    return {"seen": seen, "model": values(model)}


def halves_of(method, folder, stop, again=None):
    """The samples of three workers before and after they were resumed, the model afterwards, and the names in the
    saved state."""
    first = alone(chosen, method, folder, "first", stop, n=3)
    then = alone(chosen, again or method, folder, "then", n=3)
    return [a["seen"] + b["seen"] for a, b in zip(first, then, strict=True)], then[0]["model"], first[0]["names"]


def test_state_dict_keeps_leased_samples_for_bit_identical_replay(tmp_path):
    (tmp_path / "state").mkdir()
    record, options = tmp_path / "record", "compute_ms=2,microbatch=2,most=8"
    through = alone(chosen, f"dabmd({options},record={record})", "", "through", n=3)
    seen, model, names = halves_of(f"dabmd({options},replay={record})", str(tmp_path / "state"), 3)
    assert seen == [a["seen"] for a in through] and model == through[0]["model"]
    assert {n.split("/")[0] for n in names} >= {"take.loan", "take.next", "take.of", "dabmd.taken"}
    # by the clock, too, no leased sample is lost or taken twice
    seen, _, _ = halves_of(f"dabmd({options})", str(tmp_path / "state"), 3)
    assert sorted(i for of in seen for i in of) == sorted(list(range(SAMPLES)) * LOOPS)


def test_state_dict_includes_sample_scores(tmp_path):
    method = "biased-local-sgd(steps=4:1:4)"
    through = alone(chosen, method, "", "through", n=3)
    seen, model, names = halves_of(method, str(tmp_path), 2)
    assert seen == [a["seen"] for a in through] and model == through[0]["model"]
    assert any("score" in n for n in names), names


def twice(method, folder, how):
    """An asynchronous run never repeats exactly: the test compares what is loaded with what was
    saved."""
    model, optimizer = prepared(method, optimizer=plain, transport="shm" if "hogwild" in method else None)
    rank = optimizer.world.rank
    if how == "first":
        loop(model, optimizer, range(4 + rank), rank)
        said = optimizer.state_dict()
        torch.save(said, f"{folder}/{rank}")
    else:
        optimizer.load_state_dict(torch.load(f"{folder}/{rank}", weights_only=True))
        said = optimizer.state_dict()
    state = {name: t.flatten().tolist() for name, t in said["tutti"]["state"].items()}
    own = values(model)
    if how == "then":
        loop(model, optimizer, range(3), rank)
    optimizer.world.barrier()
    optimizer.close()
    return state, own


@pytest.mark.parametrize("method", ["ad-psgd", "asgd", "asgd(hogwild=on)", "ringmaster-asgd"])
def test_asynchronous_state_dict_is_restored_unchanged(method, tmp_path):
    first = alone(twice, method, str(tmp_path), "first", n=2)
    assert any(name.startswith("x/") for name in first[0][0])
    assert alone(twice, method, str(tmp_path), "then", n=2) == first


def keys(method, rule, half):
    model = net().bfloat16() if half else net()
    model, optimizer = prepared(method, model, rule)
    (halves if half else loop)(model, optimizer, range(2), optimizer.world.rank)
    said = optimizer.state_dict()
    optimizer.finish()
    after = optimizer.state_dict()
    assert "tutti" not in after and after.keys() == torch.optim.SGD(model.parameters(), lr=1).state_dict().keys()
    return {k: v for k, v in said["tutti"].items() if k != "state"}, sorted(said["tutti"]["state"])


def test_state_dict_omits_what_the_module_saves():
    about, names = alone(keys, "ddp", sgd, False)[0]
    assert about == {"format": 1, "method": "ddp", "rank": 0, "workers": 1, "step": 2}
    assert not any(n.startswith(("x/", "client/")) for n in names) and any("engine.progress" in n for n in names)
    finer = alone(keys, "ddp", sgd, True)[0][1]
    assert {n for n in finer if n.startswith("x/")} == {f"x/{k}.{w}@0" for k in (0, 2) for w in ("weight", "bias")}
    assert any(n.startswith("signum.m/") for n in alone(keys, "signum", plain, False)[0][1])


# ---- what gives an error message ----


def saving(method, options, folder):
    model, optimizer = prepared(method, optimizer=plain, **options)
    rank = optimizer.world.rank
    loop(model, optimizer, range(3), rank)
    torch.save(optimizer.state_dict(), f"{folder}/{rank}")
    optimizer.finish()


def loading(method, options, file, change=None):
    model, optimizer = prepared(method, optimizer=plain, **options)
    said = torch.load(file, weights_only=True)
    if change == "format":
        said["tutti"]["format"] = 2
    elif change == "shape":
        name = next(n for n in said["tutti"]["state"] if n.startswith("signum.m/"))
        said["tutti"]["state"][name] = said["tutti"]["state"][name][1:]
    elif change == "no tensor":
        said["tutti"]["state"][next(iter(said["tutti"]["state"]))] = 1
    elif change == "without":
        del said["tutti"]
    before = values(model)
    try:
        optimizer.load_state_dict(said)
    finally:
        assert values(model) == before
        optimizer.close()


def test_replicated_state_dict_loads_on_any_number_of_workers(tmp_path):
    alone(saving, "ddp", {}, str(tmp_path), n=2)
    alone(loading, "ddp", {}, f"{tmp_path}/0", n=3)


@pytest.mark.parametrize(
    "method, options, n, change, words",
    [
        ("signum", {}, 2, None, "is of rank 0 of 2 workers, and this is rank 1 of 2"),
        ("signum", {}, 3, None, "there are Tutti's checkpoints: optimizer.save(directory) and load(directory)"),
        ("powersgd", {}, 2, None, "is of method 'signum', and this run's is 'powersgd'"),
        ("signum", {"loss_scale": "dynamic"}, 1, None, "state 'engine.loss-scale/@0': the state_dict has none"),
        ("signum", {}, 1, "format", "is not what this version of tutti writes (format 1)"),
        ("signum", {}, 1, "shape", "in this run; give prepare() the model, method, codec and options of that run"),
        ("signum", {}, 1, "no tensor", " is int in the state_dict"),
        ("signum", {}, 1, "without", None),
    ],
)
def test_mismatches_give_an_error_message(method, options, n, change, words, tmp_path):
    alone(saving, "signum", {}, str(tmp_path), n=min(n, 2))
    answers = forked.ranks(n, loading, method, options, f"{tmp_path}/0", change)
    if words is None:
        assert answers == [{"value": None}], answers
    else:
        assert answers[-1].get("error") == "ValueError" and words in answers[-1]["text"], answers


def asking(what, method, servers):
    model, optimizer = prepared(method, optimizer=plain, servers=servers)
    x, y = batch(0, 0)
    loop(model, optimizer, range(2), optimizer.world.rank)
    if what == "one alone":
        if optimizer.world.rank == 0:
            optimizer.state_dict()
        loop(model, optimizer, range(2, 4), optimizer.world.rank)
    elif what == "open pass":
        model(x)
        optimizer.state_dict()
    elif what == "shown":
        with optimizer.evaluate():
            optimizer.state_dict()
    else:
        optimizer.state_dict()


@pytest.mark.parametrize(
    "what, method, n, servers, words",
    [
        ("one alone", "parameter-server", 2, 0, "so all of them call optimizer.state_dict(), after the same step"),
        ("open pass", "ddp", 1, 0, "state_dict() within a step"),
        ("shown", "d-psgd", 2, 0, "state_dict() within evaluate()"),
        ("at servers", "ssp", 3, 1, "is at ranks that only serve, which no worker's state_dict() can have"),
    ],
)
def test_unavailable_state_dict_is_reported(what, method, n, servers, words):
    answers = forked.ranks(n, asking, what, method, servers)
    assert any(words in a.get("text", "") for a in answers), answers


# ---- what is written concurrently with the run ----


def written(when):
    model, optimizer = prepared(model=net().bfloat16(), optimizer=plain)
    halves(model, optimizer, range(0 if when == "before" else 1), 0)
    with torch.no_grad():
        for p in model.parameters():
            p.fill_(0.25)
    halves(model, optimizer, range(1, 2), 0)
    optimizer.finish()
    return values(model)


def test_values_written_before_the_first_step_count_whatever_their_type():
    model = net().bfloat16()
    with torch.no_grad():
        for p in model.parameters():
            p.fill_(0.25)
    halves(model, plain(model), range(1, 2), 0)
    assert alone(written, "before") == [values(model)]
    (answer,) = forked.ranks(1, written, "after")
    assert "was written to by the script since prepare()" in answer.get("text", ""), answer


def looking_first():
    model = net(norm=True)
    model[1].running_var.fill_(3.0)
    model, optimizer = prepared("d-psgd", model)
    with optimizer.evaluate():
        shown = model[1].running_var.tolist()
    return shown, model[1].running_var.tolist()


def test_evaluation_before_the_first_step_keeps_running_statistics():
    assert alone(looking_first, n=2) == [[[3.0] * 7] * 2] * 2


def apart(pair):
    base = torch.arange(12.0).view(3, 4)
    model = torch.nn.Module()
    if pair:
        model.a, model.b = (torch.nn.Parameter(base[:, k : k + 2]) for k in (0, 2))
    else:
        model.a = torch.nn.Parameter(base.bfloat16()[:, ::2])
    prepared(model=model, optimizer=plain)


@pytest.mark.parametrize("pair", [True, False])
def test_values_that_lie_apart_in_memory_are_refused(pair):
    (answer,) = forked.ranks(1, apart, pair)
    assert "does not lie densely in memory" in answer.get("text", ""), answer


# ---- checkpoints of DistributedDataParallel ----


class Mixed(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.last = torch.nn.Linear(5, 7), torch.nn.Linear(7, 2).bfloat16()

    def forward(self, x):
        return self.last(torch.relu(self.first(x)).bfloat16()).float()


def wrapped(method, codec, folder, how):
    torch.manual_seed(0)
    ddp = tutti.torch.DistributedDataParallel(Mixed(), method, codec=codec)
    optimizer = plain(ddp)  # keeps nothing itself
    steps = range(6)
    if how == "then":
        with torch.no_grad():
            for p in ddp.parameters():
                p.zero_()
        ddp.load(folder)
        steps = range(3, 6)

    def train(steps):
        for step in steps:
            x, y = batch(step, ddp.rank)
            torch.nn.functional.cross_entropy(ddp(x), y).backward()
            optimizer.step()
            optimizer.zero_grad()

    train(range(3) if how in ("first", "meanwhile") else steps)
    if how == "first":
        ddp.save(folder)
    if how == "meanwhile":  # the steps that follow are not in it
        ddp.save(folder, wait=False)
        train(range(3, 5))
        ddp.save_end()
        saves = ddp.engine.saves()
        assert (saves["begun"], saves["written"], saves["blocked"], saves["under_way"]) == (1, 1, 0, False), saves
        assert saves["bytes"] > 0
    answer = values(ddp.module)
    ddp.close()
    return answer


@pytest.mark.parametrize("method, codec, how", [("powersgd(rank=1)", None, "first"),
                                                ("ddp", "ef(topk(ratio=0.2))", "meanwhile")])  # fmt: skip
def test_ddp_resumed_from_a_checkpoint_is_bit_identical(method, codec, how, tmp_path):
    through = alone(wrapped, method, codec, str(tmp_path), "through", n=2)
    alone(wrapped, method, codec, str(tmp_path), how, n=2)
    assert alone(wrapped, method, codec, str(tmp_path), "then", n=2) == through
