"""ad-psgd as a user runs it: asynchronous workers, each gradient once, traffic against the formula,
one slow worker, resuming to the bit under the simulator."""
import json, os, signal, subprocess, time, unittest
from command import *

MODEL = ("--model", "mlp(hidden=64)")
PARAMS = 784 * 64 + 64 + 64 * 64 + 64 + 64 * 10 + 10


def model(out):
    return read(os.path.join(out, "model.safetensors"))


def steps(s):
    return [w["steps"] for w in s["by_worker"]]


class Asynchronous(Case):
    def check_counts(self, s, n, count, exchanges):
        """All ask: an averaging is a model up and a model down; at the end one average of all."""
        self.assertEqual(sum(steps(s)), count)
        self.assertEqual(s["bytes_sent_total"], (2 * exchanges * count + 2 * (n - 1)) * 4 * PARAMS if n > 1 else 0)
        self.assertAlmostEqual(s["compute_seconds"] + s["exposed_comm_seconds"] + s["other_seconds"], s["wall_seconds"],
                               delta=0.02 * s["wall_seconds"])

    def test_trains_on_1_to_7_workers_with_expected_traffic(self):
        for n, method, exchanges in ((1, "ad-psgd", 1), (2, "ad-psgd", 1), (3, "ad-psgd(graph=ring)", 1),
                                     (4, "ad-psgd(exchanges=2)", 2), (7, "ad-psgd(ring,peer=cyclic)", 1)):
            for transport in and_sim("shm"):
                out = self.train("%d%s" % (n, transport), *MODEL, "--data", self.data, "-n", n, "--batch", 20,
                                 "--steps", 100, "--method", method, "--seed", 1, "--transport", transport)
                s = summary(out)
                self.assertEqual((s["steps"], s["samples"]), (100, 100 * n * 20))
                self.check_counts(s, n, 100 * n, exchanges)
                self.assertGreater(s["final_test_accuracy"], 0.4)
                if n == 1:
                    self.assertEqual(model(out),
                                     model(self.train("single" + transport, *MODEL, "--data", self.data, "--batch", 20,
                                                      "--steps", 100, "--method", "single", "--seed", 1)))

    def test_epochs_have_the_expected_sample_and_step_counts(self):
        per_epoch = -(-600 // 32)
        s = summary(self.train("e", *MODEL, "--data", self.data, "-n", 4, "--batch", 32, "--epochs", 3,
                               "--method", "ad-psgd", "--target", "loss=1e-9"))
        self.assertEqual(s["samples"], 3 * 600)
        self.check_counts(s, 4, 3 * per_epoch, 1)
        self.assertAlmostEqual(s["epochs"], 3)

    def test_metrics_are_reported_in_step_order(self):
        out = self.train("m", *MODEL, "--data", self.data, "-n", 3, "--batch", 8, "--steps", 100, "--report-every", 20,
                         "--method", "ad-psgd")
        lines = [json.loads(line) for line in read(os.path.join(out, "metrics.jsonl")).splitlines()]
        reports = [line for line in lines if "train_loss" in line]
        self.assertGreaterEqual(len(reports), 1)
        self.assertEqual(reports[-1]["step"], 100)
        self.assertEqual([r["step"] for r in reports], sorted(r["step"] for r in reports))

    def test_resumed_run_completes_the_remaining_steps(self):
        common = (*MODEL, "--data", self.data, "-n", 3, "--batch", 10, "--method", "ad-psgd", "--seed", 2,
                  "--checkpoint-every", 8, "--checkpoint-keep", 9)
        whole = self.train("w", *common, "--steps", 20)
        checkpoints = os.path.join(whole, "checkpoints")
        self.assertEqual([name[-2:] for name in sorted(os.listdir(checkpoints))], ["08", "16"])
        s = summary(self.train("r", *common, "--steps", 20,
                               "--resume", os.path.join(checkpoints, sorted(os.listdir(checkpoints))[0])))
        # by_worker, too, is of the whole run
        self.assertEqual((s["resumed_at_step"], s["steps"], s["samples"], sum(steps(s))), (8, 20, 600, 60))

    @unittest.skipUnless(SIMULATOR, "the simulator is not built")
    def test_simulated_runs_repeat_and_resume_to_the_bit_under_random_pauses(self):
        edge = self.out("edge.xml")
        with open(edge, "w") as f:
            f.write(tutti("platform", "edge(12)").stdout)
        for n, method, slow in ((5, "ad-psgd(graph=ring)", "0:1.31,*:2.2:0.4"),
                                (4, "ad-psgd(exchanges=2,outstanding=3)", "*:3:0.3"), (8, "ad-psgd", "2:5"),
                                (7, "ad-psgd(exchanges=0)", "*:2:0.5")):
            common = (*MODEL, "--data", self.data, "-n", n, "--batch", 10, "--method", method, "--seed", 2,
                      "--steps", 60, "--checkpoint-every", 15, "--checkpoint-keep", 9, "--slow", slow,
                      "--transport", "sim", *(("--platform", edge) if n in (4, 7) else ()))
            whole = self.train("w%d" % n, *common)
            if n == 5: # from their checkpoints all repeat; from their beginning this one
                self.assertEqual(model(whole), model(self.train("again", *common)))
            checkpoints = os.path.join(whole, "checkpoints")
            for name in one_of(n, sorted(os.listdir(checkpoints))[:-1]):
                resumed = self.train("r%d%s" % (n, name), *common, "--resume", os.path.join(checkpoints, name))
                self.assertEqual(model(whole), model(resumed), name)
                self.assertGreater(len(set(steps(summary(resumed)))), 1)

    @unittest.skipUnless(SIMULATOR, "the simulator is not built")
    def test_one_slow_worker_slows_nobody_else(self):
        """The paper's headline: ddp is as slow as the slowest worker, ad-psgd is hardly affected. A
        gradient takes 10 ms; at the end all wait for the last one of the slow worker."""
        common = ("--model", "quadratic(dim=50)", "-n", 8, "--steps", 400, "--batch", 16, "--transport", "sim",
                  "--step-time", 0.01)
        even = summary(self.train("even", *common, "--method", "ad-psgd"))
        for factor in (5, 100):
            slow = summary(self.train("slow%d" % factor, *common, "--method", "ad-psgd", "--slow", "3:%d" % factor))
            others = 7 + 1 / factor
            self.assertLess(slow["wall_seconds"] - 0.01 * factor, even["wall_seconds"] * 8 / others * 1.05)
            self.assertGreater(slow["wall_seconds"], even["wall_seconds"] * 8 / others * 0.95)
            self.assertLess(steps(slow)[3] * factor * 0.9, min(steps(slow)[:3]))
            ddp = summary(self.train("ddp%d" % factor, *common, "--method", "ddp", "--slow", "3:%d" % factor))
            self.assertGreater(ddp["wall_seconds"], 0.01 * factor * 400)
            self.assertGreater(ddp["wall_seconds"] / slow["wall_seconds"], 0.7 * factor)

    @unittest.skipUnless(SIMULATOR, "the simulator is not built")
    def test_one_slow_link_slows_nobody_but_the_worker_behind_it(self):
        """A gradient takes 10 ms, an averaging across the slow link half a second: a model of 31 kB
        each way at 1 Mbit/s. The other workers have the one behind it as a neighbour, and still make
        all their pending averagings."""
        common = ("--model", "logistic", "--data", self.data, "--batch", 10, "--steps", 800, "--seed", 1,
                  "--step-time", 0.01, "--transport", "sim", "--final-eval", "off")
        for i, (n, graph, exchanges) in enumerate(((4, "", 1), (4, "graph=complete,", 2), (5, "", 1),
                                                   (6, "graph=ring,", 1))):
            links = unequal_links(self.out("%d.xml" % i), [1000] * (n - 1) + [1])
            s = summary(self.train("%d" % i, *common, "-n", n,
                                   "--method", "ad-psgd(%sexchanges=%d)" % (graph, exchanges), "--platform", links))
            self.assertEqual(s["bytes_sent_total"], (2 * exchanges * 800 * n + 2 * (n - 1)) * 4 * 7850)
            # of all others and of its own, models are on their way over the slow link, and the mean
            # then
            end = (2 * (n - 1) + 2 * exchanges + 2) * 4 * 7850 * 8 / 1e6
            for w in s["by_worker"][:-1]:
                self.assertGreater(w["steps"] / (s["wall_seconds"] - end), 90, (n, graph, w))

    def test_h_adpsgd_sums_within_machines_and_averages_between_them(self):
        """h-adpsgd: one machine is ddp and machines of one are ad-psgd, to the bit; every sample
        once, by any worker; traffic; a slow machine slows no other; resuming."""
        common = (*MODEL, "--data", self.data, "-n", 4, "--batch", 10, "--seed", 2)
        sim = ("--transport", "sim", "--steps", 40)
        ddp = self.train("ddp", *common, "--steps", 30, "--method", "ddp")
        one = self.train("one", *common, "--steps", 30, "--method", "h-adpsgd")  # shm: all on one machine
        self.assertEqual(model(one), model(ddp))
        self.assertEqual([e["kind"] for e in summary(one)["events"]], ["one super-learner"])
        for transport in ("shm", "tcp"):
            out = self.train("two" + transport, *common, "--epochs", 3, "--method", "h-adpsgd(super_learner=2)",
                             "--transport", transport)
            s = summary(out)
            blocks = sum(steps(s)[::2])
            self.assertEqual((s["samples"], steps(s)[::2]), (1800, steps(s)[1::2]))
            # inside: all-reduce, model; between: a pair; at the end the mean
            self.assertEqual(s["bytes_sent_total"], (2 * blocks + 2 * blocks + blocks + 2 * 3) * 4 * PARAMS)
            self.assertGreaterEqual(s["worst_test_loss"], s["final_test_loss"] * 0.5)
            self.assertIn(s["worst_worker"], range(4))
        if not SIMULATOR:
            return narrowed("what a slow machine costs, and resuming: the simulator is not built")
        self.assertEqual(model(self.train("alone", *common, *sim, "--method", "h-adpsgd(super_learner=none)")),
                         model(self.train("pairs", *common, *sim, "--method", "ad-psgd")))
        slow = (*sim, "--step-time", 0.01, "--slow", "1:5", "--checkpoint-every", 15, "--checkpoint-keep", 9,
                "--method", "h-adpsgd(super_learner=2)")
        whole = self.train("slow", *common, *slow)
        s = summary(whole)
        self.assertEqual(steps(s)[::2], steps(s)[1::2])
        self.assertLess(steps(s)[0] * 3, steps(s)[2])  # the machine of the slow worker waits for it, the other does not
        checkpoints = os.path.join(whole, "checkpoints")
        for name in sorted(os.listdir(checkpoints))[:-1]:
            self.assertEqual(model(whole), model(self.train("r" + name, *common, *slow,
                                                            "--resume", os.path.join(checkpoints, name))), name)

    def test_the_worst_of_the_workers_own_models_is_evaluated_too(self):
        """Against an evaluation of our own, of every worker's model as the last checkpoint has
        it."""
        common = ("--model", "mlp(hidden=16)", "--data", self.data, "-n", 3, "--batch", 10, "--steps", 40, "--seed", 1)
        equal = summary(self.train("equal", *common, "--method", "ddp"))
        self.assertEqual((equal["worst_test_loss"], equal["worst_test_accuracy"], equal["worst_worker"]),
                         (equal["final_test_loss"], equal["final_test_accuracy"], None))
        # three that never average: each is what one worker makes of its samples
        alone = self.train("alone", *common, "--method", "single", "--checkpoint-every", 40)
        s = summary(alone)
        at = os.path.join(alone, "checkpoints", "step-00000040")
        own = [mlp_evaluated(os.path.join(at, "rank-%05d-of-00003.safetensors" % r), self.data) for r in range(3)]
        worst = max(range(3), key=lambda r: own[r][0])
        self.assertEqual(s["worst_worker"], worst)
        self.assertAlmostEqual(s["worst_test_loss"], own[worst][0], delta=1e-4)
        self.assertAlmostEqual(s["worst_test_accuracy"], own[worst][1], delta=1e-9)
        loss, accuracy = mlp_evaluated(os.path.join(alone, "model.safetensors"), self.data)
        self.assertAlmostEqual(s["final_test_loss"], loss, delta=1e-4)  # of their mean
        self.assertAlmostEqual(s["final_test_accuracy"], accuracy, delta=1e-9)
        self.assertGreater(max(o[0] for o in own) - min(o[0] for o in own), 0.01)  # else any of them would do
        last = json.loads(read(os.path.join(alone, "metrics.jsonl")).splitlines()[-1])
        self.assertEqual((last["worst_worker"], last["worst_test_accuracy"]),
                         (s["worst_worker"], round(s["worst_test_accuracy"], 9)))
        # 40 steps: the last ends with an average, so all models are the agreed one
        met = summary(self.train("met", *common, "--method", "local-sgd(period=10)"))
        self.assertEqual((met["worst_test_loss"], met["worst_test_accuracy"], met["worst_worker"]),
                         (met["final_test_loss"], met["final_test_accuracy"], 0))
        off = self.train("off", *common, "--method", "single", "--final-eval", "off")
        self.assertIsNone(summary(off)["worst_test_loss"])
        self.assertEqual(model(off), model(alone))  # looking changes no bit

    def test_a_killed_neighbour_ends_the_run_and_is_named(self):
        for method in ("ad-psgd", "ad-psgd(exchanges=0)"):
            err, _ = self.killed(5, 3, "-n", 5, "--method", method, "--on-loss", "stop")
            self.assertIn("worker 3", err)

    def test_unsupported_combinations_are_rejected(self):
        for args, sentence in ((("--method", "ad-psgd(graph=rnig)"), "there is no graph 'rnig'; did you mean 'ring'?"),
                               (("--method", "ad-psgd", "--batch-share", "auto"), "batch-share cuts a step by worker"),
                               (("--method", "ad-psgd(peer=nearest)"), "peer"),
                               (("--method", "ad-psgd(graph=ring,roles=bipartite)"),
                                "graph 'ring' of 3 members has no two roles: members "),
                               (("--method", "ad-psgd(exchanges=x)"), "exchanges")):
            self.refused(sentence, "train", *MODEL, "--data", self.data, "-n", 3, "--out", self.out("no"), *args)


if __name__ == "__main__":
    unittest.main(verbosity=2)
