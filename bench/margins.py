"""bench/run margins: what the papers of codecs promise of the end of training, against fp32 ddp with
the same samples, steps, optimiser and seeds. 4 workers of one thread; two seeds, and a third where
these leave a figure within a quarter of the margin from its bound.

    cnn         on mnist(distort=1), 4 x 16 samples, sgd with momentum and a cosine: per cent of the
                test images
    gpt         gpt(2,128,4,64) on moby-dick, 4 x 4 windows, adamw with a cosine: nats a byte of the
                whole validation part
    accordion   a pair of levels each, as published: one run at the low level, one at the high one
                and one that switches, whose accuracy is held against the low one's and its bytes
                against the high one's

Margins are the papers' (their headline results), or, where a paper finds no loss, the spread that
seeds have there: 0.3 points, 0.02 nats.

How long: papers promise the end of training, not its beginning. Error feedback brings what it keeps
back with a delay (of 1/ratio steps for a selection), so a run that fp32 itself has not finished
measures the delay. The length is chosen by fp32 alone (`margins/length`), before any codec was run at
it. Of cnn it is the first of 1, 2, 4, 8 epochs whose doubling gains fp32 less than half of the
margin, 0.15 points: 4, where 8 gain 0.12. Of gpt the same rule gives 12800 steps, twelve passes over
the text, for adamw: doubling 3200 gains fp32 0.105 nats, 6400 0.054, 12800 nothing (-0.003). SGD with
momentum, against which dgc is held, is slower: doubling 12800 gains it 0.026 still. So its first
length is 25600, twenty-three passes where the paper has forty.

    margins/gpt          3200 steps, which take a quarter of the time and show how far behind a
                         method is before the end
    margins/long/gpt     12800 steps
    margins/long/cnn     twice the length, where doubling gains fp32 0.03 points, of four seeds,
                         since seeds of one method lie up to 0.75 points apart (ef(topk) with
                         vectors whole: 95.40 to 96.15)
    margins/twice/gpt    25600 steps: of momentum SGD the first that counts, and of adamw twice
                         that, since papers train on for long where fp32 gains nothing any more
    margins/delay        what is missed at a quarter, at twice and at four times the length, most of
                         it without a bound: a delay shrinks with the length, a loss stays

Rows of the longer runs have the same bounds and stand next to those of the shorter ones.

Runs are simulated; their models have the same bits as those of processes (tested). So seeds train in
parallel and no worker waits for one that is not scheduled. A build does not repeat a run: its
summaries are kept in build/release/margins. This part measures no speed, so it may run while others
do. --piece: `margins/cnn`, `margins/cnn/METHOD`, `margins/gpt`, `margins/accordion`, ..."""
import concurrent.futures, hashlib, json, os, statistics, subprocess, sys, tempfile

