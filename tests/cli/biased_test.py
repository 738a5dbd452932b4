"""biased-local-sgd as a person runs it: steps that are measured, rounds that all end together in
virtual time, whole epochs, resuming to the bit, every kind of samples, the loss of a worker."""
import json, math, os, unittest
from command import *

MODEL = ("--model", "mlp(hidden=8)", "--optimizer", "sgd(lr=0.05,momentum=0.9)")


def model(out):
    return read(os.path.join(out, "model.safetensors"))


def slow(*factors):
    return ",".join("%d:%g" % (r, f) for r, f in enumerate(factors))


class Biased(Case):
    def simulated(self, name, n, *more):
        return self.train(name, *MODEL, "--data", self.data, "-n", n, "--batch", 4, "--transport", "sim",
                          "--step-time", 0.01, "--seed", 3, "--quiet", *more)

    @unittest.skipUnless(SIMULATOR, "the simulator is not built")
    def test_workers_of_any_speed_end_a_round_together(self):
        """steps: as many as fit into the fastest one's. A round lasts as long as these, and workers
        of other speeds idle for less than one of their own steps."""
        for factors, ratio, rounds in (((1, 1, 4), 1, 8), ((1, 3, 8), 2, 8), ((2, 1, 1, 1.5), 4, 6)):
            s = summary(self.simulated("u", len(factors), "--slow", slow(*factors), "--epochs", 4, "--method",
                                       "biased-local-sgd(round_steps=%d,bias_ratio=%g)" % (rounds, ratio)))
            figures, fast = s["method_figures"], min(factors)
            steps = [max(1, math.floor(rounds * fast / f + 0.001)) for f in factors]
            self.assertEqual(figures["steps"], steps)
            for f, t, i, seconds in zip(factors, steps, figures["idle_share"], figures["step_seconds"]):
                self.assertAlmostEqual(seconds, 0.01 * f, delta=0.0002 * f)
                self.assertLess(i, 0.05 + (1 / (t + 1) if t * f < rounds * fast else 0))
            self.assertEqual((s["samples"], s["epochs"]), (4 * 600, 4))
            self.assertEqual(s["events"], [])
            # two rounds of a step each are measured; the others last as long as the longest of them
            longest = max(t * f for t, f in zip(steps, factors)) * 0.01
            self.assertLess(s["wall_seconds"], 1.05 * (2 * 0.01 * max(factors) + (s["steps"] - 2) * longest))
            self.assertLess(s["final_test_loss"], 2.2)

    @unittest.skipUnless(SIMULATOR, "the simulator is not built")
    def test_slow_worker_does_not_delay_epochs_or_is_reported(self):
        alone = summary(self.simulated("a", 3, "--epochs", 8, "--method", "local-sgd"))
        four = summary(self.simulated("f", 4, "--epochs", 8, "--slow", "3:10", "--method",
                                      "biased-local-sgd(round_steps=10)"))
        # besides the two rounds that measure
        self.assertLess(four["wall_seconds"] - 2 * 0.1, 1.08 * alone["wall_seconds"])
        held = summary(self.simulated("h", 4, "--epochs", 8, "--slow", "3:10", "--method",
                                      "biased-local-sgd(round_steps=4)"))
        self.assertEqual([e["kind"] for e in held["events"]], ["stalls"])
        self.assertIn("the others wait for it in each round; give a larger round_steps", held["events"][0]["text"])

    @unittest.skipUnless(SIMULATOR, "the simulator is not built")
    def test_evaluations_are_scheduled_by_samples_like_steps(self):
        """Its own steps have more samples than a batch of each worker: --eval-every counts the
        latter, as --steps does, and an evaluation comes with the first round that reaches it."""
        for every in (1, 25, 40, 200):
            out = self.simulated("e%d" % every, 2, "--steps", 200, "--method", "biased-local-sgd(round_steps=5)",
                                 "--eval-every", every)
            lines = [json.loads(line) for line in read(os.path.join(out, "metrics.jsonl")).splitlines()]
            samples = [line["samples"] for line in lines if "test_loss" in line]
            self.assertEqual(samples, sorted(set(samples)))
            if every == 1: # each of its rounds but the last, and the end
                self.assertEqual(len(samples), summary(out)["steps"])
            else:
                self.assertEqual([s // (every * 8) for s in samples], list(range(1, 200 // every + 1)))

    @unittest.skipUnless(SIMULATOR, "the simulator is not built")
    def test_too_large_bias_ratio_is_reported_once(self):
        """600 samples; the slow worker takes four of 36: 67. In the first data pass two steps of
        each worker have taken 16 before that is known: of the remaining samples it takes 65."""
        for ratio, slow_samples in ((8, None), (9, 67), (10, 65)):
            s = summary(self.simulated("b", 2, "--epochs", 4, "--slow", "1:8", "--method",
                                       "biased-local-sgd(round_steps=8,bias_ratio=%d)" % ratio))
            self.assertEqual(s["method_figures"]["steps"], [8, 1])
            self.assertEqual([(e["kind"], e["text"]) for e in s["events"]], [] if slow_samples is None else [
                ("bias", "bias_ratio is %d, but slow workers take %d of 600 samples in a data pass: they choose among "
                 "all of them" % (ratio, slow_samples))])
            self.assertEqual((s["samples"], s["epochs"]), (4 * 600, 4))

    @unittest.skipUnless(SIMULATOR, "the simulator is not built")
    def test_simulated_runs_repeat_and_resume_within_a_data_pass(self):
        for k, method in enumerate(("biased-local-sgd(round_steps=6)",
                                    "biased-local-sgd(round_steps=5,score_decay=0.9,momentum_policy=average,agg_mix=0.5)",
                                    "biased-local-sgd(steps=6:1:4,momentum_policy=reset)")):
            common = ("--slow", "1:6.4,*:2.2:0.2", "--method", method, "--epochs", 4, "--checkpoint-every", 3,
                      "--checkpoint-keep", 99)
            whole = self.simulated("w%d" % k, 3, *common)
            self.assertEqual(summary(whole)["samples"], 2400)
            if k == 0:
                self.assertEqual(model(whole), model(self.simulated("again", 3, *common)))
            checkpoints = os.path.join(whole, "checkpoints")
            names = sorted(os.listdir(checkpoints))
            self.assertGreater(len(names), 4)
            for name in names[:-1:5]:
                resumed = self.simulated("r%d" % k, 3, *common, "--resume", os.path.join(checkpoints, name))
                self.assertEqual(model(whole), model(resumed), (method, name))
                self.assertEqual(summary(whole)["method_figures"], summary(resumed)["method_figures"], (method, name))
                shutil.rmtree(resumed)

    @unittest.skipUnless(SIMULATOR, "the simulator is not built")
    def test_run_resumed_within_a_data_pass_keeps_its_figures(self):
        for k, steps in enumerate(("steps=6:1:4", "round_steps=6")):
            common = ("--slow", "1:6.4,*:2.2:0.2", "--method", "biased-local-sgd(%s)" % steps, "--steps", 70,
                      "--checkpoint-every", 9)
            whole = self.simulated("p%d" % k, 3, *common)
            figures = summary(whole)["method_figures"]
            self.assertGreater(figures["mean_loss"], 0)
            self.assertEqual(len(figures["step_seconds"]), 3)
            resumed = self.simulated("q%d" % k, 3, *common, "--resume",
                                     os.path.join(whole, "checkpoints", "step-00000018"))
            self.assertEqual(summary(resumed)["method_figures"], figures)

    def test_fixed_step_list_is_reproducible_on_every_transport(self):
        models = {model(self.train("t", *MODEL, "--data", self.data, "-n", 3, "--batch", 4, "--epochs", 3, "--seed", 3,
                                   "--method", "biased-local-sgd(steps=12:1:12)", "--transport", transport, "--quiet"))
                  for transport in and_sim("shm", "tcp")}
        self.assertEqual(len(models), 1)

    def test_slow_workers_have_the_hard_samples(self):
        """Over eight seeds: how hard the hard ones are to a model that is nearly trained is each run's own."""
        slow = every = 0
        for seed, epochs in [(seed, 3) for seed in range(1, 9)] + [(3, 12)]:
            figures = summary(self.train("m%d-%d" % (seed, epochs), "--model", "mlp(hidden=16)", "--optimizer",
                                         "sgd(lr=0.1)", "--data", self.data, "-n", 3, "--batch", 4, "--epochs", epochs,
                                         "--seed", seed, "--method", "biased-local-sgd(steps=12:1:12)",
                                         "--quiet"))["method_figures"]
            slow += figures["mean_loss_slow"] if epochs == 3 else 0
            every += figures["mean_loss"] if epochs == 3 else 0
        self.assertGreater(slow, 1.1 * every)
        self.assertEqual(sum(n for _, n in figures["score_quarters"]), 600) # by then all have been seen

    def test_sample_selection_works_for_text_clicks_and_images(self):
        for net, data in (("gpt(layers=1,dim=8,heads=2)",
                           "text(file=%s,context=16,val_windows=8)" % small_text(self.folder)),
                          ("ctr", "clicks(file=%s,rows=100)" % small_clicks(self.folder)), ("cnn", self.data)):
            s = summary(self.train("k", "--model", net, "--data", data, "-n", 2, "--batch", 4, "--epochs", 2,
                                   "--method", "biased-local-sgd(steps=9:1)", "--quiet"))
            self.assertGreater(s["method_figures"]["mean_loss_slow"], 0, net)
            self.assertEqual(s["epochs"], 2, net)

    def test_bias_with_partitioned_data_is_rejected(self):
        self.refused("bias_ratio=4: partition gives each worker samples of its own that stay with it, but method "
                     "'biased-local-sgd' chooses among all samples; leave partition at iid, or take another method",
                     "train", *MODEL,
                     "--data", self.data, "-n", 2, "--method", "biased-local-sgd", "--partition", "class(k=5)",
                     "--out", self.out("p"))

    def test_a_lost_worker_ends_the_run(self):
        err, ranks = self.killed(3, 1, "-n", 3, "--method", "biased-local-sgd(steps=4:1:4)")
        self.assertIn("worker 1 was lost", err)
        self.assertEqual([r for r in ranks if alive(r)], [])


if __name__ == "__main__":
    unittest.main(verbosity=2)
