"""Figures of states in shards and in tiers: what bench/run zero measures, judges and keeps (bench/results/zero.jsonl).

memory    gpt with 101 M parameters, AdamW, two workers of one thread on shared memory, a batch of one window of 32
          tokens: bytes of a parameter that a worker has at its peak above what `tutti version` takes, by proportional
          set size (half of what both have is each one's; the mean of both), and as declared. A unit is the largest
          layer, 0.17 bytes.
step      the same model: time of a step over ddp's, in pairs, and bytes sent over those of an all-reduce of all values,
          which is a count. (ddp sends tables by rows.)
fits      one worker, gpt of layers of 0.8 M parameters, AdamW, --device-memory 512 MiB: parameters of the largest model
          that trains under zero-offload, over those of the largest under ddp. It is a count. Device bytes a parameter
          are 4 and 16, so 4 is the limit; two buckets and the activations are no smaller than ddp's.
delayed   the model of `memory`, one worker, with enough tokens that computing takes about as long as the update: time
          of a step of zero-offload over that with delayed=on, in pairs. The update has a core of its own.
hidden    zero-infinity on a disk, one worker: of the time that the disk takes for values and gradients, by the rate
          that tier_bench finds on it, the share in which the worker does not wait. Batches are so large that computing
          takes longer. DIR is TUTTI_TIER_DIR, or else the build's folder."""
import json, os, statistics, subprocess, sys, tempfile, time

from command import children_of, clean_environment, small_text, summary

MIB = 2 ** 20
STAGES = ("zero", "zero(stage=2)", "zero(stage=3)")


