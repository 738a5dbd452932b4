"""bench/run quality, formula: codecs between hosts, in labs of tools/netlab (root): two hosts of one
worker with one thread.

    quality  seconds and bytes until a quality is reached (mlp 95 % of the test images, gpt 2.50
             nats/byte; evaluated every 10 steps, not counted in the time): methods and codecs of
             ours, and PyTorch's DDP with its hooks (bench/peers/train.py) in the same kind of lab,
             in turn. A peer that takes 1.2 times as long as the best so far is not waited for; rows
             say so
    formula  a step of mlp(hidden=512) through every codec at 100 Mbit/s: against the larger of the
             same step without a limit (computing and codec) and its bytes over the line's goodput.
             Then the bytes that the transport counts against the formula of the codec, where it has
             one, and those of the interface against the transport's. Interfaces: of 30 steps, by
             two runs, so that meeting and parting cancel

--piece PREFIX as of net: `quality/1gbit/mlp`, `formula/ef(topk)`, `formula/wire`."""
import json, math, os, statistics, subprocess, tempfile

from net import HERE, NETLAB, ROOT, Bench

RATES = ("1gbit", "100mbit")
# model: data, optimiser, batch, target of ours and of the peer, seeds, methods of ours. Of gpt a
# period is that of the evaluations: at another, models are averaged for each look, too, which sends
# as much again
QUALITY = {
    "mlp": dict(model="mlp", data="mnist", optimizer="sgd(lr=0.05,momentum=0.9)", batch=64, target="accuracy=0.95",
                value=0.95, seeds=(0, 1, 2),
                ours=(("--method", "local-sgd(period=4)", "--codec", "ef(topk(ratio=0.05))"),
                      ("--method", "local-sgd(period=8)", "--codec", "ef(topk(ratio=0.02))"),
                      ("--codec", "ef(topk(ratio=0.0005))"))),
    "gpt": dict(model="gpt(4,256,4,128)", data="moby-dick(stride=1)", optimizer="adamw(lr=0.0003)", batch=8,
                target="loss=2.50", value=2.50, seeds=(0,),
                ours=(("--method", "local-sgd(period=10)", "--codec", "large(qsgd(bits=2))"),
                      ("--method", "local-sgd(period=10)", "--codec", "ef(powersgd(rank=4))"),
                      ("--codec", "ef(powersgd(rank=4))"), ("--codec", "large(qsgd(bits=4))"))),
}
HOOKS = ("powersgd", "post-local", "fp16", "ddp")
PATIENCE = 1.2

HIDDEN = 512
TENSORS = [(HIDDEN, 784), (1, HIDDEN), (HIDDEN, HIDDEN), (1, HIDDEN), (10, HIDDEN), (1, 10)]
COUNTS = [rows * cols for rows, cols in TENSORS]


def each(of):
    return sum(of(rows, cols) for rows, cols in TENSORS)


