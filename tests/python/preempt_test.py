"""checkpoint=: a run that a signal ends saves itself, all ranks after the same step, and the same command line
continues it to the bits of a run that nothing has disturbed."""

import collections
import functools
import inspect
import json
import math
import os
import re
import signal
import subprocess
import textwrap
import time
import warnings

import pytest

pytestmark = pytest.mark.torch
torch = pytest.importorskip("torch")

import forked  # noqa: E402
import processes  # noqa: E402

import tutti.checkpoints  # noqa: E402
import tutti.torch  # noqa: E402
from tutti.torch import Checkpoints, _preempt  # noqa: E402

STEPS = 14


def script():
    import ctypes
    import os
    import sys
    import time

    import torch

    import tutti.torch

    directory, method, stay = sys.argv[1], sys.argv[2], float(sys.argv[3])
    torch.set_num_threads(1)
    torch.manual_seed(0)
    data = torch.randn(96, 5)
    net = torch.nn.Sequential(torch.nn.Linear(5, 8), torch.nn.Dropout(0.4), torch.nn.BatchNorm1d(8),
                              torch.nn.Linear(8, 1)).to(os.environ.get("DEVICE", "cpu"))  # fmt: skip
    optimizer = torch.optim.SGD(net.parameters(), lr=0.05, momentum=0.9)
    checkpoint = tutti.torch.Checkpoints(directory, ask_every=2)
    order = tutti.torch.sampler(data, batch=8, seed=3)
    if method == "wrapper":
        model = ours = tutti.torch.DistributedDataParallel(net, checkpoint=checkpoint)
    else:
        model, optimizer = tutti.torch.prepare(net, optimizer, method, sampler=order, checkpoint=checkpoint)
        ours = optimizer
    torch.manual_seed(17 + ours.world.rank)
    scheduler = torch.optim.lr_scheduler.LinearLR(optimizer, 0.1, 1.0, 9)
    if method == "wrapper":
        ours.also(optimizer=optimizer, scheduler=scheduler)
        order.load_state_dict({"step": ours.figures()["steps"]})
    else:
        ours.also(scheduler=scheduler)
    readers = int(os.environ.get("READERS", 0))
    if readers:
        torch.multiprocessing.set_start_method("forkserver")  # as in Python 3.14
    loader = torch.utils.data.DataLoader(data, batch_sampler=order, num_workers=readers,
                                         multiprocessing_context="fork" if readers else None)
    steps = ours.figures()["steps"]
    print("from", steps, flush=True)
    while steps < 14:
        for x in loader:
            x = x.to(os.environ.get("DEVICE", "cpu"))
            optimizer.zero_grad()
            (model(x).squeeze(1) - x.sum(1)).square().mean().backward()
            optimizer.step()
            scheduler.step()
            steps += 1
            print("step", steps, flush=True)
            time.sleep(stay)
            if steps == 14:
                break
    if method == "wrapper":
        ours.close()
    else:
        ours.finish()
    for t in net.state_dict().values():
        t = t.cpu()
        print("value", ctypes.string_at(t.data_ptr(), t.numel() * t.element_size()).hex(), flush=True)


def values(rank):
    return [line for line in rank.out.splitlines() if line.startswith("value")]


def checkpoints(folder):
    return sorted(p.name for p in folder.glob("step-*[0-9]"))


SLURM = {"SLURM_JOB_ID": "7"}
READERS = {"READERS": "2"}  # of a DataLoader: torchrun sends them the signal, too
CASES = [  # launcher, method, who gets which signal, environment, code
    ("tutti", "ddp", "launcher", signal.SIGTERM, {}, 143),
    *(
        pytest.param(*case, marks=pytest.mark.slow)
        for case in (
            ("torchrun", "wrapper", "launcher", signal.SIGTERM, READERS, 1),
            ("variables", "local-sgd(period=3)", 1, signal.SIGUSR1, SLURM, 138),
        )
    ),
    *(
        pytest.param(*case, marks=pytest.mark.long)
        for case in (
            ("torchrun", "local-sgd(period=3)", "launcher", signal.SIGTERM, READERS, 1),
            ("tutti", "zero(stage=3)", "launcher", signal.SIGTERM, {}, 143),
            ("tutti", "wrapper", 1, signal.SIGTERM, {}, 1),  # a rank's own end is a failure to `tutti run`
            ("variables", "wrapper", 1, signal.SIGUSR1, SLURM, 138),
            ("variables", "d-psgd", 1, signal.SIGTERM, {}, 143),
        )
    ),
]


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory):
    """By method what the ranks print of a run without a signal."""

    @functools.cache
    def of(method):
        text = textwrap.dedent(inspect.getsource(script)) + "script()\n"
        return [values(rank) for rank in forked.script(text, args=[tmp_path_factory.mktemp("whole"), method, 0])]

    return of


