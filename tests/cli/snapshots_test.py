"""Evaluations of methods whose workers do not go in step: a run with them is the run without, to the
bit and to the nanosecond, and a line is of the model that a run has which ends there."""
import json, os, unittest
from command import *

MODEL = ("--model", "mlp(hidden=16)", "--batch", 8, "--report-every", 10)
METHODS = (("ad-psgd", 4), ("prague", 5), ("rand-psgd(pace=own)", 3), ("h-adpsgd(super_learner=2)", 4),
           ("asgd", 4), ("asgd(hogwild=on)", 3), ("ringmaster-asgd", 4), ("ringleader-asgd", 3), ("dude-asgd", 4),
           ("oscars", 3),
           ("decoupled-diloco(period=6,quorum=2)", 3), ("hermes(minibatch=4)", 3), ("byteps(async=on)", 2))
# whose workers make the same steps, some in front
APART = (("bagua(algorithm=async,sync_interval_ms=25)", 3), ("ssp", 4),
         ("ssp(staleness=0)", 3), ("backup-workers", 4), ("lasgd", 4),
         ("lasgd(local_steps=3,max_delay=2)", 3), ("asr-adpsgd(mixing=delay-by-one)", 4))
# figures of the machine, or of memory, and not of the run
MACHINE = ("host_seconds", "peak_rss_bytes_per_worker", "peak_rss_bytes", "memory")


def of_the_run(value):
    if isinstance(value, dict):
        return {k: of_the_run(v) for k, v in value.items() if k not in MACHINE}
    return [of_the_run(v) for v in value] if isinstance(value, list) else value


