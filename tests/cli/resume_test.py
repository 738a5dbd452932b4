"""A killed run is resumed as if nothing had happened, to the byte."""
import csv, json, os, random, shutil, signal, struct, subprocess, tempfile, time, unittest
from command import *

COMMON = ["--model", "mlp(hidden=48)", "--batch", "16", "--seed", "11", "--optimizer", "adamw(lr=0.002)",
          "--lr-schedule", "cosine(warmup=5)", "--report-every", "5"]

# One of each kind; cli/async, gossip, server, arrivals, hermes and oscars resume the others, from
# every checkpoint.
OWN_PACE = ("ad-psgd(exchanges=2,outstanding=3)", "rand-psgd(pace=own)", "asgd(softsync=2)", "ssp(staleness=0)",
            "ringmaster-asgd(max_delay=2,stops=on)", "dude-asgd(table=worker,group=2)",
            "lasgd(local_steps=4,max_delay=3)", "oscars(interval=3)", "bagua(algorithm=async,sync_interval_ms=3)",
            "decoupled-diloco(period=3,quorum=2)")


# Methods with a state for each of their workers, and ranks that only serve.
OF_WORKERS = (("asgd(compensate=adaptive)", 2), ("asgd(softsync=2)", 1), ("ringmaster-asgd(stops=on)", 0),
              ("ringmaster-asgd(adapt=on)", 1), ("ringleader-asgd", 0),
              ("ringleader-asgd(table=worker,point=fresh)", 1), ("dude-asgd", 0),
              ("dude-asgd(start=partial,evict_after=6)", 1), ("dude-asgd(table=worker)", 0), ("oscars(interval=3)", 0),
              ("decoupled-diloco(period=3)", 0), ("decoupled-diloco(period=3,quorum=2)", 1),
              ("hermes(push=always,chunk=16,minibatch=4,local_passes=1)", 1), ("ssp(staleness=1)", 1),
              ("parameter-server", 1), ("backup-workers", 2))


def states(checkpoint):
    """What a checkpoint has: by the state's name its numbers, of a worker's own a list each in
    order of rank, of parts what they make up in order."""
    found = {}
    for name in sorted(f for f in os.listdir(checkpoint) if f.endswith(".safetensors")):
        rank = int(name.split("-")[1])
        for key, (dtype, shape, data) in tensors(os.path.join(checkpoint, name)).items():
            state, place = key.split("/")
            tensor, begin = place.rsplit("@", 1)
            values = struct.unpack("<%d%s" % (len(data) // {"F32": 4, "U8": 1}.get(dtype, 8),
                                              {"F32": "f", "I64": "q", "F64": "d", "U8": "B"}[dtype]), data)
            found.setdefault(state, []).append((rank, tensor, int(begin), values))
    return {state: [v for _, _, _, values in sorted(parts) for v in values] for state, parts in found.items()}


