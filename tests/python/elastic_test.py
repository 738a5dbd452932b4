"""Goal: a script of prepare(elastic=True) has the same model, to the bit, whatever its number of workers, and whichever
of them is lost, comes back or leaves, and each sample of an epoch is trained once. What cannot be is refused in a
sentence. Method: runs of `tutti run --workers` with a small script whose steps wait a little, and kills at the times
that the test sees in the workers' own lines."""

import os
import re
import signal
import subprocess
import sys
import threading
import time

import pytest
import torch

import tutti.torch
from processes import build, environment
from tutti import _abi, _members
from tutti._owner import Held

SCRIPT = """
import os, sys, time
import torch
from torch import nn
import tutti.torch

out, delay, epochs = sys.argv[1], float(sys.argv[2]), int(sys.argv[3])
torch.manual_seed(0)
model = nn.Sequential(nn.Linear(4, 6), nn.BatchNorm1d(6), nn.ReLU(), nn.Dropout(0.2), nn.Linear(6, 2))
optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 2, 0.5)
draw = torch.Generator().manual_seed(1)
data = torch.utils.data.TensorDataset(torch.randn(56, 4, generator=draw), torch.randint(0, 2, (56,), generator=draw))
sampler = tutti.torch.sampler(data, 3, seed=1)
model, optimizer = tutti.torch.prepare(model, optimizer, sampler=sampler, elastic=True)
print(f"begins {os.getpid()} {optimizer.figures()['steps']}\\n", end="", flush=True)  # one write
for epoch in range(epochs):
    for x, y in torch.utils.data.DataLoader(data, batch_sampler=sampler):
        nn.functional.cross_entropy(model(x), y).backward()
        optimizer.step()
        optimizer.zero_grad()
        time.sleep(0 if os.path.exists(out + ".came") else delay)
        print(f"step {os.getpid()} {int(optimizer.figures()['steps'])}\\n", end="", flush=True)  # one write
    with optimizer.evaluate():
        model.eval()
        model(data.tensors[0])
        model.train()
    scheduler.step()
def results():
    torch.save(model.state_dict(), out + ".new")
    os.replace(out + ".new", out)
optimizer.finish(results)
print(f"ended {os.getpid()}\\n", end="", flush=True)  # one write
"""
EPOCHS, STEPS = 4, 4 * 5  # 56 samples, 4 shares of 3


class Elastic:
    """A run that is under way, and the lines of its workers. Its passes take `delay` until a newcomer has begun.
    first: the step at which the others begin."""

    def __init__(self, folder, name, n, delay=0.0, more=(), script=SCRIPT, first=0, arguments=()):
        self.out, self.seen, self.first = folder / f"{name}.pt", [], first
        path = folder / f"{name}.py"
        path.write_text(script)
        self.begun = time.monotonic()
        self.process = subprocess.Popen(
            [f"{build()}/bin/tutti", "run", "--workers", "1:4", "-n", str(n), "--pass", str(folder / f"{name}.join"),
             *more, "--", sys.executable, str(path), str(self.out), str(delay), str(EPOCHS), *arguments],
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env=environment())

    def until(self, what):
        """Reads lines up to one that has this form."""
        for line in self.process.stdout:
            self.seen.append(line)
            begins = re.match(r"begins \d+ (\d+)", line)
            if begins and int(begins[1]) > self.first:
                self.out.with_name(self.out.name + ".came").touch()
            found = re.search(what, line)
            if found:
                return found
        raise AssertionError(f"no line like {what}:\n" + "".join(self.seen))

    def pids(self):
        return list(dict.fromkeys(int(m[1]) for m in re.finditer(r"(?m)^begins (\d+)", "".join(self.seen))))

    def end(self, code=0):
        rest, _ = self.process.communicate(timeout=120)
        self.seen.append(rest)
        text = "".join(self.seen)
        assert code is None or self.process.returncode == code, text
        return text

    def model(self):
        return torch.load(self.out)


def equal(a, b):
    return a.keys() == b.keys() and all(torch.equal(a[k], b[k]) for k in a)


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory):
    run = Elastic(tmp_path_factory.mktemp("elastic"), "one", 1)
    text = run.end()
    assert f"step {run.pids()[0]} {STEPS}" in text
    return run.model()


def test_the_number_of_workers_does_not_change_a_bit(tmp_path, undisturbed):
    run = Elastic(tmp_path, "three", 3)
    run.end()
    assert equal(run.model(), undisturbed)


