"""bench/run chaos: real processes of `tutti train --workers 1:8`. One of 8 workers is killed every 15 s, at a drawn
moment, and a newcomer is started 1 s later by `tutti join`, for as long as training of 10 minutes takes.

host    8 workers on this machine, connected over the loopback
netlab  8 hosts of tools/netlab, each with its own link (root). The first worker starts the run, 7 join
peers   a script of PyTorch under tutti, torchrun and torchft (bench/recovery.py)

--seconds 600: how much undisturbed training it is. --draw SEED: other moments and workers.

Before it and after it the same run is made undisturbed for some steps, for the time of a step; and by one worker, for
the bytes of the model, which do not depend on the number of workers. Passes are stretched by --slow, which sleeps: so 8
workers make steps on a few cores as on cores of their own.

All figures come from the record of the run: metrics.jsonl has a line for each step, with its time, and summary.json the
epochs of the members. A figure begins when all 8 workers are members.

hangs       intervals of STILL seconds without a step. The run is ended then; the output of `tutti why` and the last
            lines of all workers are printed

lost steps  had a line in metrics.jsonl, so all members had made them, and were made again in a later epoch

pause       the time of the steps around a change, less the median step of the epoch that it begins, for each step. At a
            loss that includes the computation of the step in flight. The line of the last step before a change may be
            written again after it, so the interval begins one step earlier. worst_computes_ms: how much longer than
            usual a member, whose passes --slow stretches, computed in the step after the longest pause. worst_took:
            what a member took to close the old world, agree, meet the others, and open the new one (summary.json)

newcomer    from the start of the process to the end of its first step, less the time of model.safetensors on its link

goodput     steps times the time of an undisturbed step, over the time that they took"""
import argparse, collections, ctypes, json, os, random, re, shlex, signal, statistics, subprocess, sys, tempfile, time
import typing

HERE = os.path.dirname(os.path.abspath(__file__))
if __name__ == "__main__":
    sys.path[:0] = [os.path.join(HERE, "../tests/cli"), HERE]
from command import alive, children_of, clean_environment, read, small_mnist, summary  # noqa: E402
import recovery  # noqa: E402
from net import NETLAB, ROOT, Bench  # noqa: E402

EVERY = 15.0    # s between kills
AWAY = 1.0      # s until the newcomer is started
STILL = 30.0    # s without a step that are a hang
STALL = 0.7     # s without a step after which `tutti why` says what each worker is in
ENDS = 60.0     # s for all processes to end once the last step is made
LATE = 5.0      # s before the last step: a newcomer that is started later may not be admitted
WORKERS = 8
RATE, LINK = "1gbit", 125e6  # the second in bytes a second
TRAINED = ["--model", "mlp(hidden=128)", "--batch", "64", "--elastic-shares", "56", "--seed", "5", "--threads", "1",
           "--optimizer", "adamw(lr=0.001)", "--report-every", "1", "--final-eval", "off",
           "--eval-every", "1000000"]
SLOW = ["--slow", "*:26"]  # a step of 0.1 to 0.2 s
EPOCH = re.compile(r"^epoch (\d+) of the members: (\d+) workers?, from step (\d+)$", re.M)
PR_SET_PDEATHSIG = 1
libc = ctypes.CDLL(None, use_errno=True)


class Hang(Exception):
    """No step is made any more. Its text says in which operation each worker waits."""


def dies_with_us():
    libc.prctl(PR_SET_PDEATHSIG, signal.SIGKILL)


def in_a_group():
    """To be killed as one. A session of its own it is not: kernels may share cores among sessions, and unevenly
    (docs/CLUSTERS.md)."""
    os.setpgid(0, 0)
    dies_with_us()


def moments(seed, seconds, every, workers=WORKERS):
    """[(time, slot)] of the kills: one in the middle half of each `every` seconds."""
    draw = random.Random(seed)
    return [((k + 0.25 + 0.5 * draw.random()) * every, draw.randrange(workers)) for k in range(int(seconds / every))]