@pytest.mark.parametrize(("launcher", "method", "to", "number", "env", "code"), CASES)
def test_a_signal_saves_at_one_step_and_the_same_line_continues(
    run, tmp_path, undisturbed, launcher, method, to, number, env, code
):
    line = {"launcher": launcher, "env": env}
    folder = tmp_path / "c"
    job = run.start(script, args=[folder, method, 0.05], **line)
    job.says(1, "step 4\n")
    if to == "launcher":
        job.launcher.send_signal(number)
    else:
        job.kill(to, number)
    stopped = job.wait(code=code)
    last = {re.findall(r"step (\d+)\n", rank.out)[-1] for rank in stopped.ranks}
    assert len(last) == 1 and checkpoints(folder) == [f"step-{int(min(last)):08d}"], stopped
    assert f"ends by signal {int(number)} ({number.name}); started again" in stopped.ranks[0].err
    assert "Traceback" not in stopped.ranks[0].err + stopped.ranks[1].err
    again = run(script, args=[folder, method, 0], **line)
    assert f"from {min(last)}\n" in again.ranks[1].out
    assert [values(rank) for rank in again.ranks] == undisturbed(method), again


@pytest.mark.slow
@pytest.mark.parametrize("context", ["fork", "spawn", "forkserver"])
def test_workers_of_a_loader_that_are_not_forked_are_named_at_a_signal(run, tmp_path, context):
    main = tmp_path / "main.py"
    text = textwrap.dedent(inspect.getsource(script)).replace('"fork" if readers else None', repr(context))
    main.write_text(f'{text}\nif __name__ == "__main__":\n    script()\n')
    job = run.start(main, args=[tmp_path / "c", "ddp", 0.05], n=1, env={"READERS": 1})
    job.says(0, "step 2\n")
    job.launcher.send_signal(signal.SIGTERM)
    err = job.wait(code=143).ranks[0].err
    assert ("give a DataLoader multiprocessing_context='fork'" in err) == (context != "fork"), err


@pytest.mark.slow
def test_a_process_of_the_script_is_not_named_as_a_loaders_at_a_signal(run, tmp_path):
    main = tmp_path / "main.py"
    start = "multiprocessing.get_context('spawn').Process(target=time.sleep, args=(60,), daemon=True).start()"
    main.write_text(f'import multiprocessing, time\n{textwrap.dedent(inspect.getsource(script))}\n'
                    f'if __name__ == "__main__":\n    {start}\n    script()\n')
    job = run.start(main, args=[tmp_path / "c", "ddp", 0.05], n=1)
    job.says(0, "step 2\n")
    job.launcher.send_signal(signal.SIGTERM)
    err = job.wait(code=143).ranks[0].err
    assert "daemonic processes of multiprocessing here are not forked" in err and "DataLoader here" not in err


@pytest.mark.cuda
@pytest.mark.slow
@pytest.mark.parametrize("method", ["ddp", "wrapper"])
def test_random_state_of_a_gpu_comes_back(run, tmp_path, method):
    env = {"DEVICE": "cuda"}
    whole = run(script, args=[tmp_path / "a", method, 0], env=env)
    job = run.start(script, args=[tmp_path / "b", method, 0.05], env=env)
    job.says(1, "step 4\n")
    job.launcher.send_signal(signal.SIGTERM)
    job.wait(code=143)
    again = run(script, args=[tmp_path / "b", method, 0], env=env)
    assert [values(rank) for rank in again.ranks] == [values(rank) for rank in whole.ranks]


