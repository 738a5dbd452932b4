"""The backend 'tutti' of torch.distributed: all calls, against what they mean and against Gloo, and the scripts that
make them. What the cases are is in dist_cases.py and dist_training.py."""

import os
import pathlib
import signal
import threading
import time
from datetime import timedelta

import pytest

pytestmark = pytest.mark.torch
torch = pytest.importorskip("torch")

import dist_cases  # noqa: E402
import dist_training  # noqa: E402
import forked  # noqa: E402
import torch.distributed as dist  # noqa: E402
import torch.distributed.checkpoint  # noqa: E402, F401, F811 (here, or each rank imports it)
import torch.distributed.fsdp  # noqa: E402, F401
import torch.distributed.optim  # noqa: E402, F401
import torch.distributed.tensor  # noqa: E402, F401

import tutti  # noqa: E402
import tutti.torch.distributed  # noqa: E402

SLOW = pytest.mark.slow
LONG = pytest.mark.long


def on_ranks(n, function, *arguments, transport="", **more):
    """function(rank, n, *arguments) on n ranks that only torch.distributed knows of, as any launcher would start them.
    Their values; None: it was killed."""
    answers = forked.ranks(n, without_a_launcher, function, n, transport, arguments, **more)
    assert all("value" in answer or answer == {} for answer in answers), answers
    return [answer.get("value") for answer in answers]


def without_a_launcher(function, n, transport, arguments):
    rank = int(os.environ["TUTTI_RANK"])
    for name in [name for name in os.environ if name.startswith("TUTTI_") and name != "TUTTI_LIBRARY"]:
        del os.environ[name]
    if transport:
        os.environ["TUTTI_TRANSPORT"] = transport
    return function(rank, n, *arguments)


def nothing_wrong(answers):
    for rank, wrong in enumerate(answers):
        assert wrong == [], f"rank {rank}: " + "\n".join(map(str, wrong[:20] if isinstance(wrong, list) else [wrong]))


# ---- calls ----

def test_calls_do_what_they_mean(tmp_path):
    nothing_wrong(on_ranks(2, dist_cases.all_calls, str(tmp_path), False))


@SLOW
@pytest.mark.parametrize(("n", "transport"), [(2, "shm"), (3, "tcp"), *(
    pytest.param(n, transport, marks=LONG) for n, transport in (
        (2, "tcp"), (3, "shm"), (4, "shm"), (4, "tcp"), (8, "shm"), (8, "tcp")))])
def test_every_call_takes_every_dtype_operation_and_shape(tmp_path, n, transport):
    nothing_wrong(on_ranks(n, dist_cases.all_calls, str(tmp_path), True, transport=transport, timeout=300))


@pytest.mark.parametrize(("n", "transport"), [(2, "shm"), *(pytest.param(n, transport, marks=SLOW) for n, transport in (
    (2, "tcp"), (3, "shm"), (4, "shm"), (4, "tcp"))), *(pytest.param(8, transport, marks=LONG) for transport in (
    "shm", "tcp"))])
def test_results_are_those_of_gloo(tmp_path, n, transport):
    nothing_wrong(on_ranks(n, dist_cases.beside_gloo, str(tmp_path), transport=transport))


def subgroups(rank, n, folder):
    """Groups that overlap, used in different orders by different ranks, also by some that others are not in."""
    dist_cases.start(folder, rank, n, "tutti")
    lists = [[0, 1], [1, 2], [2, 3], [0, 2, 3], [1, 3], [3, 2, 1, 0]]
    if n == 8:
        lists += [[4 * k + r for r in of] for k in (0, 1) for of in ([0, 3], [1, 2, 3])] + [[7, 0, 5], [*range(1, 8)],
                                                                                         [0, 4], [1, 5], [6, 2], [7, 3]]
    groups = [dist.new_group(ranks) for ranks in lists]
    opened = sum(1 for line in os.listdir("/proc/self/task") if line)
    mine = [k for k, ranks in enumerate(lists) if rank in ranks]
    works = []
    for k in mine if rank % 2 == 0 else mine[::-1]:
        x = torch.full((1000,), float(10 * k + rank))
        works.append((k, x, dist.all_reduce(x, group=groups[k], async_op=True)))
    wrong = []
    for k, x, work in works[::-1]:
        work.wait()
        if x[0].item() != sum(10 * k + r for r in lists[k]) or x.unique().numel() != 1:
            wrong.append([k, x[0].item()])
    for k, ranks in enumerate(lists):
        if rank not in ranks and groups[k] != dist.GroupMember.NON_GROUP_MEMBER:
            wrong.append(f"rank {rank} is in group {k}")
    dist.destroy_process_group(groups[mine[0]])
    dist.barrier()
    dist.destroy_process_group()
    return wrong + ([] if opened < 60 else [f"{opened} threads"])


