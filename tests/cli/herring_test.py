"""herring as a user runs it: two hops in virtual time, the effect of slots and rails, ddp's bits on simulated hosts,
checkpoints, overlap, machines that are given and events that report what was chosen."""
import os, unittest
from command import *

MODEL = ("--model", "mlp(hidden=64)")


def model(out):
    return read(os.path.join(out, "model.safetensors"))


class Herring(Case):
    def platform(self, spec):
        path = self.out("platform.xml")
        with open(path, "w") as f:
            f.write(tutti("platform", spec).stdout)
        return path

    def exchange(self, n, platform, method, *more):
        """Summary of a few steps in virtual time."""
        return summary(self.train("e", "-n", n, "--batch", 1, "--transport", "sim", "--platform", platform,
                                  "--step-time", 0.001, "--steps", 3, "--final-eval", "off", "--eval-every", 100,
                                  "--method", method, *more))

    @unittest.skipUnless(SIMULATOR, "the simulator is not built")
    def test_a_buffer_takes_two_hops_whatever_the_workers(self):
        """1 ms a hop. A sum over n workers in 2 (n - 1) hops would take 30 ms with 16."""
        for n in (2, 16):
            links = self.platform("cluster(n=%d,rate=10Gbps,latency=1ms)" % n)
            figures = self.exchange(n, links, "herring(node=none)", "--model", "quadratic(dim=1000)")["method_figures"]
            for seconds in figures["two_hops_seconds"]:
                self.assertTrue(0.002 <= seconds < 0.0022, (n, seconds))

    @unittest.skipUnless(SIMULATOR, "the simulator is not built")
    def test_more_slots_and_rails_shorten_the_exchange(self):
        """Four machines of two; a worker's own link is a fifth of what its machine has to the others."""
        links = self.platform("two-level(machines=4,per_machine=2,rate=10Gbps,inner_rate=2Gbps,latency=1ms)")
        words = (*MODEL, "--data", self.data)
        seconds = {}
        small = ",fusion_mb=0.03,min_shard_kb=0"
        for spec in ("rails=1", "rails=2", "slots=1" + small, "slots=4" + small):
            s = self.exchange(8, links, "herring(node=2,%s)" % spec, *words)
            seconds[spec] = s["method_figures"]["exchange_seconds"][0]
            if "slots" in spec:
                slots = int(spec[6])
                self.assertEqual(s["method_figures"]["slots_most"], [slots] * 8)
                self.assertGreater(s["method_figures"]["slots_mean"][0], 0.75 * slots)
        one, four = (t for spec, t in seconds.items() if "slots" in spec)
        self.assertLess(seconds["rails=2"], 0.95 * seconds["rails=1"])
        self.assertLess(four, 0.5 * one)

    @unittest.skipUnless(SIMULATOR, "the simulator is not built")
    def test_simulated_runs_match_ddp_bitwise_also_after_resume(self):
        common = (*MODEL, "--data", self.data, "-n", 4, "--batch", 10, "--seed", 2, "--steps", 12, "--transport", "sim",
                  "--slow", "*:2:0.3", "--optimizer", "adamw(lr=0.002)", "--clip-norm", 2)
        ddp = model(self.train("ddp", *common, "--method", "ddp"))
        for k, (spec, servers) in enumerate((("node=none", 0), ("node=2,slots=2", 0), ("", 2), ("node=2", 3))):
            method = "herring(%s%sfusion_mb=0.05,min_shard_kb=0)" % (spec, "," if spec else "")
            whole = self.train("w%d" % k, *common, "--method", method, "--servers", servers, "--checkpoint-every", 5,
                               "--checkpoint-keep", 9)
            self.assertEqual(model(whole), ddp, method)
            first = os.path.join(whole, "checkpoints", sorted(os.listdir(os.path.join(whole, "checkpoints")))[0])
            out = self.train("r%d" % k, *common, "--method", method, "--servers", 3 - servers, "--resume", first)
            self.assertEqual(model(out), ddp, method)

    @unittest.skipUnless(SIMULATOR, "the simulator is not built")
    def test_overlapped_exchange_time_is_reported(self):
        """Most of a cnn's bytes are ready long before its backward is over; all of an mlp's about at its end."""
        links = self.platform("cluster(n=2,rate=10Gbps)")
        for name, least, most in (("cnn", 0.4, 1), ("mlp(hidden=64)", 0, 0.2)):
            s = self.exchange(2, links, "herring(node=none,fusion_mb=0.05,min_shard_kb=0)", "--model", name, "--data",
                              self.data)
            f = s["method_figures"]
            for hidden, busy in zip(f["hidden_seconds"], f["exchange_seconds"]):
                self.assertTrue(least * busy <= hidden <= most * busy, (name, hidden, busy))

    def test_node_count_is_reported_and_invalid_nodes_are_rejected(self):
        out = self.train("auto", *MODEL, "--data", self.data, "-n", 3, "--batch", 10, "--steps", 5, "--seed", 1,
                         "--method", "herring")
        s = summary(out)
        self.assertEqual([e["kind"] for e in s["events"]], ["one node"])
        self.assertEqual(s["method_figures"]["nodes"], 1)
        out = self.train("tcp", *MODEL, "--data", self.data, "-n", 3, "--batch", 10, "--steps", 5, "--seed", 1,
                         "--method", "herring", "--transport", "tcp")
        self.assertEqual(summary(out)["method_figures"]["nodes"], 3)
        self.refused("node has 3 workers, and sums of that many do not occur in the order", "train", *MODEL, "--data",
                     self.data, "-n", 6, "--out", self.out("no"), "--method", "herring(node=3)")

    def test_a_killed_server_is_named_and_ends_the_run(self):
        err, ranks = self.killed(4, 3, "-n", 2, "--servers", 2, "--method", "herring")
        self.assertIn("worker 3 was lost: process %d was killed by signal 9 (SIGKILL); it was server 1 of 2, "
                      "and its slice of the model is gone with it" % ranks[3], err)


if __name__ == "__main__":
    unittest.main(verbosity=2)