@pytest.mark.long
def test_example_prints_the_same_loss_after_a_signal(run, tmp_path):
    """examples/pytorch/preempt.py, whose DataLoader has workers, and the line of docs/PYTORCH.md."""
    example = processes.ROOT / "examples/pytorch/preempt.py"
    whole = run(example, args=[tmp_path / "a", "local-sgd(period=8)", 1]).ranks[0].out
    assert whole.startswith("epoch 1  local-sgd(period=8)  test loss 0.1")
    job = run.start(example, args=[tmp_path / "b", "local-sgd(period=8)", 1])
    while not (tmp_path / "b/step-00000200").exists():
        assert job.launcher.poll() is None, job.now()
        time.sleep(0.01)
    job.launcher.send_signal(signal.SIGTERM)
    assert "ends by signal 15" in job.wait(code=143).ranks[0].err
    assert run(example, args=[tmp_path / "b", "local-sgd(period=8)", 1]).ranks[0].out == whole


# ---- forked ranks ----
def net():
    torch.manual_seed(0)
    return torch.nn.Sequential(torch.nn.Linear(5, 4), torch.nn.Dropout(0.3), torch.nn.Linear(4, 1))


def bytes_of(model):
    return [t.flatten().view(torch.uint8).tolist() for t in model.state_dict().values()]


def loop(model, optimizer, schedulers, steps, signal_after=-1, number=signal.SIGTERM):
    for step in steps:
        optimizer.zero_grad()
        x = torch.randn(6, 5, generator=torch.Generator().manual_seed(step))
        model(x).square().mean().backward()
        optimizer.step()
        for one in schedulers:
            one.step()
        if step + 1 == signal_after:
            os.kill(os.getpid(), number)


def trained(plan, signal_after=-1, method="ddp", steps=8, who=0, number=signal.SIGTERM):
    """Trains with all kinds of objects in also(). Returns where it began, and the bytes that there are in the end."""
    torch.set_num_threads(1)
    wrapper = method == "wrapper"
    model = net()
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
    if wrapper:
        model = ours = tutti.torch.DistributedDataParallel(model, checkpoint=plan)
    else:
        model, optimizer = tutti.torch.prepare(model, optimizer, method, checkpoint=plan)
        ours = optimizer
    lrs = torch.optim.lr_scheduler
    schedulers = [lrs.OneCycleLR(optimizer, 0.02, total_steps=20), lrs.MultiStepLR(optimizer, [3, 3, 6])]
    mean = torch.optim.swa_utils.AveragedModel(net())
    ours.also(**({"optimizer": optimizer} if wrapper else {}), cycle=schedulers[0], steps=schedulers[1])
    ours.also(mean=mean)
    began = ours.figures()["steps"]
    mine = signal_after if ours.world.rank == who else -1
    for step in range(began, steps):
        loop(model, optimizer, schedulers, [step], mine, number)
        mean.update_parameters(model.module if wrapper else model)
    if wrapper:
        ours.close()
    else:
        ours.finish()
    rates = [optimizer.param_groups[0]["lr"], schedulers[1].state_dict()["_last_lr"]]
    return [began, bytes_of(model), bytes_of(mean), *rates]


@pytest.mark.parametrize("method", ["ddp", "wrapper"])
def test_checkpoints_beside_training_are_those_that_are_waited_for(tmp_path, method):
    """The signal comes while the one of step 6 may still be written; its own is waited for."""
    whole = forked.ranks(2, trained, str(tmp_path / "a"), -1, method)
    plan = Checkpoints(tmp_path / "b", every=3, wait=False)
    assert forked.ranks(2, trained, plan, 7, method, 8, 1) == [{"exit": 143}] * 2
    assert checkpoints(tmp_path / "b") == [f"step-{step:08}" for step in (3, 6, 7)]
    for step in (3, 7):  # of the first, and of that of the signal
        plan = Checkpoints(tmp_path / f"c{step}", every=3, wait=False, resume=tmp_path / "b" / f"step-{step:08}")
        continued = forked.ranks(2, trained, plan, -1, method)
        assert [one["value"] for one in continued] == [[step, *one["value"][1:]] for one in whole]


