"""bench/run spot: how much of the time of spot instances becomes training, when workers are lost several at a time and
come back: virtual time, so other work on the machine changes nothing, and the same numbers every time.

killed  8 workers, 10 minutes: one is killed every 15 s and is back 1 s later
busy    64 workers in 8 places, an hour: as many losses a host as in Parcae's trace, 7 events an hour and 32 hosts
storm   the same with Parcae's 7 events an hour in each place of 8
calm    the same with 0.4 events an hour and place, and each may take all hosts of its place

Goodput is the samples of steps that are kept, over those that the hosts could have computed while they were there.
Two ways of going on are played against one trace (`tutti platform 'spot(...)'`):

workers come and go    what `tutti run --workers` does with a script that has checkpoint=. A loss costs the step in
                       flight, DETECT and CHANGE. Then the next epoch has all that are there. A worker that comes back
                       starts, and has the state LOAD later; the step in flight is made, and CHANGE later it is a
                       member. Where a loss takes the majority the others wait for WAIT (--workers-timeout, 600 s
                       without it), one saves the last step, the run ends, and all start again and load it
ddp restarted          a loss ends the run. After DETECT all start again and load its last checkpoint, which are MINUTE
                       apart, with all that are there by then; later ones wait for the next restart. What it has at
                       the end counts, also since its last checkpoint

A start is the same for both: of a process that was killed, or of a machine with its image. That a launcher waits before
it starts one again (1 to 60 s, and --restarts) is not played.

Epochs are real runs of the simulator, each a process: its hosts, their number, and the state that the one before has
left. The nodes of src/elastic, which have sockets, do not run in the simulator. Their costs are the constants below.
At the end of workers that come and go, the model is compared with that of a run that nothing disturbs."""
import json, os, subprocess, tempfile

from command import SIMULATOR, clean_environment
from net import Bench

DETECT = 1.0    # s until a host that is silent is suspected: the default of src/elastic/node.h. A killed process: 0
CHANGE = 0.2    # s of a change of members
LOAD = 1.0      # s until a process that has started has the state, of a peer or of a checkpoint
PROCESS = 5.0   # s until a process that was killed has started again
MACHINE = 30.0  # s until the process of a machine that is back has started
WAIT = 60.0     # s for which a run waits for a majority
MINUTE = 60.0   # s between checkpoints
PARTS = 512     # logical shares, of a sample each
STEP = 2.0      # s of a step of all workers


def changes(text):
    """[(time, workers that are lost, workers that are back)] of a trace."""
    found = []
    for line in text.splitlines():
        if not line.startswith("#"):
            at, worker, word = line.split()
            if not found or found[-1][0] != float(at):
                found.append((float(at), set(), set()))
            found[-1][1 if word == "down" else 2].add(int(worker))
    return found


def killed(n, every, away, seconds):
    """A trace in which one worker after the other is killed and is back soon."""
    times = range(every, seconds, every)
    lines = [(at, k % n, "down") for k, at in enumerate(times)]
    lines += [(at + away, k % n, "up") for k, at in enumerate(times) if at + away < seconds]
    return "".join("%g %d %s\n" % line for line in sorted(lines))


def admitted(trace, delay, end):
    """The trace with returns `delay` later; those of workers that are lost again before that are left out."""
    down_at, moved = {}, {}
    for at, lost, back in reversed(trace):
        for worker in lost:  # first: what is back and lost at one moment comes back before
            down_at[worker] = at
            moved.setdefault(at, (set(), set()))[0].add(worker)
        for worker in back:
            if at + delay < min(down_at.get(worker, end), end):
                moved.setdefault(at + delay, (set(), set()))[1].add(worker)
            elif worker in down_at:
                moved[down_at[worker]][0].discard(worker)
    return [(at, *moved[at]) for at in sorted(moved) if any(moved[at])]


def there(trace, n, end):
    """Seconds that the hosts were there, all together."""
    last = total = 0
    for at, lost, back in trace + [(end, (), ())]:
        total += n * (at - last)
        n += len(back) - len(lost)
        last = at
    return total


