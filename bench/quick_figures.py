"""What bench/quick measures: each probe is a command that gives one or more figures of a build.

A probe's command runs in a session of its own. One that has not ended in time gets what Ctrl-C sends, which
launchers and labs (tools/netlab) hand on, and is killed if it is still there after GRACE seconds."""
import dataclasses, glob, itertools, json, math, os, re, resource, shutil, signal, subprocess, time

from command import clean_environment, summary
from net import Bench as Hosts
from record import ROOT, changes, first_line, last_word

LONGEST, GRACE = 60, 10  # seconds: of one command, and to end one
STEP = "samples/s"


class Failed(Exception):
    """A sentence: a command gave no figure."""


class Late(Exception):
    """The time of all is over."""


class Build:
    """A folder with bin/tutti, and the library and the package that belong to it."""

    def __init__(self, folder):
        self.folder = os.path.abspath(folder)
        self.tutti = os.path.join(self.folder, "bin/tutti")
        if not os.access(self.tutti, os.X_OK):
            raise Failed(f"{self.folder} is no build: it has no bin/tutti; `make release` makes build/release")
        self.version = last_word(self.tutti, "version")
        if self.version is None:
            raise Failed(f"{self.tutti} does not run here: `{self.tutti} version` fails")
        tree = first_line("git", "-C", self.folder, "rev-parse", "--show-toplevel")  # the clone that it was built in
        self.commit = tree and first_line("git", "-C", tree, "rev-parse", "--short=10", "HEAD")
        self.dirty = tree is not None and changes(tree)

    def __str__(self):
        if self.commit is None:
            return f"tutti {self.version}"
        return f"tutti {self.version}, commit {self.commit}{' with changes' if self.dirty else ''}"

    def library(self):
        found = [path for where in ("lib", "lib64", "lib/*-linux-gnu")
                 for path in sorted(glob.glob(f"{glob.escape(self.folder)}/{where}/libtutti.so"))]
        if not found:
            raise Failed(f"{self.folder} has no lib/libtutti.so")
        return found[0]

    def package(self):
        """The folder of the Python package `tutti`: of the clone that the build is in, or of a prefix."""
        here = glob.escape(self.folder)
        places = [os.path.join(self.folder, "../../python"), *sorted(glob.glob(here + "/lib/python3*/*-packages"))]
        for place in places:
            if os.path.exists(place + "/tutti/__init__.py"):
                return os.path.abspath(place)
        raise Failed(f"there is no Python package tutti that belongs to {self.folder}")


