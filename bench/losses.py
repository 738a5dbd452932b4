"""bench/run losses, strangers, calm: how several hosts behave when something goes wrong, and that
nothing goes wrong by itself. Labs of tools/netlab (root).

    losses     a worker of another host is killed, or its host is cut off so that connections stay
               half-open: until the user reads which one it was. And how much longer opening over
               tcp (rendezvous, connections, handshakes) takes than opening over shared memory
    strangers  training while strangers connect to the launcher's port, in five ways in turn:
               garbage, a HELLO under a wrong key, a recorded one (replay), a connection that sends
               nothing (slow), one that is closed at once (flood): bench/strangers. Compared with
               the same connections to a port where no program listens, since the strangers
               themselves take processor time here
    calm       8 workers on all available cores over tcp for --seconds seconds (600): warnings
               (silent) and losses; there must be none"""
import json, os, re, select, signal, statistics, subprocess, sys, tempfile, time

from command import clean_environment, small_mnist
from net import NETLAB, ROOT, Bench

STRANGERS = os.path.join(os.path.dirname(os.path.abspath(__file__)), "strangers")
FOR_EVER = ["--epochs", 1000000, "--report-every", 1, "--final-eval", "off", "--quiet"]


def workers_of(out):
    """Processes of the run's workers by rank, and the lab they are in."""
    found = {}
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            with open(f"/proc/{pid}/cmdline", "rb") as f:
                if ("--out=" + out).encode() not in f.read().split(b"\0"):
                    continue
            with open(f"/proc/{pid}/environ", "rb") as f:
                variables = dict(v.split(b"=", 1) for v in f.read().split(b"\0") if b"=" in v)
        except OSError:
            continue
        if b"TUTTI_RANK" in variables:
            found[int(variables[b"TUTTI_RANK"])] = (int(pid), variables.get(b"NETLAB", b"").decode())
    return found


