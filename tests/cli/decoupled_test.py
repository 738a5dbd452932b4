"""decoupled-diloco as a person runs it: the bits of diloco, traffic against the formula, stragglers by counts of
merges in virtual time, resuming to the bit under the simulator, losses."""
import os, unittest
from command import *

MODEL = ("--model", "mlp(hidden=64)")
PARAMS = 784 * 64 + 64 + 64 * 64 + 64 + 64 * 10 + 10


def model(out):
    return read(os.path.join(out, "model.safetensors"))


class Decoupled(Case):
    def simulated(self, name, n, factors, steps, method, *more):
        """A quadratic, and a step of 10 ms times the worker's factor."""
        return summary(self.train(name, "--model", "quadratic(dim=8,samples=4096)", "-n", n, "--batch", 1,
                                  "--transport", "sim", "--step-time", 0.01, "--slow", factors, "--steps", steps,
                                  "--optimizer", "sgd(lr=0.01)", "--method", method, *more))

    def test_quorum_of_all_is_diloco_to_the_bit(self):
        """Workers have samples of their own; else an asynchronous run assigns them in order of its gradients. A
        partition of equal parts."""
        for transport in and_sim("shm"):
            common = (*MODEL, "--data", self.data, "-n", 3, "--batch", 20, "--steps", 24, "--seed", 1, "--transport",
                      transport, "--optimizer", "sgd(lr=0.05,momentum=0.9)", "--partition", "class(k=10)")
            one, other = (self.train(m, *common, "--method", "%sdiloco(period=4)" % m) for m in ("decoupled-", ""))
            self.assertEqual(model(one), model(other), transport)

    def test_traffic_matches_the_formula_on_every_transport(self):
        for transport in and_sim("shm", "tcp"):
            for quorum in ("all", "2"):
                s = summary(self.train("t", *MODEL, "--data", self.data, "-n", 3, "--batch", 20, "--steps", 60,
                                       "--method", "decoupled-diloco(period=4,outer=none,quorum=%s)" % quorum, "--seed",
                                       1, "--transport", transport, "--optimizer", "sgd(lr=0.05)", "--on-loss",
                                       "continue")) # or a simulated run has no standby
                figures = s["method_figures"]
                self.assertEqual((s["steps"], s["samples"], s["events"]), (60, 60 * 3 * 20, []))
                self.assertEqual([a + b for a, b in zip(figures["steps_merged"], figures["steps_dropped"])],
                                 [w["steps"] for w in s["by_worker"]])
                copied = s["bytes_sent_total"] - 4 * PARAMS * (sum(figures["answers"][1:]) + sum(figures["given"][1:]))
                note = 88 * 3 + 24
                self.assertIn(copied - figures["merges"] * (4 * PARAMS + note), (0, note))
                self.assertGreater(s["final_test_accuracy"], 0.3)

    @unittest.skipUnless(SIMULATOR, "the simulator is not built")
    def test_a_straggler_delays_nobody(self):
        """Worker 3 needs 9 times as long for a step. With a quorum of the three others there is a merge every four
        steps of theirs, and each has all three of them; with a quorum of one they do not even wait for each other.
        With a quorum of all everybody makes the straggler's steps."""
        seconds = {}
        for quorum, grace in ((3, 0), (3, 1), (2, 0), (1, 0)):
            s = self.simulated("q", 4, "3:9", 90, "decoupled-diloco(period=4,quorum=%d,grace=%g)" % (quorum, grace))
            figures, steps = s["method_figures"], [w["steps"] for w in s["by_worker"]]
            fast = min(steps[:3])
            self.assertGreater(fast, (6 if grace > 0 else 8) * steps[3]) # a grace is a step in five
            self.assertEqual(sum(steps), 360)
            seconds[quorum, grace] = s["wall_seconds"]
            self.assertLessEqual(max(steps[:3]) - fast, 4)
            if quorum == 3:
                self.assertLessEqual(abs(figures["merges"] - fast / 4), 2)
                self.assertEqual(figures["steps_dropped"][:3], [0] * 3)
                self.assertGreaterEqual(figures["answers_a_merge"], 3 - 4 / figures["merges"])
            # one for every four steps of a quorum, or more where the others' come later
            self.assertGreaterEqual(figures["merges"], fast / 4 - 1)
            self.assertGreater(figures["steps_dropped"][3], 0)
        s = self.simulated("all", 4, "3:9", 88, "decoupled-diloco(period=4)")
        self.assertEqual(([w["steps"] for w in s["by_worker"]], s["method_figures"]["merges"]), ([88] * 4, 22))
        self.assertEqual(s["method_figures"]["steps_dropped"], [0] * 4)
        # the page's figures, of 360 gradients and 352
        self.assertAlmostEqual(seconds[3, 0], 1.18, delta=0.02)
        self.assertAlmostEqual(s["wall_seconds"], 7.93, delta=0.08)

    @unittest.skipUnless(SIMULATOR, "the simulator is not built")
    def test_grace_lets_slower_workers_answer_with_what_they_have(self):
        """Worker 2 needs 3 times as long for a step. The quorum is there after 9 steps, when it has made 3: within a
        grace of 3 steps and more it ends one, and answers with that; its weight is by pace."""
        method = "decoupled-diloco(period=9,quorum=2,grace=%g,weights=%s)"
        for grace, weights in ((0, "pace"), (4, "pace"), (4, "uniform")):
            figures = self.simulated("g", 3, "2:3", 200, method % (grace, weights))["method_figures"]
            merged, dropped = figures["steps_merged"][2], figures["steps_dropped"][2]
            self.assertEqual(merged > 10 * dropped, grace > 0, figures)
            if grace > 0: # of all steps it makes a quarter, as many samples a step, so as many of what they weigh
                share = figures["effective_steps"][2] / merged
                each = 1 / 3 if weights == "uniform" else 4 / (9 + 9 + 4)
                self.assertAlmostEqual(share, each, delta=0.15 * each)

    @unittest.skipUnless(SIMULATOR, "the simulator is not built")
    def test_a_lost_worker_is_not_missed(self):
        """It is lost after 29 steps of its 90: 28 of them are merged, the others make the rest. With a quorum of all
        they learn of it when a merge waits for it, with one below that when the run ends."""
        for quorum, least, most in (("all", 29, 40), ("3", 80, 90), ("1", 80, 90)):
            s = self.simulated("l" + quorum, 4, "0:1", 90, "decoupled-diloco(period=4,quorum=%s)" % quorum, "--fail",
                               "2@0.3")
            figures = s["method_figures"]
            self.assertEqual([(e["kind"], e["rank"]) for e in s["events"]], [("lost", 2)])
            self.assertTrue(least <= s["events"][0]["step"] <= most, (quorum, s["events"]))
            self.assertEqual((figures["steps_merged"][2], figures["steps_dropped"][2]), (28, 0))
            self.assertEqual([w["steps"] for w in s["by_worker"]],
                             [figures["steps_merged"][r] + figures["steps_dropped"][r] for r in (0, 1, 3)])
            self.assertGreaterEqual(figures["merges"], 27)

    @unittest.skipUnless(SIMULATOR, "the simulator is not built")
    def test_reports_are_as_rare_as_asked_for(self):
        for report in (1, 2, 4):
            figures = self.simulated("r", 3, "2:3", 120, "decoupled-diloco(period=8,quorum=2,report=%d)" %
                                     report)["method_figures"]
            steps = [a + b for a, b in zip(figures["steps_merged"], figures["steps_dropped"])]
            for made, reports in zip(steps, figures["reports"]):
                self.assertAlmostEqual(reports, made / report, delta=2)

    @unittest.skipUnless(SIMULATOR, "the simulator is not built")
    def test_simulated_runs_repeat_and_resume_to_the_bit_under_random_pauses(self):
        for k, method in enumerate(("decoupled-diloco(period=3)",
                                    "decoupled-diloco(period=4,quorum=2,report=2,merge=rda)")):
            common = ("--model", "mlp(hidden=8)", "--data", self.data, "-n", 4, "--batch", 6, "--method", method,
                      "--seed", 2, "--steps", 24, "--checkpoint-every", 8, "--checkpoint-keep", 9,
                      "--slow", "0:1.31,*:2.2:0.4", "--transport", "sim", "--optimizer", "sgd(lr=0.02,momentum=0.9)",
                      "--step-time", 0.001)
            whole = self.train("w%d" % k, *common)
            self.assertEqual(model(whole), model(self.train("again", *common)))
            checkpoints = os.path.join(whole, "checkpoints")
            for name in sorted(os.listdir(checkpoints))[:-1]:
                resumed = self.train("r%d%s" % (k, name), *common, "--resume", os.path.join(checkpoints, name))
                self.assertEqual(model(whole), model(resumed), (method, name))
                self.assertEqual(summary(whole)["method_figures"], summary(resumed)["method_figures"], (method, name))

    def test_a_killed_server_without_standby_ends_the_run_and_is_named(self):
        err, ranks = self.killed(4, 0, "-n", 4, "--method", "decoupled-diloco(period=8,quorum=2,standby=0)")
        self.assertIn("worker 0 was lost: process %d was killed by signal 9 (SIGKILL)" % ranks[0], err)

    def test_a_killed_server_is_followed_by_its_standby(self):
        """Its process is killed; the others end well, each step of theirs merged once, and the run is resumed."""
        for k, (transport, quorum) in enumerate((("shm", "all"), ("tcp", "all"), ("shm", "2"), ("tcp", "2"))):
            out = self.out("f%d" % k)
            run = subprocess.Popen([TUTTI, "train", *MODEL, "--data", self.data, "-n", "3", "--batch", "16",
                                    "--report-every", "5", "--quiet", "--transport", transport,
                                    "--method", "decoupled-diloco(period=4,quorum=%s)" % quorum, "--out", out,
                                    "--optimizer", "sgd(lr=0.02)", "--steps", "600", "--checkpoint-every", "200"],
                                   stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=clean_environment())
            deadline = time.monotonic() + 60
            while lines_told(out) < 2 and run.poll() is None and time.monotonic() < deadline:
                time.sleep(0.002)
            os.kill(children_of(run.pid)[0], signal.SIGKILL)
            _, err = run.communicate(timeout=100)
            self.assertEqual(run.returncode, 0, err)
            self.assertIn("killed by signal 9", err)
            s = summary(out)
            figures = s["method_figures"]
            self.assertEqual(([e["kind"] for e in s["events"]], s["steps"]), (["lost"], 600))
            self.assertEqual(s["members"], [1, 2])
            for row in s["by_worker"]:
                r = row["worker"]
                settled = figures["steps_merged"][r] + figures["steps_dropped"][r]
                self.assertEqual(settled == row["steps"] if quorum == "all" else settled <= row["steps"], True, figures)
            self.assertGreater(s["final_test_accuracy"], 0.3)
            again = summary(self.train("f%d-again" % k, "--resume", out, "-n", 3, "--steps", 620))
            self.assertEqual((again["steps"], again["resumed_at_step"], again["events"]), (620, 600, []))

    @unittest.skipUnless(SIMULATOR, "the simulator is not built")
    def test_a_server_lost_in_a_simulated_run_is_followed_at_any_moment(self):
        for at in (0.005, 0.038, 0.3011, 0.8):
            s = self.simulated("m%g" % at, 4, "0:1", 90, "decoupled-diloco(period=4)", "--fail", "0@%g" % at)
            figures = s["method_figures"]
            self.assertEqual([(e["kind"], e["rank"]) for e in s["events"]], [("lost", 0)])
            self.assertEqual([w["steps"] for w in s["by_worker"]], figures["steps_merged"][1:])
            self.assertEqual(figures["steps_dropped"], [0] * 4)

    def test_refusals_say_what_mends_them(self):
        self.refused("standby is 2, but the server is a rank that only serves, whose place no worker takes; omit "
                     "standby, or servers", "train", "--model", "mlp", "-n", 3, "--servers", 1, "--steps", 1,
                     "--method", "decoupled-diloco(standby=2)")
        done = tutti("train", "--model", "mlp", "-n", 2, "--steps", 1, "--method", "decoupled-diloco(quorum=3)")
        self.assertEqual(done.returncode, 2)
        self.assertIn("quorum is 3, but there are 2 workers; give at most that, or all", done.stderr)
        self.assertIn("reconstructed", tutti("methods", "decoupled-diloco").stdout)


if __name__ == "__main__":
    unittest.main(verbosity=2)
