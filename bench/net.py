"""bench/run net, truth, wire: the figures of several hosts, in labs of tools/netlab (root). A lab a
piece, and in it everything that is compared, in turn.

    net    all-reduces of float32 between two hosts: ours over tcp, Open MPI, MPICH (UCX's tcp),
           PyTorch's Gloo, and a plain connection (bench/limits/tcp_limit.c), which also measures
           the line's goodput in the long run. And what two hosts of two workers put on the link,
           from the counters of its interfaces
    truth  a step of ddp in the simulator against one measured. The simulator is given three
           figures: the goodput and the latency of the same lab's line, and a step without exchange,
           all workers running at once (with 4 workers on 2 cores that is what it costs there). Links
           are steady (tools/netlab), as those of the simulator: else each step begins with what the
           link has saved up while its worker computed, 2 of 7.5 ms for cnn at 1 Gbit/s
    wire   what hashes and heartbeats cost a step of ddp

--piece PREFIX: only the pieces whose names begin with PREFIX; each takes at most 80 s:
`net/1gbit/small`, `truth/2/100mbit`, `wire/unshaped`. Hosts use cubic, as the peers' baselines do,
where the first namespace allows it (net.ipv4.tcp_allowed_congestion_control lists it), else reno, else
the kernel's own; rows record which. Not bbr while there is another: its timers send from whichever
core they fire on, and two cores that send on one veth pair reorder packets. On a link that loses
nothing it then sends 0.5 to 0.8 % twice, and a plain exchange of 1 MiB takes 210 us in one run and 600
in the next, where reno takes 210 in each and resends nothing (`ss -ti`)."""
import glob, json, os, re, statistics, subprocess, sys, tempfile, threading, time

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(HERE)
NETLAB = os.path.join(ROOT, "tools/netlab")
PEERS = ["openmpi", "mpich", "gloo"]
ALL, UNHASHED = ["tcp", *PEERS, "line"], "tcp(wire-check=off)"
KIB, MIB = 1 << 10, 1 << 20
# name: rate, sizes, seconds of calls, rounds, programs. Split so that each ends within 80 s.
NET = {
    "net/unshaped/small": (None, [4, KIB, 64 * KIB, MIB], 0.2, 4, [*ALL, UNHASHED]),
    "net/unshaped/large": (None, [16 * MIB, 64 * MIB], 0.3, 3, [*ALL, UNHASHED]),
    "net/unshaped/256MiB": (None, [256 * MIB], 0.3, 3, ALL),
    "net/10gbit/small": ("10gbit", [4, KIB, 64 * KIB, MIB], 0.2, 4, ALL),
    "net/10gbit/large": ("10gbit", [16 * MIB, 64 * MIB], 0.3, 3, ALL),
    "net/10gbit/256MiB": ("10gbit", [256 * MIB], 0.3, 2, ALL),
    "net/1gbit/small": ("1gbit", [4, KIB, 64 * KIB, MIB], 0.2, 3, ALL),
    "net/1gbit/16MiB": ("1gbit", [16 * MIB], 0.5, 2, ALL),
    "net/1gbit/64MiB": ("1gbit", [64 * MIB], 0.5, 2, ALL),
    "net/1gbit/256MiB": ("1gbit", [256 * MIB], 0.5, 1, ["tcp", "line"]),
}
SIZE_NAMES = {4: "4B", KIB: "1KiB", 64 * KIB: "64KiB", MIB: "1MiB", 16 * MIB: "16MiB", 64 * MIB: "64MiB",
              256 * MIB: "256MiB"}