@pytest.mark.parametrize("method", ["ddp", "zero(stage=1)", "wrapper"])
def test_optimizer_and_objects_of_also_continue_to_the_same_bits(tmp_path, method):
    whole = forked.ranks(2, trained, str(tmp_path / "a"), -1, method)
    again = tmp_path / "b"
    assert forked.ranks(2, trained, str(again), 3, method, 8, 1) == [{"exit": 143}] * 2
    assert checkpoints(again) == ["step-00000003"]
    continued = forked.ranks(2, trained, str(again), -1, method)
    assert [one["value"][0] for one in continued] == [3, 3]
    assert [one["value"][1:] for one in continued] == [one["value"][1:] for one in whole]


def test_slurms_signal_is_asked_for_every_so_many_steps(tmp_path, monkeypatch):
    """Under a method whose workers do not wait for each other in every step."""
    monkeypatch.setenv("SLURM_JOB_ID", "7")
    plan = Checkpoints(tmp_path / "b", ask_every=5)
    whole = forked.ranks(2, trained, str(tmp_path / "a"), -1, "local-sgd(period=3)")
    assert forked.ranks(2, trained, plan, 3, "local-sgd(period=3)", 8, 1, signal.SIGUSR1) == [{"exit": 138}] * 2
    assert checkpoints(tmp_path / "b") == ["step-00000005"]
    again = forked.ranks(2, trained, plan, -1, "local-sgd(period=3)")
    assert [one["value"][1:] for one in again] == [one["value"][1:] for one in whole]


@pytest.mark.parametrize("wait", [True, False])
def test_every_saves_at_multiples_and_at_the_end_and_keep_removes(tmp_path, wait):
    plan = Checkpoints(tmp_path, every=3, keep=2, wait=wait)
    done = forked.ranks(2, trained, plan)
    assert checkpoints(tmp_path) == ["step-00000006", "step-00000008"]
    assert sorted(p.name for p in tmp_path.glob("*-optimizer")) == [c + "-optimizer" for c in checkpoints(tmp_path)]
    again = forked.ranks(2, trained, plan)  # what is done is not done again
    assert [one["value"] for one in again] == [[8, *one["value"][1:]] for one in done]


def test_every_of_the_wrapper_saves_before_the_next_forward(tmp_path):
    forked.ranks(1, trained, Checkpoints(tmp_path, every=4), -1, "wrapper")
    assert checkpoints(tmp_path) == ["step-00000004"]


def test_signal_in_the_last_step_is_for_the_next_start(tmp_path):
    assert forked.ranks(2, trained, str(tmp_path), 8) == [{"exit": 143}] * 2
    assert checkpoints(tmp_path) == ["step-00000008"]
    assert [one["value"][0] for one in forked.ranks(2, trained, str(tmp_path))] == [8, 8]


def test_fewer_workers_continue(tmp_path):
    assert forked.ranks(2, trained, str(tmp_path), 3) == [{"exit": 143}] * 2
    whole = forked.ranks(1, trained, str(tmp_path / "other"))[0]["value"]
    began, *_, lr, last = forked.ranks(1, trained, str(tmp_path))[0]["value"]
    assert (began, lr, last) == (3, *whole[3:])


def test_damaged_checkpoint_is_passed_over_and_none_whole_is_refused(tmp_path):
    forked.ranks(1, trained, Checkpoints(tmp_path, every=3))
    assert checkpoints(tmp_path) == ["step-00000003", "step-00000006", "step-00000008"]
    for name in checkpoints(tmp_path)[1:]:
        (tmp_path / name / "manifest.json").write_text("{")
    assert forked.ranks(2, trained, Checkpoints(tmp_path, every=3))[1]["value"][0] == 3
    assert [(c.step, c.damage) for c in tutti.checkpoints.verify(tmp_path)] == [(3, ""), (6, ""), (8, "")]
    subprocess.run([processes.build() / "bin/tutti", "check", tmp_path], check=True)
    for name in checkpoints(tmp_path)[1:]:
        (tmp_path / name / "manifest.json").write_text("{")
    (tmp_path / "step-00000003/manifest.json").write_text("{")
    for plan in (str(tmp_path), Checkpoints(tmp_path, resume="")):
        answers = forked.ranks(2, trained, plan)
        assert answers[0]["error"] in ("CorruptError", "ValueError") and str(tmp_path) in answers[0]["text"]
        assert "error" in answers[1]