class Losses(Bench):
    def __init__(self, tutti, record, quick, piece, seconds=None):
        super().__init__(tutti, record, quick, piece)
        self.seconds = seconds

    def start(self, folder, name, *words, hosts="h1:2,h2:2", workers=4):
        """An endless run in a lab of two hosts; comes back once it makes steps."""
        out = f"{folder}/{name}"
        command = [NETLAB, "-n", "2", "--cc", self.cc, "--timeout", "80", "--", self.tutti, "train", "--model", "mlp",
                   "--data", folder + "/data", "--batch", 16, "--threads", 1, *FOR_EVER, "-H", hosts,
                   "--rsh", NETLAB + " rsh", "--out", out, *words]
        run = subprocess.Popen([*map(str, command)], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True,
                               env=clean_environment(), cwd=ROOT)
        until = time.monotonic() + 60
        metrics = out + "/metrics.jsonl"
        while len(workers_of(out)) < workers or not os.path.exists(metrics) or os.path.getsize(metrics) == 0:
            if run.poll() is not None or time.monotonic() > until:
                run.kill()
                sys.exit(f"bench/run: {name} does not begin: {run.communicate()[1]}")
            time.sleep(0.02)
        shown = " ".join(map(str, command)).replace(self.tutti, "tutti").replace(ROOT + "/", "").replace(folder, "DIR")
        return run, workers_of(out), shown

    def named(self, run, begin, pattern):
        """Seconds until the terminal has the sentence."""
        while True:
            if not select.select([run.stderr], [], [], max(0, begin + 40 - time.monotonic()))[0]:
                run.kill()
                sys.exit("bench/run: no worker reports which one was lost")
            line = run.stderr.readline()
            if re.search(pattern, line):
                return time.monotonic() - begin
            if line == "":
                sys.exit("bench/run: it ends without a report of which worker was lost")

    def end(self, run):
        run.terminate()
        try:
            run.communicate(timeout=30)
        except subprocess.TimeoutExpired:
            run.kill()
            run.communicate()

    def worst(self, name, values, unit, command):
        self.record.row(name + f", worst of {len(values)} runs", max(values), unit, command=command,
                        median=statistics.median(values), min=min(values), max=max(values), runs=len(values),
                        cc=self.cc)

    def losses(self):
        with tempfile.TemporaryDirectory(prefix="tutti-bench-") as folder:
            small_mnist(folder + "/data")
            for method, what in (("ddp", "the run stops"), ("d-psgd", "the run goes on")):
                for how in ("killed", "cut off"):
                    piece = f"losses/{method}/{how.split()[0]}"
                    if self.chosen(piece) and self.possible():
                        values = [self.one_loss(folder, f"{method}{how[0]}{k}", method, how)
                                  for k in range(1 if self.quick else 5)]
                        self.worst(f"worker on another host {how}, {method} ({what}) -> named on the terminal",
                                   [v for v, _ in values], "s", values[0][1])
            if self.chosen("losses/opening"):
                self.opening(folder)

    def one_loss(self, folder, name, method, how):
        run, workers, command = self.start(folder, name, "--method", method)
        begin = time.monotonic()
        if how == "killed":
            os.kill(workers[3][0], signal.SIGKILL)
        else:
            subprocess.run([NETLAB, "cut", "h2"], env=dict(os.environ, NETLAB=workers[0][1]), check=True)
        seconds = self.named(run, begin, r"worker 3 was lost: .*signal 9" if how == "killed"
                             else r"worker [23] was lost: .*silent")
        self.end(run)
        return seconds, command + (f"; {NETLAB} cut h2".replace(ROOT + "/", "") if how != "killed" else "; kill -9")

    def opening(self, folder):
        """Pairs of one-step runs of two workers on one host. Over tcp the launcher's rendezvous and
        every connection have handshakes. For comparison, the time of an epoch."""
        def seconds(transport, *words):
            begin = time.monotonic()
            command = [self.tutti, "train", "--model", "mlp", "--data", folder + "/data" if "--steps" in words
                       else "mnist", "-n", "2", "--threads", "1", "--transport", transport, "--quiet", "--final-eval",
                       "off", "--overwrite", "--out", folder + "/opening", *words]
            subprocess.run(command, check=True, stdout=subprocess.DEVNULL, env=clean_environment())
            return time.monotonic() - begin, " ".join(command).replace(self.tutti, "tutti").replace(folder, "DIR")

        rounds = 2 if self.quick else 20
        more = []
        for k in range(rounds):
            got = {}
            for transport in ("tcp", "shm") if k % 2 == 0 else ("shm", "tcp"):
                got[transport], command = seconds(transport, "--steps", "1")
            more.append(got["tcp"] - got["shm"])
        epoch, _ = seconds("tcp", "--epochs", "1")
        self.record.row("opening over tcp more than over shared memory, 2 workers, share of an epoch of mlp",
                        100 * statistics.median(more) / epoch, "%", command=command, pairs=rounds,
                        more_ms=1e3 * statistics.median(more), least_ms=1e3 * min(more), most_ms=1e3 * max(more),
                        epoch_s=epoch)

    # ---- strangers ----
    def strangers(self):
        """Pairs of runs, each second pair in the other order. Once all ranks have joined the port is
        closed for good, so what is left is the kernel's cost of refusing."""
        if not self.chosen("strangers") or not self.possible():
            return
        steps, whole, at_door = [], [], []
        rounds, n = (1, 20) if self.quick else (6, 100)
        with tempfile.TemporaryDirectory(prefix="tutti-bench-") as folder:
            for k in range(rounds):
                got, took = {}, {}
                for door in ("door", "none") if k % 2 == 0 else ("none", "door"):
                    words, out = self.train(folder, f"{door}{k}", "-H", "h1:1,h2:1", "--rsh", NETLAB + " rsh",
                                            "--model", "mlp", "--steps", n, "--meet", "10.77.0.1:29511")
                    report = f"{folder}/{door}{k}.json"
                    command, _ = self.lab([STRANGERS, "--at", "10.77.0.1:29511", "--report", report,
                                           *(["--instead", 29512] if door == "none" else []), "--", *words])
                    with open(report) as f:
                        counted = json.load(f)
                    if door == "door":
                        at_door.append(counted)
                        shown = command.replace(folder, "DIR")
                    got[door], took[door] = self.ms_of(out), counted["seconds"]
                steps.append(got["door"] / got["none"])
                whole.append(took["door"] - took["none"])
        middle = lambda key: statistics.median(c[key] for c in at_door)
        self.record.row("ddp step, mlp, 2 hosts, unshaped: more while strangers knock at the launcher's door",
                        100 * (statistics.median(steps) - 1), "%", command=shown, pairs=rounds,
                        least=100 * (min(steps) - 1), most=100 * (max(steps) - 1),
                        knocks_per_second=middle("per_second"),
                        processor_share=statistics.median(c["processor_seconds"] / c["seconds"] for c in at_door),
                        ways=at_door[0]["ways"], cc=self.cc)
        self.record.row("starting, training and ending of it: longer while strangers knock",
                        1e3 * statistics.median(whole), "ms", command=shown, pairs=rounds, least=1e3 * min(whole),
                        most=1e3 * max(whole))
        sums = {key: sum(c[key] for c in at_door) for key in ("knocks", "refused", "turned_away", "answered")}
        self.record.row("strangers that were let in", sum(c["let_in"] for c in at_door), "", command=shown,
                        pairs=rounds, replays=sum(c["heard_a_hello"] for c in at_door), **sums)

    # ---- calm ----
    def calm(self):
        """d-psgd, since it continues and records every warning and loss; ddp would only end."""
        seconds = 5 if self.quick else self.seconds or 600
        workers = 4 * len(os.sched_getaffinity(0))
        counts, steps, rate, begin = {"silent": 0, "back": 0, "lost": 0}, 0, 0, time.monotonic()
        with tempfile.TemporaryDirectory(prefix="tutti-bench-") as folder:
            small_mnist(folder + "/data", train=6000, test=200)
            run = 0
            while time.monotonic() - begin < seconds:
                left = seconds - (time.monotonic() - begin)
                some = 50 if rate == 0 else max(50, int(rate * min(left + 1, 120)))
                command = [self.tutti, "train", "--model", "mlp", "--data", folder + "/data", "-n", workers,
                           "--threads", 1, "--transport", "tcp", "--method", "d-psgd", "--batch", 64, "--steps", some,
                           "--final-eval", "off", "--quiet", "--out", f"{folder}/{run}"]
                done = subprocess.run([*map(str, command)], capture_output=True, text=True, env=clean_environment())
                if done.returncode != 0:
                    sys.exit(f"bench/run: calm: {done.stderr}")
                with open(f"{folder}/{run}/summary.json") as f:
                    s = json.load(f)
                for event in s["events"]:
                    if event["kind"] in counts:
                        counts[event["kind"]] += 1
                        print(f"    {event['kind']}: {event['text']}", flush=True)
                steps += some
                rate = some / s["wall_seconds"]
                run += 1
        self.record.row(f"tcp, {workers} workers on {workers // 4} cores, full load: false alarms (silent or lost)",
                        counts["silent"] + counts["lost"], "",
                        command=" ".join(map(str, command)).replace(self.tutti, "tutti").replace(folder, "DIR"),
                        seconds=time.monotonic() - begin, steps=steps, runs=run, **counts)
