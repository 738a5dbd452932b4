#!/usr/bin/env python3
"""--collective: algorithms that keep the one order of summation give the same bytes of the model; those that do not must be asked for by order=any, give models that are near, and are refused
with a sentence otherwise."""
import os, tempfile, unittest
from command import read, small_mnist, summary, tutti


class Collective(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.TemporaryDirectory(prefix="tutti-collective-")
        small_mnist(cls.folder.name + "/data")

    @classmethod
    def tearDownClass(cls):
        cls.folder.cleanup()

    def train(self, collective, n, *more):
        out = os.path.join(self.folder.name, f"{abs(hash((collective, n, more)))}")
        done = tutti("train", "--model", "mlp(hidden=16)", "--data", self.folder.name + "/data", "-n", n, "--steps", 6, "--batch", 8, "--threads", 1, "--collective", collective,
                     "--final-eval", "off", "--quiet", "--out", out, *more)
        return done, out

    def model(self, collective, n, *more):
        done, out = self.train(collective, n, *more)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertEqual(summary(out)["collective"], collective)
        return read(out + "/model.safetensors")

    def test_the_tree_s_algorithms_give_the_same_bytes(self):
        for n, names in ((4, ("exchange", "doubling", "tree", "direct", "halving", "direct(order=tree)")), (3, ("tree", "direct"))):
            expected = self.model("auto", n)
            for name in names:
                self.assertEqual(self.model(name, n), expected, name)

    def test_others_are_taken_with_order_any_and_are_reproducible(self):
        for name in ("ring(order=any)", "stragglar(straggler=1,order=any)"):
            once = self.model(name, 4)
            self.assertEqual(once, self.model(name, 4, "--slow", "2:2"), name)

    def test_what_cannot_be_is_refused_with_a_sentence(self):
        for collective, sentence in (("ring", "write ring(order=any)"), ("halving", "needs a power of two of members, and there are 3"), ("rong(order=any)", "did you mean 'ring'"),
                                     ("stragglar(straggler=3,order=any)", "straggler is 3; the members are 0 to 2")):
            done, _ = self.train(collective, 3)
            self.assertEqual(done.returncode, 2, collective)
            self.assertIn(sentence, done.stderr)
        done, _ = self.train("tree", 2, "--method", "d-psgd")
        self.assertEqual(done.returncode, 2)
        self.assertIn("method 'd-psgd' does not sum over the workers", done.stderr)


if __name__ == "__main__":
    unittest.main()