class Disturbed:
    """A run whose workers are killed and replaced. Worker k of the beginning is in slot k, as are its replacements.

    hosts: those of the slots, in a lab; None: all are here. With hosts only slot 0 begins, and the others join."""

    def __init__(self, tutti, out, trained, most=WORKERS, hosts=None):
        self.tutti, self.out, self.hosts, self.most = tutti, out, hosts, most
        self.founders = 1 if hosts else most
        self.told, self.passed = out + ".told", out + ".join"
        self.words = [tutti, "train", *map(str, trained), "--workers", f"1:{most}", "-n", str(self.founders),
                      "--restarts", "0", "--workers-timeout", "60", "--out", out]
        if hosts:
            self.words += ["--meet", "10.77.0.1"]
        self.run, self.slots = None, {}
        self.steps, self.lost, self.workers = 0, 0, 0
        self.heard = 0    # bytes of the output that were looked at
        self.zeros = collections.deque(maxlen=100)  # what wall_seconds counts from, in our clock, by the last lines
        self.kills, self.joins = [], []  # (moment in wall_seconds, slot)
        self.stalls = []  # (moment in wall_seconds, what each worker is in)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        """Kills and reaps all processes."""
        for process in [*self.slots.values(), self.run]:
            if isinstance(process, subprocess.Popen) and process.poll() is None:
                try:
                    os.killpg(process.pid, signal.SIGKILL)
                except ProcessLookupError:
                    pass
                process.wait()

    def popen(self, words, slot):
        if self.hosts:
            words = [NETLAB, "rsh", self.hosts[slot], "exec " + shlex.join(words)]
        kept = {k: os.environ[k] for k in ("NETLAB",) if k in os.environ}
        with open(self.told, "a") as f:
            return subprocess.Popen(words, stdin=subprocess.DEVNULL, stdout=f, stderr=f, env=clean_environment(**kept),
                                    preexec_fn=in_a_group, cwd=ROOT)

    def said(self):
        return read(self.told).decode(errors="replace") if os.path.exists(self.told) else ""

    # ---- what the run says of itself ----
    def look(self):
        """Reads what is new; says whether a step is. A line counts if no later epoch had been announced after it."""
        newest, wall = self.newest_line()
        epochs = self.announced()
        for _, workers, step in epochs:
            self.lost += max(0, self.steps - int(step))
            self.steps, self.workers = min(self.steps, int(step)), int(workers)
        if epochs or newest <= self.steps:
            return False
        self.zeros.append(time.monotonic() - wall)
        self.steps = newest
        return True

    def clock(self):
        """Now, in wall_seconds."""
        return time.monotonic() - min(self.zeros)

    def announced(self):
        """Epochs in the output of the workers since the last look."""
        with open(self.told, "rb") as f:
            f.seek(self.heard)
            text = f.read()
        text = text[:text.rfind(b"\n") + 1]
        self.heard += len(text)
        return EPOCH.findall(text.decode(errors="replace"))

    def newest_line(self):
        try:
            with open(os.path.join(self.out, "metrics.jsonl"), "rb") as f:
                f.seek(max(0, os.fstat(f.fileno()).st_size - 4096))
                lines = f.read().split(b"\n")[:-1]
            last = json.loads(lines[-1])
            return last["step"], last["wall_seconds"]
        except (FileNotFoundError, IndexError, ValueError):
            return 0, 0.0

    def why(self):
        asked = subprocess.run([self.tutti, "why", self.out], capture_output=True, text=True, timeout=60)
        return asked.stdout + asked.stderr

    def everyone(self):
        tail = "\n".join(line for line in self.said().splitlines()[-2000:] if not line.startswith("epoch 0"))
        return f"{self.why()}\n--- last lines of all ---\n{tail[-6000:]}"

    # ---- what is done to it ----
    def begin(self):
        self.run = self.popen(self.words, 0)
        self.wait(lambda: self.steps > 0, "the first step")
        with open(os.path.join(self.out, "join")) as f, open(os.path.join(self.passed), "w") as copy:
            os.chmod(self.passed, 0o600)
            copy.write(f.read())
        pids = children_of(self.run.pid)
        if len(pids) != self.founders:
            raise Hang(f"{len(pids)} founders of {self.founders}: {self.everyone()}")
        self.slots = dict(enumerate(pids))
        for slot in range(self.founders, self.most):
            self.slots[slot] = self.popen(self.join_words(), slot)
        if self.hosts:
            self.wait(lambda: self.workers == self.most, f"{self.most} workers")

    def join_words(self):
        return [self.tutti, "join", self.passed, "--out", self.out]

    def wait(self, what, name):
        """Until that is so; a limit of STILL seconds without a step."""
        since = time.monotonic()
        while not what():
            since = time.monotonic() if self.look() else since
            if time.monotonic() - since > STILL or self.run.poll() is not None:
                raise Hang(f"{name} has not come: {self.everyone()}")
            time.sleep(0.02)

    def contacts(self):
        """Writes the addresses of all members into the pass, since those in it may be killed. It keeps the old ones
        where no member answers."""
        lines = read(self.passed).decode().splitlines()
        listed = subprocess.run([self.tutti, "leave", self.passed, "--json"], capture_output=True,
                                text=True, env=clean_environment(), timeout=60)
        if listed.returncode == 0:
            form = [line for line in lines if not line.startswith("at ")]
            lines = form + ["at " + w["address"] for w in json.loads(listed.stdout)["workers"]]
            with open(self.passed, "w") as f:
                f.write("\n".join(lines) + "\n")

    def kill(self, slot):
        self.kills.append((self.clock(), slot))
        victim = self.slots.pop(slot)
        if isinstance(victim, subprocess.Popen):
            os.killpg(victim.pid, signal.SIGKILL)
            victim.wait()
        else:
            os.kill(victim, signal.SIGKILL)  # its launcher reaps it

    def join(self, slot):
        self.joins.append((self.clock(), slot))
        self.slots[slot] = self.popen(self.join_words(), slot)

    def go(self, steps, kills, away=AWAY):
        """Begins it, kills at those moments, and waits for its end, after `steps` steps. Raises Hang."""
        self.words += ["--steps", str(steps)]
        self.begin()
        begun = since = time.monotonic()
        stalled = None
        due = sorted([(at, "kill", slot) for at, slot in kills] + [(at + away, "join", slot) for at, slot in kills])
        while self.steps < steps:
            since = time.monotonic() if self.look() else since
            if time.monotonic() - since > STILL:
                raise Hang(f"no step was made for {STILL:g} s: {self.everyone()}")
            if time.monotonic() - since > STALL and stalled != since:
                stalled = since
                self.stalls.append((self.clock(), self.why()))
            if self.has_ended() and self.seen() < steps:
                raise RuntimeError(f"a worker has ended before the run: {self.everyone()}")
            if due and time.monotonic() - begun >= due[0][0]:
                _, what, slot = due.pop(0)
                if what == "kill":
                    self.contacts()
                    self.kill(slot)
                else:
                    self.join(slot)
            time.sleep(0.02)
        self.end()

    def seen(self):
        """The steps by now, all that was announced before considered."""
        self.look()
        self.look()
        return self.steps

    def has_ended(self):
        """Has a worker that was not killed?"""
        return any(p.poll() is not None if isinstance(p, subprocess.Popen) else not alive(p)
                   for p in self.slots.values())

    def end(self):
        """All end by themselves, and none has failed. One that has come too late is asked to leave: it would ask for
        60 s to be admitted."""
        until = time.monotonic() + ENDS
        late = next((self.slots.get(slot) for at, slot in self.joins[-1:] if at > self.clock() - LATE), None)
        joined = [p for p in self.slots.values() if isinstance(p, subprocess.Popen) and p is not late]
        for process in [self.run, *joined]:
            try:
                process.wait(max(0.1, until - time.monotonic()))
            except subprocess.TimeoutExpired:
                raise Hang(f"the last step is made, and the run does not end: {self.everyone()}") from None
        if late:
            late.terminate()
        founders_left = any(not isinstance(p, subprocess.Popen) for p in self.slots.values())
        expected = {0} if founders_left else {0, 3}  # 3: no worker of the launcher was left
        codes = [self.run.returncode, *(p.returncode for p in joined)]
        if self.run.returncode not in expected or any(codes[1:]):
            raise RuntimeError(f"exit codes {codes}: {self.everyone()}")