def test_scripts_file_that_is_damaged_is_refused(tmp_path):
    forked.ranks(1, trained, str(tmp_path), 3)
    file = tmp_path / "step-00000003-optimizer/script-00000.safetensors"
    file.write_bytes(file.read_bytes().replace(b'"objects"', b'"0bjects"'))
    answer = forked.ranks(1, trained, str(tmp_path))[0]
    assert answer["error"] == "CorruptError" and str(file) in answer["text"]


def test_state_of_an_object_comes_back_as_it_was():
    state = {"count": collections.Counter({3: 2}), 7: [None, True, (1.5, "a")], "inf": math.inf, "lr": 0.1 + 0.2,
             "deep": {"t": torch.arange(6).view(2, 3), (1, 2): torch.tensor(0.5, dtype=torch.bfloat16)}}  # fmt: skip
    tensors = {}
    back = _preempt._decode(json.loads(json.dumps(_preempt._encode(state, "it", tensors))), tensors)
    assert repr(back) == repr(state) and back["deep"]["t"].dtype == torch.int64


# ---- signals ----
def handlers():
    before = signal.getsignal(signal.SIGTERM), signal.getsignal(signal.SIGUSR1)
    os.environ["SLURM_JOB_ID"] = "1"
    model = net()
    _, optimizer = tutti.torch.prepare(model, torch.optim.SGD(model.parameters(), lr=0.1), checkpoint=os.environ["AT"])
    del os.environ["SLURM_JOB_ID"]
    mine = signal.getsignal(signal.SIGTERM) != before[0], signal.getsignal(signal.SIGUSR1) != before[1]
    read, write = os.pipe()
    if os.fork() == 0:
        now = signal.getsignal(signal.SIGTERM) == before[0], signal.getsignal(signal.SIGUSR1) == signal.SIG_IGN
        os.write(write, repr(now).encode())
        os._exit(0)
    os.wait()
    optimizer.finish()
    after = signal.getsignal(signal.SIGTERM), signal.getsignal(signal.SIGUSR1)
    return [mine, os.read(read, 100).decode(), before == after]


def test_handlers_are_a_runs_own_and_put_back(tmp_path, monkeypatch):
    monkeypatch.setenv("AT", str(tmp_path))
    assert forked.ranks(1, handlers)[0]["value"] == [[True, True], "(True, True)", True]


def twice(directory, apart, echo):
    _preempt._ECHO_S = echo
    model = net()
    model, optimizer = tutti.torch.prepare(model, torch.optim.SGD(model.parameters(), lr=0.1), checkpoint=directory)
    loop(model, optimizer, [], [0], 1)
    time.sleep(apart)
    os.kill(os.getpid(), signal.SIGTERM)
    loop(model, optimizer, [], [1])


def test_second_signal_ends_at_once_unless_it_is_the_echo_of_the_first(tmp_path):
    assert forked.ranks(1, twice, str(tmp_path), 0.2, 0.1, killed=[0]) == [{}]
    assert checkpoints(tmp_path) == []
    assert forked.ranks(1, twice, str(tmp_path), 0.0, 60.0) == [{"exit": 143}]
    assert checkpoints(tmp_path) == ["step-00000001"]


def ignored(directory):
    signal.signal(signal.SIGTERM, signal.SIG_IGN)  # as under nohup
    return trained(directory, 3)


def test_ignored_signal_stays_ignored(tmp_path):
    assert forked.ranks(1, ignored, str(tmp_path))[0]["value"][0] == 0
    assert checkpoints(tmp_path) == []


