"""Training on the backend 'tutti' with 2, 3, 4, 6 and 8 ranks, through shared memory and over tcp, beside Gloo.

All kinds of one number of ranks are run in turn by the same processes (dist_turns.py), on Gloo and over each transport.
Scripts of dist_training.py have sums that are rounded, so with three ranks and more they are Gloo's within rounding.
Those of dist_exact.py have none, so the bits are those of the same training in one process.
"""

import functools

import pytest

pytestmark = pytest.mark.torch
torch = pytest.importorskip("torch")

import dist_exact  # noqa: E402
import dist_training  # noqa: E402
import dist_turns  # noqa: E402
import dist_unlike  # noqa: E402
import forked  # noqa: E402
import torch.distributed as dist  # noqa: E402
from distributed_test import SLOW, on_ranks  # noqa: E402

TRANSPORTS = ("shm", "tcp")
ROUNDED = ("ddp", "ddp_sparse", "ddp_unused", "ddp_static", "ddp_hook", "ddp_join", "zero", "fsdp", "fsdp_mixed",
           "checkpoints", "distribute", "compiled")
FAST = ("ddp", "fsdp")


class Sets:
    """What the processes of each set have answered: every kind on Gloo and over each transport."""

    def __init__(self, folders):
        self._folders = folders
        self._answers = {}

    def of(self, function, n, *arguments):
        key = (function, n, arguments)
        if key not in self._answers:
            folder = str(self._folders.mktemp("set"))
            self._answers[key] = on_ranks(n, function, folder, *arguments, timeout=400)
        return self._answers[key]


@pytest.fixture(scope="module")
def sets(tmp_path_factory):
    return Sets(tmp_path_factory)


def backends_of(transports):
    return ("gloo", *(f"tutti/{transport}" for transport in transports))


def rounded(rank, n, folder, kinds, transports):
    told = {}
    for backend in backends_of(transports):
        more = {"checkpoints": (f"{folder}/{backend.replace('/', '-')}-saved",)}
        things = {kind: functools.partial(getattr(dist_training, kind), backend, *more.get(kind, ())) for kind in kinds}
        told[backend] = dist_turns.in_turn(rank, n, folder, backend, things)
    return told


def trained(answers, kind, backend):
    """Of each rank; what a failed one has said fails the test."""
    found = [answer[backend][kind] for answer in answers]
    assert not any(isinstance(of, str) for of in found), f"{kind} on {backend}: {found}"
    return found


def close(a, b, rtol, atol):
    x, y = (torch.tensor(torch.utils._pytree.tree_flatten(of)[0], dtype=torch.float64) for of in (a, b))
    return x.shape == y.shape and torch.allclose(x, y, rtol=rtol, atol=atol)


@pytest.mark.parametrize(("n", "kind", "transport"), [
    pytest.param(n, kind, transport, marks=[] if n == 2 and kind in FAST and transport == "shm" else SLOW)
    for n in (2, 3, 4, 8) for transport in TRANSPORTS for kind in ROUNDED])
def test_scripts_train_as_on_gloo(sets, n, kind, transport):
    at_once = n == 2 and kind in FAST and transport == "shm"
    if not at_once:
        forked.compiler()
    answers = sets.of(rounded, n, FAST if at_once else ROUNDED, ("shm",) if at_once else TRANSPORTS)
    gloo, ours = (trained(answers, kind, backend) for backend in ("gloo", f"tutti/{transport}"))
    for theirs, own in zip(gloo, ours, strict=True):
        assert theirs == own if n == 2 else close(theirs, own, 1e-4, 1e-5)
    assert all(own[1] == ours[0][1] for own in ours), "ranks have different parameters"


# ---- no sum is rounded ----

KINDS = ("ddp", "zero", "fsdp", "moved", "points")


def meshes(n):
    """The rows of each mesh of two axes."""
    return [rows for rows in range(2, n) if n % rows == 0]