class Bench:
    def __init__(self, tutti, record, quick, piece):
        self.tutti, self.record, self.quick, self.piece = os.path.abspath(tutti), record, quick, piece or ""
        with open("/proc/sys/net/ipv4/tcp_allowed_congestion_control") as f:
            allowed = f.read().split()
        with open("/proc/sys/net/ipv4/tcp_congestion_control") as f:
            self.cc = next((cc for cc in ("cubic", "reno") if cc in allowed), f.read().strip())

    def chosen(self, name):
        return name.startswith(self.piece) or self.piece.startswith(name + "/")

    def possible(self):
        if os.geteuid() == 0 and subprocess.run(["unshare", "--net", "true"], capture_output=True).returncode == 0:
            return True
        self.record.absent(self.record.name, "labs need root and network namespaces")
        return False

    def lab(self, words, hosts=2, rate=None, direct=True, more=()):
        """Runs words in a lab; gives the command as rows carry it, and what it printed."""
        options = ["-n", hosts, *(["--direct"] if direct else []), *(["--rate", rate] if rate else []), "--cc", self.cc,
                   "--timeout", 85, *more]
        command = [NETLAB, *map(str, options), "--", *map(str, words)]
        environment = {k: v for k, v in os.environ.items() if not k.startswith("TUTTI_")
                       or k in ("TUTTI_PYTHON", "TUTTI_DATA", "TUTTI_PEERS_BUILD", "TUTTI_RUN_KEY_FILE")}
        done = subprocess.run(command, stdout=subprocess.PIPE, text=True, env=environment, cwd=ROOT)
        if done.returncode != 0:
            sys.exit(f"bench/run: {' '.join(command)} ended with exit code {done.returncode}")
        return " ".join(command).replace(self.tutti, "tutti").replace(ROOT + "/", ""), done.stdout

    # ---- net ----
    def net(self):
        if not self.possible():
            return
        for name, (rate, sizes, seconds, rounds, programs) in NET.items():
            if self.chosen(name):
                self.net_piece(rate, sizes, *((0.02, 1) if self.quick else (seconds, rounds)), programs)
        if self.chosen("net/crossing"):
            self.crossing()

    def net_piece(self, rate, sizes, seconds, rounds, programs):
        label = rate or "unshaped"
        command, text = self.lab([os.path.join(HERE, "peers/network"), "--tutti", self.tutti,
                                  "--programs", " ".join(programs), "--sizes", ",".join(map(str, sizes)),
                                  "--seconds", seconds, "--rounds", rounds], rate=rate)
        got, goodput = {}, []
        for line in map(json.loads, text.splitlines()):
            if line["program"] == "goodput":
                goodput.append(line["bytes_per_second"])
            else:
                got.setdefault((line["bytes"], line["program"]), []).append(line)
        times = {key: statistics.median(l["median_us"] for l in lines) for key, lines in got.items()}
        for (size, program), lines in got.items():
            self.record.row(f"net/{label}/{SIZE_NAMES[size]}/{program}", times[size, program], "us", command=command,
                            show=False, bytes=size, program=program, cc=self.cc, rounds=len(lines),
                            min_us=min(l["median_us"] for l in lines), max_us=max(l["median_us"] for l in lines),
                            p99_us=max(l["p99_us"] for l in lines), calls=lines[-1]["calls"],
                            goodput_mbits=8e-6 * statistics.median(goodput) if goodput else None)
        for size in sizes:
            self.judge(label, size, {program: us for (s, program), us in times.items() if s == size},
                       statistics.median(goodput) if goodput else None, command,
                       min(len(lines) for (s, _), lines in got.items() if s == size))

    def judge(self, label, size, times, goodput, command, pairs):
        """pairs: rounds in which all programs had their turn.

        The bucket of a shaped link saves up between calls what a slow barrier leaves unused (Gloo's is
        200 us, 25 kB of 1 Gbit/s), and 64 KiB then take less time than the link can carry them in. So no
        peer is taken for faster than the line in the long run."""
        title = f"all-reduce, 2 hosts, {label}, {SIZE_NAMES[size]}: "
        ours, peers = times["tcp"], [p for p in PEERS if p in times]
        row = lambda name, **more: self.record.row(title + name, ours, "us", command=command, cc=self.cc, pairs=pairs,
                                                   **more)
        if size == 4:
            row("time of a call")
        if goodput and size >= MIB and label != "unshaped":
            row("share of the line's goodput", ratio=1e6 * size / goodput / ours, against="the line",
                goodput_mbits=8e-6 * goodput)
        if "line" in times:
            row("against a plain connection", ratio=times["line"] / ours, against="a plain exchange")
        if peers:
            best = min(peers, key=times.get)
            limit = 1e6 * size / goodput if goodput and label != "unshaped" else 0
            row("against the best peer", ratio=max(times[best], limit) / ours, against=best, peer_us=times[best],
                limit_us=limit or None)
            if UNHASHED in times:
                self.record.row(title + "against the best peer, without hashes", times[UNHASHED], "us", command=command,
                                cc=self.cc, pairs=pairs, ratio=times[best] / times[UNHASHED], against=best)
        else:
            self.record.absent(title + "against the best peer", "no peer ran")
        if label == "unshaped" and size == 256 * MIB and "gloo" in times:
            row("against Gloo", ratio=times["gloo"] / ours, against="gloo")

    def crossing(self):
        """Two hosts of two workers: bytes that the first host's interface sent, over those of the vectors.

        Half of each vector's sum crosses each way twice in the best of ways."""
        with tempfile.TemporaryDirectory(prefix="tutti-bench-") as folder:
            os.environ["TUTTI_RUN_KEY_FILE"] = folder + "/key"
            subprocess.run([self.tutti, "key", folder + "/key"], check=True, stdout=subprocess.DEVNULL)
            command, text = self.lab([self.tutti, "bench", "allreduce", "--transport", "tcp", "--registered", "off",
                                      "--sizes", "16MiB", "--seconds", 0.01 if self.quick else 0.5],
                                     more=["--each", "--per-host", 2, "--json", folder + "/links.json"])
            with open(folder + "/links.json") as f:
                links = json.load(f)["hosts"]
            del os.environ["TUTTI_RUN_KEY_FILE"]
        calls = int(text.split()[4]) + 3  # three come first, to see how long one takes
        for link in links:
            ratio = link["bytes_sent"] / (calls * 16 * MIB)
            self.record.row(f"all-reduce of 16 MiB, 2 hosts x 2 workers: bytes on the link of {link['host']}",
                            link["bytes_sent"], "bytes", ratio=ratio, against="the vectors' bytes",
                            command=re.sub(r"/\S*/links.json", "links.json", command), calls=calls)

    # ---- truth ----
    def train(self, folder, name, *words):
        out = f"{folder}/{name}"
        return [self.tutti, "train", "--data", "mnist", "--threads", 1, "--seed", 0, "--quiet", "--final-eval", "off",
                "--out", out, *words], out

    def ms_of(self, out):
        with open(out + "/summary.json") as f:
            s = json.load(f)
        return 1e3 * s["wall_seconds"] / s["steps"]

    def here(self, folder, name, *words):
        words, out = self.train(folder, name, *words)
        subprocess.run([*map(str, words)], check=True, stdout=subprocess.DEVNULL, cwd=ROOT)
        return self.ms_of(out)

    def there(self, folder, name, hosts, rate, *words, direct=False, more=()):
        where = ",".join(f"h{i + 1}:1" for i in range(hosts))
        words, out = self.train(folder, name, "-H", where, "--rsh", NETLAB + " rsh", *words)
        command, _ = self.lab(words, hosts, rate, direct, more)
        return self.ms_of(out), command.replace(folder, "DIR")

    def line(self, rate):
        """Goodput in bit/s and latency in seconds of a line of such a lab."""
        _, text = self.lab([os.path.join(HERE, "peers/network"), "--tutti", self.tutti, "--programs", "line",
                            "--sizes", 4, "--seconds", 0.2 if self.quick else 1, "--rounds", 1], rate=rate,
                           direct=False, more=["--steady"])
        lines = [json.loads(l) for l in text.splitlines()]
        return 8 * lines[1]["bytes_per_second"], 1e-6 * lines[0]["median_us"]

    def truth(self):
        for hosts in (2, 4):
            for rate, steps in (("100mbit", 12), ("1gbit", 60)):
                for model in ("mlp", "cnn"):
                    if self.chosen(f"truth/{hosts}/{rate}/{model}") and self.possible():
                        self.truth_piece(hosts, rate, model, 3 if self.quick else steps if model == "mlp"
                                         else 2 * steps)

    def truth_piece(self, hosts, rate, model, steps):
        with tempfile.TemporaryDirectory(prefix="tutti-bench-") as folder:
            goodput, latency = self.line(rate)
            alone = lambda k: self.here(folder, f"alone{k}", "--model", model, "-n", hosts, "--method", "single",
                                        "--steps", 10 if self.quick else 100)
            before = alone(0)
            measured, command = self.there(folder, "measured", hosts, rate, "--model", model, "--steps", steps,
                                           more=["--steady"])
            compute = statistics.mean([before, alone(1)])
            with open(folder + "/cluster.xml", "w") as f:
                subprocess.run([self.tutti, "platform",
                                f"cluster(n={hosts},rate={goodput * 1e-6:.3f}Mbps,latency={latency * 1e6:.2f}us)"],
                               check=True, stdout=f)
            predicted = self.here(folder, "predicted", "--model", model, "-n", hosts, "--transport", "sim",
                                  "--platform", folder + "/cluster.xml", "--step-time", f"{1e-3 * compute:.6f}",
                                  "--steps", steps)
        self.record.row(f"ddp step, {model}, {hosts} hosts, {rate}: predicted by the simulator, off by",
                        abs(1 - predicted / measured), "", command=command, ratio=predicted / measured,
                        against="measured", measured_ms=measured, predicted_ms=predicted, no_exchange_ms=compute,
                        goodput_mbits=goodput * 1e-6, latency_us=latency * 1e6, cc=self.cc)

    # ---- wire ----
    def wire(self):
        for rate, steps, rounds in ((None, 100, 14), ("10gbit", 80, 10), ("1gbit", 30, 4)):
            label = rate or "unshaped"
            if self.chosen(f"wire/{label}") and self.possible():
                self.hashing(rate, label, *((5, 1) if self.quick else (steps, rounds)))
        if self.chosen("wire/beats") and self.possible():
            self.beats()

    def hashing(self, rate, label, steps, rounds):
        """Pairs of runs that differ in hashing alone, each second pair in the other order."""
        ratios, with_ms = [], []
        with tempfile.TemporaryDirectory(prefix="tutti-bench-") as folder:
            for k in range(rounds):
                got = {}
                for check in ("on", "off") if k % 2 == 0 else ("off", "on"):
                    got[check], command = self.there(folder, f"{check}{k}", 2, rate, "--model", "mlp", "--steps", steps,
                                                     "--transport", f"tcp(wire-check={check})", direct=True)
                ratios.append(got["on"] / got["off"])
                with_ms.append(got["on"])
        self.record.row(f"ddp step, mlp, 2 hosts, {label}: more with hashes of all payloads",
                        100 * (statistics.median(ratios) - 1), "%", command=command, pairs=rounds,
                        step_ms=statistics.median(with_ms), least=100 * (min(ratios) - 1), most=100 * (max(ratios) - 1),
                        cc=self.cc)

    def beats(self):
        """The service thread does nothing but heartbeats here: its share of a core, from its own clock."""
        with tempfile.TemporaryDirectory(prefix="tutti-bench-") as folder:
            words, out = self.train(folder, "beats", "-H", "h1:1,h2:1", "--rsh", NETLAB + " rsh", "--model", "mlp",
                                    "--steps", 20 if self.quick else 500)
            shares, stop = [], threading.Event()
            watcher = threading.Thread(target=watch_service, args=(out, shares, stop))
            watcher.start()
            command, _ = self.lab(words)
            stop.set()
            watcher.join()
        if shares:
            self.record.row("ddp, mlp, 2 hosts, unshaped: share of a core that heartbeats take", 100 * max(shares), "%",
                            command=command.replace(folder, "DIR"), cc=self.cc)
        else:
            self.record.absent("share of a core that heartbeats take", "no service thread was seen")


def watch_service(out, shares, stop):
    """CPU time over time of the thread 'tutti-tcp' of each worker that writes to `out`, while it is there."""
    first, last = {}, {}
    while not stop.is_set():
        for path in glob.glob("/proc/[0-9]*/task/[0-9]*/comm"):
            try:
                with open(path) as f:
                    if f.read().strip() != "tutti-tcp":
                        continue
                with open(path.rsplit("/", 3)[0] + "/cmdline", "rb") as f:
                    if out.encode() not in f.read():
                        continue
                with open(path.replace("comm", "schedstat")) as f:
                    at = (time.monotonic(), int(f.read().split()[0]) * 1e-9)
            except OSError:
                continue
            first.setdefault(path, at)
            last[path] = at
        stop.wait(0.5)
    for path, (t, cpu) in last.items():
        if t - first[path][0] > 1:
            shares.append((cpu - first[path][1]) / (t - first[path][0]))