@pytest.mark.parametrize(("n", "transport"), [(4, "shm"), *(pytest.param(n, transport, marks=SLOW) for n, transport in (
    (4, "tcp"), (8, "shm"), (8, "tcp")))])
def test_overlapping_groups_do_not_mix(tmp_path, n, transport):
    nothing_wrong(on_ranks(n, subgroups, str(tmp_path), transport=transport))


def by_members_alone(rank, n, folder):
    """Under Gloo: a group of which the others are told nothing, and an error in it names the job's ranks."""
    dist_cases.start(folder, rank, n, "gloo")
    wrong = []
    group = dist.new_group([1, 2], backend="tutti", use_local_synchronization=True) if rank in (1, 2) else None
    if group is not None:
        x = torch.tensor([float(rank)])
        dist.all_reduce(x, group=group)
        if x.item() != 3 or dist.get_backend(group) != "tutti" or group.group_name in ("", None):
            wrong.append([x.item(), group.group_name])
        try:
            # of other sizes: both say which rank of the job has which
            dist.all_reduce(torch.ones(2 + rank), group=group)
            wrong.append("different sizes are not noticed")
        except tutti.StateError as e:
            if "rank 1" not in str(e) or "rank 2" not in str(e):
                wrong.append(str(e))
        try:
            dist.barrier(group=group)
            wrong.append("a group that has failed can be used")
        except tutti.StateError as e:
            if "cannot be used any more" not in str(e):
                wrong.append(str(e))
    dist.barrier()
    dist.destroy_process_group()
    return wrong


def test_a_group_is_made_by_its_members_alone(tmp_path):
    nothing_wrong(on_ranks(3, by_members_alone, str(tmp_path)))


def again_and_again(rank, n, folder):
    """The sockets and threads after each of many groups."""
    counts = []
    for k in range(20):
        dist_cases.start(folder, rank, n, "tutti", name=f"store{k}")
        x = torch.ones(1)
        dist.all_reduce(x, group=dist.new_group([0, 1]))
        assert x.item() == n
        dist.barrier()
        dist.destroy_process_group()
        counts.append([len(os.listdir("/proc/self/fd")), len(os.listdir("/proc/self/task"))])
    files, threads = ([count[k] for count in counts] for k in (0, 1))
    until = time.monotonic() + 10  # one that was joined may still be on its way out
    while len(os.listdir("/proc/self/task")) > min(threads) and time.monotonic() < until:
        time.sleep(0.01)
    few = len(os.listdir("/proc/self/task")) <= min(threads)
    return [] if max(files[10:]) <= max(files[1:4]) and few and threading.active_count() < 3 else [counts]


@pytest.mark.parametrize("transport", ["shm", pytest.param("tcp", marks=SLOW)])
def test_destroy_and_init_again_leaves_nothing(tmp_path, transport):
    nothing_wrong(on_ranks(2, again_and_again, str(tmp_path), transport=transport))


def by_options(rank, n, folder):
    dist_cases.start(folder, rank, n, "tutti", pg_options=tutti.torch.distributed.Options("tcp"))
    group = dist.group.WORLD
    found = [group._shared.world.transport, group.name(), str(group._device_types[0]), dist.get_backend(),
             dist.distributed_c10d._world.pg_backend_config[group]]
    try:
        dist.new_group([0, 1], pg_options=3)
    except TypeError as e:
        found.append("Options(...)" in str(e))
    dist.destroy_process_group()
    dist_cases.start(folder, rank, n, "gloo", name="another")
    override = {"replicate": ("tutti", tutti.torch.distributed.Options("tcp", timedelta(seconds=50)))}
    mesh = dist.device_mesh.init_device_mesh("cpu", (2,), mesh_dim_names=("replicate",), backend_override=override)
    group = mesh.get_group("replicate")
    found += [group._shared.world.transport, group._timeout.total_seconds()]
    dist.barrier()
    dist.destroy_process_group()
    return found


