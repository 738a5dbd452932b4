"""bench/run chaos --piece peers: how soon training goes on when one of 4 workers is killed: the same script
(bench/peers/elastic.py) under `tutti run --workers 1:4`, torchrun and torchft, on this machine.

recovery  the longest time without a new step, from SIGKILL until all 4 work again
whole     from SIGKILL to the first step after it of each of 4 workers

Systems run one after the other, so that each has the cores to itself. A killed worker is started again by its launcher;
torchft has none, so this program starts it at once. What each peer has is the best for it: torchrun a checkpoint after
every step, and so no step to repeat; torchft 0.1 s of heartbeats, and a lighthouse that takes a worker for dead after
1 s without one. With its own settings (5 s, and 60 s for latecomers) torchft is another row. A peer that has not come
back in LIMIT seconds has that figure, and is begun again; a row has how often (not_back)."""
import os, random, re, select, signal, socket, statistics, subprocess, sys, tempfile, time

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(HERE)
from command import clean_environment  # noqa: E402

WORKERS, LIMIT, CALM = 4, 60.0, 3.0  # LIMIT: s until it is whole again; CALM: s between that and the next kill
SCRIPT = os.path.join(HERE, "peers/elastic.py")


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


def hold(pid, word):
    """A descriptor of the process of that number, or None: it has ended, or is one without that word in its command,
    which has the number now."""
    try:
        held = os.pidfd_open(pid)
    except ProcessLookupError:
        return None
    try:
        with open(f"/proc/{pid}/cmdline", errors="replace") as f:
            if word in f.read():
                return held
    except (FileNotFoundError, ProcessLookupError):
        pass
    os.close(held)
    return None


def alive(held):
    return held is not None and not select.select([held], [], [], 0)[0]


def kill(held):
    try:
        if held is not None:
            signal.pidfd_send_signal(held, signal.SIGKILL)
    except ProcessLookupError:
        pass


