"""scadles as a user runs it, in virtual time: no worker waits longer than the window, whatever the
slowest stream; a run continues from a checkpoint to the bit, with waiting samples and residuals; sent
samples are counted; impossible options give an error message."""
import os, unittest
from command import *

MODEL = ("--model", "mlp(hidden=16)", "--batch", 16, "--threads", 1, "--quiet")
SIM = ("--transport", "sim", "--step-time", 0.001)


@unittest.skipUnless(SIMULATOR, "the simulator is not built")
class Scadles(Case):
    def go(self, name, n, method, *more, steps=12):
        return self.train(name, *MODEL, "--data", self.data, *SIM, "-n", n, "--method", method, "--steps", steps, *more)

    def balance(self, s, arrived, policy="truncation"):
        """What came is known from rates and the clock, what is trained from the samples of the run; of
        what is left truncation lets none wait, and persistence drops none."""
        figures = s["method_figures"]
        self.assertEqual(figures["arrived"], arrived)
        self.assertEqual(sum(figures["trained"]), s["samples"])
        left = [a - t for a, t in zip(arrived, figures["trained"])]
        none, all = ("buffered", "dropped") if policy == "truncation" else ("dropped", "buffered")
        self.assertEqual((figures[none], figures[all]), ([0] * len(left), left))
        return figures

    def rounds(self, out):
        """Seconds of each, where every round is reported."""
        rows = [json.loads(line) for line in read(os.path.join(out, "metrics.jsonl")).splitlines()]
        ends = [row["wall_seconds"] for row in rows if "train_loss" in row]
        return [later - sooner for sooner, later in zip([0] + ends, ends)]

    def test_no_worker_waits_longer_than_the_window(self):
        for slowest, policy in ((1, "truncation"), (60, "persistence")):
            out = self.go("w", 4, "scadles(rates=80:120:60:%d,batch_min=1,batch_max=999,policy=%s)" %
                          (slowest, policy), "--report-every", 1)
            s = summary(out)
            rounds = int(s["method_figures"]["rounds"])
            # a worker that computes for less than the window takes samples exactly one window
            # after it took last
            self.balance(s, [rate * rounds for rate in (80, 120, 60, slowest)], policy)
            seconds = self.rounds(out)                               # a window is a second
            self.assertEqual(len(seconds), rounds)
            self.assertTrue(0.95 < min(seconds) and max(seconds) < 1.05, seconds)
            for waited in s["method_figures"]["waited_seconds"]:
                self.assertTrue(0.9 * rounds < waited <= rounds, waited)

    def test_computing_longer_than_the_window_waits_for_no_sample(self):
        s = summary(self.train("l", *MODEL, "--data", self.data, "--transport", "sim", "--step-time", 2, "-n", 2,
                               "--method", "scadles(rates=40,window_s=0.5,batch_max=16,batch_min=1)", "--steps", 6))
        figures = s["method_figures"]
        self.assertEqual(figures["trained"], [6 * 16] * 2)
        # 16 after 0.4 s, then five times what comes in a step of 2 s and its exchange
        for arrived in figures["arrived"]:
            self.assertTrue(16 + 5 * 80 <= arrived <= 16 + 5 * 81, arrived)
        self.balance(s, figures["arrived"])
        self.assertEqual(figures["waited_seconds"], [0.4, 0.4])      # of six rounds the first alone

    def test_run_resumes_from_a_checkpoint_bitwise(self):
        for k, options in enumerate(("policy=persistence,batch_max=20,delta=1",
                                     "policy=cap,cap=40,batch_max=99,delta=0.3",
                                     "policy=persistence,batch_max=20,simulate_clock=on")):
            method = "scadles(rates=31:17:53,batch_min=2,%s)" % options
            whole = self.go("whole%d" % k, 3, method, "--checkpoint-every", 4)
            half = os.path.join(whole, "checkpoints", sorted(os.listdir(os.path.join(whole, "checkpoints")))[0])
            rest = self.go("rest%d" % k, 3, method, "--resume", half)
            self.assertEqual(read(os.path.join(rest, "model.safetensors")),
                             read(os.path.join(whole, "model.safetensors")), options)
            for figure in ("arrived", "trained", "dropped", "buffered"):
                self.assertEqual(summary(rest)["method_figures"][figure], summary(whole)["method_figures"][figure])

    def test_a_recorded_run_is_replayed_over_shared_memory(self):
        record = os.path.join(self.folder, "record")
        method = "scadles(rates=31:17:53,batch_max=40,inject_alpha=0.4,inject_beta=0.5,%%s=%s)" % record
        one = self.go("one", 3, method % "record", "--partition", "class(k=4)")
        two = self.train("two", *MODEL, "--data", self.data, "-n", 3, "--method", method % "replay", "--steps", 12,
                         "--partition", "class(k=4)")
        self.assertEqual(read(os.path.join(two, "model.safetensors")), read(os.path.join(one, "model.safetensors")))
        a, b = (summary(out)["method_figures"] for out in (one, two))
        self.assertEqual((b["trained"], b["arrived"], b["injected"]), (a["trained"], a["trained"], a["injected"]))
        self.assertEqual((b["waited_seconds"], b["dropped"], b["buffered"]), ([0] * 3,) * 3)
        with open(record) as f:
            counts = [json.loads(line)["took"] for line in f if "took" in line]
        self.assertEqual([sum(of) for of in zip(*counts)], a["trained"])
        done = tutti("train", *MODEL, "--data", self.data, "-n", 3, "--method", method % "replay", "--steps", 40,
                     "--partition", "class(k=4)", "--out", self.out("more"))
        self.assertEqual(done.returncode, 2, done.stderr)
        self.assertIn("and this run has more; it ends there", done.stderr)

    def test_injected_samples_are_counted_in_bytes(self):
        sent = {}
        for alpha in (0, 0.5):
            s = summary(self.go("i", 4, "scadles(rates=20:30:40:25,batch_max=99,simulate_clock=on,compress=off,"
                                "inject_alpha=%g,inject_beta=%g)" % (alpha, alpha), "--partition", "class(k=3)"))
            figures = self.balance(s, [rate * s["method_figures"]["rounds"] for rate in (20, 30, 40, 25)])
            self.assertEqual(sum(figures["given"]), sum(figures["injected"]))
            sent[alpha] = s["bytes_sent_total"]
            injected = sum(figures["injected"])
        # as many rounds of the same bytes, and 28 x 28 pixels with a label each
        self.assertGreater(injected, 0)
        self.assertEqual(sent[0.5] - sent[0], 785 * injected)

    def test_invalid_options_are_rejected(self):
        common = ("train", *MODEL, "--data", self.data, "-n", 2, "--out", self.out("x"), "--method")
        self.refused("inject_alpha is 0.5, but worker 0 has samples of every class, so that none is foreign to it",
                     *common, "scadles(inject_alpha=0.5,inject_beta=0.5,simulate_clock=on)", "--partition",
                     "dirichlet(alpha=1000)")
        self.refused("stream is given, but method 'scadles' has a model of its own of samples that arrive; omit "
                     "stream and give the rates to the method", *common, "scadles", "--stream", "50:38")
        self.refused("rates is '1:2:3'; write uniform, normal, the samples a second of every worker", *common,
                     "scadles(rates=1:2:3)")


if __name__ == "__main__":
    unittest.main(verbosity=2)
