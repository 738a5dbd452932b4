"""Training as a person does it: files, equalities, figures. Small real data, so that it takes
seconds."""
import json, math, os, subprocess, unittest
from command import *


class Train(Case):
    def test_closed_standard_streams_do_not_corrupt_files(self):
        """Otherwise the first file that is opened would get the number of a closed stream, and all
        output."""
        common = ("train", "--model", "logistic", "--steps", "60", "-n", "2", "--report-every", "5", "--seed", "3")
        open_streams = self.train("open", *common[1:])
        for k, (closed, more) in enumerate(((">&-", ()), ("<&-", ()), ("2>&-", ()), ("<&- >&- 2>&-", ()),
                                            (">&- 2>&-", ("-H", "localhost:2", "--rsh", "sh -c 'eval \"$1\"'")),
                                            (">&-", ("-n", "1")))):
            out = self.out("closed%d" % k)
            done = subprocess.run(["sh", "-c", "exec \"$@\" " + closed, "sh", TUTTI, *common,
                                   *(("-n", "2") if not more else ()), *more, "--out", out], env=clean_environment(),
                                  capture_output=True, text=True, timeout=100)
            self.assertEqual(done.returncode, 0, (closed, done.stderr))
            with open(os.path.join(out, "metrics.jsonl")) as f:
                self.assertEqual([json.loads(line)["step"] for line in f if "train_loss" in line],
                                 list(range(5, 61, 5)), closed)
            if more != ("-n", "1"):
                self.assertEqual(read(os.path.join(out, "model.safetensors")),
                                 read(os.path.join(open_streams, "model.safetensors")), closed)
            self.assertEqual(set(os.listdir(out)),
                             {"config.json", "metrics.jsonl", "model.json", "model.safetensors", "summary.json"})

    def test_a_run_leaves_its_files_and_an_honest_summary(self):
        out = self.train("a", "--model", "mlp(hidden=64)", "--data", self.data, "-n", 2, "--batch", 20, "--epochs", 2,
                         "--report-every", 5, "--seed", 7)
        s = summary(out)
        wanted = {"method", "codec", "transport", "workers", "servers", "model", "data", "params", "seed", "epochs",
                  "steps", "samples", "wall_seconds", "compute_seconds", "comm_seconds", "exposed_comm_seconds",
                  "other_seconds", "threads", "bytes_sent_total", "bytes_sent_per_worker", "samples_per_second",
                  "final_train_loss", "final_test_loss", "final_test_accuracy", "peak_rss_bytes_per_worker",
                  "staleness_max", "staleness_mean", "time_to_target_seconds", "simulated", "host_seconds", "events"}
        self.assertLessEqual(wanted, set(s))
        params = 784 * 64 + 64 + 64 * 64 + 64 + 64 * 10 + 10
        self.assertEqual((s["method"], s["transport"], s["workers"], s["servers"], s["params"], s["seed"]),
                         ("ddp", "shm", 2, 0, params, 7))
        self.assertEqual((s["epochs"], s["steps"], s["samples"]), (2, 30, 1200))
        self.assertIs(s["simulated"], False)
        self.assertIsNone(s["time_to_target_seconds"])
        self.assertEqual(s["events"], [])
        parts = s["compute_seconds"] + s["exposed_comm_seconds"] + s["other_seconds"]
        self.assertLessEqual(abs(parts - s["wall_seconds"]), 0.02 * s["wall_seconds"] + 0.002)
        self.assertAlmostEqual(s["samples_per_second"], s["samples"] / s["wall_seconds"],
                               delta=0.01 * s["samples_per_second"])
        # ddp.md: 2 (n - 1) e d in all a step
        self.assertEqual(s["bytes_sent_total"], s["steps"] * 2 * 4 * params)
        self.assertLess(s["final_train_loss"], 1.5)
        self.assertGreater(s["final_test_accuracy"], 0.6)
        model = tensors(os.path.join(out, "model.safetensors"))
        self.assertEqual({n: t[1] for n, t in model.items()},
                         {"0.weight": [64, 784], "0.bias": [64], "2.weight": [64, 64], "2.bias": [64],
                          "4.weight": [10, 64], "4.bias": [10]})
        with open(os.path.join(out, "metrics.jsonl")) as f:
            lines = [json.loads(line) for line in f]
        self.assertEqual([l["step"] for l in lines if "train_loss" in l], [5, 10, 15, 20, 25, 30])
        self.assertEqual([l["step"] for l in lines if "test_accuracy" in l], [15, 30])

    def test_a_form_of_the_figures_that_there_is_not_is_refused_before_anything_is_written(self):
        out = self.out("refused")
        for form, sentence in (("tensorbord", "did you mean 'tensorboard'?"), ("csv,csv", "'csv' twice"),
                               ("wandb", "log_to='wandb' of tutti.torch")):
            self.refused(sentence, "train", "--model", "logistic", "--log-to", form, "--out", out)
            self.assertFalse(os.path.exists(out))

    def test_a_run_outlives_the_reader_of_its_output(self):
        """`| head -1`: the reader leaves after the first line, or is never there; what the run is
        for is in its files all the same."""
        common = ("--model", "mlp(hidden=16)", "--data", self.data, "--batch", "16", "--epochs", "3",
                  "--report-every", "1")
        whole = self.train("whole", *common)
        for name, more in (("one", ()), ("two", ("-n", "2", "--batch", "8")), ("sim", ("--transport", "sim"))):
            out = self.out(name)
            run = subprocess.Popen([TUTTI, "train", *common, "--out", out, *more], stdout=subprocess.PIPE,
                                   stderr=subprocess.PIPE, text=True, env=clean_environment())
            run.stdout.readline()
            run.stdout.close()
            run.stdout = None
            err = run.communicate(timeout=60)[1]
            self.assertEqual(run.returncode, 0, err)
            self.assertEqual(err, "tutti: standard output was closed; the run continues, its results are in its "
                             "files\n")
            self.assertEqual(summary(out)["steps"], summary(whole)["steps"])
            if name == "one":
                self.assertEqual(read(os.path.join(out, "model.safetensors")),
                                 read(os.path.join(whole, "model.safetensors")))
        for name, more in (("full", ()), ("full-two", ("-n", "2", "--batch", "8"))):  # a full disk is no reason either
            with open("/dev/full", "w") as full:
                done = subprocess.run([TUTTI, "train", *common, *more, "--out", self.out(name)], stdout=full,
                                      stderr=subprocess.PIPE, text=True, env=clean_environment())
            self.assertEqual((done.returncode, done.stderr), (0, "tutti: cannot write to standard output (No space "
                             "left on device); the run continues, its results are in its files\n"))
            self.assertEqual(summary(self.out(name))["steps"], summary(whole)["steps"])

    def test_losses_are_those_of_the_samples_they_are_named_after(self):
        """Computed once more without the program: test set and training set without the held-out
        samples."""
        out = self.train("t", "--model", "mlp(hidden=12)", "--data", self.data, "-n", 3, "--batch", 10, "--steps", 30,
                         "--validation", 100, "--optimizer", "sgd(lr=0.1)", "--final-eval", "all")
        s, model = summary(out), os.path.join(out, "model.safetensors")
        test, held_out, trained_on = (mlp_evaluated(model, self.data, *part)
                                      for part in (("t10k",), ("train", 500, 600), ("train", 0, 500)))
        self.assertAlmostEqual(s["final_test_loss"], test[0], delta=1e-5)
        self.assertAlmostEqual(s["final_test_accuracy"], test[1], delta=1e-9)
        self.assertAlmostEqual(s["final_train_loss"], trained_on[0], delta=1e-5)
        for a, b in ((test, held_out), (test, trained_on), (held_out, trained_on)): # else nothing would have been shown
            self.assertGreater(abs(a[0] - b[0]), 1e-3)

    def test_the_same_command_twice_gives_the_same_bytes(self):
        for arguments in (("--model", "mlp(hidden=48)", "-n", 4, "--batch", 16, "--epochs", 2),
                          ("--model", "cnn", "-n", 2, "--batch", 32, "--steps", 6)):
            a, b, c = (self.model(self.train(name + arguments[1][:3], *arguments, "--data", self.data, "--seed", seed))
                       for name, seed in (("a", 7), ("b", 7), ("c", 8)))
            self.assertEqual(a, b)
            self.assertNotEqual(a, c)

    def test_one_worker_and_four_agree_on_the_same_global_batch(self):
        """Full steps of 256: the blocks' tree is continued by the workers' tree, so the bytes are
        the same and not only close. The set has no incomplete last step. Bits that differ once
        never become equal again: 12 steps are as good as 300."""
        pictures = small_mnist(os.path.join(self.folder, "whole-steps"), 12 * 256)
        common = ("--model", "mlp", "--data", pictures, "--epochs", 1, "--final-eval", "off", "--seed", 7)
        one, two, four = (self.model(self.train("n%d" % n, *common, "-n", n, "--batch", 256 // n)) for n in (1, 2, 4))
        self.assertEqual(one, four)
        self.assertEqual(one, two)

    def test_uneven_shares_agree_closely(self):
        """Two epochs with tails: rounding only, before chaos has had time to grow."""
        common = ("--model", "mlp(hidden=64)", "--data", self.data, "--epochs", 2, "--seed", 3)
        one = floats(os.path.join(self.train("one", *common, "-n", 1, "--batch", 63), "model.safetensors"))
        three = floats(os.path.join(self.train("three", *common, "-n", 3, "--batch", 21), "model.safetensors"))
        apart = math.sqrt(sum((a - b) ** 2 for a, b in zip(one, three)))
        size = math.sqrt(sum(a * a for a in one))
        self.assertLessEqual(apart, 1e-4 * size)
        self.assertGreater(apart, 0)  # other orders of summation: if this were 0 the two runs would not be two

    def test_accumulation_and_uneven_tails_agree_with_the_plain_batch_over_epochs(self):
        """600 samples, 63 a step: the last step of an epoch has 33, worker by worker 11, in passes
        of 7, 4 and none."""
        common = ("--model", "mlp(hidden=64)", "--data", self.data, "--epochs", 4, "--seed", 3)
        plain = floats(os.path.join(self.train("plain", *common, "-n", 1, "--batch", 63), "model.safetensors"))
        three = floats(os.path.join(self.train("three", *common, "-n", 3, "--batch", 7, "--accumulate", 3),
                                    "model.safetensors"))
        apart = math.sqrt(sum((a - b) ** 2 for a, b in zip(plain, three)))
        self.assertLessEqual(apart, 1e-4 * math.sqrt(sum(a * a for a in plain)))

    def test_ddp_with_one_worker_is_single_bit_for_bit(self):
        common = ("--model", "mlp(hidden=64)", "--data", self.data, "--epochs", 2, "--batch", 50, "-n", 1)
        a = self.train("ddp", *common, "--method", "ddp")
        b = self.train("single", *common, "--method", "single")
        self.assertEqual(read(os.path.join(a, "model.safetensors")), read(os.path.join(b, "model.safetensors")))

    def test_the_size_of_buckets_changes_no_bit(self):
        common = ("--model", "mlp(hidden=64)", "--data", self.data, "--epochs", 1, "--batch", 20, "-n", 3)
        models = [read(os.path.join(self.train("b%d" % i, *common, "--method", m), "model.safetensors"))
                  for i, m in enumerate(("ddp", "ddp(bucket_mb=0.000001)", "ddp(bucket_mb=0.1,first_bucket_mb=0.01)"))]
        self.assertEqual(models[0], models[1])
        self.assertEqual(models[0], models[2])

    def test_single_with_several_workers_sends_nothing_but_the_average_at_the_end(self):
        out = self.train("s", "--model", "mlp(hidden=64)", "--data", self.data, "-n", 3, "--batch", 20,
                         "--method", "single")
        s = summary(out)
        self.assertEqual(s["bytes_sent_total"], 2 * 2 * 4 * s["params"])
        self.assertGreater(s["final_test_accuracy"], 0.3)

    def test_accumulation_moves_the_same_bytes_for_more_samples(self):
        a = summary(self.train("a", "--model", "mlp(hidden=64)", "--data", self.data, "-n", 2, "--batch", 10,
                               "--accumulate", 3, "--steps", 10))
        b = summary(self.train("b", "--model", "mlp(hidden=64)", "--data", self.data, "-n", 2, "--batch", 30,
                               "--steps", 10))
        self.assertEqual(a["bytes_sent_total"], b["bytes_sent_total"])
        self.assertEqual(a["samples"], b["samples"])
        self.assertAlmostEqual(a["final_train_loss"], b["final_train_loss"], delta=1e-4)

    def test_exchange_begins_before_backward_ends(self):
        """On simulated hosts: on real ones a busy machine may hold the lane back until backward has ended."""
        if not SIMULATOR:
            self.skipTest("the simulator is not built")
        out = self.train("t", "--model", "mlp", "--data", self.data, "-n", 2, "--batch", 64, "--steps", 5,
                         "--trace", "--final-eval", "off", "--transport", "sim", "--step-time", 0.02)
        with open(os.path.join(out, "trace.json")) as f:
            events = json.load(f)
        for rank in (0, 1):
            for step in range(5):
                mine = [e for e in events if e["pid"] == rank and e.get("args", {}).get("step") == step]
                backward_end = max(e["ts"] + e["dur"] for e in mine if e["cat"] == "backward")
                self.assertLess(min(e["ts"] for e in mine if e["cat"] == "exchange"), backward_end)

    def test_a_loss_that_is_not_finite_is_null_in_the_files(self):
        for n in (1, 3):
            out = self.out("not-finite-%d" % n)
            done = tutti("train", "--model", "mlp(hidden=16)", "--data", self.data, "-n", n, "--batch", 32,
                         "--optimizer", "sgd(lr=1e9)", "--nonfinite", "skip", "--steps", 20, "--report-every", 5,
                         "--quiet", "--out", out)
            self.assertEqual(done.returncode, 0, done.stderr)
            with open(os.path.join(out, "metrics.jsonl")) as f:
                losses = [json.loads(line)["train_loss"] for line in f if "train_loss" in line]
            self.assertIn(None, losses)
            self.assertEqual(summary(out)["steps"], 20)

    def test_without_a_lane_the_exchange_after_backward_is_exposed(self):
        common = ("--model", "mlp", "--data", self.data, "-n", 2, "--batch", 64, "--steps", 10, "--threads", 1,
                  "--final-eval", "off")
        off, on = self.train("off", *common, "--trace", "--lane", "off"), self.train("on", *common, "--lane", "on")
        with open(os.path.join(off, "trace.json")) as f:
            events = [e for e in json.load(f) if "step" in e.get("args", {})]
        for rank, step in ((r, s) for r in (0, 1) for s in range(10)):
            mine = [e for e in events if (e["pid"], e["args"]["step"]) == (rank, step)]
            exchanges = [e for e in mine if e["cat"] == "exchange"]
            self.assertEqual([(e["name"], e["tid"]) for e in exchanges], [("exchange 0", 0), ("exchange 1", 0)])
            self.assertGreaterEqual(exchanges[0]["ts"], max(e["ts"] + e["dur"] for e in mine if e["cat"] == "backward"))
        figures = summary(off)
        # where the run ends with another worker, the wait for it is exposed as well
        self.assertLessEqual(figures["comm_seconds"], 1.05 * figures["exposed_comm_seconds"])
        self.assertEqual(read(os.path.join(off, "model.safetensors")), read(os.path.join(on, "model.safetensors")))

    def test_slowed_worker_changes_no_bit_but_makes_fewer_steps(self):
        """Counts only: how much the others wait is in the next test, in virtual time. Twenty times
        slower, asserted at two. The second model is large enough that a step is computing, not
        waiting for a core to communicate: only computing is slowed."""
        common = ("--model", "mlp(hidden=64)", "--data", self.data, "-n", 2, "--batch", 32, "--steps", 12,
                  "--threads", 1, "--final-eval", "off")
        plain, slow = self.train("plain", *common), self.train("slow", *common, "--slow", "1:6")
        self.assertEqual(read(os.path.join(plain, "model.safetensors")), read(os.path.join(slow, "model.safetensors")))
        own = self.train("own", *common, "--model", "mlp(hidden=512)", "--batch", 256, "--slow", "1:20",
                         "--steps", 60, "--method", "ad-psgd")
        first, second = (w["steps"] for w in summary(own)["by_worker"])
        self.assertEqual(first + second, 120)
        self.assertLess(2 * second, first)

    @unittest.skipUnless(SIMULATOR, "the simulator is not built")
    def test_a_slowed_worker_makes_the_others_wait(self):
        """12 steps of 10 ms, of worker 1 of 60 ms: worker 0 waits 50 ms in each."""
        slow = self.train("slow", "--model", "mlp(hidden=16)", "--data", self.data, "-n", 2, "--batch", 25,
                          "--steps", 12, "--report-every", 6, "--final-eval", "off", "--slow", "1:6",
                          "--transport", "sim", "--step-time", 0.01)
        first, second = summary(slow)["by_worker"]
        self.assertAlmostEqual(first["compute_seconds"], 0.12, delta=0.002)
        self.assertAlmostEqual(second["compute_seconds"], 0.72, delta=0.002)
        self.assertAlmostEqual(first["exposed_comm_seconds"] - second["exposed_comm_seconds"], 0.6, delta=0.01)
        with open(os.path.join(slow, "metrics.jsonl")) as f:
            lines = [l for l in map(json.loads, f) if "train_loss" in l]
        self.assertEqual([l["step"] for l in lines], [6, 12])
        for l in lines:
            for key, due in (("compute_seconds_by_worker", (0.06, 0.36)), ("wait_seconds_by_worker", (0.3, 0))):
                for is_, be in zip(l[key], due):
                    self.assertAlmostEqual(is_, be, delta=0.005)

    def test_shares_by_weight_are_exact_and_agree_with_even_ones(self):
        """48 samples a step cut 1:2:3; each sample still counts once, weighted exactly."""
        common = ("--model", "mlp(hidden=64)", "--data", self.data, "-n", 3, "--batch", 16, "--epochs", 2, "--seed", 3)
        even, cut = self.train("even", *common), self.train("cut", *common, "--batch-share", "1:2:3")
        self.assertEqual([w["batch"] for w in summary(cut)["by_worker"]], [8, 16, 24])
        self.assertEqual(summary(cut)["samples"], 1200)
        self.assertEqual(summary(cut)["bytes_sent_total"], summary(even)["bytes_sent_total"])
        a, b = (floats(os.path.join(o, "model.safetensors")) for o in (even, cut))
        apart = math.sqrt(sum((x - y) ** 2 for x, y in zip(a, b)))
        self.assertLessEqual(apart, 1e-4 * math.sqrt(sum(x * x for x in a)))
        self.train("none", *common, "--batch-share", "1:0:3")  # a worker may have none

    def test_automatic_shares_follow_the_speeds_as_measured(self):
        """One of two workers 20 times slower, asserted at two. What it wins is in
        sim/unequal-train, in virtual time."""
        out = self.train("auto", "--model", "mlp(hidden=64)", "--data", self.data, "-n", 2, "--batch", 64,
                         "--steps", 60, "--threads", 1, "--final-eval", "off", "--slow", "1:20",
                         "--batch-share", "auto")
        first, second = (w["batch"] for w in summary(out)["by_worker"])
        self.assertEqual(first + second, 128)
        self.assertGreater(first, 2 * second)

    def test_run_with_automatic_shares_can_be_resumed(self):
        common = ("--model", "mlp(hidden=64)", "--data", self.data, "-n", 2, "--batch", 16, "--slow", "1:4",
                  "--batch-share", "auto", "--checkpoint-every", 15)
        out = self.train("a", *common, "--steps", 20)
        done = tutti("train", "--resume", out, "--steps", 40)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertEqual(summary(out)["steps"], 40)
        self.assertEqual(sum(w["batch"] for w in summary(out)["by_worker"]), 32)

    def test_a_target_ends_the_run_and_is_timed(self):
        out = self.train("t", "--model", "mlp(hidden=64)", "--data", self.data, "-n", 2, "--batch", 20, "--epochs", 50,
                         "--eval-every", 10, "--target", "accuracy=0.5")
        s = summary(out)
        self.assertLess(s["steps"], 750)
        self.assertEqual(s["steps"] % 10, 0)
        self.assertGreater(s["time_to_target_seconds"], 0)
        self.assertLessEqual(s["time_to_target_seconds"], s["wall_seconds"] * 1.05)

    def test_quiet_is_quiet_and_a_pipe_gets_plain_lines(self):
        loud = tutti("train", "--model", "mlp(hidden=32)", "--data", self.data, "-n", 2, "--batch", 20,
                     "--report-every", 5, "--out", self.out("l"))
        self.assertEqual(loud.returncode, 0, loud.stderr)
        self.assertNotIn("\r", loud.stdout)
        self.assertRegex(loud.stdout, r"(?m)^epoch 1\.00  step 15/15  loss ")
        quiet = tutti("train", "--model", "mlp(hidden=32)", "--data", self.data, "-n", 2, "--batch", 20,
                      "--quiet", "--out", self.out("q"))
        self.assertEqual((quiet.returncode, quiet.stdout, quiet.stderr), (0, "", ""))

    def test_odd_numbers_of_workers_and_samples_work(self):
        for n, batch in ((3, 7), (5, 64), (7, 1)):
            out = self.train("n%d" % n, "--model", "mlp(hidden=16)", "--data", self.data, "-n", n, "--batch", batch,
                             "--steps", 40)
            self.assertTrue(math.isfinite(summary(out)["final_train_loss"]))

    def test_a_diverging_run_is_stopped_and_named(self):
        done = tutti("train", "--model", "mlp(hidden=64)", "--data", self.data, "-n", 2, "--optimizer", "sgd(lr=1e6)",
                     "--epochs", 20, "--out", self.out("d"))
        self.assertEqual(done.returncode, 1)
        self.assertRegex(done.stderr,
                         r"worker [01]: the gradient of \d\.(weight|bias) is -?(nan|inf) at element \d+ in step \d+")


if __name__ == "__main__":
    unittest.main(verbosity=2)