def integers(octets):
    return struct.unpack("<%dq" % (len(octets) // 8), bytes(octets))


class Resume(Case):

    def test_a_run_killed_anywhere_and_resumed_ends_with_the_same_bytes(self):
        """Random moments over the whole run, the launcher and all workers killed at once;
        checkpoints every 7 steps, so mid-epoch. Every second run writes them in the background."""
        arguments = [*COMMON, "--data", self.data, "-n", "3", "--epochs", "12", "--checkpoint-every", "7"]
        whole = self.train("whole", *arguments)
        seconds, steps = summary(whole)["host_seconds"], summary(whole)["steps"]
        rng = random.Random(5)
        resumed = 0
        for k in range(20):
            out = self.out("k%d" % k)
            how = ("--checkpoint-async", ("off", "on")[k % 2])
            run = subprocess.Popen([TUTTI, "train", "--out", out, *arguments, *how],
                                   stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, env=clean_environment())
            # the first is killed wherever it is, perhaps before its first checkpoint; the others
            # whatever the load of the machine
            drawn = rng.uniform(0.0, 0.8) * steps if k > 0 else 0
            while run.poll() is None and drawn > max((int(f[5:]) for f in list_of(os.path.join(out, "checkpoints"))
                                                      if f.startswith("step-")), default=0):
                time.sleep(0.002)
            time.sleep(seconds * rng.uniform(0.0, 0.05))
            run.kill()
            run.wait()
            if os.path.exists(os.path.join(out, "summary.json")):
                continue  # it was already over
            again = tutti("train", "--resume", out)
            if "checkpoint" in again.stderr and again.returncode == 2:
                continue  # killed before the first checkpoint: the run reports it, and there is nothing to resume
            self.assertEqual(again.returncode, 0, again.stderr)
            self.assertEqual(self.model(out), self.model(whole))
            resumed += 1
            if resumed == 4:
                break
        self.assertGreaterEqual(resumed, 3, "too few kills fell between the first checkpoint and the end")

    def test_resume_at_several_checkpoints_gives_the_same_bytes(self):
        arguments = [*COMMON, "--data", self.data, "-n", "2", "--epochs", "3", "--checkpoint-every", "4",
                     "--checkpoint-keep", "100"]
        whole = self.train("whole", *arguments)
        with open(os.path.join(whole, "metrics.jsonl")) as f:
            lines = [json.loads(l) for l in f]
        steps = sorted(os.listdir(os.path.join(whole, "checkpoints")))
        self.assertEqual(len(steps), summary(whole)["steps"] // 4)
        for name in steps[::3]:
            out = self.train(name, *arguments, "--resume", os.path.join(whole, "checkpoints", name))
            self.assertEqual(self.model(out), self.model(whole), name)
            self.assertEqual(summary(out)["resumed_at_step"], int(name[5:]))
            self.assertEqual(summary(out)["steps"], summary(whole)["steps"])
            self.assertEqual(summary(out)["samples"], summary(whole)["samples"])
            self.assertEqual([w["steps"] for w in summary(out)["by_worker"]],
                             [w["steps"] for w in summary(whole)["by_worker"]])

    def test_asynchronous_checkpoints_have_the_same_tensors(self):
        """Of replicas that are equal, and of models of each worker's own, which evaluations change
        for a while."""
        for method in "ddp", "d-psgd":
            arguments = [*COMMON, "--data", self.data, "-n", "2", "--epochs", "2", "--method", method,
                         "--eval-every", "6", "--checkpoint-every", "6", "--checkpoint-keep", "100"]
            blocking = self.train(method + "-off", *arguments)
            background = self.train(method + "-on", *arguments, "--checkpoint-async", "on")
            self.assertEqual(self.model(background), self.model(blocking))
            folders = [os.path.join(out, "checkpoints") for out in (blocking, background)]
            names = [sorted(os.path.join(step, name) for step in os.listdir(folder)
                            for name in os.listdir(os.path.join(folder, step))) for folder in folders]
            self.assertEqual(names[1], names[0])
            for name in names[0]:
                if name.endswith(".safetensors"):  # the manifest has the options
                    self.assertEqual(read(os.path.join(folders[1], name)), read(os.path.join(folders[0], name)), name)
            saves = summary(background)["async_checkpoints"]
            begun = summary(background)["steps"] // 6
            self.assertEqual((saves["begun"], saves["written"], saves["blocked"]), (begun, begun, 0))
            self.assertGreater(saves["copy_bytes"], 0)
            self.assertIsNone(summary(blocking)["async_checkpoints"])
            for key in "steps", "bytes_sent_total", "events":
                self.assertEqual(summary(background)[key], summary(blocking)[key], key)
            done = tutti("check", background)
            self.assertEqual(done.returncode, 0, done.stdout)

    def test_metrics_of_a_resumed_run_have_each_step_once(self):
        arguments = [*COMMON, "--data", self.data, "-n", "2", "--checkpoint-every", "8"]
        out = self.train("a", *arguments, "--steps", "20")
        done = tutti("train", "--resume", out, "--steps", "40")
        self.assertEqual(done.returncode, 0, done.stderr)
        with open(os.path.join(out, "metrics.jsonl")) as f:
            steps = [json.loads(l)["step"] for l in f if "train_loss" in l]
        self.assertEqual(steps, [5, 10, 15, 20, 25, 30, 35, 40])
        self.assertEqual(summary(out)["steps"], 40)

    def test_curves_of_a_resumed_run_have_each_row_once_and_the_numbers_of_its_lines(self):
        """It goes on from a checkpoint before the last line, with a record cut off as by a kill."""
        arguments = [*COMMON, "--data", self.data, "-n", "2", "--checkpoint-every", "8", "--checkpoint-keep", "9",
                     "--log-to", "tensorboard,csv"]
        out = self.train("curves", *arguments, "--steps", "20")
        [board] = [name for name in os.listdir(out) if "tfevents" in name]
        with open(os.path.join(out, board), "ab") as f:
            f.write(struct.pack("<Q", 40) + b"cut")
        first, *later = sorted(os.listdir(os.path.join(out, "checkpoints")))
        self.assertEqual(first, "step-00000008")
        for name in later:
            shutil.rmtree(os.path.join(out, "checkpoints", name))
        done = tutti("train", "--resume", out, "--steps", "40")
        self.assertEqual(done.returncode, 0, done.stderr)
        rows = [json.loads(line) for line in read(os.path.join(out, "metrics.jsonl")).splitlines()]
        self.assertEqual([row["step"] for row in rows if "train_loss" in row], [5, 10, 15, 20, 25, 30, 35, 40])
        self.assertEqual(events_of(out), told_of(out))
        with open(os.path.join(out, "metrics.csv"), newline="") as f:
            table = list(csv.DictReader(f))
        self.assertEqual(len(table), len(rows))
        for line, row in zip(table, rows):
            for name, value in row.items():
                if isinstance(value, (int, float)):
                    self.assertEqual(float(line[name]), value, name)  # every number of the run has a column
            self.assertEqual({name for name, text in line.items() if text},
                             {name for name, value in row.items() if isinstance(value, (int, float))})

    def test_damaged_checkpoint_is_skipped_for_the_previous_one(self):
        arguments = [*COMMON, "--data", self.data, "-n", "2", "--epochs", "2", "--checkpoint-every", "10"]
        out = self.train("a", *arguments)
        whole = self.model(out)
        newest = os.path.join(out, "checkpoints", sorted(os.listdir(os.path.join(out, "checkpoints")))[-1])
        os.truncate(os.path.join(newest, "manifest.json"), 100)
        done = tutti("check", out)
        self.assertEqual(done.returncode, 1)
        self.assertIn("damaged", done.stdout)
        again = tutti("train", "--resume", out)
        self.assertEqual(again.returncode, 0, again.stderr)
        self.assertIn("passed over", again.stderr)
        self.assertEqual(self.model(out), whole)

    def test_checkpoint_with_a_flipped_bit_is_rejected(self):
        arguments = [*COMMON, "--data", self.data, "-n", "2", "--epochs", "1", "--checkpoint-every", "10"]
        out = self.train("a", *arguments)
        newest = os.path.join(out, "checkpoints", sorted(os.listdir(os.path.join(out, "checkpoints")))[-1])
        shard = os.path.join(newest, sorted(f for f in os.listdir(newest) if f.endswith(".safetensors"))[1])
        with open(shard, "rb+") as f:
            f.seek(os.path.getsize(shard) - 100)
            byte = f.read(1)
            f.seek(os.path.getsize(shard) - 100)
            f.write(bytes([byte[0] ^ 4]))
        self.assertEqual(tutti("check", newest).returncode, 1)
        done = tutti("train", "--resume", newest, "--out", self.out("b"), "--epochs", "2")
        self.assertEqual(done.returncode, 1, done.stderr)
        self.assertIn(os.path.basename(shard), done.stderr)

    def test_options_that_determine_results_must_not_change(self):
        other = small_mnist(os.path.join(self.folder, "other"), test=199)
        out = self.train("a", *COMMON, "--data", self.data, "-n", "2", "--epochs", "1", "--checkpoint-every", "10")
        for change, key in ((["--seed", "12"], "seed"), (["--model", "mlp(hidden=49)"], "model"),
                            (["--batch", "17"], "samples_per_step"),
                            (["--method", "single"], "method"), (["--loss-scale", "static(scale=1024)"], "loss-scale"),
                            (["--precision", "bf16"], "precision"), (["--partition", "class(k=5)"], "partition"),
                            (["--validation", "60"], "validation"), (["--batch-share", "1:2"], "batch-share"),
                            (["--data", other], "data_hash")):
            done = tutti("train", "--resume", out, *change, "--out", self.out(key))
            self.assertEqual(done.returncode, 2, done.stderr)
            self.assertIn(f"its run has {key}", done.stderr)

    @unittest.skipUnless(SIMULATOR, "the simulator is not built")
    def test_changed_optimizer_is_reported_or_rejected_on_resume(self):
        """Plain sgd needs none of adam's state and continues; adam cannot begin in the middle.
        Another learning rate of the same optimizer is not reported."""
        common = ("--model", "logistic", "-n", 2, "--threads", 1, "--steps", 20, "--checkpoint-every", 10)
        adam, sgd = self.train("adam", *common,
                               "--optimizer", "adam(lr=0.01)"), self.train("sgd", *common, "--optimizer", "sgd(lr=0.1)")
        done = tutti("train", "--resume", adam, "--steps", 25, "--optimizer", "adam(lr=0.02)")
        self.assertEqual((done.returncode, done.stdout.count("note:")), (0, 0), done.stderr + done.stdout)
        done = tutti("train", "--resume", adam, "--steps", 30, "--optimizer", "sgd(lr=0.1)")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn("note: the checkpoint's run had optimizer adam(lr=0.0", done.stdout)
        self.assertIn("; this one continues with sgd(lr=0.1), and without the averages of that one", done.stdout)
        done = tutti("train", "--resume", sgd, "--steps", 30, "--optimizer", "adam")
        self.assertEqual(done.returncode, 2, done.stdout)
        self.assertRegex(done.stderr,
                         r"tutti: this run has optimizer adam, and that of the checkpoint had sgd\(lr=0.1\); "
                         r"continue with that, or start again: checkpoint '.*' has no 'optim.exp_avg/0.weight'")

    def test_allowed_worker_counts_after_a_loss_are_reported(self):
        """Shares are a number for each worker, so other workers need other shares; a model of a worker
        belongs to no other worker; a step has its samples, or those of the remaining workers."""
        common = ("--model", "quadratic(dim=20)", "-n", 4, "--batch", 12, "--optimizer", "sgd(lr=0.02)",
                  "--transport", "sim", "--step-time", "0.01", "--final-eval", "off", "--quiet", "--steps", 10,
                  "--checkpoint-every", 10, "--fail", "1@0.05")
        gossip, server = self.train("a", *common, "--method", "d-psgd", "--batch-share",
                                    "3:1:1:1"), self.train("b", *common, "--method", "parameter-server", "--servers", 1)
        again = ("--steps", 12, "--fail", "")
        self.train("c", "--resume", gossip, *again, "-n", 3, "--batch-share", "1:2:1")
        self.train("d", "--resume", server, *again, "-n", 3)
        self.train("e", "--resume", server, *again, "-n", 2, "--batch", 18)
        for words, sentence in (
            (("--resume", gossip, "-n", 4), "the checkpoint was saved by 3 workers, which were left of 4, "
             "and each worker of 'd-psgd' has a state of its own; resume it with -n 3 instead of 4"),
            (("--resume", gossip, "-n", 4, "--batch-share", "1:1:1:1"),
             'its run has batch-share "3:1:1:1", this one "1:1:1:1"'),
            (("--resume", server, "-n", 2), "its run has samples_per_step 48, this one 24 (n x batch x accumulate); "
             "it decides the numbers and must be the same, or 36 as the remaining 3 had"),
            (("--resume", self.train("f", *common, "--method", "asgd", "--servers", 1), "-n", 2, "--batch", 7),
             "this one 14 (n x batch x accumulate); it decides the numbers and must be the same, "
             "or 36 as the remaining 3 had, or batch x accumulate must")):
            self.refused(sentence, "train", *words, *again, "--out", self.out("no"))

    @unittest.skipUnless(SIMULATOR, "the simulator is not built")
    def test_fault_tolerant_run_resumes_on_the_simulator(self):
        out = self.train("a", *COMMON, "--data", self.data, "-n", "2", "--method", "d-psgd", "--epochs", "1",
                         "--checkpoint-every", "10")
        with open(os.path.join(out, "config.json")) as f:
            self.assertEqual(json.load(f)["on-loss"], "auto")
        same = self.train("b", "--resume", out, "--epochs", "2")
        self.assertEqual(read(os.path.join(same, "model.safetensors")),
                         read(os.path.join(self.train("c", "--resume", out, "--epochs", "2", "--transport", "sim"),
                                           "model.safetensors")))

    @unittest.skipUnless(SIMULATOR, "the simulator is not built")
    def test_asynchronous_simulated_runs_resume_bitwise(self):
        """Whatever is served in order of arrival. Equal links, where many things happen in one
        nanosecond, and unequal ones, which workers leave one after the other."""
        edge = self.out("edge.xml")
        with open(edge, "w") as f:
            f.write(tutti("platform", "edge(12)").stdout)
        pauses, links, slow = (("--slow", "0:1.31,*:2.2:0.4"), ("--platform", edge, "--slow", "1:5,*:2:0.3"),
                               ("--step-time", 0.001, "--slow", "1:2"))
        small, large = ("--model", "quadratic(dim=50)", "--steps", 40,
                        "--checkpoint-every", 10), ("--model", "mlp(hidden=64)", "--data", self.data, "--steps", 60,
                                                    "--checkpoint-every", 15)
        cases = [("ssp", 8, large, pauses), ("ssp(staleness=1)", 8, small, pauses),
                 ("ad-psgd", 8, large, ("--slow", "2:5"))]
        for k, method in enumerate(OWN_PACE):
            cases.append((method, 8 - k % 7, small, ((), pauses, links, slow)[k % 4]))
        for k, (method, n, how, where) in enumerate(cases):
            common = (*how, "-n", n, "--batch", 6, "--method", method, "--seed", 2 + k, "--checkpoint-keep", 9,
                      "--transport", "sim", "--optimizer", "sgd(lr=0.02)", "--final-eval", "off", "--quiet", *where,
                      *(("--validation", 50) if method.startswith("hermes") else ()))
            whole = self.train("w%d" % k, *common)
            name = sorted(os.listdir(os.path.join(whole, "checkpoints")))[k % 2]
            resumed = self.train("r%d" % k, *common, "--resume", os.path.join(whole, "checkpoints", name))
            self.assertEqual(self.model(whole), self.model(resumed), (method, n, name, where))
            before, after = summary(whole), summary(resumed) # of the whole run, too
            for key in "staleness", "staleness_max", "staleness_mean", "restarts":
                self.assertEqual(before[key], after[key], (method, n, name, where))
            self.assertEqual(*([(w["steps"], w["staleness"]) for w in s["by_worker"]] for s in (before, after)),
                             (method, n, name, where))

    @unittest.skipUnless(SIMULATOR, "the simulator is not built")
    def test_a_clock_of_averagings_goes_on_from_where_it_stood(self):
        """A checkpoint within the pause of bagua's clock: the next averaging comes after the rest of it, to the bit."""
        for n, pause, where in (6, 3, ()), (6, 3, ("--slow", "0:1.31,*:2.2:0.4")), (3, 25, ("--step-time", 0.001)):
            common = ("-n", n, "--batch", 6, "--method", "bagua(algorithm=async,sync_interval_ms=%d)" % pause, "--seed",
                      10, "--model", "quadratic(dim=50)", "--steps", 40, "--checkpoint-every", 10, "--checkpoint-keep",
                      9, "--transport", "sim", "--optimizer", "sgd(lr=0.02)", "--final-eval", "off", "--quiet", *where)
            whole = self.train("clock%d%d" % (n, len(where)), *common)
            left = []
            for name in sorted(os.listdir(os.path.join(whole, "checkpoints"))):
                checkpoint = os.path.join(whole, "checkpoints", name)
                left += integers(states(checkpoint)["averager.left"])
                resumed = self.train("%s-%d%d" % (name, n, len(where)), *common, "--resume", checkpoint)
                self.assertEqual(self.model(whole), self.model(resumed), (n, pause, name, where))
            self.assertTrue(all(0 <= ns <= pause * 1000000 for ns in left), left)
            self.assertGreater(max(left), 0, "no checkpoint fell into a pause")

    @unittest.skipUnless(SIMULATOR, "the simulator is not built")
    def test_tuned_run_resumes_with_the_tuners_state(self):
        """In virtual time a setting takes as long whenever it is tried, so all later decisions are the same."""
        common = ("--model", "mlp(hidden=48)", "--data", self.data, "-n", 4, "--batch", 8, "--steps", 60, "--seed", 3,
                  "--checkpoint-every", 13, "--checkpoint-keep", 9, "--transport", "sim", "--step-time", 0.01,
                  "--final-eval", "off", "--quiet")
        for k, method in enumerate(
                ("bagua(autotune=on,sample_steps=3,max_samples=8,bucket_mb=0.02,hierarchical=2)",
                 "bytescheduler(partition_mb=0.02,credit_mb=0.04,tune=both,tune_points=8,tune_steps=4)")):
            whole = self.train("tuned%d" % k, *common, "--method", method)
            for at in (13, 26):
                checkpoint = os.path.join(whole, "checkpoints", "step-%08d" % at)
                resumed = self.train("again%d-%d" % (k, at), *common, "--method", method, "--resume", checkpoint)
                self.assertEqual(self.model(resumed), self.model(whole), (method, at))
                decisions = [e for e in summary(whole)["events"] if e["kind"] == "tune" and e["step"] > 0]
                decided, before = [e["text"] for e in decisions], sum(e["step"] < at for e in decisions)
                again = [e["text"] for e in summary(resumed)["events"] if e["kind"] == "tune" and e["step"] > at]
                self.assertGreater(before, 0)
                # the current setting is tried again, with no exchange of a step before it
                self.assertTrue(again[0].startswith("point %d of 8" % (before + 1)), again[0])
                if method.startswith("bagua"):
                    self.assertEqual(again, decided[before:][:len(again)], (method, at))

    def test_methods_with_the_same_steps_share_checkpoints(self):
        """ddp, zero and those on it, with any number of workers, and single with one: each from each; and zero in
        groups of half of the workers where they are even. What a codec has kept would be lost, and others' own
        states."""
        methods = ("ddp", "zero(bucket_mb=0.02)", "zero(stage=2,bucket_mb=0.01,first_bucket_mb=0.01)",
                   "zero(stage=3,bucket_mb=0.02)", "zero(stage=3,bucket_mb=0.01,group=HALF)", "single",
                   "zero-infinity(tier=nvme(path=%s,direct=off),bucket_mb=0.02)" % tempfile.gettempdir(),
                   "zero-offload(bucket_mb=0.02)",
                   "zero-offload(tier=nvme(path=%s,direct=off),bucket_mb=0.01)" % tempfile.gettempdir())
        common = ("--model", "mlp(hidden=24)", "--data", self.data, "--steps", 6, "--seed", 3, "--checkpoint-every", 3,
                  "--optimizer", "adam(lr=0.01)", "--clip-norm", 0.5, "--final-eval", "off", "--quiet")

        def of(method, n):
            return method.replace("HALF", str(n // 2 if n % 2 == 0 else n))
        all_of_them = [(m, n) for m in methods for n in range(1, 5 if m != "single" else 2)]
        for k, (method, n) in enumerate(all_of_them if LONG else zip(methods, (4, 3, 2, 3, 4, 1, 4, 2, 3))):
            whole = self.train("same%d" % k, *common, "--method", of(method, n), "-n", n, "--batch", 12 // n)
            half, ends = os.path.join(whole, "checkpoints", "step-00000003"), {n: self.model(whole)}
            for i, other in enumerate(methods):
                # every other number of workers; or as many, or one more (after four one), in turn
                for to in range(1 + (k + i) % 2, 5, 2) if LONG else one_of(k + i, (n, n % 4 + 1)):
                    if other == "single" and to > 1:
                        continue
                    end = self.model(self.train("go%d-%d-%d" % (k, to, i), *common, "--method", of(other, to), "-n", to,
                                                "--batch", 12 // to, "--resume", half))
                    self.assertEqual(end, ends.setdefault(to, end), (method, n, other, to))
        coded = self.train("coded", *common, "--codec", "ef(topk(ratio=0.1))", "-n", 2, "--batch", 6)
        for other, sentence in (("zero", 'its run has codec "ef(topk(ratio=0.1))", this one "none"'),
                                ("single", 'its run has method "ddp", this one "single"'),
                                ("bagua", 'its run has method "ddp", this one "bagua"')):
            self.refused(sentence, "train", *common, "--method", other, "--codec", "none", "-n", 2, "--batch", 6,
                         "--out", self.out("no-" + other), "--resume",
                         os.path.join(coded, "checkpoints", "step-00000003"))

    def other_workers(self, k, method, checkpoint, n, batch):
        """Continues from there with n workers: to the saved model, to the end, and to the same
        point again; checks that this is a run of n workers from there."""
        began, own_pace, one = 4, not method.startswith(("ssp", "param", "backup")), method.split("(")[0]
        before, step, name = states(checkpoint), int(checkpoint[-8:]), "%d-%s-%d" % (k, checkpoint[-2:], n)
        there = [0, 2, 3] if step == 25 else [0, 1, 2, 3]
        self.assertEqual(before.get("engine.members"), [4, *there] if step == 25 else None)
        common = ("--resume", checkpoint, "-n", n, "--batch", batch, "--fail", "",
                  "--checkpoint-every", 2 if one == "ringleader-asgd" else 20, "--checkpoint-keep", 99)
        if own_pace:
            at_once = self.train("m" + name, *common, "--steps", step)
            model = floats(os.path.join(at_once, "model.safetensors"))
            if (one, n) != ("hermes", len(there)): # there each has its own
                self.assertEqual(model, before["server.values"], "the model is another")
        out = self.train("r" + name, *common, "--steps", 40)
        if n == len(there):
            # and once more the same
            self.assertEqual(self.model(out), self.model(self.train("s" + name, *common, "--steps", 40)))
        s, after = summary(out), states(os.path.join(out, "checkpoints", "step-00000040"))
        self.assertEqual((s["steps"], s["workers"], s["resumed_at_step"], s["events"]), (40, n, step, []))
        if one != "backup-workers":
            self.assertEqual(s["samples"] - integers(before["engine.progress"])[1], batch * n * (40 - step))
        # which worker of that run each continues as
        if n >= began:
            parts = [k if k in there else None for k in range(n)]
        else:
            parts = [there[k] if k < len(there) else None for k in range(n)]

        def made(have, worker):
            """Gradients of that worker that the server has had."""
            if worker is None:
                return 0
            return (have["ringmaster.applied"][worker] + have["ringmaster.dropped"][worker] if one == "ringmaster-asgd"
                    else sum(have["oscars.workers"][12 * worker + 8:12 * worker + 11]))
        if one in ("ringmaster-asgd", "oscars"):
            here = [made(after, r) - made(before, parts[r]) for r in range(n)]
            self.assertEqual(sum(here), n * (40 - step))
            self.assertTrue(all(0 < made_here < 1.7 * (40 - step) for made_here in here), here)
        if one == "ringleader-asgd":
            _, _, _, rounds, updates, _ = integers(before["ringleader.at"])
            _, _, _, rounds_now, updates_now, delay = integers(after["ringleader.at"])
            self.assertLessEqual(delay, 2 * n - 2)
            self.assertGreater(rounds_now - rounds, 5)
            self.assertTrue(0 <= updates_now - updates - n * (rounds_now - rounds) < n,
                            (rounds, updates, rounds_now, updates_now))
            for at in step + 1, step + 3, 40: # the next round's mean is of the workers served in this one
                have = states(os.path.join(out, "checkpoints", "step-%08d" % at))
                table, following = (have.get("ringleader.table", have.get("ringleader.entry")),
                                    have["ringleader.mean%d" % (1 - integers(have["ringleader.at"])[1])])
                for i, value in enumerate(following):
                    sums = sum(table[i + r * len(following)] for r in range(n) if have["ringleader.served"][r]
                               and have["ringleader.filled"][r])
                    self.assertAlmostEqual(n * value, sums, delta=1e-5)
        if one == "dude-asgd" and n > 1:
            d, table = len(after["dude.mean"]), "dude.table" if "dude.table" in after else "dude.entry"

            def rest(have, workers):
                """n times the mean less what the workers have in it."""
                return [workers * have["dude.mean"][i] - sum(have[table][i::d]) for i in range(d)]
            # gradients of lost workers, which stay in the mean where no worker has them
            lost = rest(before, began) if table == "dude.entry" and n == len(there) else [0] * d
            for have, want in zip(rest(after, n), lost):
                self.assertAlmostEqual(have, want, delta=1e-4 * max(map(abs, after["dude.mean"])) + 1e-6)
            self.assertEqual(after["dude.has"], [1] * n)
            self.assertEqual(integers(after["dude.at"])[0], n + (began - len(there) if any(lost) else 0))

    @unittest.skipUnless(SIMULATOR, "the simulator is not built")
    def test_other_workers_resume_checkpoints_saved_around_a_loss(self):
        for k, (method, servers) in enumerate(OF_WORKERS):
            fixed = method.startswith(("ssp", "param", "backup")) # there all have a part of one step
            whole = self.train("w%d" % k, "--model", "quadratic(dim=20)", "-n", 4, "--batch", 12,
                               "--optimizer", "sgd(lr=0.02,momentum=0.5)", "--transport", "sim", "--step-time", "0.01",
                               "--slow", "0:1.3", "--final-eval", "off", "--quiet", "--method", method,
                               "--servers", servers, "--steps", 26, "--checkpoint-every", 5, "--checkpoint-keep", 9,
                               "--fail", "1@0.12", "--seed", k, *(("--validation", 30) if "hermes" in method else ()))
            early, late = (os.path.join(whole, "checkpoints", "step-%08d" % step) for step in (5, 25))
            other = ((early, 3), (early, 2))[k % 2] if fixed else ((late, 5), (early, 3), (late, 1), (early, 2))[k % 4]
            for checkpoint, n in one_of(k, [(late, 3), (late, 4), other]):
                self.other_workers(k, method, checkpoint, n, 48 // n if fixed and checkpoint == early else 12)

    def test_a_directory_with_checkpoints_is_not_overwritten_by_another_run(self):
        out = self.train("a", *COMMON, "--data", self.data, "-n", "2", "--epochs", "1", "--checkpoint-every", "10")
        done = tutti("train", *COMMON, "--data", self.data, "--out", out)
        self.assertEqual(done.returncode, 2)
        self.assertIn("already holds a run with checkpoints", done.stderr)

    def test_resume_from_nothing_is_refused(self):
        self.refused("checkpoint", "train", "--data", self.data, "--resume", self.folder, "--out", self.out("a"))


if __name__ == "__main__":
    unittest.main(verbosity=2)