def exact(rank, n, folder):
    told = {}
    kinds = {kind: getattr(dist_exact, kind) for kind in KINDS}
    on_both = {f"hsdp {rows}": functools.partial(dist_exact.hsdp, rows) for rows in meshes(n)}
    on_one = {f"hsdp {rows} {axis}": functools.partial(dist_exact.hsdp, rows, (axis,))
              for rows in meshes(n) for axis in ("replicate", "shard")}
    on_none = {f"hsdp {rows}": functools.partial(dist_exact.hsdp, rows, ()) for rows in meshes(n)}
    told["gloo"] = dist_turns.in_turn(rank, n, folder, "gloo", kinds | on_none)
    for transport in TRANSPORTS:
        told[f"tutti/{transport}"] = dist_turns.in_turn(rank, n, folder, f"tutti/{transport}", kinds | on_both)
        if on_both:
            told[f"override/{transport}"] = dist_turns.in_turn(rank, n, folder, f"override/{transport}",
                                                               on_both | on_one)
    return told


@pytest.mark.parametrize("n", [pytest.param(n, marks=[] if n == 4 else SLOW) for n in (2, 3, 4, 6, 8)])
def test_where_no_sum_is_rounded_all_train_to_the_same_bits(sets, n):
    answers, alone = sets.of(exact, n), dist_exact.alone(n)
    power = n & (n - 1) == 0
    seen = 0
    for backend in answers[0]:
        for kind in answers[0][backend]:
            of = trained(answers, kind, backend)
            if kind in ("moved", "points"):
                assert of == trained(answers, kind, "gloo"), f"{kind} on {backend}"
                continue
            seen += 1
            assert all(parameters == of[0][1] for _, parameters in of), f"{kind} on {backend}: ranks differ"
            same = of[0][1] == alone if power else close(of[0][1], alone, 1e-13, 1e-13)
            assert same, f"{kind} on {backend}: not as in one process"
            losses = [losses for losses, _ in of]
            gloo = [of_rank[0] for of_rank in trained(answers, "fsdp", "gloo")]
            assert losses == gloo if power else close(losses, gloo, 1e-13, 1e-13), f"{kind} on {backend}: losses"
            assert len({str(of_rank) for of_rank in losses}) == n, "ranks have the same batches"
    assert seen == 9 + len(meshes(n)) * 9


def fails_at(rank, n, folder, backend):
    """One rank fails before a collective, one after its end, and all in the library; the next things work."""
    def ones():
        x = torch.ones(3)
        dist.all_reduce(x)
        return x.tolist()

    def before():
        if rank == 1:
            raise KeyError("before")
        return ones()

    def after():
        ones()
        if rank == 2:
            raise KeyError("after")

    def unlike():
        dist.all_reduce(torch.ones(3 + rank) if backend != "gloo" else torch.ones(3))
        raise KeyError("all")

    things = {"first": ones, "before": before, "second": ones, "after": after, "third": ones, "unlike": unlike,
              "last": ones}
    return dist_turns.in_turn(rank, n, folder, backend, things)


@pytest.mark.parametrize("backend", ["gloo", "tutti", pytest.param("tutti/tcp", marks=SLOW)])
def test_what_fails_in_a_set_does_not_spoil_the_rest(tmp_path, backend):
    for answer in on_ranks(3, fails_at, str(tmp_path), backend):
        assert [answer[name] for name in ("first", "second", "third", "last")] == [[3.0] * 3] * 4
        assert "rank 1: KeyError: 'before'" in answer["before"]
        assert "rank 2: KeyError: 'after'" in answer["after"]
        assert all(f"rank {r}: {'KeyError' if backend == 'gloo' else 'StateError'}" in answer["unlike"]
                   for r in range(3))


# ---- ranks whose calls do not fit together ----

@pytest.mark.parametrize(("n", "transport"), [(3, "shm"), pytest.param(2, "shm", marks=SLOW),
                                              *(pytest.param(n, "tcp", marks=SLOW) for n in (2, 3, 8))])
def test_calls_that_do_not_fit_are_named_on_all_ranks(tmp_path, n, transport):
    """None goes on with values that nobody has sent, and none waits longer than the timeout."""
    answers = on_ranks(n, dist_unlike.tries, str(tmp_path), transport=transport)
    wrong = []
    for name, (_, _, words) in dist_unlike.TRIES.items():
        for rank, answer in enumerate(answers):
            told, took = answer[name]
            lacks = [word for word in words.split("|") if word not in told]
            named = "rank 1" in told or (name == "all_to_all, splits" and "rank 0" in told)  # the two differ
            if not named or lacks or took > 3 * dist_unlike.LIMIT:
                wrong.append(f"{name}, rank {rank}, {took:.2f} s, without {lacks}: {told or 'nothing'}")
    assert not wrong, "\n".join(wrong)
