"""dabmd on simulated workers of unequal speed: how long a round lasts, how many samples each worker
takes, and that a recorded run is replayed to the bit, on another transport too. Times are virtual."""
import json, os, shutil, unittest

from command import scratch, small_mnist, summary, tensors, tutti


class Dabmd(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = scratch()
        cls.data = small_mnist(os.path.join(cls.folder, "mnist"), train=2048, test=32)
        cls.platform = os.path.join(cls.folder, "platform.xml")
        with open(cls.platform, "w") as f:
            f.write(tutti("platform", "cluster(n=4,rate=100Gbps,latency=1us,speed=10Tf)").stdout)

    @classmethod
    def tearDownClass(cls):
        shutil.rmtree(cls.folder)

    def at(self, name):
        return os.path.join(self.folder, name)

    def train(self, name, method, *more, sim=True, code=0):
        where = ["--transport", "sim", "--platform", self.platform, "--step-time", 0.01, "--slow", "1:2,2:4,3:4"]
        done = tutti("train", "--model", "mlp(hidden=16)", "--data", self.data, "--threads", 1, "--quiet",
                     "--batch", 16, "--epochs", 1, "--final-eval", "off", "-n", 4, "--method", method,
                     "--out", self.at(name), *(where if sim else []), *more)
        self.assertEqual(done.returncode, code, done.stderr)
        return done.stderr if code else summary(self.at(name))

    def counts(self, name):
        with open(self.at(name)) as f:
            return [json.loads(line)["took"] for line in f if "took" in line]

    def model(self, name):
        return tensors(os.path.join(self.at(name), "model.safetensors"))

    def test_nobody_waits_and_a_recorded_run_is_replayed(self):
        record = self.at("record")
        s = self.train("recorded", f"dabmd(compute_ms=20,record={record})")
        took = self.counts("record")
        self.assertEqual(sum(map(sum, took)), 2048)
        for of in took[:-3]:                    # a sample takes 0.625 ms on the fastest
            for count, speed in zip(of, (32, 16, 8, 8)):
                self.assertAlmostEqual(count, speed, delta=8)
        self.assertEqual(s["samples"], 2048)
        self.assertEqual(s["steps"], len(took))
        # 20 ms, at most one micro-batch of the slowest (20 ms), and next to nothing for the network
        self.assertLess(s["wall_seconds"], len(took) * 0.0405)
        ddp = self.train("ddp", "ddp")
        self.assertGreater(ddp["wall_seconds"] / s["wall_seconds"], 1.8)
        for row in s["by_worker"]:              # no worker waits for more than a part of a micro-batch
            self.assertLess(row["exposed_comm_seconds"], 0.15 * s["wall_seconds"])
        self.assertEqual(sum(s["method_figures"]["samples"]), 2048)

        self.train("replayed", f"dabmd(compute_ms=20,replay={record})", sim=False)
        self.assertEqual(self.model("replayed"), self.model("recorded"))
        self.assertIn("must be the record of a run with",
                      self.train("other", f"dabmd(compute_ms=20,replay={record})", "-n", 2, "--slow", "1:2", code=2))

    def test_a_worker_that_all_but_stands_still_stops_nobody(self):
        s = self.train("still", "dabmd(compute_ms=20,microbatch=1,min_batch=1)", "--slow", "3:32")
        samples = s["method_figures"]["samples"]
        self.assertLessEqual(samples[3], s["steps"] + 2) # a sample takes it the whole round
        self.assertLess(s["wall_seconds"], 1.05 * s["steps"] * 0.0205)

    def test_a_measured_round_is_a_whole_number_of_micro_batches(self):
        for seconds in ("0.016", "0.013", "0.0123", "0.1"): # of a float's 24 bits some round T_c up
            s = self.train("exact" + seconds, "dabmd(microbatch=1)", "--batch", 8, "--step-time", seconds)
            # the median, here twice as slow as the fastest, takes the run's batch in T_c
            self.assertAlmostEqual(s["method_figures"]["compute_ms"], 2000 * float(seconds), delta=1e-5)
            took = s["method_figures"]["batch_mean"]
            for count, of in zip(took, (16, 8, 4, 4)):
                self.assertAlmostEqual(count, of, delta=0.03 * of)  # the first rounds, and the last

    def test_a_worker_that_is_late_in_every_round_is_named(self):
        s = self.train("late", "dabmd(compute_ms=20)", "--slow", "1:2,2:4,3:16")
        self.assertEqual([e["kind"] for e in s["events"]], ["late"])
        self.assertRegex(s["events"][0]["text"],
                         r"^worker 3 was late in \d+ of \d+ rounds, and all waited for it: the least that it takes, "
                         r"about 8 samples, is more than a round of 20 ms has time for; give a smaller microbatch, or "
                         r"a longer compute_ms$")
        self.assertEqual(s["method_figures"]["late_rounds"][:3], [0, 0, 0])
        # with smaller ones it is not
        s = self.train("in time", "dabmd(compute_ms=20,microbatch=1)", "--slow", "1:2,2:4,3:16")
        self.assertEqual((s["events"], s["method_figures"]["late_rounds"]), ([], [0, 0, 0, 0]))

    def test_the_regret_of_a_drifting_optimum_is_reported(self):
        regret = {}
        for rate in (2, 0.001):
            done = tutti("train", "--data", "quadratic(dim=20,simplex=on,drift=0.5,noise=0.01)", "-n", 4,
                         "--transport", "sim", "--step-time", 0.01, "--steps", 100, "--batch", 4, "--quiet",
                         "--method", "dabmd(mirror=entropy)", "--optimizer", f"sgd(lr={rate})", "--overwrite",
                         "--out", self.at("regret"))
            self.assertEqual(done.returncode, 0, done.stderr)
            regret[rate] = summary(self.at("regret"))["dynamic_regret"]
        self.assertLess(regret[2], 0.5 * regret[0.001])
        self.assertIsNone(self.train("images", "dabmd(compute_ms=20)")["dynamic_regret"])

    # Evaluation goes over samples and takes the agreed model; the regret goes by the optimum and
    # takes each worker's own. With curvature 1 the mean of the own excesses is that of the agreed
    # model and half of the squared distance from it.
    def test_regret_is_the_sum_of_the_evaluated_losses(self):
        def losses(steps, drift, method, rate):
            out = self.at("evaluated")
            done = tutti("train", "--data", f"quadratic(dim=20,simplex=on,condition=1,drift={drift},noise=0.1)",
                         "-n", 3, "--transport", "sim", "--steps", steps, "--batch", 4, "--quiet", "--eval-every", 1,
                         "--method", method, "--optimizer", f"sgd(lr={rate})", "--overwrite", "--out", out)
            self.assertEqual(done.returncode, 0, done.stderr)
            with open(os.path.join(out, "metrics.jsonl")) as f:
                rows = [row for row in map(json.loads, f) if "test_loss" in row]
            self.assertEqual([row["step"] for row in rows], list(range(1, steps + 1)))
            return [row["test_loss"] + row["consensus_distance"] ** 2 / 2 for row in rows], summary(out)

        first, _ = losses(1, 0, "ddp", 1e-12)   # of the initial model
        for method in ("ddp", "d-psgd"):
            later, s = losses(9, 0.5, method, 0.3)
            self.assertAlmostEqual(s["dynamic_regret"] / (3 * (first[0] + sum(later[:8]))), 1, delta=1e-4)
            self.assertEqual(s["consensus_distance"] > 0.01, method == "d-psgd")


if __name__ == "__main__":
    unittest.main(verbosity=2)
