"""Training in 16 bits: it learns what fp32 learns, the number of workers does not change a bit,
overflowing steps are skipped and counted, a run continues where it stopped, and mismatches give an
error message."""
import json, os, unittest
from command import *

COMMON = ["--model", "mlp(hidden=48)", "--batch", "16", "--optimizer", "sgd(lr=0.05,momentum=0.9)"]


class Precision(Case):
    def model(self, out):
        return read(os.path.join(out, "model.safetensors"))

    def lines(self, out):
        with open(os.path.join(out, "metrics.jsonl")) as f:
            return [json.loads(line) for line in f]

    def test_sixteen_bits_learn_what_fp32_learns(self):
        runs = {p: self.train(p, *COMMON[:-1], "sgd(lr=0.05)", "--data", self.data, "--epochs", 4, "--precision", p)
                for p in ("fp32", "bf16", "fp16")}
        full = summary(runs["fp32"])
        self.assertLess(full["final_train_loss"], 0.7)  # from 2.3
        for p in ("bf16", "fp16"):
            s = summary(runs[p])
            self.assertEqual(s["precision"], p)
            self.assertAlmostEqual(s["final_train_loss"], full["final_train_loss"],
                                   delta=0.05 * full["final_train_loss"])
            self.assertNotEqual(self.model(runs[p]), self.model(runs["fp32"]))
        self.assertIsNone(summary(runs["bf16"])["loss_scale"])
        self.assertGreaterEqual(summary(runs["fp16"])["loss_scale"], 1)

    def test_worker_count_does_not_change_a_bit(self):
        for p in ("bf16", "fp16"):
            models = [self.model(self.train(f"{p}-{n}", "--model", "cnn", "--data", self.data, "-n",
                                            n, "--batch", 256 // n, "--steps", 2, "--precision", p, "--threads", 1))
                      for n in (1, 2, 4)]
            self.assertEqual(models[0], models[1])
            self.assertEqual(models[0], models[2])

    def test_overflowing_steps_are_skipped_and_counted(self):
        """From 2^60 down to what fp16 holds: each overflow halves the scale, and no step of those
        moves the model."""
        out = self.train("over", *COMMON, "--data", self.data, "-n", 2, "--steps", 80, "--report-every", 10,
                         "--precision", "fp16", "--loss-scale", "dynamic(init=1152921504606846976,interval=10)")
        s = summary(out)
        self.assertGreater(s["steps_skipped"], 20)
        self.assertLess(s["steps_skipped"], 80)
        self.assertEqual([e["kind"] for e in s["events"]], ["overflow"] * len(s["events"]))
        self.assertEqual(len(s["events"]), s["steps_skipped"].bit_length())
        lines = [l for l in self.lines(out) if "loss_scale" in l]
        self.assertEqual(lines[1]["steps_skipped"], 20)
        self.assertAlmostEqual(lines[1]["loss_scale"] / 2.0 ** 40, 1, places=6)  # a line has nine digits
        self.assertAlmostEqual(lines[-1]["loss_scale"] / s["loss_scale"], 1, places=6)
        self.assertEqual([w["steps_skipped"] for w in s["by_worker"]], [s["steps_skipped"]] * 2)
        self.assertLess(lines[-1]["train_loss"], lines[0]["train_loss"])

    def test_local_methods_report_a_loss_scale_per_worker(self):
        out = self.train("local", *COMMON, "--data", self.data, "-n", 3, "--method", "local-sgd(period=4)", "--steps",
                         60, "--precision", "fp16", "--loss-scale", "dynamic(init=1152921504606846976,interval=7)")
        s = summary(out)
        self.assertEqual(s["steps_skipped"], max(w["steps_skipped"] for w in s["by_worker"]))
        self.assertEqual(s["loss_scale"], min(w["loss_scale"] for w in s["by_worker"]))
        self.assertGreater(s["steps_skipped"], 20)

    def test_asynchronous_workers_skip_overflowing_steps(self):
        """Simulated, so that it runs identically every time."""
        arguments = [*COMMON, "--data", self.data, "-n", 3, "--method", "ad-psgd", "--transport", "sim", "--steps", 60,
                     "--precision", "fp16", "--loss-scale", "dynamic(init=1152921504606846976,interval=7)"]
        s, again = summary(self.train("pace", *arguments)), summary(self.train("pace-again", *arguments))
        # of the one that has skipped most
        self.assertEqual(s["steps_skipped"], max(w["steps_skipped"] for w in s["by_worker"]))
        self.assertGreater(min(w["steps_skipped"] for w in s["by_worker"]), 20)
        self.assertLess(s["final_train_loss"], 2.2)
        self.assertEqual(s["final_train_loss"], again["final_train_loss"])

    def test_resumed_run_ends_with_the_same_model(self):
        for method in ("ddp", "d-psgd"):
            arguments = [*COMMON, "--data", self.data, "-n", 2, "--method", method, "--precision", "fp16",
                         "--loss-scale", "dynamic(init=1099511627776,interval=6,hysteresis=2)", "--checkpoint-every", 9,
                         "--checkpoint-keep", 100]
            whole = self.train(method, *arguments, "--steps", 60)
            again = self.train(method + "-again", *arguments, "--steps", 60,
                               "--resume", os.path.join(whole, "checkpoints", "step-00000018"))
            self.assertEqual(self.model(again), self.model(whole))
            for key in ("steps_skipped", "loss_scale"):
                self.assertEqual(summary(again)[key], summary(whole)[key])
            other = tutti("train", *arguments, "--steps", 60, "--precision", "bf16", "--resume", whole,
                          "--out", self.out(method + "-other"))
            self.assertEqual(other.returncode, 2 if method == "ddp" else other.returncode, other.stderr)
            self.assertIn("precision", other.stderr)

    def test_fp16_alone_trains_under_every_method(self):
        """Without a loss scale where no step can be skipped; a given scale is refused there."""
        common = ("--model", "mlp(hidden=8)", "--data", self.data, "-n", 2, "--steps", 2, "--batch", 16, "--quiet",
                  "--precision", "fp16")
        names = [m["name"] for m in json.loads(tutti("methods", "--json").stdout)]
        never = ["hetpipe", "wavelet", "heterps", "backup-workers", "byteps(cross_barrier=on)",
                 "bytescheduler(cross_barrier=on)", "slowmo(buffers=average)",
                 "biased-local-sgd(momentum_policy=average)"]
        for method in names + [n for n in never if "(" in n]:
            s = summary(self.train(method, *common, "--method", method))
            self.assertEqual(s["loss_scale"] is None, method in never, method)
        for k, method in enumerate(("backup-workers", "hetpipe", "slowmo(buffers=average)", "slowmo")):
            done = tutti("train", *common[:-3], *common[-2:], "--method", method, "--out", self.out("said%d" % k))
            self.assertEqual(done.stdout.count("cannot skip a step, so fp16 has no loss scale with it"),
                             method != "slowmo", method)
        for method in never:
            done = tutti("train", *common, "--method", method, "--loss-scale", "dynamic", "--out", self.out("refused"))
            self.assertEqual(done.returncode, 2, method)
            self.assertIn("loss-scale may skip", done.stderr)

    def test_invalid_precision_options_are_rejected_before_the_run_starts(self):
        for words, arguments in [
            ("precision", ["--precision", "fp8"]),
            ("must be a power of two", ["--loss-scale", "static(scale=1000)"]),
            ("unknown loss-scale 'dynamics'; did you mean 'dynamic'?", ["--loss-scale", "dynamics"]),
            ("has no products whose operands could be rounded", ["--model", "quadratic(dim=4)", "--precision", "bf16"]),
        ]:
            out = self.out("refused")
            done = tutti("train", *arguments, "--steps", 1, "--out", out)
            self.assertEqual(done.returncode, 2, done.stderr)
            self.assertIn(words, done.stderr)
            self.assertFalse(os.path.exists(out))

    def test_run_without_a_usable_loss_scale_reports_the_reason(self):
        done = tutti("train", *COMMON, "--data", self.data, "--steps", 40, "--precision", "fp16",
                     "--loss-scale", "dynamic(init=4294967296,min=4294967296)", "--out", self.out("stuck"), "-n", 2)
        self.assertEqual(done.returncode, 1, done.stderr)
        self.assertIn("with the loss scale at its least", done.stderr)


if __name__ == "__main__":
    unittest.main(verbosity=2)
