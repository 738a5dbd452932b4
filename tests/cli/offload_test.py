"""What a device has is bounded: a run that needs more is refused with a list of what takes it, before
it begins. zero-offload needs less, for the same model; failures of its disk give an error message."""
import json, tempfile, unittest
from command import *

MODEL = ("--model", "mlp(hidden=64)", "--batch", 8, "--threads", 1, "--steps", 4, "--quiet", "--final-eval", "off",
         "--optimizer", "adamw(lr=0.01)", "--clip-norm", 0.5)


class Offload(Case):
    def go(self, name, method, *more):
        return self.train(name, *MODEL, "--data", self.data, "-n", 2, "--method", method, *more)

    def test_offload_needs_less_device_memory_for_the_same_model(self):
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

    def test_the_two_buckets_of_a_device_are_small_by_default(self):
        """zero's 4 MiB; of a network with more than that, and of each method that has two of them."""
        memory = lambda method: json.loads(
            tutti("plan", "memory", "--json", "--model", "mlp(hidden=1024)", "--data", self.data, "-n", 2, "--batch", 8,
                  "--steps", 1, "--method", method).stdout)["ranks"]
        for name in ("zero-offload", "zero-infinity", "zero(stage=2)"):
            named = lambda mb: name[:-1] + ",bucket_mb=%d)" % mb if ")" in name else name + "(bucket_mb=%d)" % mb
            self.assertEqual(memory(name), memory(named(4)), name)
            self.assertNotEqual(memory(name), memory(named(25)), name)

    def test_tier_options_are_listed_in_the_help(self):
        for method in ("zero-offload", "zero-infinity"):
            text = tutti("methods", method).stdout
            for option in ("path", "depth", "block", "direct", "engine"):
                self.assertRegex(text, r"\n  %s +(int|bool|text|choice) " % option)
        self.refused("or allow the page cache (direct=off)", "train", *MODEL, "--data", self.data, "--method",
                     "zero-offload(tier=nvme(path=/dev/shm))", "--out", self.out("no"), code=1)

    def test_invalid_device_memory_and_paths_are_rejected(self):
        for value in ("5xb", "0", "-1", "2000GiB"):
            self.refused("device-memory: ", "train", *MODEL, "--data", self.data, "--device-memory=" + value, "--out",
                         self.out("no"))
        self.refused("/nowhere/at/all", "train", *MODEL, "--data", self.data, "-n", 2, "--method",
                     "zero-offload(tier=nvme(path=/nowhere/at/all))", "--out", self.out("no"), code=1)


if __name__ == "__main__":
    unittest.main(verbosity=2)