def test_options_choose_the_transport(tmp_path):
    for found in on_ranks(2, by_options, str(tmp_path)):
        assert found == ["tcp", "tutti", "cpu", "tutti", "cpu:tutti,cuda:tutti,xpu:tutti", True, "tcp", 50.0]


def by_a_launcher(n, folder):
    """The default group is in the launcher's world; a group beside Gloo's default group is not."""
    rank = int(os.environ["TUTTI_RANK"])
    dist_cases.start(folder, rank, n, "tutti", name="first")
    found = [dist.group.WORLD._shared.world.transport]
    dist.barrier()
    dist.destroy_process_group()
    dist_cases.start(folder, rank, n, "gloo", name="second")
    group = dist.new_group([0, 2], backend="tutti")
    if rank != 1:
        x = torch.tensor([rank])
        dist.all_reduce(x, group=group)
        found += [group._shared.world.transport, x.item(), os.environ["TUTTI_RANK"]]
    dist.barrier()
    dist.destroy_process_group()
    return found


def test_a_launcher_s_world_is_the_default_group_s_alone(tmp_path):
    answers = [answer["value"] for answer in forked.ranks(3, by_a_launcher, 3, str(tmp_path))]
    assert answers == [["tcp", "shm", 2, "0"], ["tcp"], ["tcp", "shm", 2, "2"]]  # forked.ranks gives a key for tcp


# ---- time ----

def too_late(rank, n, folder):
    """Rank 1 does not come to a collective, or to a message."""
    dist_cases.start(folder, rank, n, "tutti")
    told = []
    first, second, third = dist.new_group([0, 1]), dist.new_group([0, 1]), dist.new_group([0, 1])
    dist.barrier(group=first)
    if rank == 0:
        work = dist.all_reduce(torch.ones(4), group=first, async_op=True)
        began = time.monotonic()
        for attempt in (lambda: work.wait(timedelta(milliseconds=20)), lambda: dist.barrier(group=first),
                        lambda: dist.irecv(torch.ones(1), 1, group=second).wait(timedelta(milliseconds=20))):
            try:
                attempt()
                told.append("nothing")
            except TimeoutError as e:
                told.append(str(e))
        told.append(time.monotonic() - began < 5)
        third.set_timeout(timedelta(milliseconds=400))  # half of it is for rank 1's answer
        future = dist.all_reduce(torch.ones(4), group=third, async_op=True).get_future()
        try:
            future.wait()  # for which nobody but the group's own thread looks at the clock
            told.append("nothing")
        except Exception as e:  # noqa: BLE001
            told.append(str(e))
    dist.barrier()
    if rank == 1:
        try:  # the first may still complete, with what rank 0 had left for it
            for _ in range(2):
                dist.all_reduce(torch.ones(4), group=first)
        except tutti.PeerError as e:
            told = [e.rank, str(e)]
    dist.barrier()
    dist.destroy_process_group()
    return told


def test_a_call_that_is_late_names_who_is_missing(tmp_path):
    zero, one = on_ranks(2, too_late, str(tmp_path))
    assert "all_reduce" in zero[0] and "within 0.02 s" in zero[0], zero
    assert "rank 1 has called 1 collectives of this group and not this one" in zero[0], zero
    assert "cannot be used any more" in zero[1] and "rank 1" in zero[1], zero
    assert "recv of rank 1" in zero[2] and "0.02 s" in zero[2], zero
    assert zero[3] is True and "rank 1 has called 0" in zero[4], zero
    assert len(one) == 2 and one[0] == 0 and "rank 0" in one[1], one


def aborted(rank, n, folder):
    """Rank 0 aborts a group to which rank 1 has not come; the default group is as before."""
    dist_cases.start(folder, rank, n, "tutti")
    group, told = dist.new_group([0, 1]), []
    dist.barrier(group=group)
    try:
        if rank == 0:
            work = dist.all_reduce(torch.ones(4), group=group, async_op=True)
            time.sleep(0.05)
            dist.distributed_c10d._abort_process_group(group)
            dist.barrier()
            work.wait()
        else:
            dist.barrier()
            for _ in range(2):
                dist.all_reduce(torch.ones(4), group=group)
    except (tutti.Error, RuntimeError) as e:
        told = [type(e).__name__, str(e)]
    dist.barrier()
    dist.destroy_process_group()
    return told


