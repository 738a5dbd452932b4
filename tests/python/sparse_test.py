"""Embeddings with sparse=True in scripts: their gradients are rows on the way, and a sparse one is what the script's
optimiser gets. Where a method has tables at servers their rows are asked for as the embeddings read them."""

import math

import pytest

pytestmark = [pytest.mark.torch, pytest.mark.slow]
torch = pytest.importorskip("torch")

import forked  # noqa: E402
from prepare_test import alone, prepared, sgd, values  # noqa: E402

import tutti.torch  # noqa: E402

torch.set_num_threads(1)
ROWS, STEPS = 30, 5


class Tables(torch.nn.Module):
    """Words are read in two places, one row of them is for padding; topics are another table."""

    def __init__(self, sparse=True):
        super().__init__()
        torch.manual_seed(3)
        self.words = torch.nn.Embedding(ROWS, 3, sparse=sparse, padding_idx=0)
        self.topics = torch.nn.EmbeddingBag(7, 3, sparse=sparse, mode="sum")
        self.out = torch.nn.Linear(9, 2)

    def forward(self, x):
        first, second = self.words(x[:, :4]).sum(1), self.words(x[:, 4:]).sum(1)
        return self.out(torch.cat([first, second, self.topics(x[:, :2] % 7)], 1))


def batch(step, rank):
    """Numbers that stand twice; in one step only padding, in another nothing."""
    draw = torch.Generator().manual_seed(100 * step + rank)
    x = torch.randint(0, ROWS, (0 if (step, rank) == (2, 1) else 4, 8), generator=draw)
    return x * 0 if (step, rank) == (3, 0) else x


def loss_of(model, x):
    return (model(x) ** 2).sum() / 64  # 0, with gradients of 0, for a batch of nothing


def plain(model):
    return torch.optim.SGD(model.parameters(), lr=0.0625)


def trained(method, sparse=True, optimizer=plain, half=False, **options):
    model = Tables(sparse)
    model, optimizer = prepared(method, model.bfloat16() if half else model, optimizer, **options)
    for step in range(STEPS):
        loss_of(model, batch(step, optimizer.world.rank)).backward()
        optimizer.step()
        optimizer.zero_grad()
    optimizer.finish()
    return values(model)


@pytest.mark.parametrize("n", [1, 2, 3])
def test_rows_at_servers_are_the_dense_model_to_the_bit(n):
    dense = alone(trained, "ddp", False, n=n)
    for method in ("parallax", "parallax(servers=1,profile=2,threshold=0.1)"):
        assert alone(trained, method, True, n=n) == dense, method
    assert all(one == dense[0] for one in dense)


def near(some, others, by=1e-5):
    return all(torch.allclose(torch.tensor(a), torch.tensor(b), rtol=by, atol=by / 100)
               for a, b in zip(some, others, strict=True))


def test_momentum_updates_rows_that_are_not_read():
    first, second = alone(trained, "parallax", True, sgd, n=2)
    assert first == second and near(first, alone(trained, "ddp", False, sgd, n=2)[0])


@pytest.mark.parametrize("method", ["ddp", "local-sgd(period=2)", "zero(stage=2)", "d-psgd"])
def test_other_methods_train_the_dense_model_to_the_bit(method):
    assert alone(trained, method, True, n=2) == alone(trained, method, False, n=2)


@pytest.mark.parametrize("method", ["ssp(staleness=0)", "asgd"])
def test_sparse_gradients_train_with_servers_of_the_whole_model(method):
    """The order of arrival depends on the clock: with one worker it is the dense model."""
    assert near(alone(trained, method, True)[0], alone(trained, method, False)[0])
    first, second = alone(trained, method, True, n=2)
    assert first == second and all(map(math.isfinite, sum(first, [])))


def test_the_optimiser_makes_the_update_that_torch_makes_alone():
    def by_torch(rule):
        model = Tables()
        optimizer = rule(model)
        for step in range(STEPS):
            optimizer.zero_grad()
            loss_of(model, batch(step, 0)).backward()
            optimizer.step()
        return values(model)

    def momentum(model):
        return torch.optim.SGD(model.parameters(), lr=0.0625, momentum=0.5)

    for rule in (plain, momentum):
        assert near(alone(trained, "ddp", True, rule)[0], by_torch(rule))


def lazy(method):
    """SparseAdam does not change rows that no worker has read."""
    model = torch.nn.Embedding(ROWS, 3, sparse=True)
    before = model.weight.detach().clone()
    model, optimizer = prepared(method, model, lambda m: torch.optim.SparseAdam(list(m.parameters()), lr=0.1))
    for step in range(2):
        model(torch.tensor([1 + step, 4 + optimizer.world.rank])).square().sum().backward()
        optimizer.step()
        optimizer.zero_grad()
    moved = model.weight.detach().ne(before).any(1).nonzero().flatten().tolist()
    optimizer.finish()
    return moved