@pytest.mark.parametrize("victim", [0, pytest.param(1, marks=pytest.mark.slow)])
def test_a_killed_worker_comes_back_and_the_model_is_the_same(tmp_path, undisturbed, victim):
    run = Elastic(tmp_path, "killed", 3, delay=0.6)
    for _ in range(3):
        run.until(r"^begins")
    run.until(r"^step \d+ 2$")
    os.kill(run.pids()[victim], signal.SIGKILL)
    assert int(run.until(r"^begins \d+ (\d+)")[1]) > 0  # the one that has come begins where the others are
    text = run.end()
    assert "was killed by signal 9 (SIGKILL); the run goes on, and it is started again in 1 s" in text
    assert text.count("ended") == 3 and equal(run.model(), undisturbed)


def test_what_is_dropped_of_the_first_step_leaves_nothing_in_the_module(tmp_path, undisturbed):
    """No step is done, so the others begin again by themselves, and their batch norms have seen a batch."""
    dies = """
        if optimizer.world.rank == 1 and not os.path.exists(out + ".died"):
            open(out + ".died", "w").close()
            os.kill(os.getpid(), 9)
"""
    at = "        nn.functional.cross_entropy(model(x), y).backward()\n"
    run = Elastic(tmp_path, "first", 3, script=SCRIPT.replace(at, at + dies[1:], 1))
    text = run.end()
    assert "killed by signal 9" in text and equal(run.model(), undisturbed)


def test_an_epoch_that_ends_before_the_first_pass_keeps_the_statistics_of_the_module(tmp_path, undisturbed):
    """The engine has them from its beginning, and the worker begins again with its state."""
    begins = 'print(f"begins {os.getpid()}'
    waits = f"""
if optimizer.world.rank == 1 and not os.path.exists(out + ".died"):
    open(out + ".died", "w").close()
    os.kill(os.getpid(), 9)
while not os.path.exists(out + ".died"):
    time.sleep(0.01)
time.sleep(1)  # the others learn of it
{begins}"""
    run = Elastic(tmp_path, "early", 3, script=SCRIPT.replace(begins, waits[1:], 1))
    text = run.end()
    assert "killed by signal 9" in text and equal(run.model(), undisturbed)


@pytest.mark.parametrize("where", ["before", pytest.param("within", marks=pytest.mark.slow)])
def test_rank_0_is_lost_while_the_others_are_in_finish(tmp_path, undisturbed, where):
    """Another one writes the results."""
    end = "optimizer.finish(results)"
    dies = """
def save():
    if not os.path.exists(out + ".died"):
        open(out + ".died", "w").close()
        time.sleep(1)
        os.kill(os.getpid(), 9)
    results()

if "before" in sys.argv and optimizer.world.rank == 0:
    save()
optimizer.finish(save)
"""
    script = SCRIPT.replace(end, dies[1:].replace('"before" in sys.argv', str(where == "before")), 1)
    run = Elastic(tmp_path, "last", 3, script=script)
    text = run.end()
    assert "killed by signal 9" in text and "StateError" not in text and text.count("ended") == 2
    assert equal(run.model(), undisturbed)


@pytest.mark.slow
def test_rates_that_change_within_an_epoch_are_refused(tmp_path):
    clears = "        optimizer.zero_grad()\n"
    script = SCRIPT.replace(clears, clears + "        scheduler.step()\n")
    run = Elastic(tmp_path, "steps", 1, more=["--restarts", "0"], script=script)
    assert "the script has changed lr of group 0 of the optimizer from 0.01 to 0.005" in run.end(1)


@pytest.mark.slow
def test_an_optimizer_that_counts_in_its_groups_admits_a_newcomer(tmp_path):
    rule = """
class Counts(torch.optim.Optimizer):
    def __init__(self, params, lr):
        super().__init__(params, {"lr": lr, "k": 0})

    @torch.no_grad()
    def step(self, closure=None):
        for group in self.param_groups:
            group["k"] += 1
            for p in group["params"]:
                p.add_(p.grad, alpha=-group["lr"] / group["k"])


"""
    script = SCRIPT.replace("out, delay", rule + "out, delay", 1).replace("torch.optim.Adam(", "Counts(")
    alone = Elastic(tmp_path, "counts", 1, script=script)
    alone.end()
    run = Elastic(tmp_path, "counted", 3, delay=0.6, script=script)
    run.until(r"^step \d+ 2$")
    os.kill(run.pids()[1], signal.SIGKILL)
    assert int(run.until(r"^begins \d+ ([1-9]\d*)")[1]) > 0
    assert run.end().count("ended") == 3 and equal(run.model(), alone.model())


