"""What a device has is bounded: a run that needs more is refused with what takes it, before it begins.
zero-offload needs less, for the same model; what its disk cannot do is a sentence."""
import tempfile, unittest
from command import *

MODEL = ("--model", "mlp(hidden=64)", "--batch", 8, "--threads", 1, "--steps", 4, "--quiet", "--final-eval", "off",
         "--optimizer", "adamw(lr=0.01)", "--clip-norm", 0.5)


class Offload(Case):
    def go(self, name, method, *more):
        return self.train(name, *MODEL, "--data", self.data, "-n", 2, "--method", method, *more)

    def test_less_of_the_device_is_enough_for_the_same_model(self):
        most, models = {}, {}
        for k, method in enumerate(("ddp", "zero", "zero-offload(bucket_mb=0.05)",
                                    "zero-offload(tier=nvme(path=%s,direct=off),bucket_mb=0.05)" %
                                    tempfile.gettempdir())):
            out = self.go("m%d" % k, method, "--device-memory", "1GiB")
            most[method] = summary(out)["method_figures"]["device_bytes"]
            models[method] = read(os.path.join(out, "model.safetensors"))
        self.assertEqual(len(set(models.values())), 1)
        ddp, zero, host, disk = most.values()
        self.assertLess(zero, ddp)
        self.assertLess(host, zero)
        self.assertEqual(host, disk)
        self.go("enough", "zero-offload(bucket_mb=0.05)", "--device-memory", "%d" % host)
        for method, have in (("zero-offload(bucket_mb=0.05)", host - 1), ("ddp", host)):
            self.refused("device memory: ", "train", *MODEL, "--data", self.data, "-n", 2, "--method", method,
                         "--device-memory", "%d" % have, "--out", self.out("no"), code=1)

    def test_what_makes_no_sense_is_refused_in_a_sentence(self):
        for value in ("5xb", "0", "-1", "2000GiB"):
            self.refused("device-memory: ", "train", *MODEL, "--data", self.data, "--device-memory=" + value, "--out",
                         self.out("no"))
        self.refused("/nowhere/at/all", "train", *MODEL, "--data", self.data, "-n", 2, "--method",
                     "zero-offload(tier=nvme(path=/nowhere/at/all))", "--out", self.out("no"), code=1)


if __name__ == "__main__":
    unittest.main(verbosity=2)