def test_an_aborted_group_ends_for_all(tmp_path):
    zero, one = on_ranks(2, aborted, str(tmp_path))
    assert zero == ["StateError", "the group was aborted"]
    assert one[0] == "PeerError" and "rank 0" in one[1], one


def overlapped(rank, n, folder):
    """A call that another rank is late to does not block who has issued it; wait(0) waits for it without a limit."""
    dist_cases.start(folder, rank, n, "tutti")
    dist.barrier()
    if rank == 1:
        time.sleep(0.3)
    x = torch.full((4,), float(rank))
    work = dist.all_reduce(x, async_op=True)
    at_once = work.is_completed()
    work.wait(timedelta(0))
    dist.destroy_process_group()
    return [rank == 0 and at_once, x.tolist()]


def test_calls_are_asynchronous(tmp_path):
    for answer in on_ranks(2, overlapped, str(tmp_path)):
        assert answer == [False, [1.0] * 4]


# ---- training ----

def trained(rank, n, folder, kind, backends):
    """Losses and parameters under each backend."""
    told = []
    for backend in backends:
        dist_cases.start(folder, rank, n, "gloo" if backend == "override" else backend, name=f"{kind}-{backend}")
        more = (f"{folder}/{backend}",) if kind == "checkpoints" else ()
        told.append(getattr(dist_training, kind)(backend, *more))
        dist.barrier()
        dist.destroy_process_group()
    return told


def late_futures(rank, n, folder):
    """Each call takes longer than the computation beside it."""
    from tutti.torch.distributed._work import Queue

    told = trained(rank, n, folder, "ddp", ["tutti"])
    serve = Queue._serve

    def slowly(self, work):
        time.sleep(0.02)
        serve(self, work)

    Queue._serve = slowly
    return told + trained(rank, n, f"{folder}/late", "ddp", ["tutti"])


def unlike_rows(rank, n, folder):
    dist_cases.start(folder, rank, n, "tutti")
    x = torch.eye(3 + (rank == 1)).to_sparse()
    try:
        dist.all_reduce(x)
    except ValueError as e:
        return str(e)


def test_sparse_tensors_of_unlike_shapes_are_named(tmp_path):
    for rank, told in enumerate(on_ranks(3, unlike_rows, str(tmp_path))):
        assert f"shape {(4, 4) if rank == 1 else (3, 3)}" in told
        assert f"ranks {[0, 2] if rank == 1 else [1]} of the group" in told


@SLOW
def test_gradients_that_come_late_are_waited_for(tmp_path):
    (tmp_path / "late").mkdir()
    for at_once, late in on_ranks(2, late_futures, str(tmp_path)):
        assert at_once == late


# ---- a rank that is lost ----

def loses(rank, n, folder, kind):
    """Rank 1 is killed in its third step. What the others get, and that they live on."""
    dist_cases.start(folder, rank, n, "tutti")
    if kind == "ddp":
        model = torch.nn.parallel.DistributedDataParallel(dist_training.network())
    else:
        model = dist_training.sharded(dist_training.network(),
                                      dist.device_mesh.init_device_mesh("cpu", (dist.get_world_size(),)))
    optimizer, ends = torch.optim.SGD(model.parameters(), lr=0.1), []
    try:
        for step in range(6):
            ends.append([dist_training.whole(p.data) if kind == "ddp" else [] for p in model.parameters()])
            dist_training.dies(step, 2, 1)
            x, y = dist_training.batch(step, rank)
            torch.nn.functional.cross_entropy(model(x), y).backward()
            optimizer.step()
            optimizer.zero_grad()
    except tutti.PeerError as e:
        if kind == "ddp":  # no update was made of what is not a mean
            assert [dist_training.whole(p) for p in model.parameters()] == ends[-1]
        dist.destroy_process_group()
        return [e.rank, str(e), step]
    return ["nothing"]


@pytest.mark.parametrize(("kind", "n", "transport"), [
    ("ddp", 2, "shm"), ("fsdp", 2, "shm"), pytest.param("ddp", 3, "tcp", marks=SLOW),
    pytest.param("fsdp", 3, "tcp", marks=SLOW), pytest.param("ddp", 3, "shm", marks=SLOW)])
def test_a_killed_rank_is_named(tmp_path, kind, n, transport):
    answers = on_ranks(n, loses, str(tmp_path), kind, transport=transport, killed=[1])
    for rank in range(n):
        if rank != 1:
            assert answers[rank][0] == 1 and "1 was lost" in answers[rank][1], answers[rank]
            assert answers[rank][2] == 2, answers[rank]