class Aside(Case):
    def evaluations(self, out):
        """Those before the end."""
        lines = [json.loads(line) for line in read(os.path.join(out, "metrics.jsonl")).splitlines()]
        return [line for line in lines if "test_loss" in line][:-1]

    def simulated(self, name, method, n, *more):
        return self.train(name, *MODEL, "--data", self.data, "-n", n, "--method", method, "--seed", 3, "--transport",
                          "sim", "--step-time", 0.01, *more)

    @unittest.skipUnless(SIMULATOR, "the simulator is not built")
    def test_evaluations_do_not_change_an_asynchronous_run(self):
        for k, (method, n) in enumerate(METHODS + (("asgd", 3),)):
            more = ("--steps", 20, "--slow", "1:3", *(("--servers", 1) if k == len(METHODS) else ()))
            without = self.simulated("o%d" % k, method, n, *more)
            looked = self.simulated("w%d" % k, method, n, *more, "--eval-every", 4)
            self.assertEqual(of_the_run(summary(without)), of_the_run(summary(looked)), method)
            self.assertEqual(self.model(without), self.model(looked), method)
            self.assertEqual(self.evaluations(without), [])
            lines = self.evaluations(looked)
            self.assertEqual([(line["step"], line["samples"]) for line in lines],
                             [(step, step * n * 8) for step in (4, 8, 12, 16)], method)
            for what in ("wall_seconds", "bytes_sent_total"):
                values = [line[what] for line in lines] + [summary(looked)[what]]
                self.assertEqual(values, sorted(values), method)
            self.assertGreater(lines[0]["wall_seconds"], 0)

    @unittest.skipUnless(SIMULATOR, "the simulator is not built")
    def test_evaluations_do_not_change_runs_with_unsynchronized_steps(self):
        for k, (method, n) in enumerate(APART + (("ssp", 3),)):
            # less than an epoch: at the end of one all synchronise for an evaluation by default
            more = ("--steps", 18, "--slow", "1:3", *(("--servers", 1) if k == len(APART) else ()))
            without = self.simulated("co%d" % k, method, n, *more)
            looked = self.simulated("cw%d" % k, method, n, *more, "--eval-every", 4)
            self.assertEqual(of_the_run(summary(without)), of_the_run(summary(looked)), method)
            self.assertEqual(self.model(without), self.model(looked), method)
            each = 8 * (n - 1 if method == "backup-workers" else n)
            self.assertEqual([(line["step"], line["samples"]) for line in self.evaluations(looked)],
                             [(step, step * each) for step in (4, 8, 12, 16)], method)

    @unittest.skipUnless(SIMULATOR, "the simulator is not built")
    def test_unsynchronized_snapshot_equals_a_run_ending_there(self):
        for k, (method, n) in enumerate(APART[2:]): # not of those that have gone on: ssp, a clock's
            line = self.evaluations(self.simulated("cl%d" % k, method, n, "--steps", 16, "--slow", "1:3",
                                                   "--eval-every", 5))[1]
            short = summary(self.simulated("cs%d" % k, method, n, "--steps", 10, "--slow", "1:3"))
            self.assertEqual((line["step"], line["samples"]), (10, short["samples"]))
            self.assertAlmostEqual(line["test_loss"], short["final_test_loss"], places=7)
            self.assertEqual(line["test_accuracy"], short["final_test_accuracy"])
            self.assertAlmostEqual(line["consensus_distance"], short["consensus_distance"], places=7)

    @unittest.skipUnless(SIMULATOR, "the simulator is not built")
    def test_snapshot_at_a_checkpoint_equals_a_run_ending_there(self):
        for k, method in enumerate(("ad-psgd", "asgd", "prague")):
            short = summary(self.simulated("s%d" % k, method, 4, "--steps", 10, "--slow", "1:3"))
            line = self.evaluations(self.simulated("l%d" % k, method, 4, "--steps", 20, "--slow", "1:3",
                                                   "--eval-every", 5, "--checkpoint-every", 10))[1]
            self.assertEqual((line["step"], line["samples"]), (10, short["samples"]))
            self.assertAlmostEqual(line["test_loss"], short["final_test_loss"], places=7)
            self.assertEqual(line["test_accuracy"], short["final_test_accuracy"])
            self.assertAlmostEqual(line["consensus_distance"], short["consensus_distance"], places=7)

    @unittest.skipUnless(SIMULATOR, "the simulator is not built")
    def test_snapshot_curve_of_one_worker_equals_ended_runs(self):
        """With one worker nothing else runs, so both are of the same model: here the run ends at
        each point."""
        looked = self.evaluations(self.simulated("alone", "ad-psgd", 1, "--steps", 12, "--eval-every", 3))
        self.assertEqual([line["step"] for line in looked], [3, 6, 9])
        for line in looked:
            ended = self.simulated("to%d" % line["step"], "single", 1, "--steps", line["step"])
            self.assertAlmostEqual(line["test_loss"], summary(ended)["final_test_loss"], places=7)
            self.assertEqual(line["test_accuracy"], summary(ended)["final_test_accuracy"])
        loss, accuracy = mlp_evaluated(self.out("to9/model.safetensors"), self.data) # computed here
        self.assertAlmostEqual(looked[-1]["test_loss"], loss, places=5)
        self.assertAlmostEqual(looked[-1]["test_accuracy"], accuracy)

    @unittest.skipUnless(SIMULATOR, "the simulator is not built")
    def test_resumed_run_has_the_same_evaluation_curve(self):
        for k, method in enumerate(("ad-psgd", "asgd", "ringmaster-asgd", "lasgd", "backup-workers")):
            more = ("--steps", 24, "--slow", "1:3", "--eval-every", 4, "--checkpoint-every", 10, "--checkpoint-keep", 9)
            whole = self.simulated("whole%d" % k, method, 4, *more)
            first = sorted(os.listdir(os.path.join(whole, "checkpoints")))[0]
            again = self.simulated("again%d" % k, method, 4, *more, "--resume",
                                   os.path.join(whole, "checkpoints", first))
            self.assertEqual(self.model(whole), self.model(again), method)
            curve = [(line["step"], line["samples"], line["test_loss"], line["consensus_distance"])
                     for line in self.evaluations(whole)]
            self.assertEqual([c[0] for c in curve], [4, 8, 12, 16, 20])
            self.assertEqual([(line["step"], line["samples"], line["test_loss"], line["consensus_distance"])
                              for line in self.evaluations(again)], [c for c in curve if c[0] > 10], method)

    @unittest.skipUnless(SIMULATOR, "the simulator is not built")
    def test_evaluations_continue_without_a_lost_workers_snapshots(self):
        for k, method in enumerate(("ad-psgd", "asgd(servers=1)")):
            more = ("--steps", 30, "--eval-every", 5, "--fail", "2@0.12")
            out = self.simulated("lost%d" % k, method, 4, *more)
            lines, s = self.evaluations(out), summary(out)
            self.assertEqual(s["members"], [0, 1, 3])
            self.assertEqual([line["step"] for line in lines], [5, 10, 15, 20, 25])
            for line in lines: # how much the lost worker computed is not known
                self.assertLessEqual(line["samples"], line["step"] * 4 * 8)
                self.assertGreater(line["samples"], line["step"] * 3 * 8 * 0.5)
            self.assertLess(lines[-1]["test_loss"], lines[0]["test_loss"])

    def test_real_workers_evaluate_from_snapshots_too(self):
        for transport in ("shm", "tcp"):
            out = self.train("real" + transport, *MODEL, "--data", self.data, "-n", 3, "--transport", transport,
                             "--method", "ad-psgd" if transport == "shm" else "lasgd", "--steps", 60,
                             "--eval-every", 7)
            lines = self.evaluations(out)
            self.assertEqual([(line["step"], line["samples"]) for line in lines],
                             [(step, step * 3 * 8) for step in range(7, 60, 7)])
            self.assertLess(lines[-1]["test_loss"], lines[0]["test_loss"])

    def test_target_stops_an_asynchronous_run_early(self):
        s = summary(self.train("t", *MODEL, "--data", self.data, "-n", 3, "--method", "ad-psgd", "--steps", 400,
                               "--eval-every", 10, "--target", "accuracy=0.3"))
        self.assertLess(s["steps"], 400)
        self.assertIsNotNone(s["time_to_target_seconds"])


unittest.main()