# ---- figures ----
class Change(typing.NamedTuple):
    """What the workers that came or left with one epoch have cost."""
    step: int        # the first one after it
    workers: int     # more (less: negative)
    pause: float     # s
    usual: float     # median s of a step until the next change
    computes: float  # s that the slowest member computed in that first step, less the run's median
    took: dict       # s that a member took to close, agree, meet and open; empty: unknown


class Course:
    """The record of a run that has ended."""

    def __init__(self, out):
        with open(os.path.join(out, "metrics.jsonl")) as f:
            lines = [line for line in map(json.loads, f) if "train_loss" in line]
        self.steps = [line["step"] for line in lines]
        self.wall = {0: 0.0, **{line["step"]: line["wall_seconds"] for line in lines}}
        self.computed = {line["step"]: max(filter(None, line.get("compute_seconds_by_worker", [])), default=0.0)
                         for line in lines}
        self.last = max(self.steps)
        self.summary = summary(out)
        told = [e for e in self.summary["events"] if e["kind"] == "epoch"]
        self.epochs = [(e["step"], e["workers"]) for e in told]
        self.took = [e.get("seconds", {}) for e in told]

    def full(self, n):
        """The step at which all n workers were there."""
        return next(step for step, workers in self.epochs if workers == n)

    def step_time(self, n):
        """Mean time of an undisturbed step, without the first quarter."""
        first = self.full(n) + (self.last - self.full(n)) // 4
        return (self.wall[self.last] - self.wall[first]) / (self.last - first)

    def changes(self):
        """[Change]. Those between which no step was made have the pause of all of them."""
        begins, found = {step for step, _ in self.epochs}, []
        usual = statistics.median(self.wall[s] - self.wall[s - 1] for s in self.steps)
        computed = statistics.median(self.computed.values())
        for k in range(1, len(self.epochs)):
            step, workers = self.epochs[k]
            if step == self.last:  # for the end only
                continue
            end = next((s for s, _ in self.epochs[k:] if s > step), self.last)
            times = [self.wall[s + 1] - self.wall[s] for s in range(step + 1, end - 1)]
            median = statistics.median(times) if times else usual
            before = step
            while before in begins and before > 0:
                before -= 1
            took = self.wall[step + 1] - self.wall[before]
            found.append(Change(step + 1, workers - self.epochs[k - 1][1],
                                max(0.0, took - (step + 1 - before) * median), median,
                                self.computed[step + 1] - computed, self.took[k]))
        return found