def loses_beside_gloo(rank, n, folder):
    """In a world of its own a group's ranks are others than the job's."""
    dist_cases.start(folder, rank, n, "gloo")
    group = dist.new_group([1, 2], backend="tutti", use_local_synchronization=True) if rank > 0 else None
    if rank == 0:
        return [2, "rank 2"]
    dist.barrier(group=group)
    if rank == 2:
        os.kill(os.getpid(), signal.SIGKILL)
    try:
        for _ in range(3):
            dist.all_reduce(torch.ones(3), group=group)
    except tutti.PeerError as e:
        return [e.rank, str(e)]
    return ["nothing"]


@SLOW
@pytest.mark.parametrize("transport", ["shm", "tcp"])
def test_a_killed_rank_has_the_number_that_the_job_gives_it(tmp_path, transport):
    for answer in on_ranks(3, loses_beside_gloo, str(tmp_path), transport=transport, killed=[2])[:2]:
        assert answer[0] == 2 and ("rank 2" in answer[1] or "worker 2" in answer[1]), answer


def losses_of_others(rank, n, folder):
    """Rank 3 is killed in a group with rank 2, which leaves because of that. Rank 1 leaves in order."""
    from tutti.torch.distributed import _worlds

    _worlds._RECALL_S = 20.0  # a rank that has left is not waited for
    dist_cases.start(folder, rank, n, "tutti")
    of_two, of_one, lost = dist.new_group([0, 2]), dist.new_group([0, 1]), dist.new_group([2, 3])
    world, told = dist.group.WORLD._shared.world, []
    dist.barrier()
    if rank == 3:
        os.kill(os.getpid(), signal.SIGKILL)
    while world.lost(3) is None:
        time.sleep(0.01)
    for group in {0: (of_one, of_two), 1: (), 2: (lost,)}[rank]:
        began = time.monotonic()
        try:
            dist.all_reduce(torch.ones(3), group=group)
            told.append([-1, "nothing", 0.0])
        except tutti.PeerError as e:
            told.append([e.rank, str(e), time.monotonic() - began])
    dist.destroy_process_group()
    return told


@pytest.mark.parametrize("transport", ["shm", pytest.param("tcp", marks=SLOW)])
def test_the_loss_that_is_named_is_the_cause(tmp_path, transport):
    zero, _, two, _ = on_ranks(4, losses_of_others, str(tmp_path), transport=transport, killed=[3])
    assert two[0][0] == 3 and "3 was lost" in two[0][1], two
    (left, of_left, took), (cause, of_cause, _) = zero
    assert left == 1 and "the cause" not in of_left and took < 10, zero
    assert cause == 3 and "3 was lost" in of_cause, zero


def after_a_goodbye(rank, n, folder):
    """Rank 1 leaves in order before a call of rank 0. What that gets, and the seconds."""
    from tutti.torch.distributed import _worlds

    _worlds._RECALL_S = 20.0
    dist_cases.start(folder, rank, n, "tutti")
    dist.barrier()
    told = []
    if rank == 0:
        began = time.monotonic()
        try:
            for _ in range(2):
                dist.all_reduce(torch.ones(3))
        except tutti.PeerError as e:
            told = [e.rank, time.monotonic() - began]
    dist.destroy_process_group()
    return told


@pytest.mark.parametrize("transport", ["shm", pytest.param("tcp", marks=SLOW)])
def test_a_rank_that_has_left_in_order_is_not_waited_for(tmp_path, transport):
    rank, took = on_ranks(2, after_a_goodbye, str(tmp_path), transport=transport)[0]
    assert rank == 1 and took < 10, took  # its reason would be waited for 20 s


def until_it_stands_still(pid):
    while pathlib.Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] != "T":
        time.sleep(0.01)