class Played:
    """A run of n workers that is played in epochs; `made`: the steps that it has kept."""

    def __init__(self, tutti, folder, n, detect=DETECT, start=MACHINE):
        self.tutti, self.out, self.n, self.detect, self.joins = tutti, folder, n, detect, start + LOAD
        self.share = STEP * n / PARTS
        self.made, self.epochs = 0, 0

    def train(self, n, *words, steps=10 ** 6, every=1, code=0):
        never = 10 ** 6
        command = [self.tutti, "train", "--model", "quadratic(dim=20)", "--method", "ddp", "-n", n, "--batch", 1,
                   "--elastic-shares", PARTS, "--optimizer", "sgd(lr=0.01)", "--step-time", self.share,
                   "--steps", steps, "--checkpoint-every", every, "--eval-every", never, "--report-every", 1,
                   "--final-eval", "off", "--quiet", "--resume", "auto", "--out", self.out, *words]
        done = subprocess.run([*map(str, command)], capture_output=True, text=True, env=clean_environment())
        if done.returncode != code:
            raise RuntimeError(f"{' '.join(map(str, command))}: {done.returncode}: {done.stderr}")

    def end_of(self, step):
        """When a step ended, in the virtual time of its process."""
        with open(os.path.join(self.out, "metrics.jsonl")) as f:
            return {line["step"]: line["wall_seconds"] for line in map(json.loads, f)}[step]

    def epoch(self, n, seconds, every=1):
        """n workers train for so long, from the newest checkpoint on. Then a host fails, which ends it."""
        self.train(n, "--transport", "sim(peer-timeout=0)", "--fail", f"0@{seconds:.9f}", every=every, code=3)
        found = os.path.join(self.out, "checkpoints")
        names = os.listdir(found) if os.path.isdir(found) else []
        made = max([int(name[len("step-"):]) for name in names if name.startswith("step-")], default=0)
        assert made >= self.made, (made, self.made)
        self.made = made
        self.epochs += 1

    def finish_step(self, n, before, seconds, most):
        """Makes the step in flight after `seconds` of an epoch that began with step `before` made. Returns when it
        ends, in that epoch; if that is later than `most`, it is not made."""
        ended = self.end_of(self.made) if self.made > before else 0
        if ended + self.share * -(-PARTS // n) > most:
            return seconds
        self.train(n, "--transport", "sim", "--fail", "", steps=self.made + 1)
        self.made += 1
        return max(ended + self.end_of(self.made), seconds)

    def come_and_go(self, trace, end):
        """Returns how often a loss took the majority."""
        up, members, begin, ended = set(range(self.n)), set(range(self.n)), 0.0, 0
        trace = admitted(trace, self.joins, end) + [(end, set(), set())]
        for k, (at, lost, back) in enumerate(trace):
            before, gone, stop = self.made, members & lost, at
            if at > begin:
                self.epoch(len(members), at - begin)
                if not lost and at < end:
                    stop = begin + self.finish_step(len(members), before, at - begin, trace[k + 1][0] - begin)
            up = (up | back) - lost
            if not up:
                raise RuntimeError(f"nobody is left at {at} s, and no one has the state")
            pause = CHANGE + (self.detect if gone else 0)
            if 2 * len(gone) > len(members) or (2 * len(gone) == len(members) and min(members) in gone):
                pause, ended = self.detect + WAIT + self.joins, ended + 1
            begin, members = max(begin, stop + pause), set(up)
        return ended

    def restart(self, trace, end):
        """Returns how often it was restarted."""
        up, members, begin, restarts = set(range(self.n)), set(range(self.n)), 0.0, 0
        for at, lost, back in trace + [(end, set(), set())]:
            up = (up | back) - lost
            if at < end and members and not members & lost:
                members = members | back if at < begin else members
                continue
            if members and at > begin:
                step = self.share * -(-PARTS // len(members))
                self.epoch(len(members), at - begin, every=max(1, round(MINUTE / step)) if at < end else 1)
            begin, members = at + self.detect + self.joins, set(up)
            restarts += at < end and bool(up)
        return restarts

    def model(self, steps):
        self.train(self.n, "--transport", "sim", "--fail", "", steps=steps, every=0)
        with open(os.path.join(self.out, "model.safetensors"), "rb") as f:
            return f.read()


class Spot(Bench):
    def run(self):
        if not SIMULATOR:
            return self.record.absent(self.record.name, "this build has no simulator (SimGrid)")
        hours = 0.1 if self.quick else 1
        spot = lambda words: "spot(n=64,places=8,hours=%g,%s)" % (hours, words)
        if self.chosen("killed"):
            end = 60 if self.quick else 600
            self.play("killed", "8 workers, one killed every 15 s", killed(8, 15, 1, end), 8, end, detect=0,
                      start=PROCESS)
        for piece, spec in (("busy", spot("events=1.75")), ("storm", spot("events=7")),
                            ("calm", spot("events=0.4,size=bulk"))):
            if self.chosen(piece):
                text = subprocess.run([self.tutti, "platform", spec], stdout=subprocess.PIPE, text=True, check=True)
                self.play(piece, f"64 workers in 8 places, {piece}", text.stdout, 64, 3600 * hours, trace=spec)

    def play(self, piece, title, text, n, end, detect=DETECT, start=MACHINE, **facts):
        trace = changes(text)
        with tempfile.TemporaryDirectory(prefix="tutti-bench-") as folder:
            names = ("goes", "again", "calm")
            goes, again, calm = (Played(self.tutti, f"{folder}/{name}", n, detect, start) for name in names)
            ended, restarts = goes.come_and_go(trace, end), again.restart(trace, end)
            same = goes.model(goes.made + 1) == calm.model(goes.made + 1)
        possible = there(trace, n, end) / goes.share
        facts.update(command=f"bench/run spot --piece {piece}", timed=False, runs=1,
                     lost=sum(len(lost) for _, lost, _ in trace), back=sum(len(back) for _, _, back in trace),
                     there=possible * goes.share / end)
        self.record.row(f"{title}: goodput, workers come and go", goes.made * PARTS / possible, "", steps=goes.made,
                        epochs=goes.epochs, ended=ended, **facts)
        self.record.row(f"{title}: goodput, ddp restarted from checkpoints", again.made * PARTS / possible, "",
                        steps=again.made, restarts=restarts, restart_seconds=detect + start + LOAD, **facts)
        self.record.row(f"{title}: the model is that of a run that nothing disturbs", int(same), "", steps=goes.made,
                        **facts)
