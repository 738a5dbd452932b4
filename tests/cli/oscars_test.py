"""oscars as a person runs it: traffic against the formula, resuming to the bit under the simulator,
quotas, idleness, deadlines and lateness in virtual time, what weights do to the optimum, losses."""
import math, os, signal, subprocess, time, unittest
from command import *

MODEL = ("--model", "mlp(hidden=64)")
PARAMS = 784 * 64 + 64 + 64 * 64 + 64 + 64 * 10 + 10


def model(out):
    return read(os.path.join(out, "model.safetensors"))


def slow(*factors):
    return ",".join("%d:%g" % (r, f) for r, f in enumerate(factors))


class Oscars(Case):
    def simulated(self, name, n, factors, steps, method, *more):
        """A quadratic, a step of 10 ms times the worker's factor, and no data that differ."""
        out = self.train(name, "--model", "quadratic(dim=8,samples=4096)", "-n", n, "--batch", 1, "--transport", "sim",
                         "--step-time", 0.01, "--slow", factors, "--steps", steps, "--optimizer", "sgd(lr=0.01)",
                         "--method", method, *more)
        return summary(out)

    def test_displacement_traffic_matches_the_formula_on_every_transport(self):
        for transport in and_sim("shm", "tcp"):
            out = self.train("t", *MODEL, "--data", self.data, "-n", 3, "--batch", 20, "--steps", 60,
                             "--method", "oscars(interval=4)", "--seed", 1, "--transport", transport,
                             "--optimizer", "sgd(lr=0.05)")
            s, figures = summary(out), summary(out)["method_figures"]
            self.assertEqual((s["steps"], s["samples"], s["events"]), (60, 60 * 3 * 20, []))
            self.assertEqual([a + l + d
                              for a, l, d in zip(*(figures["steps_" + k] for k in ("applied", "late", "dropped")))],
                             [w["steps"] for w in s["by_worker"]])
            # models for workers that left with nothing new
            words = s["bytes_sent_total"] / (4 * PARAMS) - 2 * sum(figures["pushes"][1:])
            self.assertIn(words, (0, 1, 2))
            self.assertGreater(s["final_test_accuracy"], 0.3)

    @unittest.skipUnless(SIMULATOR, "the simulator is not built")
    def test_simulated_runs_repeat_and_resume_to_the_bit_under_random_pauses(self):
        for k, method in enumerate(
            ("oscars(interval=3)", "oscars(interval=4,weights=normalised,grace=0.1,quorum=0.5,adapt=grow,growth=0.2)")):
            common = ("--model", "mlp(hidden=8)", "--data", self.data, "-n", 4, "--batch", 6, "--method", method,
                      "--seed", 2, "--steps", 24, "--checkpoint-every", 8, "--checkpoint-keep", 9,
                      "--slow", "0:1.31,*:2.2:0.4", "--transport", "sim", "--optimizer", "sgd(lr=0.02,momentum=0.9)",
                      "--step-time", 0.001)
            whole = self.train("w%d" % k, *common)
            if k == 0: # from their checkpoints all repeat; from their beginning this one
                self.assertEqual(model(whole), model(self.train("again", *common)))
            checkpoints = os.path.join(whole, "checkpoints")
            for name in sorted(os.listdir(checkpoints))[:-1]:
                resumed = self.train("r%d%s" % (k, name), *common, "--resume", os.path.join(checkpoints, name))
                self.assertEqual(model(whole), model(resumed), (method, name))
                self.assertEqual(summary(whole)["method_figures"], summary(resumed)["method_figures"], (method, name))

    @unittest.skipUnless(SIMULATOR, "the simulator is not built")
    def test_workers_of_any_speed_finish_rounds_together(self):
        """Equal ones get H each; unequal ones what fits into the round that the median needs for H
        steps: all are through within a step of the slowest of each other, and wait little."""
        s = self.simulated("e", 4, "0:1", 70, "oscars(adapt=off)")
        self.assertEqual((s["method_figures"]["quota"], s["method_figures"]["interval"]), ([8] * 4, 8))
        self.assertEqual(s["method_figures"]["rounds"], 3 + math.ceil((70 - 7) / 8)) # 1, 2, 4, then 8 a round
        self.assertEqual(s["bytes_sent_total"], 3 * 2 * 4 * 8 * s["method_figures"]["rounds"])
        for n, factors in ((4, (1, 2, 4, 8)), (5, (1, 1.3, 2.7, 3.1, 8)), (6, (1, 1, 1, 5, 6, 7))):
            figures = self.simulated("u", n, slow(*factors), 400, "oscars(adapt=off)")["method_figures"]
            middle = (sorted(factors)[(n - 1) // 2] + sorted(factors)[n // 2]) / 2
            self.assertEqual(figures["quota"], [min(32, max(1, math.floor(8 * middle / f + 0.125))) for f in factors])
            ends = [q * t + c for q, t, c in zip(figures["quota"], figures["step_seconds"],
                                                 figures["transfer_seconds"])]
            self.assertLess(max(ends) - min(ends), max(figures["step_seconds"]))
            self.assertLess(sum(figures["idle_share"]) / n, 0.1, (factors, figures["idle_share"]))
            # in the probe, whose round is over when a quorum is there
            self.assertLessEqual(sum(figures["steps_late"] + figures["steps_dropped"]), 2)
            self.assertLess(abs(figures["round_seconds"] / figures["round_seconds_planned"] - 1), 0.15)

    @unittest.skipUnless(SIMULATOR, "the simulator is not built")
    def test_rounds_respect_grace_period_and_quorum(self):
        """Worker 4 needs 30 for a step where a round is to take 8: with four of five there a round
        takes 8 x 1.2, without them it waits. How late its steps come, the grace decides; the bound
        on that is reached, and not exceeded."""
        for quorum, longest in ((0.8, 8 * 1.2 * 0.01), (1, 0.31)):
            figures = self.simulated("q", 5, "4:30", 300,
                                     "oscars(adapt=off,quorum=%g,max_late=9)" % quorum)["method_figures"]
            self.assertLess(figures["round_seconds"], 1.02 * longest)
            self.assertEqual(sum(figures["steps_late"]) > 0, quorum < 1)
        # 3 once a round takes 8 x 1.2; the first take 1, 2 and 4
        for late, oldest in ((0, 0), (1, 0), (2, 0), (3, 3), (5, 5), (9, 5)):
            figures = self.simulated("l", 5, "4:30", 300, "oscars(adapt=off,max_late=%d)" % late)["method_figures"]
            self.assertEqual(figures["applied_delay_max"], oldest)
            self.assertEqual(figures["steps_dropped"][4] > 3, oldest == 0)
            self.assertEqual(figures["quota"][4], 1)
        figures = self.simulated("w", 5, "4:30", 600, "oscars(adapt=off,max_late=3,weights=uniform)")["method_figures"]
        # a step three rounds late together with four in time: 1/4 : 1 : 1 : 1 : 1
        self.assertAlmostEqual(figures["effective_steps"][4] / figures["steps_late"][4], 1 / 17, delta=0.1 / 17)
        for late in (1, 2, 3): # speeds that change: lateness of all kinds
            s = self.simulated("p", 8, "*:9:0.2", 200,
                               "oscars(interval=2,adapt=off,grace=0,quorum=0.5,max_late=%d)" % late)
            figures = s["method_figures"]
            self.assertEqual(figures["applied_delay_max"], late)
            self.assertEqual(sum(sum(figures["steps_" + k]) for k in ("applied", "late", "dropped")), 200 * 8)
            self.assertGreater(s["staleness_max"], late) # those that were dropped

    @unittest.skipUnless(SIMULATOR, "the simulator is not built")
    def test_faster_workers_weigh_more_unless_weights_are_normalised(self):
        """Two classes, a worker each, one four times slower: f_i = |x - b_i|^2 / 2, so the optimum
        is the middle. Steps weigh 16 : 1, uniform ones 4 : 1."""
        common = ("--model", "quadratic(dim=10,condition=1,classes=2,noise=0,skew=1,samples=64)",
                  "--partition", "class(k=1)", "-n", 2, "--batch", 8, "--transport", "sim", "--step-time", 0.01,
                  "--slow", "1:4", "--optimizer", "sgd(lr=0.003)", "--steps", 2000)
        loss = lambda *more: summary(self.train("b", *common, *more))["final_train_loss"]
        first = loss("--method", "ddp", "--steps", 1, "--optimizer", "sgd(lr=0)")
        ends = {w: loss("--method", "oscars(interval=8,adapt=off,quorum=1,weights=%s)" % w) / first
                for w in ("steps", "uniform", "normalised")}
        self.assertLess(ends["normalised"], 1e-3, ends)
        self.assertGreater(ends["uniform"], 0.05, ends)
        self.assertGreater(ends["steps"], 1.2 * ends["uniform"], ends)

    @unittest.skipUnless(SIMULATOR, "the simulator is not built")
    def test_the_interval_is_one_when_the_loss_is_gone(self):
        common = ("--model", "quadratic(dim=8,condition=1,noise=0,samples=512)", "-n", 4, "--batch", 8,
                  "--transport", "sim", "--step-time", 0.01, "--steps", 300, "--optimizer", "sgd(lr=0.1)")
        figures = {a: summary(self.train(a, *common, "--method", "oscars(adapt=%s)" % a))["method_figures"]
                   for a in ("loss", "off")}
        self.assertEqual((figures["loss"]["interval"], figures["off"]["interval"]), (1, 8))
        self.assertGreater(figures["loss"]["rounds"], 3 * figures["off"]["rounds"])

    def test_a_killed_server_ends_the_run_and_is_named(self):
        err, ranks = self.killed(4, 0, "-n", 4, "--method", "oscars")
        self.assertIn("worker 0 was lost: process %d was killed by signal 9 (SIGKILL)" % ranks[0], err)

    def test_catalogue_marks_oscars_as_reconstructed(self):
        self.assertIn("reconstructed from the paper's abstract", tutti("methods", "oscars").stdout)


if __name__ == "__main__":
    unittest.main(verbosity=2)
