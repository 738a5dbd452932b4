"""Training networks of images with batch norm: they learn, the number of workers does not change a
bit of the parameters, statistics are agreed on, a run continues where it stopped, and mismatches
give an error message."""
import os, shutil, struct, unittest

from command import read, scratch, small_mnist, summary, tensors, tutti

MODEL = "resnet(depth=8)"


class Image(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = scratch()
        cls.data = small_mnist(os.path.join(cls.folder, "mnist"), train=512, test=96)

    @classmethod
    def tearDownClass(cls):
        shutil.rmtree(cls.folder)

    def out(self, name):
        return os.path.join(self.folder, name)

    def train(self, name, *more, model=MODEL, code=0):
        done = tutti("train", "--model", model, "--data", self.data, "--threads", 1, "--quiet", "--out", self.out(name),
                     *more)
        self.assertEqual(done.returncode, code, done.stderr)
        return done.stderr if code else summary(self.out(name))

    def model(self, name):
        return tensors(os.path.join(self.out(name), "model.safetensors"))

    def test_resnet_learns(self):
        # at a constant 0.05 the end is chaos: a rounding decides it
        s = self.train("learns", "--batch", 32, "--steps", 96, "--optimizer", "sgd(lr=0.04,momentum=0.9)",
                       "--lr-schedule", "cosine")
        self.assertGreater(s["final_test_accuracy"], 0.6) # a guess is right once in ten
        self.assertLess(s["final_train_loss"], 1.0)

    def test_worker_count_changes_no_bit_except_running_statistics(self):
        for n in (1, 2, 4):
            self.train(f"n{n}", "-n", n, "--batch", 256 // n, "--steps", 2)
        models = [self.model(f"n{n}") for n in (1, 2, 4)]
        norms = [name for name in models[0] if "running" in name]
        self.assertEqual(len(norms), 14)
        for name in models[0]:
            for other in models[1:]:
                if name in norms: # the mean of the workers' own, rounded elsewhere
                    a, b = (struct.unpack(f"<{len(m[name][2]) // 4}f", m[name][2]) for m in (models[0], other))
                    self.assertLess(max(abs(x - y) / (1 + abs(x)) for x, y in zip(a, b)), 1e-5)
                    self.assertNotEqual(set(a), {1.0 if "var" in name else 0.0})
                else:
                    self.assertEqual(models[0][name], other[name])

    def test_resuming_and_evaluating_do_not_change_the_model(self):
        for method in ("ddp", "d-psgd"):
            whole, first, rest = method + "-whole", method + "-first", method + "-rest"
            self.train(whole, "-n", 2, "--batch", 8, "--steps", 8, "--method", method)
            self.train(first, "-n", 2, "--batch", 8, "--steps", 8, "--method", method, "--checkpoint-every", 4,
                       "--eval-every", 3)
            checkpoints = os.path.join(self.out(first), "checkpoints")
            self.train(rest, "-n", 2, "--batch", 8, "--steps", 8, "--method", method,
                       "--resume", os.path.join(checkpoints, sorted(os.listdir(checkpoints))[0]))
            self.assertEqual(read(os.path.join(self.out(whole), "model.safetensors")),
                             read(os.path.join(self.out(first), "model.safetensors")))
            self.assertEqual(read(os.path.join(self.out(whole), "model.safetensors")),
                             read(os.path.join(self.out(rest), "model.safetensors")))

    def test_a_simulated_run_has_the_same_bits(self):
        self.train("processes", "-n", 2, "--batch", 8, "--steps", 2)
        done = tutti("train", "--model", MODEL, "--data", self.data, "--threads", 1, "--quiet", "-n", 2, "--batch", 8,
                     "--steps", 2, "--transport", "sim", "--out", self.out("sim"))
        if done.returncode != 0 and "libtutti_transport_sim" in done.stderr:
            self.skipTest("built without SimGrid")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertEqual(read(os.path.join(self.out("processes"), "model.safetensors")),
                         read(os.path.join(self.out("sim"), "model.safetensors")))

    def test_vgg_runs_with_an_asynchronous_method(self):
        s = self.train("vgg", "-n", 2, "--batch", 8, "--steps", 2, "--method", "ad-psgd", model="vgg(small)")
        self.assertEqual(len([name for name in self.model("vgg") if "running" in name]), 12)
        self.assertGreaterEqual(s["final_test_accuracy"], 0)

    def test_mismatches_give_an_error_message(self):
        for model, sentence in (("resnet(depth=10)", "it must be 6n + 2"), ("vgg(large)", "size"),
                                ("resnet(deep=8)", "there are depth")):
            done = tutti("train", "--model", model, "--data", self.data, "--steps", 1, "--out", self.out("refused"))
            self.assertEqual(done.returncode, 2, done.stderr)
            self.assertIn(sentence, done.stderr)


if __name__ == "__main__":
    unittest.main(verbosity=2)