def buckets(n, bucket):
    return -(-n // bucket)


def kept(ratio, n):
    return max(1, math.ceil(ratio * n * (1 - 1e-12)))


def rank_bytes(rank):
    """PowerSGD: both factors of matrices where that is less, else the tensor."""
    return each(lambda rows, cols: 4 * cols if rows == 1 else 4 * rank * (rows + cols))


# Codec as given: bytes that a worker sends in a step to the one other; None: they depend on the
# gradients.
FORMULAS = {
    "fp32": lambda: 4 * sum(COUNTS),
    "fp16": lambda: 2 * sum(COUNTS),
    "bf16": lambda: 2 * sum(COUNTS),
    "trunc16": lambda: 2 * sum(COUNTS),
    "int8(bucket=2048)": lambda: each(lambda r, c: 4 * buckets(r * c, 2048) + r * c),
    "minmax8": lambda: each(lambda r, c: 8 + r * c),
    "qsgd(bits=4,bucket=512)": lambda: each(lambda r, c: 4 * buckets(r * c, 512) + -(-r * c // 2)),
    "qsgd(bits=4,bucket=512,coding=elias)": None,
    "nuqsgd(bits=4,bucket=512)": lambda: each(lambda r, c: 4 * buckets(r * c, 512) + -(-r * c // 2)),
    "alq(bits=4,bucket=512,first=1,second=2,every=0)": None,
    "amq(bits=4,bucket=512,first=1,second=2,every=0)": None,
    "ef(sign)": lambda: each(lambda r, c: 4 + -(-r * c // 8)),
    "ef(onebit)": None,
    "ef(topk(ratio=0.01))": lambda: each(lambda r, c: 8 * kept(0.01, r * c)),
    "ef(randomk(ratio=0.01))": lambda: each(lambda r, c: 4 * kept(0.01, r * c)),
    "ef(threshold)": None,
    "wangni": None,
    "ef(powersgd(rank=2))": lambda: rank_bytes(2),
    "dgc(topk(ratio=0.01))": lambda: each(lambda r, c: 8 * kept(0.01, r * c)),
    "ef21(topk(ratio=0.01))": lambda: each(lambda r, c: 8 * kept(0.01, r * c)),
    "large(ef(topk(ratio=0.01)))": lambda: each(lambda r, c: 4 * r * c if r * c < 1024 else 8 * kept(0.01, r * c)),
}


class Codecs(Bench):
    def run(self, folder, name, rate, steps, *words):
        """summary.json of a run between the two hosts, what the first one's interface sent, and the command."""
        out = f"{folder}/{name}"
        links = out + ".json"
        command, _ = self.lab([self.tutti, "train", "--threads", 1, "--quiet", "--final-eval", "off", "--out", out,
                               "-H", "h1:1,h2:1", "--rsh", NETLAB + " rsh", "--steps", steps, *words], rate=rate,
                              more=["--json", links])
        with open(out + "/summary.json") as f, open(links) as g:
            return json.load(f), next(h["bytes_sent"] for h in json.load(g)["hosts"]
                                      if h["host"] == "h1"), command.replace(folder, "DIR")

    # ---- quality ----
    def quality(self):
        for rate in RATES:
            for name, case in QUALITY.items():
                if self.chosen(f"quality/{rate}/{name}") and self.possible():
                    self.quality_piece(rate, name, case)

    def peer(self, python, rate, case, hook, seed, most):
        """Seconds, steps and bytes; None: it took longer than `most`."""
        tuned = subprocess.run([HERE + "/peers/tuned", "1"], stdout=subprocess.PIPE, text=True,
                               check=True).stdout.split()
        command, text = self.lab(["env", "INIT=env://", "GLOO_SOCKET_IFNAME=eth0", "STARTED=0", *tuned, python, "-B",
                                  os.path.join(HERE, "peers/train.py"), case["model"], 2, 2000, case["batch"], 1, hook,
                                  seed, case["optimizer"], 10, case["value"], f"{most:.1f}"], rate=rate,
                                 more=["--each", "--timeout", 300])
        return json.loads(text.splitlines()[-1])["reached"], command.replace(python, "python")

    def mine(self, folder, rate, case, words, seed):
        out, sent, command = self.run(folder, f"{rate}{''.join(words)}{seed}".replace("/", ""), rate, 2000,
                                      "--model", case["model"], "--data", case["data"],
                                      "--optimizer", case["optimizer"], "--batch", case["batch"], "--eval-every", 10,
                                      "--target", case["target"], "--seed", seed, *words)
        return (None if out["time_to_target_seconds"] is None
                else dict(steps=out["steps"], seconds=out["time_to_target_seconds"], bytes=out["bytes_sent_per_worker"],
                          interface=sent)), command

    def runs(self, title, who, of, seeds):
        """One program with several seeds: a row each; None where the quality was not reached."""
        found = []
        for seed in seeds:
            reached, command = of(seed)
            if reached is None:
                self.record.absent(f"{title}{who}, seed {seed}", "it is not there by the time that it was given")
                return None, command
            found.append(reached)
            self.record.row(f"{title}{who}, seed {seed}", reached["seconds"], "s", command=command, cc=self.cc,
                            steps=reached["steps"], bytes=reached["bytes"],
                            interface=reached.get("interface", reached["bytes"]))
        return {key: statistics.median(r[key] for r in found)
                for key in ("seconds", "steps", "bytes")} | dict(runs=len(found)), command

    def quality_piece(self, rate, name, case):
        title = f"{name} to {case['target']}, 2 hosts, {rate}: "
        seeds = case["seeds"][:1] if self.quick else case["seeds"]
        python = subprocess.run([HERE + "/peers/python"], stdout=subprocess.PIPE, text=True).stdout.strip()
        peers, ours, commands = {}, {}, {}
        for hook in HOOKS if python else ():
            patience = PATIENCE * min((r["seconds"] for r in peers.values()), default=200 / PATIENCE)
            found, _ = self.runs(title, f"PyTorch, {hook}",
                                 lambda seed: self.peer(python, rate, case, hook, seed, patience), seeds)
            if found is not None:
                peers[hook] = found
        with tempfile.TemporaryDirectory(prefix="tutti-bench-") as folder:
            for words in case["ours"]:
                who = " ".join(words).replace("--codec ", "").replace("--method ", "")
                found, commands[who] = self.runs(title, who, lambda seed: self.mine(folder, rate, case, words, seed),
                                                 seeds)
                if found is not None:
                    ours[who] = found
        if not ours or not peers:
            return self.record.absent(title + "against PyTorch", "PyTorch is not here" if not python
                                      else "nobody reached it")
        fast = min(ours, key=lambda w: ours[w]["seconds"])
        least = min(ours, key=lambda w: ours[w]["bytes"])
        peer = min(peers, key=lambda p: peers[p]["seconds"])
        self.record.row(f"{title}the fastest of our codecs", ours[fast]["seconds"], "s",
                        ours[fast]["seconds"] / peers[peer]["seconds"], f"PyTorch with {peer}", commands[fast],
                        codec=fast, steps=ours[fast]["steps"], peers={p: r["seconds"] for p, r in peers.items()},
                        cc=self.cc, runs=ours[fast]["runs"])
        if "powersgd" in peers:
            self.record.row(f"{title}bytes of the one that sends least", ours[least]["bytes"], "bytes",
                            ours[least]["bytes"] / peers["powersgd"]["bytes"], "PyTorch's PowerSGD", commands[least],
                            codec=least, steps=ours[least]["steps"], cc=self.cc, runs=ours[least]["runs"])

    # ---- formula ----
    def formula(self):
        if self.chosen("formula/wire") and self.possible():
            self.wire()
        chosen = [codec for codec in FORMULAS if self.chosen("formula/" + codec)]
        if not chosen or not self.possible():
            return
        goodput, _ = self.line("100mbit")
        for codec in chosen:
            self.formula_piece(codec, goodput / 8)

    def wire(self):
        """What 16-bit numbers make of steps that the wire limits: pairs of runs, each second pair in the
        other order."""
        for rate, steps, rounds in (("1gbit", 40, 3), ("100mbit", 12, 1)):
            ratios = {"fp16": [], "bf16": []}
            with tempfile.TemporaryDirectory(prefix="tutti-bench-") as folder:
                for k in range(1 if self.quick else rounds):
                    got = {}
                    for codec in ("fp32", "fp16", "bf16") if k % 2 == 0 else ("bf16", "fp16", "fp32"):
                        s, _, command = self.run(folder, f"{codec}{k}", rate, 3 if self.quick else steps,
                                                 "--model", "mlp", "--codec", codec)
                        got[codec] = s["wall_seconds"] / s["steps"]
                    for codec, values in ratios.items():
                        values.append(got["fp32"] / got[codec])
            for codec, values in ratios.items():
                self.record.row(f"ddp, mlp, 2 hosts, {rate}: steps a second with {codec}", 1 / got[codec], "1/s",
                                statistics.median(values), "those with fp32", command=command, pairs=len(values),
                                cc=self.cc)

    def formula_piece(self, codec, goodput):
        """goodput: bytes a second of the line."""
        # Times and bytes do not depend on the rate, and dgc's momentum of 0.9 needs a small one
        words = ("--model", f"mlp(hidden={HIDDEN})", "--batch", 16, "--optimizer", "sgd(lr=0.005)", "--codec", codec)
        short, long = (2, 4) if self.quick else (10, 40)
        with tempfile.TemporaryDirectory(prefix="tutti-bench-") as folder:
            free, _, _ = self.run(folder, "free", None, 5 * long, *words)
            first, sent_first, _ = self.run(folder, "first", "100mbit", short, *words)
            last, sent_last, command = self.run(folder, "last", "100mbit", long, *words)
        between = lambda key: (last[key] - first[key]) / (long - short)
        # Levels that are fitted in the first steps are not what a step takes.
        transport, ms = between("bytes_sent_per_worker"), 1e3 * between("wall_seconds")
        interface = (sent_last - sent_first) / (long - short)
        alone, wire = 1e3 * free["wall_seconds"] / free["steps"], 1e3 * transport / goodput
        title = f"{codec}, mlp(hidden={HIDDEN}), 2 hosts, 100mbit: "
        self.record.row(title + "a step", ms, "ms", ms / max(alone, wire),
                        "the larger of the same without a limit and its bytes over the goodput", command,
                        unlimited_ms=alone, wire_ms=wire, cc=self.cc)
        if FORMULAS[codec] is not None:
            self.record.row(title + "bytes of a step, transport", transport, "bytes", transport / FORMULAS[codec](),
                            "the formula", command, formula=FORMULAS[codec]())
        messages = between("messages_sent_per_worker")
        self.record.row(title + "bytes of a step, interface", interface, "bytes",
                        interface / (1.03 * transport + 100 * messages),
                        "3 % and 100 bytes a message more than the transport's", command, transport=transport,
                        messages=messages)