EPOCHS, STEPS = 4, 3200
CNN = ("--model", "cnn", "--data", "mnist(distort=1)", "--batch", 16)
GPT = ("--model", "gpt(2,128,4,64)", "--data", "moby-dick(context=64,val_windows=0,val_stride=64)", "--batch", 4)
SGD, ADAM = ("--optimizer", "sgd(lr=0.05,momentum=0.9)"), ("--optimizer", "adamw(lr=0.001)")
COSINE = ("--lr-schedule", "cosine")
# name: words, network (its margin is in bench/bounds), paper.
# alq and amq have buckets that cnn has many of, scaled by the maximum. With the published 8192
# elements, the 2-norm and initial=powers their initial levels add noise of many times the gradient
# until the first fit: the least of them is 1/8 of a norm where an element is about 1/90. This
# network, which has no batch norm, is NaN in step 12.
METHODS = {
    "powersgd(rank=2)": (("--method", "powersgd(rank=2)"), "cnn gpt", "93 against 91 perplexity, CIFAR-10 no loss"),
    "powersgd(rank=16)": (("--method", "powersgd(rank=16)"), "gpt", "ranks of 16 to 32 for transformers"),
    "qsgd(bits=4)": (("--method", "qsgd(bits=4)"), "cnn gpt", "4 bits with buckets of 512 cost nothing"),
    "nuqsgd(bits=4)": (("--method", "nuqsgd(bits=4)"), "cnn gpt", "within 0.5 points"),
    "alq(bits=3,norm=max,bucket=512,skip_below=1024)":
        (("--method", "alq(bits=3,norm=max,bucket=512,skip_below=1024)"), "cnn gpt", "93.2 against 93.9"),
    "amq(bits=3,norm=max,bucket=512,skip_below=1024)":
        (("--method", "amq(bits=3,norm=max,bucket=512,skip_below=1024)"), "cnn gpt", "as alq"),
    "ef(topk(ratio=0.015625))":
        (("--codec", "ef(topk(ratio=0.015625))"), "cnn gpt",
         "PowerSGD's table 4, a 32nd of the bytes, half of them indexes: 94.4 against 94.3"),
    "large(ef(topk(ratio=0.015625)),min=1024)":
        (("--codec", "large(ef(topk(ratio=0.015625)),min=1024)"), "cnn gpt",
         "the same with vectors and small matrices whole, as published"),
    "ef(topk(ratio=0.01))": (("--codec", "ef(topk(ratio=0.01))"), "cnn gpt", "the same with fewer than published"),
    "gradient-sparsification(ratio=0.1)":
        (("--method", "gradient-sparsification(ratio=0.1)"), "cnn gpt", "no loss at a tenth of the coordinates"),
    "gradient-sparsification(solver=closed,epsilon=0.25)":
        (("--method", "gradient-sparsification(solver=closed,epsilon=0.25)"), "cnn gpt",
         "a variance near the dense one's: 1.25 times it at each draw"),
    "gradient-sparsification(solver=closed,epsilon=0.25), drawn once":
        (("--method", "gradient-sparsification(solver=closed,epsilon=0.25)", "--collective", "allgather"), "cnn",
         "the same as published, where each worker draws, all gather and nobody draws again"),
    "dgc(warmup=1)": (("--method", "dgc(warmup=1)"), "cnn gpt", "72.24 against 72.30 perplexity; 76.15 against 75.96"),
    "dgc(warmup=1,clip=1)": (("--method", "dgc(warmup=1,clip=1)"), "gpt", "72.24 against 72.30 perplexity"),
    "ef(sign)": (("--codec", "ef(sign)"), "cnn gpt", "EF-signSGD, 0.92 points below at batch 128"),
    "onebit-adam(freeze_step=0.2,bias_correction=on)":
        (("--method", "onebit-adam(freeze_step=0.2,bias_correction=on)"), "cnn gpt", "converges as Adam does"),
}
# A method that keeps a momentum itself takes a plain step: the optimiser that it is given, and the
# one of fp32 that it is held against. What is held against momentum SGD has no row where Adam
# trains.
# - dgc: its warm-up of 4 epochs in 90 is shortened to the least there is. On gpt it is held against
#   SGD with momentum that clips the gradient's norm at 1 (of 0.2 for the rate, 1.444 nats after
#   12800 steps, where Adam has 1.427). dgc clips each tensor's, and its warm-up of an epoch is one
#   of twelve, or of twenty-three.
# - EF-signSGD has no momentum at all, and its tuned rate was 5.6 times that of SGD with one (0.056
#   and 0.01). Taken after a run with fp32's rate and momentum, 5.8 points behind; no other was
#   tried.
# - onebit-adam is held against Adam, so with Adam's bias correction, which the reference leaves
#   out, and frozen after a fifth of the run (15 to 25 %).
OWN = {
    "ef(sign)": (("--optimizer", "sgd(lr=0.28)"), SGD),
    "dgc(warmup=1)": (("--optimizer", "sgd(lr=0.05)"), SGD),
    "onebit-adam(freeze_step=0.2,bias_correction=on)":
        (("--optimizer", "sgd(lr=0.001)"), ("--optimizer", "adam(lr=0.001)")),
    "dgc(warmup=1,clip=1)":
        (("--optimizer", "sgd(lr=0.2)", "--lr-schedule", "cosine(warmup=100)"),
         ("--optimizer", "sgd(lr=0.2,momentum=0.9)", "--lr-schedule", "cosine(warmup=100)", "--clip-norm", 1)),
}
# accordion's: a thirtieth of the run from check to check, and two drops of the learning rate that
# fall on checks, as published: 10 of 300 epochs, drops at 150 and 250, which a schedule of equal
# parts puts at 1/3 and 2/3. Without the warm-up of 5, which is for a rate multiplied by the
# workers.
STEPS_AN_EPOCH, CHECKS, CHECKS_A_DROP = 938, 30, 10
LEVELS = (("powersgd(rank=4)", "powersgd(rank=1)"), ("topk(ratio=0.99)", "topk(ratio=0.1)"))


