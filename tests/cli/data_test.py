"""Data sets by name and options: what `tutti data` says of them, and that a distorted set is harder than the plain one but can be learnt."""
import os, re, subprocess, unittest
from command import *


class Data(Case):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        small_mnist(os.path.join(cls.folder, "sets", "mnist"), train=2000, test=500)
        cls.sets = os.path.join(cls.folder, "sets")

    def inspect(self, text):
        done = tutti("data", "inspect", text, TUTTI_DATA=self.sets)
        self.assertEqual(done.returncode, 0, done.stderr)
        return done.stdout

    def test_a_distorted_set_is_harder_but_can_be_learnt(self):
        accuracy = {}
        for text in ("mnist", "mnist(distort=0)", "mnist(distort=1)"):
            out = self.train(re.sub(r"\W", "", text), "--model", "mlp(hidden=64)", "--data", text, "--batch", 20, "--epochs", 1, "--threads", 1, TUTTI_DATA=self.sets)
            self.assertEqual(summary(out)["data"], text)
            accuracy[text] = summary(out)["final_test_accuracy"]
        self.assertEqual(accuracy["mnist"], accuracy["mnist(distort=0)"])
        self.assertGreater(accuracy["mnist"], accuracy["mnist(distort=1)"] + 0.1)
        self.assertGreater(accuracy["mnist(distort=1)"], 0.2)

    def test_workers_share_one_distorted_set(self):
        """All gradients come from the same pictures: two workers of 20 and one of 40 agree as on any data, and twice is the same."""
        runs = [self.train(str(k), "--model", "mlp(hidden=16)", "--data", "mnist(distort=0.5,seed=3)", "-n", n, "--batch", 40 // n, "--threads", 1, TUTTI_DATA=self.sets)
                for k, n in enumerate((2, 2, 1))]
        self.assertEqual(read(os.path.join(runs[0], "model.safetensors")), read(os.path.join(runs[1], "model.safetensors")))
        for a, b in zip(floats(os.path.join(runs[0], "model.safetensors")), floats(os.path.join(runs[2], "model.safetensors"))):
            self.assertAlmostEqual(a, b, delta=1e-4)

    def test_a_run_does_not_go_on_with_other_distortions(self):
        out = self.train("a", "--model", "mlp(hidden=16)", "--data", "mnist(distort=0.5)", "--steps", 4, "--checkpoint-every", 2, TUTTI_DATA=self.sets)
        self.refused("data_hash", "train", "--model", "mlp(hidden=16)", "--data", "mnist(distort=0.6)", "--steps", 8, "--resume", out, "--out", self.out("b"), TUTTI_DATA=self.sets)
        self.train("c", "--model", "mlp(hidden=16)", "--data", "mnist(0.5,0)", "--steps", 8, "--resume", out, TUTTI_DATA=self.sets)

    def test_options_are_listed_and_change_the_contents(self):
        for arguments in (("data", "list"), ("data", "--help")):
            page = tutti(*arguments, TUTTI_DATA=self.sets).stdout
            self.assertRegex(page, r"(?m)^mnist: ")
            self.assertRegex(page, r"(?m)^  distort +real +0 +strength")
            self.assertRegex(page, r"(?m)^  seed +int +0 ")
        self.assertIn(os.path.join(self.sets, "mnist"), tutti("data", "list", TUTTI_DATA=self.sets).stdout)
        elsewhere = subprocess.run([TUTTI, "data", "list"], capture_output=True, text=True, cwd=self.folder, env=clean_environment(TUTTI_DATA="/nowhere"))
        self.assertIn("not found", elsewhere.stdout)
        contents = {text: re.search(r"contents (\w+)", self.inspect(text)).group(1)
                    for text in ("mnist", "mnist(0)", "mnist(0.5)", "mnist(distort=0.5,seed=0)", "mnist(0.5,1)", "mnist(0.6)")}
        self.assertEqual(contents["mnist"], contents["mnist(0)"])
        self.assertEqual(contents["mnist(0.5)"], contents["mnist(distort=0.5,seed=0)"])
        self.assertEqual(len(set(contents.values())), 4)
        self.assertIn("mnist as mnist(0.5)\n", self.inspect("mnist(0.5)"))

    def test_a_directory_with_brackets_in_its_name_is_a_directory(self):
        path = small_mnist(os.path.join(self.folder, "mnist(distort=1)"), train=30, test=20)
        self.assertIn("training samples 30, test samples 20", self.inspect(path))
        self.train("a", "--model", "mlp(hidden=16)", "--data", path, "--batch", 10)

    def test_bad_specs_are_refused(self):
        where = ("--out", self.out("a"))
        self.refused("data 'mnist': option 'distort' is 2; it must be from 0 to 1", "train", "--data", "mnist(distort=2)", *where)
        self.refused("data 'mnist': unknown option 'distrt'; did you mean 'distort'?", "train", "--data", "mnist(distrt=1)", *where)
        self.refused("no data at 'minst(1)'; did you mean 'mnist'?; give 'mnist', 'quadratic', 'logistic' or a directory", "train", "--data", "minst(1)", *where)
        self.refused("missing ')' at the end", "data", "inspect", "mnist(distort=1")


if __name__ == "__main__":
    unittest.main(verbosity=1)