@pytest.mark.parametrize("when", ["after the last step of an epoch", pytest.param(
    "after the scheduler's step", marks=pytest.mark.slow)])
def test_a_loss_where_the_rate_changes(tmp_path, undisturbed, when):
    """Steps 6 to 10 are the second epoch, after which StepLR has another rate. Some have it then, others not."""
    dies = "optimizer.figures()['steps'] == 10 and optimizer.world.rank == 1 and not os.path.exists(out + '.died')"
    at = "        optimizer.zero_grad()\n" if "last step" in when else "    scheduler.step()\n"
    kills = f"if {dies}: open(out + '.died', 'w').close(); os.kill(os.getpid(), 9)\n"
    indent = at[:len(at) - len(at.lstrip())]
    run = Elastic(tmp_path, "rate", 3, delay=0.1, script=SCRIPT.replace(at, at + indent + kills, 1))
    text = run.end()
    assert "killed by signal 9" in text and "StateError" not in text and equal(run.model(), undisturbed)


@pytest.mark.slow
def test_a_second_model_is_refused(tmp_path):
    more = """
other = nn.Linear(4, 2)
tutti.torch.prepare(other, torch.optim.SGD(other.parameters(), lr=0.1), sampler=tutti.torch.sampler(8, 2), elastic=True)
"""
    at = "for epoch in range(epochs):"
    run = Elastic(tmp_path, "second", 1, script=SCRIPT.replace(at, more[1:] + at, 1), more=["--restarts", "0"])
    assert "one prepare(elastic=True) in a script" in run.end(1)


@pytest.mark.slow
def test_after_a_failure_signals_are_the_scripts_again(tmp_path):
    script = SCRIPT.replace("model, optimizer = tutti", "model.register_buffer('seen', torch.zeros(()))\n"
                            "model, optimizer = tutti", 1)
    body = script.index("for epoch in range(epochs):")
    script = script[:body] + """
import signal
try:
    for x, y in torch.utils.data.DataLoader(data, batch_sampler=sampler):
        model.seen.add_(1)
        nn.functional.cross_entropy(model(x), y).backward()
        optimizer.step()
except tutti.StateError:
    print("default", signal.getsignal(signal.SIGTERM) == signal.SIG_DFL, flush=True)
    raise
"""
    run = Elastic(tmp_path, "failed", 1, script=script, more=["--restarts", "0"])
    assert "default True" in run.end(1)


@pytest.mark.slow
def test_a_script_that_fails_on_all_workers_ends_soon(tmp_path):
    script = SCRIPT.replace("    scheduler.step()\n", "    raise ValueError('a mistake')\n", 1)
    run = Elastic(tmp_path, "mistake", 3, script=script)
    text = run.end(1)
    assert "a mistake" in text and "was not admitted" not in text and time.monotonic() - run.begun < 55


def test_the_first_of_two_fails_and_the_other_goes_on(tmp_path, undisturbed):
    """The second is no majority without it, and would wait as on a cut-off side, if it had not left."""
    fails = """
        if optimizer.world.rank == 0 and not os.path.exists(out + ".failed"):
            open(out + ".failed", "w").close()
            raise ValueError("a mistake")
"""
    at = "        optimizer.zero_grad()\n"
    run = Elastic(tmp_path, "fails", 2, script=SCRIPT.replace(at, fails[1:] + at, 1), more=["--restarts", "0"])
    text = run.end()
    assert "ValueError: a mistake" in text and "no majority" not in text and equal(run.model(), undisturbed)