# ---- what is refused ----
def refused(directory, method, options, objects):
    """The sentence with which it is refused, at the latest by the first forward."""
    model = net()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    try:
        plan = Checkpoints(directory, **options.pop("plan", {}))
        if method == "wrapper":
            model = ours = tutti.torch.DistributedDataParallel(model, checkpoint=plan)
        else:
            model, optimizer = tutti.torch.prepare(model, optimizer, method, checkpoint=plan, **options)
            ours = optimizer
        if objects == ["itself"]:
            second = net()
            tutti.torch.prepare(second, torch.optim.SGD(second.parameters(), lr=0.1), checkpoint=directory)
        for one in objects:
            ours.also(one={"none": object(), "odd": Odd(), "good": torch.nn.Linear(1, 1), "optimizer": optimizer}[one])
        with ours.join() if options.get("join") else torch.enable_grad():
            loop(model, optimizer, [], [0])
        ours.also(late=torch.nn.Linear(1, 1))
    except (ValueError, TypeError, RuntimeError) as e:
        return f"{type(e).__name__}: {e}"
    return ""


class Odd:
    def state_dict(self):
        return {"a": [1, {2, 3}]}

    def load_state_dict(self, state):
        raise AssertionError


@pytest.mark.parametrize(("n", "method", "options", "objects", "words"), [
    (1, "ddp", {"plan": {"every": -1}}, [], "ValueError: Checkpoints: every is -1; it must be a number from 0"),
    (1, "ddp", {"plan": {"ask_every": 0}}, [], "ValueError: Checkpoints: ask_every is 0"),
    (1, "ddp", {"plan": {"wait": 1}}, [], "ValueError: Checkpoints: wait is 1; it must be True or False"),
    (1, "ddp", {"plan": {"resume": "/none"}}, [], "ValueError: no checkpoint at '/none'"),
    (2, "ad-psgd", {}, [], "ValueError: checkpoint= with method 'ad-psgd': its workers make no step together"),
    (2, "parameter-server", {"servers": 1}, [], "ValueError: checkpoint= with servers="),
    (1, "ddp", {}, ["itself"], "ValueError: checkpoint= of a second run in this process"),
    (1, "ddp", {}, ["none"], "TypeError: also(): 'one' is a object, without state_dict()"),
    (1, "ddp", {}, ["odd"], "ValueError: also(): the state_dict() of 'one': it['a'][1] is a set;"),
    (1, "ddp", {}, ["good", "good"], "ValueError: also(): there is a 'one' already"),
    (1, "ddp", {}, [], "StateError: also() after the first forward"),
    (2, "wrapper", {"join": True}, ["optimizer"], "StateError: checkpoint= together with join()"),
    (1, "wrapper", {}, ["good"], "StateError: checkpoint= of the wrapper, which does not know the optimizer"),
])  # fmt: skip
def test_what_cannot_be_is_refused_in_a_sentence(tmp_path, n, method, options, objects, words):
    for answer in forked.ranks(n, refused, str(tmp_path), method, options, objects):
        assert answer["value"].startswith(words), answer


def named(directory, names):
    model = net()
    model, optimizer = tutti.torch.prepare(model, torch.optim.SGD(model.parameters(), lr=0.1), checkpoint=directory)
    try:
        optimizer.also(**{name: torch.nn.Linear(1, 1) for name in names})
        with warnings.catch_warnings(record=True) as told:
            warnings.simplefilter("always")
            loop(model, optimizer, [], [0, 1], 1 if len(names) > 1 else -1)
            optimizer.finish()
    except ValueError as e:
        return str(e)
    return [str(one.message) for one in told if "also()" in str(one.message)]


def test_objects_of_also_are_those_of_the_checkpoint(tmp_path):
    assert forked.ranks(1, named, str(tmp_path), ["a", "b"]) == [{"exit": 143}]
    sentence = forked.ranks(1, named, str(tmp_path), ["a", "c"])[0]["value"]
    assert "has no state of 'c', only of: a, b" in sentence
    (told,) = forked.ranks(1, named, str(tmp_path), ["b"])[0]["value"]
    assert "also has the state of a, and this script has not given it to also()" in told


def test_directories_of_ranks_are_compared(tmp_path):
    answers = forked.ranks(2, differ, str(tmp_path))
    assert all("checkpoint" in answer["value"] for answer in answers), answers


def differ(directory):
    return refused(directory + os.environ["TUTTI_RANK"], "ddp", {}, [])