def test_sparse_adam_updates_rows_read_by_any_worker():
    assert alone(lazy, "ddp", n=2) == [[1, 2, 4, 5]] * 2
    (answer,) = forked.ranks(1, lazy, "parallax")
    assert "takes over torch.optim.SGD, Adam or AdamW" in answer["text"], answer


def halves(method, sparse):
    return trained(method, sparse, half=True)


def test_bfloat16_tables_are_close_to_float32_tables():
    first, second = alone(halves, "parallax", True, n=2)
    exact = alone(trained, "parallax", True, n=2)[0]
    assert first == second and near(first, exact, 0.05)


def accumulated(method, sparse):
    model, optimizer = prepared(method, Tables(sparse), plain, accumulate=2)
    for step in range(4):
        loss_of(model, batch(step, optimizer.world.rank)).backward()
        optimizer.step()
        optimizer.zero_grad()
    optimizer.finish()
    return values(model)


def test_passes_add_their_rows():
    assert alone(accumulated, "parallax", True, n=2) == alone(accumulated, "ddp", False, n=2)


def resumed(method, stop):
    """stop: after how many steps the run is rebuilt from state dictionaries."""
    kept = None
    for steps in (range(stop), range(stop, STEPS)):
        torch.manual_seed(0)
        model, optimizer = prepared(method, Tables(), sgd)
        if kept is not None:
            model.load_state_dict(kept[0])
            optimizer.load_state_dict(kept[1])
        for step in steps:
            loss_of(model, batch(step, optimizer.world.rank)).backward()
            optimizer.step()
            optimizer.zero_grad()
        with optimizer.evaluate():
            weights = {k: v.clone() for k, v in model.state_dict().items()}
        kept = weights, optimizer.state_dict()
        optimizer.finish()
    return values(model)


def test_run_resumed_from_sparse_state_dict_is_bit_identical():
    """With the servers' momentum."""
    assert alone(resumed, "parallax", 3, n=2) == alone(trained, "parallax", True, sgd, n=2)


class Tied(torch.nn.Module):
    """The output is multiplied with the table from which the words were read."""

    def __init__(self, sparse):
        super().__init__()
        torch.manual_seed(3)
        self.words, self.out = torch.nn.Embedding(ROWS, 3, sparse=sparse), torch.nn.Linear(3, ROWS)
        self.out.weight = self.words.weight

    def forward(self, x):
        return self.out(self.words(x).mean(1))


def tied(method, sparse):
    model, optimizer = prepared(method, Tied(sparse), plain)
    for step in range(STEPS):
        loss_of(model, batch(0, step)).backward()
        optimizer.step()
        optimizer.zero_grad()
    optimizer.finish()
    return values(model)


def test_table_that_is_also_used_densely_matches_ddp():
    assert near(alone(tied, "parallax", True, n=2)[1], alone(tied, "ddp", False, n=2)[0])


def served():
    return trained("parallax", servers=1)


def test_tables_at_dedicated_servers_are_bit_identical_to_ddp():
    first, second, server = forked.ranks(3, served)
    assert server == {"exit": 0}
    assert [first["value"], second["value"]] == alone(trained, "ddp", False, n=2)


# ---- the wrapper ----


def wrapped(sparse):
    model = Tables(sparse)
    ddp = tutti.torch.DistributedDataParallel(model)
    optimizer = plain(model)
    for step in range(STEPS):
        optimizer.zero_grad()
        if step == 1:
            with ddp.no_sync():
                loss_of(ddp, batch(step, ddp.rank)).backward()
        loss_of(ddp, batch(step, ddp.rank)).backward()
        if step == 4:
            assert model.words.weight.grad.is_sparse == sparse
        optimizer.step()
    seen = values(model)
    ddp.close()
    return seen


def test_the_wrapper_gives_sparse_gradients_with_the_bits_of_dense_ones():
    first, second = alone(wrapped, True, n=2)
    assert first == second == alone(wrapped, False, n=2)[0]


# ---- what cannot be ----


def read(how):
    model = Tables()
    if how == "max_norm":
        model.words = torch.nn.Embedding(ROWS, 3, sparse=True, max_norm=1.0)
    model, optimizer = prepared("parallax(profile=0)", model, sgd)
    for step in range(2):
        x = batch(step, optimizer.world.rank)
        loss = loss_of(model, x)
        if how == "dense":
            loss = loss + model.words.weight.sum()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
    if how == "eval":
        model.eval()(x)
    elif how == "state":
        model.state_dict()
    elif how == "train":
        with torch.no_grad():
            model(x)
    optimizer.finish()


@pytest.mark.parametrize("how, words", [("eval", "'words.weight', whose rows are at servers"), ("state", "evaluate()"),
                                        ("train", "evaluate()"), ("dense", "where the weight is used otherwise"),
                                        ("max_norm", "changes rows where they are read")])
def test_reading_stale_rows_is_rejected(how, words):
    for answer in forked.ranks(2, read, how):
        assert words in answer["text"], answer
