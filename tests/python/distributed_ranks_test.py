"""Training on the backend 'tutti' with 2, 3, 4, 6 and 8 ranks, through shared memory and over tcp, compared with Gloo.

All kinds of one number of ranks are run in turn by the same processes (dist_turns.py), on Gloo and over each transport.
Scripts of dist_training.py have sums that are rounded, so with three ranks and more they are Gloo's within rounding.
Those of dist_exact.py have none, so the bits are those of the same training in one process.
"""

import functools
import os
import signal
import time

import pytest

pytestmark = pytest.mark.torch
torch = pytest.importorskip("torch")

import dist_cases  # noqa: E402
import dist_exact  # noqa: E402
import dist_training  # noqa: E402
import dist_turns  # noqa: E402
import dist_unlike  # noqa: E402
import forked  # noqa: E402
import torch.distributed as dist  # noqa: E402
from distributed_test import LONG, SLOW, on_ranks  # noqa: E402
from torch.distributed.device_mesh import init_device_mesh  # noqa: E402

import tutti  # noqa: E402

TRANSPORTS = ("shm", "tcp")
ROUNDED = ("ddp", "ddp_sparse", "ddp_unused", "ddp_static", "ddp_hook", "ddp_join", "zero", "fsdp", "fsdp_mixed",
           "checkpoints", "distribute", "compiled")
ON_MESHES = {4: ("hsdp",), 8: ("hsdp", "hsdp_of_four")}  # by ranks
FAST = ("ddp", "fsdp")


def rounded_on(n):
    return (*ROUNDED, *ON_MESHES.get(n, ()))


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
    """Of each rank. An error of one fails the test."""
    found = [answer[backend][kind] for answer in answers]
    assert not any(isinstance(of, str) for of in found), f"{kind} on {backend}: {found}"
    return found


def close(a, b, rtol, atol):
    x, y = (torch.tensor(torch.utils._pytree.tree_flatten(of)[0], dtype=torch.float64) for of in (a, b))
    return x.shape == y.shape and torch.allclose(x, y, rtol=rtol, atol=atol)


@pytest.mark.parametrize(("n", "kind", "transport"), [
    pytest.param(n, kind, transport,
                 marks=LONG if n in (3, 4) else [] if n == 2 and kind in FAST and transport == "shm" else SLOW)
    for n in (2, 3, 4, 8) for transport in TRANSPORTS for kind in rounded_on(n)])
def test_scripts_train_as_on_gloo(sets, n, kind, transport):
    at_once = n == 2 and kind in FAST and transport == "shm"
    if not at_once:
        forked.compiler()
    answers = sets.of(rounded, n, FAST if at_once else rounded_on(n), ("shm",) if at_once else TRANSPORTS)
    gloo, ours = (trained(answers, kind, backend) for backend in ("gloo", f"tutti/{transport}"))
    for theirs, own in zip(gloo, ours, strict=True):
        alike = n == 2 or (n, kind) == (4, "hsdp")  # sums of two: one order
        assert theirs == own if alike else close(theirs, own, 1e-4, 1e-5)
    assert all(own[1] == ours[0][1] for own in ours), "ranks have different parameters"


def test_the_replicate_axis_alone_trains_as_on_gloo(sets):
    for answer in sets.of(replicated, 4):
        assert not isinstance(answer["gloo"], str), answer
        assert answer["gloo"] == answer["override/shm"] == answer["override/tcp"]  # sums of two: one order


def replicated(rank, n, folder):
    """float32, whose mean on an axis is the library's own."""
    def trained_on(backend):
        things = {"hsdp": functools.partial(dist_training.hsdp, backend.partition("/")[0])}
        return dist_turns.in_turn(rank, n, folder, backend, things)["hsdp"]

    return {backend: trained_on(backend) for backend in ("gloo", "override/shm", "override/tcp")}


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