def changes_of(moments, changes, wall, grows):
    """[(moment, change)]: the first change after each moment of the run that is not another worker's."""
    free = [[change, abs(change.workers)] for change in changes
            if change.workers != 0 and (change.workers > 0) == grows]
    found = []
    for moment, _ in moments:
        place = next((place for place in free if place[1] > 0 and wall[place[0].step] > moment), None)
        if place:
            place[1] -= 1
            found.append((moment, place[0]))
    return found


def figures(run, course, undisturbed, link=None):
    """What is promised of a run; link: bytes a second, None: of no matter."""
    changes, begin = course.changes(), course.full(run.most)
    losses = changes_of(run.kills, changes, course.wall, False)
    joins = changes_of(run.joins, changes, course.wall, True)
    model = os.path.getsize(os.path.join(run.out, "model.safetensors"))
    most = course.last - begin
    worst = lambda found: max((c for _, c in found), key=lambda c: c.pause)
    return {
        "hangs": 0, "lost steps": run.lost + (course.steps != list(range(1, course.last + 1))),
        "loss": [1e3 * c.pause for _, c in losses], "join": [c.pause / c.usual for _, c in joins],
        "newcomer": [course.wall[c.step] - t - (model / link if link else 0) for t, c in joins],
        "goodput": most * undisturbed / (course.wall[course.last] - course.wall[begin]),
        "worst_computes_ms": {name: [1e3 * worst(of).computes] if of else []
                              for name, of in (("loss", losses), ("join", joins))},
        "worst_took": {name: worst(of).took if of else {} for name, of in (("loss", losses), ("join", joins))},
        "kills": len(run.kills), "joins": len(run.joins), "steps": course.last, "step_ms": 1e3 * undisturbed,
        "epochs": len(course.epochs), "samples": course.summary["samples"],
    }


def whole(tutti, out, trained, steps):
    """The record of the same training by one worker, whom nothing disturbs."""
    done = subprocess.run([tutti, "train", *map(str, trained), "-n", "1", "--steps", str(steps), "--quiet", "--out",
                           out], capture_output=True, text=True, env=clean_environment())
    if done.returncode != 0:
        raise RuntimeError(f"the undisturbed run ended with {done.returncode}: {done.stderr}")
    return out


def step_time(tutti, out, trained, o, hosts):
    """Of a run that nothing disturbs."""
    with Disturbed(tutti, out, trained, hosts=hosts) as run:
        run.go(o.calm, [])
    return Course(out).step_time(WORKERS)