@pytest.mark.slow
@pytest.mark.parametrize("where", ["between", "within"])
def test_the_only_one_with_the_state_fails_as_another_has_come(tmp_path, undisturbed, where):
    """Within a step it has the state of the one before to give."""
    fails = """
        if "first" in sys.argv and optimizer.figures()["steps"] >= 3:
            print("waits\\n", end="", flush=True)
            while not os.path.exists(out + ".second"):
                time.sleep(0.01)
            time.sleep(4)  # by then the other is admitted, and has no state yet
            raise ValueError("a mistake")
"""
    comes = """
if "first" not in sys.argv:
    open(out + ".second", "w").close()
"""
    at = "        optimizer.zero_grad()\n" if where == "between" else "        optimizer.step()\n"
    begins = "model, optimizer = tutti"
    script = SCRIPT.replace(at, fails[1:] + at, 1).replace(begins, comes[1:] + begins, 1)
    run = Elastic(tmp_path, where, 1, script=script, more=["--restarts", "0"], arguments=["first"])
    run.until("^waits")
    command = [f"{build()}/bin/tutti", "join", str(tmp_path / f"{where}.join"), "--", *run.process.args[-6:-1]]
    other = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=100,
                           env=environment())
    assert "ValueError: a mistake" in run.end(1)
    assert other.returncode == 0, other.stdout
    assert equal(run.model(), undisturbed)


def test_after_a_signal_one_thread_is_within_a_run(monkeypatch):
    """Ctrl-C while it waits for an epoch: that thread is still there, and no other call goes to the same run."""
    calls, within, go = [], threading.Event(), threading.Event()

    class Library:
        def tutti_elastic_next(self, *_):
            within.set()
            go.wait(60)
            return _abi.TUTTI_OK

        def __getattr__(self, name):
            return lambda *_: calls.append(name) or _abi.TUTTI_OK

    run = _members.Members.__new__(_members.Members)
    run._hold = hold = Held(lambda _: calls.append("close"))
    hold.at.value, run._within, run._changes = 1, False, threading.Lock()
    monkeypatch.setattr(_members, "_c", Library())
    threading.Thread(target=lambda: within.wait(60) and os.kill(os.getpid(), signal.SIGINT)).start()
    with pytest.raises(KeyboardInterrupt):
        run.next()
    for call in (run.next, run.end, lambda: run.over(1, b"state")):
        with pytest.raises(tutti.StateError, match="a signal has interrupted a call of this run"):
            call()
    run.fail()
    run.close()
    del hold
    assert calls == []
    go.set()


@pytest.mark.slow
def test_a_script_without_finish_is_told(tmp_path):
    script = SCRIPT.replace("optimizer.finish(results)\n", "", 1)
    run = Elastic(tmp_path, "forgot", 1, script=script, more=["--restarts", "0"])
    assert "has trained and ends without optimizer.finish()" in run.end(1)


def test_a_forked_child_ends_by_a_signal(tmp_path):
    at = "for epoch in range(epochs):"
    forks = """
import multiprocessing
fork = multiprocessing.get_context("fork")
runs = fork.Event()  # Python forgets a signal that comes in the midst of a fork
child = fork.Process(target=lambda: (runs.set(), time.sleep(100)))
child.start()
runs.wait()
child.terminate()
child.join(20)
print(f"child {child.exitcode}\\n", end="", flush=True)
"""
    run = Elastic(tmp_path, "forks", 1, script=SCRIPT.replace(at, forks[1:] + at, 1))
    assert "child -15\n" in run.end()


def test_a_forked_child_has_no_connections_and_ends_no_run(tmp_path):
    """It ends as a program does that has never trained; and it could outlive its parent, which the others would miss
    late if their connections were open."""
    at = "        optimizer.zero_grad()\n"
    forks = """
        if optimizer.figures()["steps"] == 3:
            from tutti._owner import sockets
            mine = len(sockets())
            if os.fork() == 0:
                print(f"child {len(sockets())} of {mine}\\n", end="", flush=True)
                sys.exit(0)
            os.wait()
"""
    run = Elastic(tmp_path, "sockets", 2, script=SCRIPT.replace(at, at + forks[1:], 1))
    text = run.end()
    found = re.findall(r"(?m)^child (\d+) of (\d+)$", text)
    assert found and all(int(n) == 0 and int(of) >= 4 for n, of in found), text
    assert "without optimizer.finish()" not in text and text.count("ended") == 2


@pytest.mark.slow
def test_a_buffer_that_no_state_has_is_named(tmp_path):
    at = "model, optimizer = tutti"
    counts = """
model.register_buffer("seen", torch.zeros(()))
model.register_forward_hook(lambda m, x, y: m.seen.add_(1) and None)
"""
    run = Elastic(tmp_path, "seen", 1, script=SCRIPT.replace(at, counts[1:] + at, 1), more=["--restarts", "0"])
    assert "the module changes its buffer 'seen' in training" in run.end(None)


