#!/usr/bin/env python3
"""--collective: algorithms that keep the one order of summation give the same bytes of the model;
those that do not must be asked for by order=any, give nearly equal models, and are refused with an
error message otherwise."""
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
        done = tutti("train", "--model", "mlp(hidden=16)", "--data", self.folder.name + "/data", "-n", n, "--steps", 6,
                     "--batch", 8, "--threads", 1, "--collective", collective, "--final-eval", "off",
                     "--quiet", "--overwrite", "--out", out, *more)
        return done, out

    def model(self, collective, n, *more):
        done, out = self.train(collective, n, *more)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertEqual(summary(out)["collective"], collective)
        return read(out + "/model.safetensors")

    def test_tree_order_algorithms_give_the_same_bytes(self):
        for n, names in ((4, ("exchange", "doubling", "tree", "direct", "halving", "direct(order=tree)")),
                         (3, ("tree", "direct"))):
            expected = self.model("auto", n)
            for name in names:
                self.assertEqual(self.model(name, n), expected, name)

    def test_order_any_algorithms_are_accepted_and_reproducible(self):
        for name in ("ring(order=any)", "stragglar(straggler=1,order=any)"):
            once = self.model(name, 4)
            self.assertEqual(once, self.model(name, 4, "--slow", "2:2"), name)

    def test_invalid_options_are_rejected(self):
        for collective, sentence in (("ring", "write ring(order=any)"),
                                     ("halving", "needs a power of two of members, and there are 3"),
                                     ("rong(order=any)", "did you mean 'ring'"),
                                     ("stragglar(straggler=3,order=any)", "straggler is 3; the members are 0 to 2")):
            done, _ = self.train(collective, 3)
            self.assertEqual(done.returncode, 2, collective)
            self.assertIn(sentence, done.stderr)
        done, _ = self.train("tree", 2, "--method", "d-psgd")
        self.assertEqual(done.returncode, 2)
        self.assertIn("method 'd-psgd' exchanges no gradients, for which it would be taken; leave it at auto",
                      done.stderr)

    def table(self, name, text):
        path = os.path.join(self.folder.name, name)
        with open(path, "w") as f:
            f.write(text)
        return path

    def test_a_table_of_algorithms_gives_the_same_bytes(self):
        expected = self.model("auto", 4)
        for algorithm in ("tree", "doubling", "halving"):
            path = self.table(algorithm, f"# all sizes\nall-reduce * * {algorithm}\n")
            self.assertEqual(self.model("auto", 4, "--collective-table", path), expected, algorithm)

    def test_invalid_algorithm_table_is_rejected_before_training(self):
        good = self.table("good", "all-reduce * * tree\n")
        for collective, path, sentence in (("auto", self.table("bad", "# a comment\nall-reduce 16 4096 trea\n"),
                                            "bad:2: no algorithm of all-reduce is named 'trea'; there are "),
                                           ("auto", self.table("three", "all-reduce 16 4096\n"),
                                            "three:1: not four words; a line is KIND MEMBERS BYTES ALGORITHM, such as"),
                                           ("auto", self.table("order", "all-reduce * * ring\n"),
                                            "order:1: all-reduce 'ring' does not keep the one order of summation"),
                                           ("auto", self.folder.name + "/absent",
                                            "absent'; check the path (No such file or directory)"),
                                           ("tree", good, "collective is 'tree', so collective-table '")):
            done, out = self.train(collective, 2, "--collective-table", path)
            self.assertNotEqual(done.returncode, 0)
            self.assertIn(sentence, done.stderr)
            self.assertFalse(os.path.exists(out), sentence)


if __name__ == "__main__":
    unittest.main(verbosity=2)