def measure(tutti, folder, o):
    """The figures of one run. Raises Hang."""
    hosts = os.environ["NETLAB_HOSTS"].split(",") if o.lab else None
    trained = [*TRAINED, "--data", small_mnist(folder + "/data", train=60000)]
    before = step_time(tutti, folder + "/before", [*trained, *SLOW], o, hosts)
    steps = max(o.calm, int(o.seconds / before))
    with Disturbed(tutti, folder + "/run", [*trained, *SLOW], hosts=hosts) as run:
        run.go(steps, moments(o.seed, o.seconds, o.every))
    for at, why in run.stalls:
        killed = max((kill for kill, _ in run.kills if kill < at), default=0.0)
        print(f"no step for {STALL:g} s, {at - killed:.2f} s after a kill:\n{why}", file=sys.stderr)
    after = step_time(tutti, folder + "/after", [*trained, *SLOW], o, hosts)
    found = figures(run, Course(run.out), (before + after) / 2, link=LINK if o.lab else None)
    found["calm_ms"] = [1e3 * before, 1e3 * after]
    alone = whole(tutti, folder + "/alone", trained, steps)
    found["same"] = int(read(run.out + "/model.safetensors") == read(alone + "/model.safetensors")
                        and found["samples"] == summary(alone)["samples"])
    return found


class Chaos(Bench):
    def __init__(self, tutti, record, quick, piece, seconds=None, draw=None):
        super().__init__(tutti, record, quick, piece)
        self.seconds, self.draw = seconds or (20 if quick else 600), draw or 0

    def run(self):
        for piece, title in (("host", "one host"), ("netlab", f"8 hosts, {RATE}")):
            if not self.chosen(piece) or (piece == "netlab" and not self.possible()):
                continue
            words = ["--seconds", self.seconds, "--seed", self.draw, *(["--every", 5, "--calm", 40] if self.quick
                                                                       else [])]
            command = [sys.executable, "-B", os.path.abspath(__file__), "--tutti", self.tutti, *map(str, words)]
            if piece == "netlab":
                command = [NETLAB, "-n", str(WORKERS), "--rate", RATE, "--cc", self.cc, "--timeout",
                           str(int(4 * self.seconds + 600)), "--", *command, "--lab"]
            done = subprocess.run(command, stdout=subprocess.PIPE, text=True, cwd=ROOT, preexec_fn=dies_with_us)
            if done.returncode != 0:
                sys.exit(f"bench/run: chaos {piece} ended with exit code {done.returncode}")
            self.rows(f"8 workers, {title}, one killed every {5 if self.quick else 15} s", json.loads(done.stdout),
                      command=f"bench/run chaos --piece {piece} --seconds {self.seconds:g} --draw {self.draw}")

        if self.chosen("peers"):
            self.peers()

    def peers(self):
        found = subprocess.run([HERE + "/peers/python"], stdout=subprocess.PIPE, text=True)
        if found.returncode != 0:
            self.record.absent("a script, one is killed", "there is no Python with torch")
            return
        recovery.measure(self.record, self.tutti, found.stdout.strip(), self.draw, 2 if self.quick else 11)

    def rows(self, title, found, command):
        more = {k: found[k] for k in ("kills", "joins", "steps", "step_ms", "calm_ms", "epochs") if k in found}
        row = lambda name, value, unit, **facts: self.record.row(f"{title}: {name}", value, unit, command=command,
                                                                 **{"runs": 1, **more, **facts})
        row("hangs", found["hangs"], "", timed=False)
        if found["hangs"]:
            print(found["why"], flush=True)
            return
        row("lost steps", found["lost steps"], "", timed=False)
        row("the model is that of a run that nothing disturbs", found["same"], "", timed=False)
        for name, key, unit, what in (
                ("pause of the others at a loss", "loss", "ms", "losses"),
                ("pause of the others at a join, in steps", "join", "", "joins"),
                ("until a newcomer trains, more than its model takes on its link", "newcomer", "s", "joins")):
            values = found[key]
            if not values:
                self.record.absent(f"{title}: {name}", "there was none")
                continue
            row(f"{name}, worst of {len(values)} {what}", max(values), unit, median=statistics.median(values),
                min=min(values), max=max(values), worst_computes_ms=found["worst_computes_ms"].get(key),
                worst_took=found["worst_took"].get(key))
        row("goodput", found["goodput"], "")


def main():
    parser = argparse.ArgumentParser(description="One run of bench/run chaos; prints its figures as JSON.")
    parser.add_argument("--tutti", required=True)
    parser.add_argument("--seconds", type=float, default=600)
    parser.add_argument("--every", type=float, default=EVERY)
    parser.add_argument("--calm", type=int, default=200, help="steps of the undisturbed run")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--lab", action="store_true", help="on the hosts of the lab in which it is started")
    o = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that all are ended
    with tempfile.TemporaryDirectory(prefix="tutti-bench-") as folder:
        try:
            found = measure(o.tutti, folder, o)
        except Hang as hang:
            found = {"hangs": 1, "why": str(hang)}
        print(json.dumps(found))


if __name__ == "__main__":
    main()