@pytest.mark.slow
def test_slots_wider_than_their_parameter_keep_their_bits(tmp_path):
    """Of a rule of the script's own, whose sums are float32 and parameters bfloat16."""
    rule = """
class Wide(torch.optim.Optimizer):
    def __init__(self, params, lr):
        super().__init__(params, {"lr": lr})

    @torch.no_grad()
    def step(self, closure=None):
        for p in self.param_groups[0]["params"]:
            sums = self.state[p].setdefault("sums", torch.zeros_like(p, dtype=torch.float32))
            sums.mul_(0.9).add_(p.grad.float())
            p.add_(sums.to(p.dtype), alpha=-self.param_groups[0]["lr"])


"""
    script = SCRIPT.replace("out, delay", rule + "out, delay", 1).replace("torch.optim.Adam(", "Wide(")
    script = script.replace("nn.BatchNorm1d(6)", "nn.Identity()")
    script = script.replace("optimizer = Wide", "model.bfloat16()\noptimizer = Wide")
    script = script.replace("torch.randn(56, 4, generator=draw)", "torch.randn(56, 4, generator=draw).bfloat16()")
    alone = Elastic(tmp_path, "wide", 1, script=script)
    alone.end()
    run = Elastic(tmp_path, "wider", 2, delay=0.1, script=script)
    run.until(r"^step \d+ 3$")
    os.kill(run.pids()[1], signal.SIGTERM)
    run.end()
    assert equal(run.model(), alone.model())


def assert_one_leaves(run, model):
    """One of two workers gets SIGTERM: it leaves, and the other one ends with that model."""
    for _ in range(2):
        run.until(r"^begins")
    run.until(r"^step \d+ 3$")
    os.kill(run.pids()[1], signal.SIGTERM)
    text = run.end()
    assert text.count("ended") == 1 and "lost" not in text and equal(run.model(), model)


def test_a_worker_that_gets_sigterm_leaves_and_no_step_is_lost(tmp_path, undisturbed):
    assert_one_leaves(Elastic(tmp_path, "left", 2, delay=0.1), undisturbed)


def test_where_a_worker_leaves_no_pass_is_computed_in_vain(tmp_path, undisturbed):
    """A change without a loss ends with a step. The others are told of a leave with the step after it: both wait then,
    until they know of the change."""
    waits = """
import signal
from tutti.torch import _elastic
acts, waited = _elastic.Elastic.acts, []
def until_it_ends(self):
    step = self.run.first + self.run.steps
    if step == 5 and not waited and self.run.world.rank == 1:
        os.kill(os.getpid(), signal.SIGTERM)
    if step == 6 and not waited and not self.run.within:
        waited.append(time.monotonic() + 60)
        while acts(self) and time.monotonic() < waited[0]:
            time.sleep(0.01)
    return acts(self)
_elastic.Elastic.acts = until_it_ends
for epoch in range(epochs):
"""
    run = Elastic(tmp_path, "calm", 2, script=SCRIPT.replace("\nfor epoch in range(epochs):\n", waits))
    text = run.end()
    passes = [text.count(f"\nstep {pid} ") for pid in run.pids()]
    assert sorted(passes) == [6 * 2, 6 * 2 + (STEPS - 6) * 4]
    assert text.count("ended") == 1 and equal(run.model(), undisturbed)



def under_zero(stage, rule):
    """The script, whose workers print their rank and number after each pass."""
    prints = ('        ranks = optimizer.world\n'
              '        print(f"rank {os.getpid()} {ranks.rank} of {ranks.size}\\n", end="", flush=True)\n')
    at = "    with optimizer.evaluate():\n"
    return (SCRIPT.replace(", elastic=True", f", elastic=True, method='zero(stage={stage})'")
            .replace("torch.optim.Adam(model.parameters(), lr=0.01)", f"torch.optim.{rule}")
            .replace(at, prints + at, 1))


RULES = ["AdamW(model.parameters(), lr=0.01, weight_decay=0.1)", "SGD(model.parameters(), lr=0.1, momentum=0.9)"]


def without_changes(folder, script):
    """The model of that script with a fixed number of workers, and as many shares."""
    path, out = folder / "plain.py", folder / "plain.pt"
    path.write_text(script.replace("elastic=True", "elastic_shares=4").replace(
        "optimizer.finish(results)", "rank = optimizer.world.rank\noptimizer.finish()\nif rank == 0:\n    results()"))
    done = subprocess.run([f"{build()}/bin/tutti", "run", "-n", "2", "--", sys.executable, str(path), str(out), "0",
                           str(EPOCHS)], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=100,
                          env=environment())
    assert done.returncode == 0, done.stdout
    return torch.load(out)


