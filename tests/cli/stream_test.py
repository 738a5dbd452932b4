"""--stream: samples that arrive at rates. The computation does not change, its times follow from
the rates; no sample is lost without a report; impossible options give an error message. Times are
virtual."""
import os, shutil, unittest

from command import scratch, small_mnist, summary, tensors, tutti


class Stream(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = scratch()
        cls.data = small_mnist(os.path.join(cls.folder, "mnist"), train=256, test=32)
        cls.platform = os.path.join(cls.folder, "platform.xml")
        with open(cls.platform, "w") as f:
            f.write(tutti("platform", "cluster(n=4,rate=100Gbps,latency=1us,speed=10Tf)").stdout)

    @classmethod
    def tearDownClass(cls):
        shutil.rmtree(cls.folder)

    def train(self, name, *more, sim=True, code=0):
        where = ["--transport", "sim", "--platform", self.platform, "--step-time", 0.001] if sim else []
        done = tutti("train", "--model", "mlp(hidden=16)", "--data", self.data, "--threads", 1, "--quiet", "--batch", 8,
                     "--steps", 20, "--final-eval", "off", "--out", os.path.join(self.folder, name), *where, *more)
        self.assertEqual(done.returncode, code, done.stderr)
        return done.stderr if code else summary(os.path.join(self.folder, name))

    def model(self, name):
        return tensors(os.path.join(self.folder, name, "model.safetensors"))

    def balances(self, s, batch):
        for row in s["by_worker"]:
            computed = row["stream_arrived"] - row["stream_dropped"] - row["stream_waiting"]
            self.assertEqual(computed, 20 * batch)

    def test_the_slowest_stream_sets_the_time_and_no_bit_changes(self):
        self.train("plain", "-n", 4)
        s = self.train("rates", "-n", 4, "--stream", "400:100:800:50")
        self.assertEqual(self.model("rates"), self.model("plain"))
        self.assertAlmostEqual(s["wall_seconds"], 20 * 8 / 50, delta=0.05)      # 3.2 s of worker 3's samples
        self.assertEqual([row["stream_rate"] for row in s["by_worker"]], [400, 100, 800, 50])
        self.balances(s, 8)
        fast = s["by_worker"][2]
        # it looked last when worker 3 began its last wait
        self.assertAlmostEqual(fast["stream_arrived"], 800 * 19 * 8 / 50, delta=40)
        self.assertEqual(fast["stream_dropped"], 0)
        self.assertGreater(s["by_worker"][3]["stream_wait_seconds"], 3)
        self.assertLess(fast["stream_wait_seconds"], 0.1)

    def test_full_buffer_drops_arriving_samples(self):
        s = self.train("truncated", "-n", 2, "--stream", "100:50", "--stream-buffer", 8)
        self.balances(s, 8)
        fast, slow = s["by_worker"]
        self.assertGreater(fast["stream_dropped"], 100)                         # 8 of 16 of each round
        self.assertEqual(slow["stream_dropped"], 0)
        self.assertLessEqual(fast["stream_waiting"], 8)

    def test_batches_proportional_to_stream_rates_shorten_the_run(self):
        even = self.train("even", "-n", 2, "--stream", "300:100")
        fair = self.train("fair", "-n", 2, "--stream", "300:100", "--batch-share", "300:100")
        self.assertAlmostEqual(even["wall_seconds"], 20 * 8 / 100, delta=0.05)
        self.assertAlmostEqual(fair["wall_seconds"], 20 * 4 / 100, delta=0.05)

    def test_single_rate_applies_to_all_workers_in_real_time(self):
        s = self.train("real", "-n", 2, "--stream", "400", sim=False)
        self.assertGreaterEqual(s["wall_seconds"], 20 * 8 / 400 - 0.02)
        self.assertEqual([row["stream_rate"] for row in s["by_worker"]], [400, 400])
        self.assertAlmostEqual(s["wall_seconds"], s["compute_seconds"] + s["exposed_comm_seconds"] + s["other_seconds"],
                               delta=0.01)

    def test_asynchronous_workers_follow_their_own_streams(self):
        s = self.train("own", "-n", 2, "--method", "ad-psgd", "--stream", "600:100")
        fast, slow = s["by_worker"]
        self.assertGreater(fast["steps"], 3 * slow["steps"])
        self.assertEqual(fast["stream_arrived"] - fast["stream_dropped"] - fast["stream_waiting"], 8 * fast["steps"])

    def test_summary_has_no_stream_figures_without_a_stream(self):
        s = self.train("none", "-n", 1)
        self.assertIsNone(s["stream"])
        self.assertNotIn("stream_rate", s["by_worker"][0])

    def test_invalid_options_are_rejected(self):
        for words, said in (
            (["--stream", "fast"],
             "stream is 'fast'; write the samples a second of every worker, or of each: r0:r1:..., from 1e-6 to 1e9"),
            (["--stream", "10:0"], "from 1e-6 to 1e9"), (["--stream", "-1"], "from 1e-6 to 1e9"),
            (["--stream", "nan"], "from 1e-6 to 1e9"), (["--stream", "10:"], "from 1e-6 to 1e9"),
            (["--stream", "0x10"], "from 1e-6 to 1e9"), (["--stream", "1: 2"], "from 1e-6 to 1e9"),
            (["--stream", "1:2:3"], "stream is '1:2:3': 3 rates for 2 workers; give one, or one a worker"),
            (["--stream-buffer", "8"], "stream-buffer is 8, but without stream no samples come and wait"),
            (["--stream", "5", "--stream-buffer", "7"], "stream-buffer is 7, "
             "but a pass of worker 0 has 8 samples, which never wait at once; give at least as many, or 0 to keep all"),
            (["--stream", "5", "--stream-buffer", "8", "--batch-share", "1:3"], "a pass of worker 1 has 12 samples"),
            (["--stream", "5", "--stream-buffer", "8", "--batch-share", "auto"],
             "a pass of worker 0 may have 16 samples")):
            self.assertIn(said, self.train("bad", "-n", 2, *words, sim=False, code=2))


if __name__ == "__main__":
    unittest.main(verbosity=2)
