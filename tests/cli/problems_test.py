"""The synthetic problems from the command: quadratic and logistic, alone and with methods,
transports, checkpoints; what is refused."""
import json, os, unittest
from command import *


def metrics(out):
    with open(os.path.join(out, "metrics.jsonl")) as f:
        return [json.loads(line) for line in f]


class Problems(Case):
    def quick(self, name, *arguments, **more):
        return self.train(name, "--quiet", "--threads", 1, *arguments, **more)

    def test_naming_one_of_model_and_data_is_enough(self):
        outs = [self.quick("a", "--model", "quadratic(dim=9,condition=7)", "--steps", 20),
                self.quick("b", "--data", "quadratic(dim=9,condition=7)", "--steps", 20),
                self.quick("c", "--data", "quadratic(9,7)", "--model", "quadratic", "--steps", 20),
                self.quick("d", "--data", "quadratic", "--model", "quadratic(9,7)", "--steps", 20),
                self.quick("e", "--data", "quadratic(9,7)", "--model", "quadratic(dim=9,condition=7)", "--steps", 20)]
        values = [read(os.path.join(out, "model.safetensors")) for out in outs]
        self.assertEqual(len(set(values)), 1)
        dtype, shape, raw = tensors(os.path.join(outs[0], "model.safetensors"))["x"]
        self.assertEqual((dtype, shape), ("F32", [9]))
        s = summary(outs[0])
        self.assertEqual((s["model"], s["data"], s["params"]), ("quadratic(dim=9,condition=7)",) * 2 + (9,))
        self.assertIsNone(s["final_test_accuracy"])
        with open(os.path.join(outs[1], "config.json")) as f:
            self.assertEqual(json.load(f)["model"], "quadratic(dim=9,condition=7)")

    def test_gradient_descent_has_the_excess_of_the_closed_form(self):
        # Full batches, no noise: x_t - c = (1 - lr lambda)^t (0 - c), so the excess is 1/2 sum
        # lambda (1 - lr lambda)^2t c^2, with c the point to which lr = 1 converges.
        spec = "quadratic(dim=6,condition=20,noise=0,samples=64)"
        rest = floats(os.path.join(self.quick("rest", "--model", spec, "--steps", 2000, "--eval-every", 5000,
                                              "--optimizer", "sgd(lr=1)"), "model.safetensors"))
        for steps in (1, 7, 30):
            out = self.quick(str(steps), "--model", spec, "--steps", steps, "--optimizer", "sgd(lr=0.7)")
            wanted = sum(0.5 * l * (1 - 0.7 * l) ** (2 * steps) * c * c
                         for l, c in zip((20 ** (-j / 5) for j in range(6)), rest))
            for split in ("train", "test"):
                self.assertAlmostEqual(summary(out)[f"final_{split}_loss"] / wanted, 1, places=5)

    def test_methods_train_quadratics_and_ddp_is_worker_count_invariant(self):
        common = ("--model", "quadratic(dim=50,noise=0.5)", "--steps", 30, "--optimizer", "sgd(lr=0.5)")
        one = self.quick("one", *common, "-n", 1, "--batch", 256)
        for method in ("ddp", "local-sgd", "d-psgd"):
            out = self.quick(method, *common, "-n", 4, "--method", method)
            self.assertLess(summary(out)["final_train_loss"],
                            0.2 * summary(self.quick("none-" + method, *common[:2], "--steps", 1,
                                                     "--optimizer", "sgd(lr=1e-9)"))["final_train_loss"])
            if method == "ddp":
                self.assertEqual(read(os.path.join(one, "model.safetensors")),
                                 read(os.path.join(out, "model.safetensors")))

    @unittest.skipUnless(SIMULATOR, "the simulator was not built")
    def test_64_simulated_workers_train_a_quadratic(self):
        common = ("--model", "quadratic(dim=50)", "--batch", 16, "--steps", 12, "--eval-every", 100,
                  "--optimizer", "sgd(lr=0.5)", "-n", 64, "--transport", "sim")
        for method in ("ddp", "local-sgd", "d-psgd"):
            s = summary(self.quick(method, *common, "--method", method))
            self.assertLess(s["final_test_loss"], 2)
            # 12 passes of 16 samples, 2 x 50 flops forward and 2 x 50 backward, at 100 Gflop/s
            self.assertAlmostEqual(s["compute_seconds"], 12 * 16 * 200 / 1e11, delta=1e-7)

    @unittest.skipUnless(SIMULATOR, "the simulator was not built")
    def test_simulated_workers_give_the_bits_of_real_ones(self):
        common = ("--model", "quadratic(dim=33,skew=1,drift=100)", "--steps", 25, "-n", 4)
        a, b = self.quick("shm", *common), self.quick("sim", *common, "--transport", "sim")
        self.assertEqual(read(os.path.join(a, "model.safetensors")), read(os.path.join(b, "model.safetensors")))

    def test_drift_is_followed_and_survives_a_resume(self):
        common = ("--model", "quadratic(dim=10,condition=1,noise=0,drift=500)", "--optimizer", "sgd(lr=1)",
                  "--batch", 64, "--eval-every", 4)
        whole = self.quick("whole", *common, "--steps", 20, "-n", 2)
        half = self.quick("half", *common, "--steps", 10, "-n", 2, "--checkpoint-every", 10)
        done = tutti("train", "--resume", half, "--steps", 20, "--quiet")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertEqual(read(os.path.join(whole, "model.safetensors")), read(os.path.join(half, "model.safetensors")))
        # lr = 1, curvature 1: after step t, x is at the centre of step t, one step of 0.5 behind
        # that of the evaluation.
        for line in metrics(whole):
            if "test_loss" in line:
                self.assertAlmostEqual(line["test_loss"], 0.5 * 0.5 ** 2, places=5)
                self.assertIsNone(line["test_accuracy"])

    def test_another_problem_does_not_resume(self):
        out = self.quick("a", "--model", "quadratic(dim=4)", "--steps", 4, "--checkpoint-every", 2)
        self.refused("its run has model", "train", "--model", "quadratic(dim=4,drift=1)",
                     "--data", "quadratic(dim=4,drift=1)", "--steps", 8, "--resume", out, "--out", self.out("b"))

    def test_simplex_starts_in_its_middle(self):
        out = self.quick("a", "--model", "quadratic(dim=8,simplex=on)", "--steps", 1, "--optimizer", "sgd(lr=1e-30)")
        self.assertEqual(floats(os.path.join(out, "model.safetensors")), [0.125] * 8)
        out = self.quick("b", "--model", "quadratic(dim=8,condition=4,simplex=on,noise=0)", "--steps", 200,
                         "--optimizer", "sgd(lr=1)")
        x = floats(os.path.join(out, "model.safetensors"))
        self.assertAlmostEqual(sum(x), 1, places=6)
        self.assertGreaterEqual(min(x), 0)

    def test_loss_target_is_the_excess_over_the_optimum(self):
        out = self.quick("a", "--model", "quadratic(noise=1)", "--steps", 2000, "--eval-every", 10,
                         "--target", "loss=0.5", "--optimizer", "sgd(lr=0.5)")
        s = summary(out)
        self.assertLess(s["steps"], 2000)
        self.assertLessEqual(s["final_test_loss"], 0.5)
        self.assertGreater(s["final_test_loss"], 0)

    def test_logistic_learns_its_teacher_up_to_the_wrong_labels(self):
        out = self.quick("a", "--model", "logistic(dim=10,noise=0.1,classes=3,samples=8192)", "-n", 4, "--steps", 300,
                         "--method", "local-sgd")
        s = summary(out)
        self.assertEqual(s["params"], 33)
        self.assertGreater(s["final_test_accuracy"], 0.84)
        self.assertLess(s["final_test_accuracy"], 0.94)

    def test_logistic_is_softmax_regression_on_other_data(self):
        out = self.quick("a", "--model", "logistic", "--data", self.data, "--epochs", 5)
        s = summary(out)
        self.assertEqual(s["params"], 7850)
        self.assertGreater(s["final_train_loss"], 0)
        self.assertGreater(s["final_test_accuracy"], 0.6)

    def test_other_models_take_the_samples_of_a_problem(self):
        out = self.quick("a", "--model", "mlp(hidden=16)", "--data", "logistic(dim=6,noise=0)", "--steps", 200)
        self.assertGreater(summary(out)["final_test_accuracy"], 0.9)

    def test_mismatched_model_and_data_are_rejected(self):
        def bad(sentence, *arguments):
            self.refused(sentence, "train", *arguments, "--out", self.out("x"))
            self.assertFalse(os.path.exists(self.out("x")))
        bad("model and data are two different problems: dim is 5 in the model and 6 in the data; give the options "
            "once, or the same ones twice", "--model", "quadratic(dim=5)", "--data", "quadratic(dim=6)")
        bad("the model is quadratic and the data are logistic; name one of them and leave the other out",
            "--model", "quadratic", "--data", "logistic")
        bad("model is 'quadratic', whose loss is about samples of its own, but data is 'mnist'; leave data out",
            "--model", "quadratic", "--data", "mnist")
        bad("model is 'logistic(dim=3)', whose options specify how its own samples are drawn, but data is 'mnist'; "
            "omit data, or write model 'logistic' without options", "--model", "logistic(dim=3)", "--data", "mnist")
        bad("target is 'accuracy=0.9', but quadratic has no accuracy; write loss=L, "
            "which is the excess over its least loss", "--model", "quadratic", "--target", "accuracy=0.9")
        bad("model 'quadratic': option 'dim' is 0; it must be from 1 to 16384", "--model", "quadratic(dim=0)")
        bad("'condition' is 'nan'; it must be a number from 1", "--data", "quadratic(condition=nan)")
        bad("samples is 100; it must be a multiple of 2 x classes = 16", "--model", "quadratic(samples=100)")
        self.refused("cnn needs images of at least 10x10; this task has 1x20", "train", "--model", "cnn",
                     "--data", "logistic", "--out", self.out("y"))

    def test_data_commands_show_the_problems(self):
        page = tutti("data", "list").stdout
        self.assertRegex(page, r"(?m)^quadratic: [^\n]*\n([^ \n].*\n)?  drawn from its options")
        self.assertRegex(page, r"(?m)^  simplex +bool +off")
        self.assertRegex(page, r"(?m)^logistic: ")
        page = tutti("data", "inspect", "quadratic(dim=10)").stdout
        self.assertIn("training samples 4096, test samples 512\n  each 1 x 1 x 10 floats, 8 classes\n", page)
        self.assertIn("training samples of each class: " + " ".join(["512"] * 8), page)
        self.assertNotIn("pixels", page)
        self.assertRegex(tutti("data", "verify", "quadratic(100,100,drift=2)").stdout,
                         r"^quadratic\(drift=2\): whole; 4096 \+ 512 samples, contents [0-9a-f]{16}\n")
        self.refused("data 'logistic': option 'noise' is 2; it must be from 0 to 1", "data", "inspect",
                     "logistic(noise=2)")

    def test_configuration_shows_model_and_data_of_a_problem(self):
        self.assertEqual(json.loads(tutti("config", "--model", "quadratic(dim=3)").stdout)["data"], "quadratic(dim=3)")
        path = os.path.join(self.folder, "run.yaml")
        with open(path, "w") as f:
            f.write("data: logistic(dim=3)\n")
        self.assertEqual(json.loads(tutti("config", path).stdout)["model"], "logistic(dim=3)")
        self.assertEqual(json.loads(tutti("config", path, "--model", "mlp").stdout)["model"], "mlp")
        self.assertEqual(json.loads(tutti("config", "--model", "logistic", "--data", "mnist").stdout)["data"], "mnist")


if __name__ == "__main__":
    unittest.main(verbosity=2)