class Others:
    """How many cores other processes, and the host of a virtual machine, took from us: steal and CPU time of
    the machine that is not of this process and of its children. Interrupts are not counted: ours cause most."""

    def __init__(self):
        self.wall = self.taken = 0.0

    def __enter__(self):
        self.begin = self.now()

    def __exit__(self, *_):
        wall, taken = (after - before for after, before in zip(self.now(), self.begin))
        self.wall, self.taken = self.wall + wall, self.taken + taken

    @staticmethod
    def now():
        with open("/proc/stat") as f:
            ticks = list(map(int, f.readline().split()[1:]))
        of_all = sum(ticks[:3] + ticks[7:8]) / os.sysconf("SC_CLK_TCK")  # user, nice, system; steal
        used = [resource.getrusage(whose) for whose in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
        return time.monotonic(), of_all - sum(u.ru_utime + u.ru_stime for u in used)

    def cores(self):
        return max(0.0, self.taken / self.wall) if self.wall > 0 else 0.0


class Runner:
    """Runs commands until a moment, in a folder that the caller removes."""

    def __init__(self, folder, until, python):
        self.folder, self.until, self.python, self.numbers = folder, until, python, itertools.count()

    def out(self):
        """The name of a folder that is not there yet."""
        return os.path.join(self.folder, f"out{next(self.numbers)}")

    def left(self):
        return self.until - time.monotonic()

    def __call__(self, *words):
        """What a command has printed."""
        words, name = [str(w) for w in words], self.out()
        with open(name + "-printed", "w+") as printed, open(name + "-errors", "w+") as errors:
            limit = min(self.left(), LONGEST)
            child = subprocess.Popen(words, env=clean_environment(), cwd=ROOT, stdin=subprocess.DEVNULL,
                                     stdout=printed, stderr=errors, start_new_session=True)
            try:
                child.wait(max(0, limit))
            except subprocess.TimeoutExpired:
                if limit < LONGEST:
                    raise Late from None
                raise Failed(f"`{shown(words)}` has not ended after {LONGEST} s") from None
            finally:
                end(child)
            errors.seek(0)
            if child.returncode != 0:
                why = errors.read().strip().split("\n")[-1] or "it says nothing"
                raise Failed(f"`{shown(words)}` ended with exit code {child.returncode}: {why[-300:]}")
            printed.seek(0)
            return printed.read()


def shown(words):
    text = " ".join([os.path.basename(words[0]), *words[1:]])
    return text if len(text) <= 120 else text[:117] + "..."


def end(child):
    """With its group, if it has not ended by itself."""
    if child.poll() is not None:
        return
    os.killpg(child.pid, signal.SIGINT)
    try:
        child.wait(GRACE)
    except subprocess.TimeoutExpired:
        pass
    try:
        os.killpg(child.pid, signal.SIGKILL)
    except ProcessLookupError:
        pass
    child.wait()


@dataclasses.dataclass
class Figure:
    name: str
    unit: str
    better: str  # "more" or "less"
    here: list = dataclasses.field(default_factory=list)
    there: list = dataclasses.field(default_factory=list)  # of the build in --against, round by round as `here`


@dataclasses.dataclass
class Probe:
    key: str
    seconds: float  # a guess for the first time, on two cores
    figures: list
    run: object  # (build, runner) -> a value for each figure
    lacks: object = None  # (runner) -> a sentence where it cannot be measured, else None
    note: str = ""  # why it has no figures, or no ratios
    failed: bool = False
    over: bool = False  # not measured any more
    alone: bool = False  # the other build cannot do it
    took: float = 0.0
    others: Others = dataclasses.field(default_factory=Others)


# ---- the probes ----
def training(model, data, optimizer, batch, steps):
    def run(build, runner):
        out = runner.out()
        runner(build.tutti, "train", "--model", model, "--data", data, "--optimizer", optimizer, "-n", 2, "--threads",
               1, "--batch", batch, "--steps", steps, "--final-eval", "off", "--quiet", "--out", out)
        rate = summary(out)["samples_per_second"]
        shutil.rmtree(out)
        return [rate]
    return run


def rows(text):
    return {r["name"]: r["value"] for r in map(json.loads, text.splitlines())}


def allreduce(build, runner):
    sizes = ["4", "64KiB", "16MiB"]
    found = rows(runner(build.tutti, "bench", "allreduce", "-n", 2, "--sizes", ",".join(sizes), "--registered", "on",
                        "--repeat", 3, "--seconds", 0.05, "--json"))
    return [found[f"allreduce/2/{size}/registered"] for size in ("4B", *sizes[1:])]


def hosts(build, runner):
    lab = ["-n", 2, "--direct", "--cc", Hosts(build.tutti, None, False, "").cc]
    text = runner(os.path.join(ROOT, "tools/netlab"), *lab, "--", os.path.join(ROOT, "bench/peers/network"), "--tutti",
                  build.tutti, "--programs", "tcp", "--sizes", 1 << 20, "--seconds", 0.3, "--rounds", 1)
    return [json.loads(text)["median_us"]]


def no_lab(runner):
    done = subprocess.run([os.path.join(ROOT, "tools/netlab"), "check"], capture_output=True, text=True)
    return None if done.returncode == 0 else (done.stderr or done.stdout).strip() or "no lab can be made here"


def checkpoint(build, runner):
    folder = os.environ.get("BENCH_DIR", os.path.join(ROOT, "build"))
    found = rows(runner(build.tutti, "bench", "io", "--dir", folder, "--bytes", "128MiB", "--repeat", 1, "--json"))
    return [found[f"io/128MiB/checkpoint {way}"] for way in ("write", "read")]


def timed(*words):
    """Seconds of a training from its command to its end."""
    def run(build, runner):
        out = runner.out()
        begin = time.monotonic()
        runner(build.tutti, "train", *words, "--final-eval", "off", "--quiet", "--out", out)
        took = time.monotonic() - begin
        shutil.rmtree(out)
        return [took]
    return run


def pytorch(build, runner):
    batch, ranks = 64, 2
    text = runner(os.path.join(ROOT, "bench/peers/turns"), "--python", runner.python, "--library", build.library(),
                  "--package", build.package(), "--model", "mlp", "--programs", "tutti", "--ranks", ranks,
                  "--steps", 40, "--rounds", 7)
    lines = [line for line in map(json.loads, text.splitlines()) if "round" in line]
    rates = sorted(batch * ranks * line["steps"] / line["seconds"] for line in lines)
    return [rates[len(rates) // 2]]


def no_torch(runner):
    python = {k: v for k, v in os.environ.items() if k == "TUTTI_PYTHON"}
    done = subprocess.run([os.path.join(ROOT, "bench/peers/python")], capture_output=True, text=True,
                          env=clean_environment(**python))
    runner.python = done.stdout.strip()
    return None if done.returncode == 0 else re.sub("^tutti: ", "", done.stderr.strip())


def codec(build, runner):
    found = rows(runner(build.tutti, "bench", "codec", "--codec", "qsgd(bits=4)", "--rows", 1000, "--cols", 1000,
                        "--repeat", 5, "--json"))
    return [found["codec/qsgd(bits=4)/encode"]]


def probes():
    sgd, gpt = "sgd(lr=0.05,momentum=0.9)", "gpt(4,256,4,128)"
    more = lambda name, unit: Figure(name, unit, "more")
    less = lambda name, unit: Figure(name, unit, "less")
    return [
        Probe("mlp", 4, [more("mlp, 2 workers", STEP)], training("mlp", "mnist", sgd, 64, 300)),
        Probe("cnn", 4, [more("cnn, 2 workers", STEP)], training("cnn", "mnist", sgd, 64, 200)),
        Probe("gpt", 6, [more("gpt, 2 workers", STEP)], training(gpt, "moby-dick", "adamw(lr=0.0003)", 8, 15)),
        Probe("allreduce", 2, [less(f"all-reduce on one host, {size}", "us") for size in ("4 B", "64 KiB", "16 MiB")],
              allreduce),
        Probe("hosts", 6, [less("all-reduce between two hosts, 1 MiB", "us")], hosts, no_lab),
        Probe("checkpoint", 3, [more(f"checkpoint of 128 MiB, {way}", "GB/s") for way in ("written", "read")],
              checkpoint),
        Probe("opening", 1, [less("a run opened, 4 workers, 1 step", "s")],
              timed("--model", "mlp", "--data", "mnist", "-n", 4, "--steps", 1)),
        Probe("pytorch", 20, [more("PyTorch script, mlp, 2 workers", STEP)], pytorch, no_torch),
        Probe("simulated", 4, [less("64 simulated workers, 20 steps", "s")],
              timed("--model", "mlp(hidden=128)", "--data", "mnist", "--transport", "sim", "-n", 64, "--batch", 8,
                    "--step-time", 0.01, "--steps", 20)),
        Probe("codec", 2, [less("qsgd(bits=4), 1,000,000 values encoded", "ms")], codec),
    ]


KEYS = [p.key for p in probes()]


def take(probe, builds, runner, first):
    """One value of each figure and build. `first`: which build begins."""
    found = {}
    with probe.others:
        for build in builds[first:] + builds[:first]:
            try:
                values = [float(v) for v in probe.run(build, runner)]
                if not all(math.isfinite(v) and v > 0 for v in values):
                    raise Failed(f"a figure is {min(values):g}")
                found[build] = values
            except (Failed, KeyError, ValueError, TypeError, IndexError, OSError) as e:
                why = str(e) if isinstance(e, Failed) else f"its output has no such figure ({type(e).__name__}: {e})"
                if build is builds[0]:
                    probe.failed = probe.over = True
                    probe.note = why
                    return
                probe.alone, probe.note = True, f"no ratio, {build.folder} cannot be measured: {why}"
    for k, figure in enumerate(probe.figures):
        figure.here.append(found[builds[0]][k])
        if len(found) == 2:
            figure.there.append(found[builds[1]][k])