@pytest.mark.parametrize("n", [pytest.param(n, marks=[] if n == 4 else LONG) for n in (2, 3, 4, 6, 8)])
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

    def unlike_late():
        time.sleep(1.0 if rank == 2 else 0)  # the others have failed and left their groups by then
        unlike()

    things = {"first": ones, "before": before, "second": ones, "after": after, "third": ones, "unlike": unlike,
              "fourth": ones, "unlike_late": unlike_late, "last": ones}
    return dist_turns.in_turn(rank, n, folder, backend, things)


@pytest.mark.parametrize("backend", ["gloo", "tutti", pytest.param("tutti/tcp", marks=SLOW)])
def test_what_fails_in_a_set_does_not_spoil_the_rest(tmp_path, backend):
    for answer in on_ranks(3, fails_at, str(tmp_path), backend):
        assert [answer[name] for name in ("first", "second", "third", "fourth", "last")] == [[3.0] * 3] * 5
        assert "rank 1: KeyError: 'before'" in answer["before"]
        assert "rank 2: KeyError: 'after'" in answer["after"]
        assert all(f"rank {r}: {'KeyError' if backend == 'gloo' else 'StateError'}" in answer[unlike]
                   for unlike in ("unlike", "unlike_late") for r in range(3)), answer


# ---- ranks whose calls do not fit together ----

@pytest.mark.parametrize(("n", "transport"), [(3, "shm"), pytest.param(2, "shm", marks=SLOW),
                                              *(pytest.param(n, "tcp", marks=SLOW) for n in (2, 3, 8))])
def test_calls_that_do_not_fit_are_named_on_all_ranks(tmp_path, n, transport):
    """None continues with wrong values, and none waits longer than the timeout."""
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


@pytest.mark.parametrize(("n", "transport"), [(2, "shm"), *(pytest.param(n, transport, marks=SLOW) for n, transport in (
    (3, "shm"), (4, "shm"), (3, "tcp")))])
def test_a_call_that_does_not_fit_after_many_is_named_on_all_ranks(tmp_path, n, transport):
    """Each rank asks the others for their last calls, and all at once."""
    wrong = []
    for rank, told in enumerate(on_ranks(n, dist_unlike.after_many, str(tmp_path), 20, transport=transport)):
        for trial, text in enumerate(told):
            if not all(f"broadcast of 4 torch.{name}" in text for name in ("float16", "bfloat16")):
                wrong.append(f"trial {trial}, rank {rank}: {text or 'nothing'}")
    assert not wrong, "\n".join(wrong)


# ---- a rank that ends within backward ----

def dies_in_backward(rank, n, folder, rows, lost):
    """The errors of the others, and the seconds until they have them."""
    dist_cases.start(folder, rank, n, "tutti")
    shape, names = ((rows, n // rows), ("replicate", "shard")) if rows else ((n,), ("shard",))
    mesh = init_device_mesh("cpu", shape, mesh_dim_names=names)
    model = dist_training.sharded(dist_training.network(), mesh)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    dist.barrier()

    def ends(gradient):
        with open(f"{folder}/ended", "w") as f:
            f.write(repr(time.monotonic()))
        os.kill(os.getpid(), signal.SIGKILL)

    try:
        for step in range(6):
            x, y = dist_training.batch(step, rank)
            middle = model[1](model[0](x))
            if (step, rank) == (2, lost):
                middle.register_hook(ends)
            torch.nn.functional.cross_entropy(model[3](model[2](middle)), y).backward()
            optimizer.step()
            optimizer.zero_grad()
    except tutti.PeerError as e:
        late = time.monotonic() - float(open(f"{folder}/ended").read())
        dist.destroy_process_group()
        return [e.rank, str(e), step, late]
    return ["nothing"]


@SLOW
@pytest.mark.parametrize(("rows", "transport"), [(0, "shm"), (2, "tcp"), (4, "shm")])
def test_a_rank_that_is_killed_in_backward_is_named_by_all(tmp_path, rows, transport):
    answers = on_ranks(8, dies_in_backward, str(tmp_path), rows, 5, transport=transport, killed=[5])
    for answer in answers[:5] + answers[6:]:
        assert answer[0] == 5 and "5 was lost" in answer[1] and answer[2] == 2, answers
        assert answer[3] < 1, answers
