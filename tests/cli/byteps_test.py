"""byteps as a user runs it: links that are busy for as long as the paper's split predicts, in virtual time; ddp's
bits on simulated hosts, one of them with a slow link; checkpoints of other servers and workers; events, figures,
lost workers."""
import os, unittest
from command import *

MODEL = ("--model", "mlp(hidden=64)")


def model(out):
    return read(os.path.join(out, "model.safetensors"))


class BytePS(Case):
    def platform(self, spec, change=lambda text: text):
        path = self.out("platform.xml")
        with open(path, "w") as f:
            f.write(change(tutti("platform", spec).stdout))
        return path

    @unittest.skipUnless(SIMULATOR, "the simulator is not built")
    def test_exchange_time_matches_the_papers_split(self):
        """Four machines on links of 100 Mbit/s, a gradient of 1.1 MB in 53 chunks, in 106 where a server has six times
        a machine's part, in 213 where each goes whole: 1.5, 4/3, 1.2, 12/11 and 1 of its bytes over a link, within a
        tenth."""
        for servers, assign in ((0, "slices"), (1, "slices"), (2, "slices"), (3, "slices"), (4, "slices"),
                                (2, "greedy")):
            chunk = 5120 if assign == "greedy" else 10240 if servers == 3 else 20480
            links = self.platform("cluster(n=%d,rate=100Mbps,latency=10us)" % (4 + servers))
            s = summary(self.train("e", "--model", "mlp(hidden=256)", "--data", self.data, "-n", 4, "--servers",
                                   servers, "--batch", 1, "--transport", "sim", "--platform", links, "--step-time",
                                   0.001, "--steps", 2, "--final-eval", "off", "--eval-every", 100, "--method",
                                   "byteps(partition_bytes=%d,assign=%s)" % (chunk, assign)))
            f = s["method_figures"]
            carried = 4 * s["params"] * f["share_of_link"] / 12.5e6
            for seconds in f["exchange_seconds"]:
                self.assertTrue(carried <= seconds / 2 <= 1.1 * carried, (servers, seconds / 2, carried))

    @unittest.skipUnless(SIMULATOR, "the simulator is not built")
    def test_simulated_runs_match_ddp_bitwise_also_after_resume(self):
        """Worker 1 is slow, and what it is sent comes over a link a hundred times slower than all others': it has the
        sum of its own step when the others' next gradients are long there."""
        common = (*MODEL, "--data", self.data, "--seed", 2, "--steps", 12, "--transport", "sim", "--slow", "*:1:0.3",
                  "--optimizer", "adamw(lr=0.002)", "--clip-norm", 2)
        ddp = model(self.train("ddp", *common, "-n", 4, "--batch", 10, "--method", "ddp"))
        cases = (("node=none", 0, 1), ("credits=2", 1, 4), ("node=2", 3, 0), ("priority=layer", 2, 5))
        for k, (spec, servers, others) in enumerate(cases):
            method = "byteps(%s,partition_bytes=50000)" % spec
            links = self.platform("cluster(n=16,rate=1Gbps)", lambda text: text.replace(
                '<link id="w1_down" bandwidth="1000000000bps"', '<link id="w1_down" bandwidth="10000000bps"'))
            whole = self.train("w%d" % k, *common, "-n", 4, "--batch", 10, "--method", method, "--servers", servers,
                               "--platform", links, "--checkpoint-every", 5, "--checkpoint-keep", 9)
            self.assertEqual(model(whole), ddp, method)
            first = os.path.join(whole, "checkpoints", sorted(os.listdir(os.path.join(whole, "checkpoints")))[0])
            out = self.train("r%d" % k, *common, "-n", 4, "--batch", 10, "--method", method, "--servers", others,
                             "--resume", first)
            self.assertEqual(model(out), ddp, method)
            if k == 1: # the same 40 samples a step
                eight = self.train("eight", *common, "-n", 8, "--batch", 5, "--method", method, "--servers", 0,
                                   "--resume", first)
                again = self.train("eight-ddp", *common, "-n", 8, "--batch", 5, "--method", method, "--servers", 8,
                                   "--resume", first)
                self.assertEqual(model(eight), model(again))

    @unittest.skipUnless(SIMULATOR, "the simulator is not built")
    def test_codec_residuals_are_in_the_checkpoint(self):
        """To the bit with the same workers and servers; other servers take the old residuals over by elements."""
        common = (*MODEL, "--data", self.data, "--seed", 2, "--steps", 12, "--transport", "sim",
                  "--optimizer", "sgd(lr=0.03)", "--codec", "topk(ratio=0.05)", "--method",
                  "byteps(partition_bytes=50000)")
        whole = self.train("w", *common, "-n", 4, "--batch", 10, "--servers", 2, "--checkpoint-every", 5,
                           "--checkpoint-keep", 9)
        folder = os.path.join(whole, "checkpoints")
        first = os.path.join(folder, sorted(os.listdir(folder))[0])
        again = self.train("a", *common, "-n", 4, "--batch", 10, "--servers", 2, "--resume", first)
        self.assertEqual(model(whole), model(again))
        losses = [summary(whole)["final_test_loss"]]
        for n, servers in ((4, 0), (4, 4), (2, 1), (8, 3)):
            out = self.train("o%d%d" % (n, servers), *common, "-n", n, "--batch", 40 // n, "--servers", servers,
                             "--resume", first)
            losses.append(summary(out)["final_test_loss"])
        self.assertLess(max(losses) - min(losses), 0.3 * min(losses), losses)

    def test_a_codec_has_the_same_bits_over_every_transport(self):
        common = (*MODEL, "--data", self.data, "-n", 2, "--servers", 1, "--batch", 10, "--seed", 2, "--steps", 6,
                  "--method", "byteps", "--codec", "onebit", "--final-eval", "off")
        models = [model(self.train(transport, *common, "--transport", transport))
                  for transport in ("shm", "tcp", *(["sim"] if SIMULATOR else []))]
        self.assertEqual(len(set(models)), 1)

    @unittest.skipUnless(SIMULATOR, "the simulator is not built")
    def test_run_with_a_codec_continues_after_losing_a_worker(self):
        out = self.train("lost", *MODEL, "--data", self.data, "-n", 3, "--servers", 3, "--batch", 10, "--seed", 2,
                         "--steps", 40, "--transport", "sim", "--step-time", 0.01, "--fail", "1@0.2", "--method",
                         "byteps(partition_bytes=50000)", "--codec", "topk(ratio=0.1)", "--optimizer", "sgd(lr=0.03)")
        s = summary(out)
        self.assertEqual((s["steps"], s["members"]), (40, [0, 2]))
        self.assertLess(s["final_test_loss"], 2)

    @unittest.skipUnless(SIMULATOR, "the simulator is not built")
    def test_asynchronous_runs_learn_repeat_and_resume(self):
        common = (*MODEL, "--data", self.data, "-n", 4, "--batch", 10, "--seed", 2, "--steps", 60, "--transport", "sim",
                  "--slow", "*:2:0.3", "--optimizer", "sgd(lr=0.03)", "--method", "byteps(async=on)", "--servers", 2)
        common += ("--checkpoint-every", 30, "--checkpoint-keep", 9)
        a = self.train("a", *common)
        self.assertEqual(model(a), model(self.train("b", *common)))
        self.assertGreater(summary(a)["final_test_accuracy"], 0.6)
        first = os.path.join(a, "checkpoints", sorted(os.listdir(os.path.join(a, "checkpoints")))[0])
        self.assertEqual(model(a), model(self.train("c", *common, "--resume", first)))
        other = self.train("d", *common, "--servers", 5, "--resume", first)
        self.assertGreater(summary(other)["final_test_accuracy"], 0.6)

    def test_gradient_split_is_reported(self):
        for servers, words in ((0, "0 servers sum 0 of the gradient each, 4 machines 0.25; each link carries 1.5"),
                               (2, "2 servers sum 0.3 of the gradient each, 4 machines 0.1; each link carries 1.2"),
                               (5, "with 4 servers: more do not help")):
            s = summary(self.train("told%d" % servers, "--model", "quadratic(dim=1000)", "-n", 4, "--batch", 1,
                                   "--steps", 2, "--method", "byteps", "--servers", servers))
            self.assertTrue(any(e["kind"] == "split" and words in e["text"] for e in s["events"]), s["events"])
            self.assertEqual(s["method_figures"]["servers"], servers)
            self.assertEqual(len(s["method_figures"]["server_bytes"]), servers if servers > 4 else 4 + servers)

    def test_a_killed_server_is_named_and_ends_the_run(self):
        err, ranks = self.killed(4, 3, "-n", 2, "--servers", 2, "--method", "byteps")
        self.assertIn("worker 3 was lost: process %d was killed by signal 9 (SIGKILL); it was server 1 of 2, "
                      "and its slice of the model is gone with it" % ranks[3], err)


if __name__ == "__main__":
    unittest.main(verbosity=2)