class Margins:
    def __init__(self, tutti, record, quick, piece):
        self.tutti, self.record, self.piece = tutti, record, piece or ""
        self.more = ("--steps", 4) if quick else ()
        self.seeds = (0,) if quick else (0, 1, 2)
        self.few = self.seeds[:2]
        self.kept = os.path.join(os.path.dirname(os.path.abspath(tutti)), "../margins")
        with open(tutti, "rb") as f:
            self.build = hashlib.sha256(f.read())

    def chosen(self, name):
        return name.startswith(self.piece) or self.piece.startswith(name + "/")

    def run(self, words, seed):
        """A run's summary, with its command."""
        key = self.build.copy()
        key.update(json.dumps([[str(w) for w in words], seed]).encode())
        kept = os.path.join(self.kept, key.hexdigest()[:16] + ".json")
        if not os.path.exists(kept):
            with tempfile.TemporaryDirectory(prefix="tutti-bench-") as folder:
                command = ["tutti", "train", "-n", 4, "--threads", 1, "--transport", "sim", "--seed", seed,
                           "--quiet", "--out", "DIR", *words]
                done = subprocess.run([self.tutti, *(folder + "/run" if w == "DIR" else str(w) for w in command[1:])],
                                      stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
                if done.returncode != 0:
                    sys.exit(f"bench/run: {' '.join(map(str, command))}: {done.stderr.strip()}")
                with open(folder + "/run/summary.json") as f:
                    found = dict(json.load(f), command=" ".join(map(str, command)))
            os.makedirs(self.kept, exist_ok=True)
            with open(kept + f".{os.getpid()}", "w") as f:
                json.dump(found, f)
            os.rename(kept + f".{os.getpid()}", kept)
        with open(kept) as f:
            return json.load(f)

    def of(self, words, key, seeds):
        """A figure of each seed, a worker's bytes, and the first seed's command."""
        with concurrent.futures.ThreadPoolExecutor(len(os.sched_getaffinity(0))) as runs:
            found = list(runs.map(lambda seed: self.run((*words, *self.more), seed), seeds))
        return [s[key] for s in found], statistics.mean(s["bytes_sent_per_worker"] for s in found), found[0]["command"]

    def network(self, name, base, length, optimizer, key, kind=None):
        """A row of each method at this length; kind: None, `delay`, `twice`, or `long`, of cnn with four seeds."""
        few = range(4) if kind == "long" and name == "cnn" and len(self.seeds) > 1 else self.few
        scale, unit, behind_unit = (100, "%", "points") if key == "final_test_accuracy" else (1, "nats", "nats")
        words = (*base, *length, *COSINE)
        told = set()
        for method, (how, networks, why) in METHODS.items():
            given, with_ = OWN.get(method, (optimizer, optimizer))
            piece = f"margins/{kind}/{name}/{method}" if kind else f"margins/{name}/{method}"
            held_elsewhere = with_ is SGD and optimizer is not SGD
            if not self.chosen(piece) or held_elsewhere or name not in networks.split():
                continue
            fp32, fp32_bytes, command = self.of((*words, *with_), key, few)
            if with_ not in told:
                told.add(with_)
                self.record.row(f"{name}, {self.title(length)}, 4 workers, ddp, fp32, {with_[1]}",
                                scale * statistics.mean(fp32), unit, command=command, bytes=fp32_bytes, of_seeds=fp32,
                                seeds=len(fp32), timed=False)
            found, sent, command = self.of((*words, *given, *how), key, few)
            behind = lambda: scale * (statistics.mean(fp32) - statistics.mean(found)) * (1 if unit == "%" else -1)
            title = f"{name}, {self.title(length)}, 4 workers, {method}: behind fp32 by"
            margin = self.record.bound(title)
            if margin is not None and len(few) < len(self.seeds) and abs(behind() - margin) < margin / 4:
                fp32, found = (self.of((*words, *which), key, self.seeds)[0] for which in (with_, (*given, *how)))
            self.record.row(title, behind(), behind_unit, sent / fp32_bytes, "fp32's bytes", command,
                            figure=scale * statistics.mean(found), of_seeds=found, fp32_of_seeds=fp32, promise=why,
                            seeds=len(found), timed=False)

    def title(self, length):
        return f"{length[1]} {length[0][2:]}" if length[1] != 1 else "1 epoch"

    def length(self):
        """fp32's own curve, by which the lengths above are chosen."""
        for name, base, key, optimizer, seeds, lengths in (("cnn", CNN, "final_test_accuracy", SGD, self.seeds,
                                                            [("--epochs", 1 << k) for k in range(4)]),
                                                           ("gpt", GPT, "final_test_loss", ADAM, self.few,
                                                            [("--steps", 400 << k) for k in range(7)])):
            if not self.chosen(f"margins/length/{name}"):
                continue
            for length in lengths:
                found, _, command = self.of((*base, *length, *COSINE, *optimizer), key, seeds)
                self.record.row(f"{name}, {self.title(length)}: length of a run, fp32",
                                (100 if name == "cnn" else 1) * statistics.mean(found), "%" if name == "cnn"
                                else "nats", command=command, of_seeds=found, seeds=len(found), timed=False)

    def accordion(self, epochs=EPOCHS, kind=None):
        interval, key = epochs * STEPS_AN_EPOCH // CHECKS, "final_test_accuracy"
        words = (*CNN, "--epochs", epochs, *SGD, "--lr-schedule", f"step(every={CHECKS_A_DROP * interval},gamma=0.1)")
        for low_codec, high_codec in LEVELS:
            if not self.chosen(f"margins/{kind}/accordion/{low_codec}" if kind else f"margins/accordion/{low_codec}"):
                continue
            low, low_bytes, _ = self.of((*words, "--codec", f"large(ef({low_codec}),min=1024)"), key, self.few)
            high, high_bytes, _ = self.of((*words, "--codec", f"large(ef({high_codec}),min=1024)"), key, self.few)
            switched = f"accordion(low={low_codec},high={high_codec},unit=step,interval={interval})"
            found, sent, command = self.of((*words, "--method", switched), key, self.few)
            title = f"cnn, {epochs} epochs, 4 workers, accordion of {low_codec} and {high_codec}: "
            more = dict(low=low, high=high, accordion=found, low_bytes=low_bytes, high_bytes=high_bytes,
                        seeds=len(found), timed=False)
            self.record.row(title + "behind the low level by", 100 * (statistics.mean(low) - statistics.mean(found)),
                            "points", command=command, **more)
            self.record.row(title + "bytes of a worker", sent, "bytes", sent / high_bytes, "those of the high level",
                            command=command, of_low=sent / low_bytes, **more)

    def margins(self):
        self.length()
        self.network("cnn", CNN, ("--epochs", EPOCHS), SGD, "final_test_accuracy")
        self.network("gpt", GPT, ("--steps", STEPS), ADAM, "final_test_loss")
        self.accordion()
        if self.piece.startswith("margins/long"):
            self.network("cnn", CNN, ("--epochs", 2 * EPOCHS), SGD, "final_test_accuracy", "long")
            self.network("gpt", GPT, ("--steps", 4 * STEPS), ADAM, "final_test_loss", "long")
            self.accordion(2 * EPOCHS, "long")
        if self.piece.startswith("margins/twice"):
            self.network("gpt", GPT, ("--steps", 8 * STEPS), ADAM, "final_test_loss", "twice")
        for times in (0.25, 2, 4) if self.piece.startswith("margins/delay") else ():
            self.network("cnn", CNN, ("--epochs", round(times * EPOCHS)), SGD, "final_test_accuracy", "delay")
            self.network("gpt", GPT, ("--steps", round(times * STEPS)), ADAM, "final_test_loss", "delay")
            self.accordion(round(times * EPOCHS), "delay")