def ranked(run, size):
    """Reads lines until all workers of an epoch of that size have printed their rank. Returns their pids by rank."""
    found = {}
    while len(found) < size:
        line = run.until(rf"^rank (\d+) (\d+) of {size}$")
        found[int(line[2])] = int(line[1])
    return [found[r] for r in range(size)]


@pytest.mark.slow
@pytest.mark.parametrize("rule", RULES, ids=["adamw", "momentum"])
@pytest.mark.parametrize("stage", [1, 2])
def test_under_zero_four_workers_then_three_four_and_two(tmp_path, stage, rule):
    """A lost worker's part of the optimizer's state is with the one before it, also if two are lost at once that are no
    neighbours. The model is that of one worker, and of fixed ones."""
    script = under_zero(stage, rule)
    alone = Elastic(tmp_path, "one", 1, script=script)
    alone.end()
    run = Elastic(tmp_path, "zero", 4, delay=0.6, script=script)
    os.kill(ranked(run, 4)[1], signal.SIGKILL)
    assert int(run.until(r"^begins \d+ (\d+)")[1]) > 0
    four = ranked(run, 4)
    os.kill(four[1], signal.SIGKILL)
    os.kill(four[3], signal.SIGKILL)
    text = run.end()
    assert text.count("killed by signal 9") == 3 and re.search(r"(?m)^rank \d+ \d of 2$", text)
    assert equal(run.model(), alone.model())
    plain, fixed = without_changes(tmp_path, script), run.model()
    # elastic runs count the batches of all workers
    assert all(torch.equal(fixed[k], plain[k]) for k in plain if not k.endswith("num_batches_tracked"))


@pytest.mark.slow
def test_under_zero_two_neighbours_leave_at_once(tmp_path):
    """Each gives its part of the state before it ends."""
    script = under_zero(2, RULES[0])
    alone = Elastic(tmp_path, "one", 1, script=script)
    alone.end()
    run = Elastic(tmp_path, "leave", 4, delay=0.2, script=script)
    for pid in ranked(run, 4)[2:]:
        os.kill(pid, signal.SIGTERM)
    text = run.end()
    assert "lost" not in text and text.count("ended") == 2 and equal(run.model(), alone.model())


@pytest.mark.slow
def test_under_zero_two_neighbours_are_killed_at_once(tmp_path):
    """No worker that is left has the last one's part, nor a copy of it."""
    run = Elastic(tmp_path, "lost", 4, delay=0.2, more=["--restarts", "0", "--workers-timeout", "4"],
                  script=under_zero(1, RULES[0]))
    for pid in ranked(run, 4)[2:]:
        os.kill(pid, signal.SIGKILL)
    text = run.end(3)
    assert "a part of the state was on workers that are lost" in text and "Traceback" not in text
    assert "begin again, from what the script has saved" in text and "ended" not in text


@pytest.mark.slow
def test_under_zero_a_worker_is_lost_before_the_first_step(tmp_path):
    script = under_zero(2, RULES[1])
    alone = Elastic(tmp_path, "one", 1, script=script)
    alone.end()
    dies = """
        if optimizer.world.rank == 1 and not os.path.exists(out + ".died"):
            open(out + ".died", "w").close()
            os.kill(os.getpid(), 9)
"""
    at = "        nn.functional.cross_entropy(model(x), y).backward()\n"
    run = Elastic(tmp_path, "first", 3, script=script.replace(at, at + dies[1:], 1))
    assert "killed by signal 9" in run.end() and equal(run.model(), alone.model())


@pytest.mark.slow
def test_without_a_majority_the_run_waits_and_ends(tmp_path):
    run = Elastic(tmp_path, "half", 2, delay=0.2, more=["--workers-timeout", "1", "--restarts", "0"])
    for _ in range(2):
        run.until(r"^begins")
    run.until(r"^step \d+ 2$")
    first, = (p for p in run.pids() if b"TUTTI_RANK=0\0" in open(f"/proc/{p}/environ", "rb").read())
    os.kill(first, signal.SIGKILL)
    text = run.end(3)
    assert "1 of 2 workers answers, which is no majority" in text and "Traceback" not in text
    assert "begin again, from what the script has saved" in text