def closes_with_a_question_under_way(rank, n, folder):
    """Rank 1 stands still, and takes no note of rank 0, which asks it for its calls. The threads that ask, before and
    when the world is closed, and what the one that waits for the answer gets."""
    dist_cases.start(folder, rank, n, "tutti")
    shared, pid = dist.group.WORLD._shared, torch.tensor([os.getpid()])
    dist.broadcast(pid, 1)
    if rank == 1:
        os.kill(os.getpid(), signal.SIGSTOP)
        dist.destroy_process_group()
        return []

    def asking():
        return [t.name for t in threading.enumerate() if t.name == "tutti asks"]

    def ask():
        try:
            answers.append(type(shared.missing(dist.group.WORLD._queue, 2, 30.0)).__name__)
        except Exception as e:
            answers.append(repr(e))

    until_it_stands_still(int(pid.item()))
    try:
        full, answers, thread = fill(shared, 1), [], threading.Thread(target=ask)
        thread.start()
        while not asking():
            time.sleep(0.01)
        told, end = [asking()], shared.world._hold._end
        shared.world._hold._end = lambda at: (told.append(asking()), end(at))
        dist.destroy_process_group()
        thread.join()
        return [*told, answers, len(full)]
    finally:
        os.kill(int(pid.item()), signal.SIGCONT)


def fill(shared, rank):
    """Sends a rank that stands still more than there is space for; the messages, which are under way."""
    from tutti import _abi
    from tutti._library import library

    requests, nothing = (_abi.tutti_request * 1000)(), shared.world._host(0, 0, _abi.TUTTI_U8)
    for request in requests:
        library.tutti_post_send(shared.world._at, request, rank, 1, _abi.tutti_header(), nothing, None)
    return requests


def test_no_thread_asks_a_stopped_rank_when_a_world_is_closed(tmp_path):
    zero, _ = on_ranks(2, closes_with_a_question_under_way, str(tmp_path), transport="shm", timeout=30)
    assert zero == [["tutti asks"], [], ["str"], 1000]


def asks_a_stopped_rank_and_another(rank, n, folder):
    """Rank 1 stands still. What rank 0 is answered by the others."""
    dist_cases.start(folder, rank, n, "tutti")
    shared, pid = dist.group.WORLD._shared, torch.tensor([os.getpid()])
    called, over = pathlib.Path(folder, "called"), pathlib.Path(folder, "over")
    dist.broadcast(pid, 1)
    if rank == 1:
        os.kill(os.getpid(), signal.SIGSTOP)
    if rank == 2:
        called.touch()
    while rank == 2 and not over.exists():
        time.sleep(0.01)
    if rank > 0:
        dist.destroy_process_group()
        return ""
    until_it_stands_still(int(pid.item()))
    while not called.exists():
        time.sleep(0.01)
    try:
        full = fill(shared, 1)
        told = shared.missing(dist.group.WORLD._queue, 2, 1.5)
        dist.destroy_process_group()
        return [told, len(full)]
    finally:
        over.touch()
        os.kill(int(pid.item()), signal.SIGCONT)


def test_a_stopped_rank_does_not_keep_a_question_from_the_others(tmp_path):
    told, _ = on_ranks(3, asks_a_stopped_rank_and_another, str(tmp_path), transport="shm", timeout=30)[0]
    assert "rank 1 does not answer within 1.5 s" in told and "rank 2 has called 1 collectives" in told


def hears_of_two_losses(rank, n, folder):
    from tutti.torch.distributed import _worlds

    dist_cases.start(folder, rank, n, "tutti")
    shared, found = dist.group.WORLD._shared, None
    if rank == 0:
        for lost, why in ((2, b"it was killed"), (7, b"it stood still")):
            shared._hear(1, _worlds._LOST, 0, lost, why)
        found = shared._cause(tutti.PeerError("rank 1 has left", 1), dist.group.WORLD._queue)
    dist.destroy_process_group()
    return found


def test_a_lost_member_is_the_cause_before_a_rank_of_other_groups(tmp_path):
    assert on_ranks(3, hears_of_two_losses, str(tmp_path))[0] == [2, "it was killed"]


def hears_of_a_loss(rank, n, folder):
    """Rank 2 is killed, and rank 0 fails in two groups with it. How often rank 1 is notified."""
    from tutti.torch.distributed import _worlds

    dist_cases.start(folder, rank, n, "tutti")
    shared, heard = dist.group.WORLD._shared, []
    groups, ours, hear = [dist.new_group([0, 2]) for _ in range(2)], dist.new_group([0, 1]), shared._hear
    shared._hear = lambda rank, kind, *more: (heard.append(kind), hear(rank, kind, *more))
    dist.barrier()
    if rank == 2:
        os.kill(os.getpid(), signal.SIGKILL)
    for group in groups if rank == 0 else []:
        with pytest.raises(tutti.PeerError):
            for _ in range(3):
                dist.all_reduce(torch.ones(3), group=group)
    dist.barrier(group=ours)
    while rank == 1 and _worlds._LOST not in heard:
        time.sleep(0.01)
    time.sleep(0.3)
    dist.barrier(group=ours)
    dist.destroy_process_group()
    return heard.count(_worlds._LOST)


