"""local-sgd and d-psgd as a person runs them: accuracy, the same bytes twice, traffic against the
formula, resuming."""
import json, math, os, sys, unittest
from command import *

sys.dont_write_bytecode = True
sys.path.append(os.path.join(os.path.dirname(os.path.abspath(__file__)), "../../bench/papers"))

MODEL = ("--model", "mlp(hidden=64)")
PARAMS = 784 * 64 + 64 + 64 * 64 + 64 + 64 * 10 + 10
NEIGHBOURS = {"ring": lambda n: min(2, n - 1), "complete": lambda n: n - 1,
              "exponential": lambda n: (n - 1).bit_length(), "one-peer-exponential": lambda n: 1}


def model(out):
    return read(os.path.join(out, "model.safetensors"))


class Methods(Case):
    def test_local_sgd_learns_and_sends_one_all_reduce_a_period(self):
        for n, method, rounds in ((2, "local-sgd", 4), (3, "local-sgd(period=4)", 8),
                                  (2, "local-sgd(period=7,outer=sgd(lr=0.7,momentum=0.9,nesterov=true))", 5)):
            out = self.train("%d%d" % (n, rounds), *MODEL, "--data", self.data, "-n", n, "--batch", 10, "--steps", 30,
                             "--method", method, "--seed", 1)
            s = summary(out)
            self.assertEqual(s["steps"], 30)
            self.assertEqual(s["bytes_sent_total"], rounds * 2 * (n - 1) * 4 * PARAMS)  # ceil(30 / period) all-reduces
            self.assertGreater(s["final_test_accuracy"], 0.3)
            self.assertEqual((s["staleness_max"], s["staleness_mean"]), (0, 0))

    def test_a_warm_up_of_local_sgd_is_ddp(self):
        common = (*MODEL, "--data", self.data, "-n", 3, "--batch", 20, "--steps", 15, "--seed", 5)
        self.assertEqual(model(self.train("a", *common, "--method", "local-sgd(warmup=15)")),
                         model(self.train("b", *common, "--method", "ddp")))
        out = self.train("c", *common, "--method", "local-sgd(period=5,warmup=5)")
        self.assertEqual(summary(out)["bytes_sent_total"], (5 + 2) * 2 * 2 * 4 * PARAMS)

    def test_d_psgd_learns_and_traffic_matches_the_graph(self):
        for n, graph in ((1, "ring"), (2, "ring"), (3, "ring"), (7, "ring"), (4, "complete"), (5, "exponential"),
                         (6, "one-peer-exponential")):
            method = "d-psgd" if graph == "ring" else "d-psgd(graph=%s)" % graph
            out = self.train("%d%s" % (n, graph), *MODEL, "--data", self.data, "-n", n, "--batch", 8, "--steps", 24,
                             "--method", method, "--seed", 1)
            s = summary(out)
            mixed, at_the_end = 24 * n * NEIGHBOURS[graph](n) * 4 * PARAMS, 2 * (n - 1) * 4 * PARAMS
            self.assertEqual(s["bytes_sent_total"], mixed + at_the_end)
            self.assertGreater(s["final_test_accuracy"], 0.3)
            self.assertEqual((s["staleness_max"], s["staleness_mean"]), (0, 0))

    @unittest.skipUnless(SIMULATOR, "the simulator is not built")
    def test_a_step_of_a_pipe_takes_the_longer_of_computing_and_communicating(self):
        common = (*MODEL, "--data", self.data, "-n", 4, "--batch", 8, "--steps", 40, "--transport", "sim",
                  "--report-every", 40, "--final-eval", "off")
        for k, mbits in enumerate((580, 290, 1160)): # as long as computing, twice, half
            links = ("--platform", unequal_links(self.out("links%d.xml" % k), [mbits] * 4))
            ddp, pipe = (summary(self.train("%d%d" % (k, i), *common, *links, "--step-time", 0.005, "--method", method))
                         for i, method in enumerate(("ddp", "pipe-sgd(warmup=0)")))
            computing, talking = (ddp[key] for key in ("compute_seconds", "comm_seconds"))
            self.assertLess(pipe["wall_seconds"], 1.1 * max(computing, talking), (mbits, computing, talking))
            self.assertGreater(ddp["wall_seconds"], 0.95 * (computing + talking), mbits)
            self.assertEqual(pipe["bytes_sent_total"], ddp["bytes_sent_total"])
            self.assertEqual((pipe["staleness_max"], pipe["staleness_mean"]), (1, 1))

    @unittest.skipUnless(SIMULATOR, "the simulator is not built")
    def test_forward_hides_the_exchange_of_the_previous_step(self):
        """The linear layers of cnn have most of its parameters, and its convolutions most of its work."""
        links = ("--platform", unequal_links(self.out("cnn.xml"), [540] * 4))
        common = ("--model", "cnn", "--data", self.data, "-n", 4, "--batch", 2, "--steps", 10, "--transport", "sim",
                  "--step-time", 0.02, "--report-every", 10, "--final-eval", "off", *links)
        sizes = "partition_mb=0.0625,credit_mb=0.125,fuse_mb=0.015"
        ddp, ours, inside = (self.train(name, *common, "--method", method) for name, method in
                             (("ddp", "ddp(bucket_mb=0.0625,first_bucket_mb=0.0625)"),
                              ("ours", "bytescheduler(%s)" % sizes),
                              ("inside", "bytescheduler(%s,cross_barrier=off)" % sizes)))
        self.assertEqual(model(ours), model(ddp))
        seconds = [summary(out)["wall_seconds"] for out in (ddp, ours, inside)]
        self.assertLess(seconds[1], 0.9 * seconds[0])
        self.assertGreater(seconds[2], 0.95 * seconds[0])

    @unittest.skipUnless(SIMULATOR, "the simulator is not built")
    def test_shard_exchange_overlaps_backward_and_the_next_forward(self):
        """zero: what the values take is hidden by the forward, which ddp's sums cannot be. In stage 2 backward waits
        for the exchange where it is ahead of it by two buckets, the less the larger they are."""
        links = ("--platform", unequal_links(self.out("shards.xml"), [540] * 4))
        common = ("--model", "cnn", "--data", self.data, "-n", 4, "--batch", 2, "--steps", 10, "--transport", "sim",
                  "--step-time", 0.02, "--report-every", 10, "--final-eval", "off", *links)
        small, large = "bucket_mb=0.0625", "bucket_mb=0.4"
        outs = [self.train(name, *common, "--method", "%s,first_bucket_mb=0.0625)" % method)
                for name, method in (("plain", "ddp(" + small), ("one", "zero(" + small),
                                     ("two", "zero(stage=2," + large), ("short", "zero(stage=2," + small))]
        self.assertEqual({model(out) for out in outs}, {model(outs[0])})
        seconds = [summary(out)["wall_seconds"] for out in outs]
        self.assertLess(seconds[1], 0.97 * seconds[0])
        self.assertLess(seconds[2], 1.15 * seconds[0])
        self.assertLess(seconds[3], 1.35 * seconds[0])
        self.assertLess(seconds[2], 0.95 * seconds[3])

    @unittest.skipUnless(SIMULATOR, "the simulator is not built")
    def test_overlap_exchanges_buckets_during_backward_instead_of_after_it(self):
        links = ("--platform", unequal_links(self.out("cnn.xml"), [540] * 4))
        common = ("--model", "cnn", "--data", self.data, "-n", 4, "--batch", 2, "--steps", 3, "--transport", "sim",
                  "--step-time", 0.02, "--final-eval", "off", "--trace", *links)
        models, early = [], []
        for k, switch in enumerate(("on", "off")):
            out = self.train(switch, *common, "--method", "bagua(bucket_mb=0.0625,overlap=%s)" % switch)
            with open(os.path.join(out, "trace.json")) as f:
                events = [e for e in json.load(f) if e["pid"] == 0 and e["ph"] == "X"]
            backward = [(e["ts"], e["ts"] + e["dur"]) for e in events if e["cat"] == "backward"]
            begun = [e["ts"] for e in events if e["cat"] == "exchange"]
            self.assertEqual(len(begun), 9)
            early.append(sum(any(start < at < end - 1 for start, end in backward) for at in begun))
            models.append(model(out))
        self.assertEqual(models[0], models[1])
        self.assertEqual(early, [3, 0])

    def test_schedule_optimum_agrees_with_search_and_bounds(self):
        import schedule
        schedule.check(40, 1)

    def test_one_worker_of_either_method_equals_single(self):
        common = (*MODEL, "--data", self.data, "-n", 1, "--batch", 50, "--epochs", 2)
        single = model(self.train("single", *common, "--method", "single"))
        for i, method in enumerate(("local-sgd(period=3)", "d-psgd", "d-psgd(order=atc)")):
            self.assertEqual(model(self.train("m%d" % i, *common, "--method", method)), single)

    def test_the_same_command_twice_gives_the_same_bytes_with_overlap_or_without(self):
        common = ("--model", "mlp(hidden=384)", "--data", self.data, "-n", 3, "--batch", 20, "--steps", 12, "--seed", 7)
        first = model(self.train("a", *common, "--method", "d-psgd"))
        for i, method in enumerate(("d-psgd", "d-psgd(overlap=off)")):
            self.assertEqual(model(self.train("b%d" % i, *common, "--method", method)), first)
        local = [model(self.train("l%d" % i, *common, "--method", "local-sgd(period=5)")) for i in range(2)]
        self.assertEqual(local[0], local[1])
        self.assertNotEqual(local[0], first)

    def test_the_complete_graph_is_an_all_reduce_of_models(self):
        common = (*MODEL, "--data", self.data, "-n", 3, "--batch", 20, "--steps", 10, "--seed", 7)
        a = floats(os.path.join(self.train("a", *common, "--method", "d-psgd(complete,order=atc)"),
                                "model.safetensors"))
        b = floats(os.path.join(self.train("b", *common, "--method", "local-sgd(period=1)"), "model.safetensors"))
        # the mean of three equal models, once more, at the end
        self.assertLessEqual(max(abs(x - y) for x, y in zip(a, b)), 1e-6)

    def test_a_run_resumed_in_mid_period_ends_with_the_same_bytes(self):
        for i, method in enumerate(("local-sgd(period=5)",
                                    "local-sgd(period=5,outer=sgd(lr=0.7,momentum=0.9,nesterov=true))", "d-psgd",
                                    "d-psgd(one-peer-exponential,order=atc)", "palsgd(period=5,mix_prob=0.4)",
                                    "diloco(period=6,fragments=2,delay=2)",  # an exchange is under way
                                    "diloco(period=4,overlap=eager)",
                                    "noloco(period=5)")):  # and slow models
            common = (*MODEL, "--data", self.data, "-n", 3, "--batch", 10, "--method", method, "--seed", 2,
                      "--steps", 20, "--checkpoint-every", 8, "--checkpoint-keep", 9)
            whole = self.train("w%d" % i, *common)
            checkpoints = os.path.join(whole, "checkpoints")
            first = os.path.join(checkpoints, sorted(os.listdir(checkpoints))[0])
            resumed = self.train("r%d" % i, *common, "--resume", first)
            self.assertEqual(summary(resumed)["resumed_at_step"], 8)
            self.assertEqual(model(whole), model(resumed), method)

    def test_a_killed_neighbour_ends_the_run_and_is_named(self):
        for method in ("d-psgd", "d-psgd(one-peer-exponential,order=atc)", "local-sgd(period=3)",
                       "diloco(period=4,fragments=2,delay=1)"):
            err, workers = self.killed(5, 3, "-n", 5, "--method", method, "--on-loss", "stop")
            self.assertIn("worker 3 was lost: process %d was killed by signal 9 (SIGKILL)" % workers[3], err)

    def test_trace_shows_mixing_overlapping_computation(self):
        out = self.train("t", "--model", "mlp", "--data", self.data, "-n", 2, "--batch", 64, "--steps", 10,
                         "--trace", "--final-eval", "off", "--method", "d-psgd", "--lane", "on")
        with open(os.path.join(out, "trace.json")) as f:
            events = json.load(f)
        for rank in (0, 1):
            mixes = [e for e in events if e["pid"] == rank and e.get("cat") == "mix"]
            self.assertEqual(sorted(e["args"]["step"] for e in mixes), list(range(10)))
            backward = {e["args"]["step"]: e for e in events if e["pid"] == rank and e.get("cat") == "backward"}
            self.assertTrue(any(e["ts"] < backward[e["args"]["step"]]["ts"] for e in mixes))

    def test_hetero_ring_gives_a_slow_worker_less_and_loses_no_sample(self):
        """8 times slower: 14 and 2 of 16 micro-batches are due. The bounds are loose, since the
        machine may be busy."""
        common = ("--model", "mlp(hidden=384)", "--data", self.data, "-n", 2, "--batch", 32, "--epochs", 4,
                  "--threads", 1, "--seed", 3)
        ring = self.train("ring", *common, "--method", "hetero-ring(adapt_every=5)", "--slow", "1:8")
        plain = self.train("plain", *common, "--method", "ddp")
        s = summary(ring)
        first, second = (w["passes"] for w in s["by_worker"])
        self.assertEqual((first + second, s["samples"], s["steps"]), (16, 2400, 40))
        self.assertGreater(first, 2 * second)
        self.assertGreaterEqual(len([e for e in s["events"] if e["kind"] == "allocation"]), 2)
        gathered = 4 * 2 * (40 // 5)
        # two workers: a ring's bytes are any all-reduce's
        self.assertEqual(s["bytes_sent_total"], summary(plain)["bytes_sent_total"] + gathered)
        a, b = (floats(os.path.join(o, "model.safetensors")) for o in (ring, plain))
        self.assertLessEqual(math.sqrt(sum((x - y) ** 2 for x, y in zip(a, b))),
                             5e-3 * math.sqrt(sum(x * x for x in b)))

    def test_hetero_ring_runs_with_its_defaults_on_any_number_of_workers(self):
        for n, batch in ((1, 64), (3, 20), (4, 1), (5, 11)):
            s = summary(self.train("n%d" % n, *MODEL, "--data", self.data, "-n", n, "--batch", batch, "--steps", 12,
                                   "--method", "hetero-ring"))
            self.assertEqual(sum(w["passes"] * w["batch"] for w in s["by_worker"]), n * batch)

    def test_impossible_graphs_are_refused_by_the_command_in_one_sentence(self):
        self.refused("graph 'hypercube' cannot have 3 members; their number must be a power of two: 2 or 4", "train",
                     *MODEL, "--data", self.data, "-n", 3, "--method", "d-psgd(hypercube)", "--out", self.out("a"))


if __name__ == "__main__":
    unittest.main(verbosity=2)