def test_all_leave_when_the_launcher_is_stopped(tmp_path):
    run = Elastic(tmp_path, "stopped", 2, delay=0.1)
    run.until(r"^step \d+ 2$")
    run.process.send_signal(signal.SIGTERM)
    assert "ended" not in run.end(128 + signal.SIGTERM)


@pytest.mark.slow
def test_a_script_that_fails_after_the_end_is_no_success(tmp_path):
    run = Elastic(tmp_path, "after", 1, script=SCRIPT + (
        "\nimport signal\nassert signal.getsignal(signal.SIGTERM) == signal.SIG_DFL\nsys.exit(7)\n"))
    assert "failed after the end of the run" in run.end(7)


@pytest.mark.slow
def test_rates_that_differ_from_the_others_are_refused(tmp_path):
    at = 'print(f"begins'
    script = SCRIPT.replace(at, "if 'TUTTI_JOIN' in os.environ:\n    optimizer.param_groups[0]['lr'] = 0.02\n" + at, 1)
    run = Elastic(tmp_path, "rates", 3, delay=0.6, more=["--restarts", "1"], script=script)
    for _ in range(3):
        run.until(r"^begins")
    run.until(r"^step \d+ 2$")
    os.kill(run.pids()[1], signal.SIGKILL)
    run.until(r"StateError: group 0 of the optimizer has lr=0.02 here, and 0.01 on the workers")
    assert "ended" in run.end()


def test_a_script_without_elastic_is_refused(tmp_path):
    run = Elastic(tmp_path, "fixed", 2, script=SCRIPT.replace(", elastic=True", ""))
    assert "this process was started by `tutti run --workers`" in run.end(1)


@pytest.mark.slow
def test_a_loader_that_reads_ahead_is_refused(tmp_path):
    script = SCRIPT.replace("batch_sampler=sampler)", "batch_sampler=sampler, num_workers=1)")
    run = Elastic(tmp_path, "ahead", 1, more=["--restarts", "0"], script=script)
    assert "give the DataLoader num_workers=0" in run.end(1)


@pytest.mark.parametrize(("wrong", "why"), [
    ({"method": "zero(stage=3)"}, "no worker has the whole model, which rank 0 writes"),
    ({"method": "zero(stage=1,group=host)"}, "take ddp, zero(stage=1|2), local-sgd, diloco or slowmo"),
    ({"method": "d-psgd"}, "take ddp, zero(stage=1|2), local-sgd, diloco or slowmo"),
    ({"method": "powersgd"}, "a lost worker would take a part of its state with it"),
    ({"sampler": None}, "needs sampler=tutti.torch.sampler"),
    ({"sampler": "placed"}, "without rank, workers and parts, and with shares 'even' or 'auto'"),
    ({"codec": "bf16"}, "codec= as yet"),
    ({"servers": 1}, "servers= as yet"),
    ({"log_to": "csv"}, "name its folder, too: trace='runs/one'"),
    ({}, "start it by `tutti run --workers FEWEST:MOST"),
])
def test_what_cannot_be_is_refused_in_a_sentence(wrong, why):
    model = torch.nn.Linear(2, 1)
    options = {"sampler": tutti.torch.sampler(8, 2), "elastic": True} | wrong
    if options["sampler"] == "placed":
        options["sampler"] = tutti.torch.sampler(8, 2, rank=0, workers=1)
    with pytest.raises(ValueError, match=re.escape(why)):
        tutti.torch.prepare(model, torch.optim.SGD(model.parameters(), lr=0.1), **options)


@pytest.mark.parametrize(("words", "why"), [
    (["--workers", "4:2"], "workers is '4:2'; write FEWEST:MOST"),
    (["--workers", "2:4", "-n", "5"], "the run begins with a number from 2 to 4"),
    (["--workers", "2:4", "--on-loss", "continue"], "--on-loss is for runs with a fixed number of workers"),
    (["--workers", "2:4", "-H", "nowhere.invalid:2"], "hosts begin with 'nowhere.invalid', which is another machine"),
    (["--workers", "2:4", "--transport", "shm"], "workers that come and go meet over tcp"),
    (["-n", "2", "--pass", "x"], "pass is for runs whose workers come and go"),
])
def test_the_command_refuses(words, why):
    done = subprocess.run([f"{build()}/bin/tutti", "run", *words, "--", "true"], capture_output=True, text=True)
    assert done.returncode == 2 and why in done.stderr
