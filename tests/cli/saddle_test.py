"""The effect of a second pass over the samples of a step on a network: with a perturbation too small
to change a weight it computes the same gradients again, so every statistic, draw, loss and sample
must be as without it. And gradients of neighbours' models cost what they must."""
import json, os, unittest
from command import *

TINY = "rho=1e-30"  # every x + e is x


def losses(out):
    with open(os.path.join(out, "metrics.jsonl")) as f:
        return [(line["step"], line["train_loss"]) for line in map(json.loads, f) if "train_loss" in line]


class Saddle(Case):
    def same(self, name, *words):
        runs = [self.train(name + str(k), *words, "--report-every", 1, "--method", method)
                for k, method in enumerate(("saddle(rho=0)", "saddle(%s)" % TINY))]
        models = [read(os.path.join(out, "model.safetensors")) for out in runs]
        self.assertEqual(models[0], models[1])
        self.assertEqual(losses(runs[0]), losses(runs[1]))
        self.assertGreater(len(losses(runs[0])), 1)
        one, two = (summary(out) for out in runs)
        for key in ("samples", "steps", "final_test_loss", "bytes_sent_total"):
            self.assertEqual(one[key], two[key], key)
        return tensors(os.path.join(runs[0], "model.safetensors"))

    def test_running_statistics_move_in_the_first_pass_alone(self):
        saved = self.same("norm", "--model", "resnet(depth=8)", "--data", self.data, "-n", 2, "--batch", 8,
                          "--steps", 3, "--threads", 1)
        self.assertTrue(any("running_mean" in name for name in saved), list(saved)[:4])

    def test_dropout_drops_the_same_in_both_passes(self):
        text = self.out("text")
        with open(text, "w") as f:
            f.write("to be or not to be, that is the question. " * 300)
        self.same("drop", "--model", "gpt(layers=1,dim=16,heads=2,dropout=0.3)", "--data",
                  "text(file=%s,context=16,val_windows=8)" % text, "-n", 2, "--batch", 4, "--steps", 3, "--threads", 1)

    def test_gradients_of_neighbours_models_double_the_bytes(self):
        words = ("--model", "mlp(hidden=16)", "--data", self.data, "-n", 4, "--batch", 8, "--steps", 4, "--threads", 1)
        params = 784 * 16 + 16 + 16 * 16 + 16 + 16 * 10 + 10
        for k, variant in enumerate("qn"):
            s = summary(self.train(variant, *words, "--method", "saddle(variant=%s)" % variant))
            self.assertEqual(s["bytes_sent_total"], 4 * params * (4 * 4 * 2 * (k + 1) + 2 * 3))


if __name__ == "__main__":
    unittest.main(verbosity=2)