def ended(process):
    """Has it, without reaping it?"""
    return process.returncode is not None or os.waitid(os.P_PID, process.pid,
                                                       os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None


class Lasting(Exception):
    """A system has not come back within LIMIT."""


class Log:
    """What the workers have written by now."""

    def __init__(self, path):
        self.path, self.at = path, 0
        self.steps = {}  # {pid: [(step, time)]}

    def look(self):
        with open(self.path, "rb") as f:
            f.seek(self.at)
            text = f.read()
        text = text[:text.rfind(b"\n") + 1]
        self.at += len(text)
        for pid, step, when in re.findall(r"(?m)^step (\d+) (\d+) ([\d.]+)$", text.decode()):
            self.steps.setdefault(int(pid), []).append((int(step), float(when)))
        return self

    def longest(self, begin, end):
        """The longest time in which no step was made that had not been made before."""
        gap, at, highest = 0, begin, 0
        for t, step in sorted((t, step) for made in self.steps.values() for step, t in made):
            if step > highest and begin < t <= end:
                gap, at = max(gap, t - at), t
            highest = max(highest, step)
        return max(gap, end - at)

    def working(self, after):
        """{worker: when it made its first step after that time}"""
        firsts = {pid: next((t for _, t in made if t > after), None) for pid, made in self.steps.items()}
        return {pid: t for pid, t in firsts.items() if t is not None}


class System:
    """A run of the script by one of the systems; its processes are ended with it."""

    def __init__(self, name, python, tutti, folder):
        self.name, self.python, self.tutti = name, python, tutti
        self.folder = os.path.join(folder, name.replace(" ", ""))
        os.mkdir(self.folder)
        path = os.path.join(self.folder, "log")
        open(path, "w").close()
        self.log, self.processes = Log(path), []
        self.workers = {}  # {pid: its descriptor or None}: another process may have the number later
        self.words = [python, SCRIPT, self.script, path, self.folder]

    def start(self, words, **environment):
        kept = clean_environment(PYTHONPATH=os.path.join(ROOT, "python"), GLOO_SOCKET_IFNAME="lo",
                                 TUTTI_LIBRARY=os.path.join(os.path.dirname(self.tutti), "../lib/libtutti.so"),
                                 **environment)
        out = open(os.path.join(self.folder, "output"), "ab")
        self.processes.append(subprocess.Popen(words, stdin=subprocess.DEVNULL, stdout=out, stderr=out, env=kept,
                                               start_new_session=True, cwd=self.folder))
        out.close()
        return self.processes[-1]

    def look(self):
        for pid in self.log.look().steps:
            if pid not in self.workers:
                self.workers[pid] = hold(pid, self.folder)
        return self.log

    def end(self):
        for process in self.processes:
            until = time.monotonic() + 2
            for kind in (signal.SIGTERM, signal.SIGKILL):
                if process.returncode is None:  # it is not reaped, so its group's number is its own
                    os.killpg(process.pid, kind)
                while kind == signal.SIGTERM and time.monotonic() < until and not ended(process):
                    time.sleep(0.005)
            process.wait()
        self.look()
        for held in self.workers.values():  # those in sessions of their own
            kill(held)
            if held is not None:
                os.close(held)
        self.workers = {}

    def wait(self, what):
        until = time.monotonic() + LIMIT
        while True:
            found = what(self.look())
            if found:
                return found
            if time.monotonic() > until:
                with open(os.path.join(self.folder, "output"), errors="replace") as f:
                    raise Lasting(f"bench/run: chaos peers: {self.name} has not come back in {LIMIT:g} s:\n"
                                  f"{f.read()[-4000:]}")
            time.sleep(0.005)

    def begin(self):
        self.launch()
        self.wait(lambda log: len(log.working(0)) == WORKERS)

    def kill(self, draw):
        """Kills one that makes steps; (recovery, whole) in s."""
        time.sleep(CALM + draw.random())
        since = time.monotonic() - CALM / 2
        victim = draw.choice(self.wait(lambda log: sorted(pid for pid in log.working(since)
                                                          if alive(self.workers[pid]))))
        when = time.monotonic()
        kill(self.workers[victim])
        self.again(victim)
        whole = max(self.wait(lambda log: self.all_at_work(victim, when)).values())
        return self.log.longest(when, whole), whole - when

    def all_at_work(self, victim, when):
        """The first steps of all after that, or None. Of the victim, and of those that its launcher ends with it, a
        last line may have come after the kill."""
        firsts = {pid: t for pid, t in self.log.working(when).items() if pid != victim and alive(self.workers[pid])}
        return firsts if len(firsts) == WORKERS else None

    def again(self, victim):
        """Starts it again, where no launcher does."""


class Tutti(System):
    script = "tutti"

    def launch(self):
        self.start([self.tutti, "run", "--workers", f"1:{WORKERS}", "-n", str(WORKERS), "--restarts", "1000", "--",
                    *self.words])


class Torchrun(System):
    script = "torchrun"

    def launch(self):
        self.start([self.python, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(WORKERS),
                    "--max-restarts", "1000", "--monitor-interval", "0.1", *self.words[1:]], OMP_NUM_THREADS="1")


class Torchft(System):
    script, more = "torchft", []

    def launch(self):
        port = free_port()
        self.at = f"http://127.0.0.1:{port}"
        self.start([os.path.join(os.path.dirname(self.python), "torchft_lighthouse"), "--min_replicas", "1", "--bind",
                    f"127.0.0.1:{port}", *self.more])
        for _ in range(WORKERS):
            self.worker()

    def worker(self):
        self.start(self.words, TORCHFT_LIGHTHOUSE=self.at, OMP_NUM_THREADS="1")

    def again(self, victim):
        next(p for p in self.processes if p.pid == victim).wait()
        self.worker()


class TorchftTuned(Torchft):
    more = ["--heartbeat_timeout_ms", "1000", "--join_timeout_ms", "1000"]


SYSTEMS = {"tutti": Tutti, "torchrun": Torchrun, "torchft": Torchft, "torchft, 1 s": TorchftTuned}


def has(python, name):
    return not name.startswith("torchft") or (
        os.path.exists(os.path.join(os.path.dirname(python), "torchft_lighthouse")) and
        subprocess.run([python, "-c", "import torchft"], capture_output=True).returncode == 0)


def recoveries(name, python, tutti, folder, draw, kills):
    """[(recovery, whole)] of that many kills. A peer that does not come back is begun again, and has LIMIT there."""
    times = []
    while len(times) < kills:
        system, begun = SYSTEMS[name](name, python, tutti, tempfile.mkdtemp(dir=folder)), False
        try:
            system.begin()
            begun = True
            while len(times) < kills:
                times.append(system.kill(draw))
        except Lasting as lasting:
            if name == "tutti" or not (begun or times):
                sys.exit(str(lasting))
            times.append((LIMIT, LIMIT))
        finally:
            system.end()
    return times


def measure(record, tutti, python, seed, kills):
    """Rows of the recoveries of all systems that are here."""
    draw, found = random.Random(seed), {}
    names = [name for name in SYSTEMS if has(python, name)]
    with tempfile.TemporaryDirectory(prefix="tutti-bench-") as folder:
        for name in names:  # one at a time: each has the machine's cores to itself
            found[name] = recoveries(name, python, tutti, folder, draw, kills)
    command = f"bench/run chaos --piece peers --draw {seed}"
    title = f"a script of {WORKERS} workers, one is killed: "
    for at, what in enumerate(("recovery", "whole")):
        medians = {name: statistics.median(times[at] for times in found[name]) for name in found}
        for name, times in found.items():
            these = [t[at] for t in times]
            record.row(f"{title}{what}, {name}", medians[name], "s", command=command, runs=kills, min=min(these),
                       max=max(these), not_back=these.count(LIMIT))
        for name in [n for n in found if n != "tutti"]:
            record.row(f"{title}{what} is sooner than {name}'s", medians["tutti"], "s",
                       ratio=medians[name] / medians["tutti"], against=name, command=command, runs=kills)
    for name in [n for n in SYSTEMS if n not in found]:
        record.absent(f"{title}recovery, {name}", f"{name} is not installed for {python}")