class Zero:
    def __init__(self, tutti, record, quick, piece):
        self.tutti, self.record, self.quick, self.piece = tutti, record, quick, piece
        self.build = os.path.dirname(os.path.dirname(tutti))
        self.layers = 2 if quick else 8
        self.name = "gpt, 101 M parameters, adamw, 2 workers, "

    def run(self):
        for name in ("memory", "step", "fits", "delayed", "hidden"):
            if name.startswith(self.piece):
                with tempfile.TemporaryDirectory(prefix="tutti-bench-") as folder:
                    self.text = small_text(folder)
                    getattr(self, name)(folder)

    def train(self, folder, method, steps, watch=None, n=2, batch=1, context=32, layers=None):
        out = os.path.join(folder, "run")
        words = ["train", "--model", f"gpt(layers={layers or self.layers},dim=1024,heads=8)", "--data",
                 f"text(file={self.text},context={context})", "--batch", batch, "--steps", steps, "-n", n,
                 "--threads", 1, "--optimizer", "adamw", "--method", method, "--final-eval", "off", "--overwrite",
                 "--quiet", "--out", out]
        running = subprocess.Popen([self.tutti, *map(str, words)], env=clean_environment())
        while watch is not None and running.poll() is None:
            watch(running.pid)
            time.sleep(0.02)
        if running.wait() != 0:
            sys.exit(f"bench/run: tutti {' '.join(map(str, words))}")
        return summary(out)

    @staticmethod
    def resident(pid):
        try:
            with open(f"/proc/{pid}/smaps_rollup") as f:
                return sum(1024 * int(line.split()[1]) for line in f if line.startswith("Pss:"))
        except (OSError, ProcessLookupError):
            return 0

    def memory(self, folder):
        idle = subprocess.Popen([self.tutti, "version"], stdout=subprocess.DEVNULL)
        empty = os.wait4(idle.pid, 0)[2].ru_maxrss * 1024
        for method in ("ddp", *STAGES):
            peak = [0]

            def watch(pid):
                peak[0] = max(peak[0], sum(map(self.resident, children_of(pid))))
            s = self.train(folder, method, 4, watch)
            declared = s["method_figures"].get("state_bytes_per_parameter", [None])
            self.record.row(self.name + method + ": bytes a parameter, by pss",
                            (peak[0] / 2 - empty) / s["params"], "B",
                            command="bench/run zero --piece memory", parameters=s["params"], empty_bytes=empty,
                            timed=False)
            if declared[0] is not None:
                self.record.row(self.name + method + ": bytes a parameter, declared", max(declared), "B",
                                command="bench/run zero --piece memory", parameters=s["params"], timed=False)

    def step(self, folder):
        steps, pairs = (2, 1) if self.quick else (6, 5)
        for method in STAGES:
            took, sent = ([], []), 0
            for k in range(pairs):
                for mine in (k % 2 == 0, k % 2 == 1):
                    s = self.train(folder, method if mine else "ddp", steps)
                    took[mine].append(s["wall_seconds"] / steps)
                    sent = s["bytes_sent_total"] / steps if mine else sent
            ratios = [ours / theirs for theirs, ours in zip(*took)]
            self.record.row(self.name + method + ": time of a step", 1e3 * statistics.median(took[1]), "ms",
                            statistics.median(ratios), "ddp", command="bench/run zero --piece step", pairs=pairs,
                            ratios=ratios, values=took[1], peers=took[0])
            self.record.row(self.name + method + ": bytes sent", sent, "B a step", sent / (2 * 4 * s["params"]),
                            "an all-reduce", command="bench/run zero --piece step", timed=False)

    def fits(self, folder):
        """By halving: what fits with some layers fits with fewer. What does not fit is refused before any work."""
        most = {}
        for method in ("ddp", "zero-offload"):
            fits, too_many = None, 256
            low = 0
            while too_many - low > 1:
                layers = (low + too_many) // 2
                out = os.path.join(folder, "run")
                words = [self.tutti, "train", "--model", f"gpt(layers={layers},dim=256,heads=4)", "--data",
                         f"text(file={self.text},context=32)", "--batch", 1, "--steps", 1, "-n", 1, "--threads", 1,
                         "--optimizer", "adamw", "--method", method, "--device-memory",
                         "64MiB" if self.quick else "512MiB", "--final-eval", "off", "--overwrite", "--quiet",
                         "--out", out]
                run = subprocess.run([str(w) for w in words], env=clean_environment(), text=True,
                                     stderr=subprocess.PIPE)
                if run.returncode == 0:
                    low, fits = layers, summary(out)["params"]
                elif "raise device-memory" in run.stderr:
                    too_many = layers
                else:
                    sys.exit(f"bench/run: {run.stderr}")
            most[method] = fits
        self.record.row("gpt, adamw, 1 worker of 512 MiB, zero-offload: parameters of the largest model that trains",
                        most["zero-offload"], "", most["zero-offload"] / most["ddp"], "ddp",
                        command="bench/run zero --piece fits", timed=False)

    def delayed(self, folder):
        steps, pairs = (2, 1) if self.quick else (10, 5)
        took = ([], [])
        for k in range(pairs):
            for delayed in (k % 2 == 0, k % 2 == 1):
                method = "zero-offload(delayed=on,delay_warmup=0)" if delayed else "zero-offload"
                s = self.train(folder, method, steps, n=1, context=64)
                took[delayed].append(s["wall_seconds"] / steps)
        ratios = [plain / delayed for plain, delayed in zip(*took)]
        self.record.row("gpt, 101 M parameters, adamw, 1 worker, zero-offload(delayed=on): times as fast",
                        statistics.median(ratios), "", statistics.median(ratios), "zero-offload",
                        command="bench/run zero --piece delayed", pairs=pairs, ratios=ratios, values=took[1],
                        peers=took[0])

    def hidden(self, folder):
        """A batch of 16 windows of 128 tokens: some 2000 tokens, where 560 would do at 1.2 GB/s and 200 GFLOP/s."""
        where = os.environ.get("TUTTI_TIER_DIR", self.build)
        subprocess.run(["cmake", "--build", self.build, "--target", "tier_bench"], check=True,
                       stdout=subprocess.DEVNULL)
        spec = f'nvme(path="{where}")'
        told = json.loads(subprocess.run([os.path.join(self.build, "bench/tier_bench"), spec,
                                          str((64 if self.quick else 512) * MIB), "1"], check=True, text=True,
                                         stdout=subprocess.PIPE).stdout)
        steps = 2 if self.quick else 20 # of the first nothing hides the first layer
        for ahead in (0, 2):
            s = self.train(folder, f"zero-infinity(tier={spec},ahead={ahead})", steps, n=1, batch=16, context=128,
                           layers=2)
            disk = steps * 4 * s["params"] * (2 / told["read"][0] + 1 / told["write"][0])
            self.record.row(f"zero-infinity, ahead={ahead}: share of the disk's time that is hidden",
                            1 - s["exposed_comm_seconds"] / disk, "", command="bench/run zero --piece hidden",
                            read=told["read"][0], write=told["write"][0], disk_seconds=disk,
                            exposed_seconds=s["exposed_comm_seconds"], compute_seconds=s["compute_seconds"],
                            wall_seconds=s["wall_seconds"])