def test_a_loss_is_spread_once(tmp_path):
    assert on_ranks(3, hears_of_a_loss, str(tmp_path), transport="shm", killed=[2])[1] == 1


CALLS = {
    "all_reduce": lambda g, n: dist.all_reduce(torch.ones(100000)),
    "broadcast": lambda g, n: dist.broadcast(torch.ones(100000), 1),
    "all_gather": lambda g, n: dist.all_gather([torch.ones(3) for _ in range(n)], torch.ones(3)),
    "reduce_scatter": lambda g, n: dist.reduce_scatter(torch.ones(3), [torch.ones(3) for _ in range(n)]),
    "reduce": lambda g, n: dist.reduce(torch.ones(3), 0),
    "gather": lambda g, n: dist.gather(torch.ones(3), [torch.ones(3) for _ in range(n)] if g == 0 else None, 0),
    "scatter": lambda g, n: dist.scatter(torch.ones(3), None, 1),
    "all_to_all": lambda g, n: dist.all_to_all_single(torch.ones(n), torch.ones(n)),
    "barrier": lambda g, n: dist.barrier(),
    "recv": lambda g, n: dist.recv(torch.ones(3), 1),
    "product": lambda g, n: dist.all_reduce(torch.ones(3), dist.ReduceOp.PRODUCT),
}


def loses_in(rank, n, folder, call):
    dist_cases.start(folder, rank, n, "tutti")
    dist.barrier()
    if rank == 1:
        os.kill(os.getpid(), signal.SIGKILL)
    try:
        for _ in range(3):
            CALLS[call](rank, n)
    except tutti.PeerError as e:
        return [e.rank, str(e)]
    return ["nothing"]


@SLOW
@pytest.mark.parametrize("call", list(CALLS))
def test_a_killed_rank_is_named_in_each_call(tmp_path, call):
    answer = on_ranks(2, loses_in, str(tmp_path), call, killed=[1])[0]
    assert answer[0] == 1 and "1" in answer[1], answer


START = """
import json, os, signal, sys, time
from datetime import timedelta
import torch, torch.distributed as dist
import tutti, tutti.torch.distributed
rank, n = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
# a store in a file needs no name service
dist.init_process_group("tutti", init_method="file://" + sys.argv[1], rank=rank, world_size=n)
"""
ENDS = START + """
dist.all_reduce(torch.ones(1000), async_op=True)
dist.barrier()
if sys.argv[2] == "raise" and rank == 1:
    raise ValueError("the reason")
if sys.argv[2] == "raise":
    try:
        dist.barrier()
    except tutti.PeerError as e:
        print(e)
"""


@SLOW
@pytest.mark.parametrize("how", ["return", pytest.param("raise", marks=LONG)])
def test_a_script_that_destroys_nothing_ends(run, tmp_path, how):
    """Its exception is what the others get."""
    result = run(ENDS, n=2, launcher="torchrun", args=[tmp_path / "store", how], code=None)
    assert (result.code == 0) == (how != "raise"), result
    assert how != "raise" or "ValueError: the reason" in result.ranks[0].out, result


LOST = START + """
signal.signal(signal.SIGTERM, signal.SIG_IGN)
dist.barrier()
print("began", flush=True)
try:
    while True:
        dist.all_reduce(torch.ones(1000))
        time.sleep(0.002)
except tutti.PeerError as e:
    print(json.dumps([e.rank, str(e), dist.group.WORLD._shared.world.transport]), flush=True)
    os._exit(7)
"""


@SLOW
@pytest.mark.parametrize("launcher", ["tutti", pytest.param("torchrun", marks=LONG)])
def test_a_killed_rank_of_a_launcher_is_named(run, tmp_path, launcher):
    job = run.start(LOST, n=3, launcher=launcher, args=[tmp_path / "store"])
    for rank in range(3):
        job.says(rank, "began")
    job.kill(1)
    result = job.wait(code=None)
    for rank in (0, 2):
        said = result.ranks[rank].last
        assert said[0] == 1 and "1" in said[1] and said[2] == "shm", said
        assert launcher != "tutti" or "signal 9" in said[1], said
