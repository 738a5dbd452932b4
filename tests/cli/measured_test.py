"""`tutti plan --model 'measured(file=F)'`: a network of a script, by its shapes and times. Its plan is
that of a network of this library with the same shapes and times, exactly; what a method cannot do
with shapes and times alone is listed with its message; nothing but a simulation takes such a model."""
import json, os, unittest
from command import *

# Most of it is ready before the end of backward.
MLP, SIZES, STEP = "mlp(hidden=256)", (20, 256, 256, 10), 0.003
DATA_OF_MLP = "logistic(dim=20,classes=10,samples=65536)"  # no epoch ends, so nothing is evaluated
# Not those that look at gradients' values to decide what they send.
METHODS = ["ddp", "ddp(bucket_mb=0.05)", "zero", "zero(stage=2)", "local-sgd(period=4)", "diloco", "ad-psgd", "asgd",
           "bytescheduler", "pipe-sgd(warmup=0)", "byteps", "sgp"]


def file_of_mlp(batch, activations):
    """Shapes of an mlp, and times of --step-time STEP: over its layers in proportion to their products. A layer has
    one in forward and two in backward, the first layer one."""
    layers = list(zip(SIZES, SIZES[1:]))
    products = [2 * a * b for a, b in layers]
    second = STEP / (3 * sum(products) - products[0])
    forward = backward = 0
    needed, ready = [], [0] * len(layers)
    for n in products:
        needed.append(forward * second)
        forward += n
    for i in reversed(range(len(layers))):
        ready[i] = (backward + products[i]) * second
        backward += products[i] * (2 if i > 0 else 1)
    tensors = [{"name": f"{2 * i}.{name}", "shape": shape, "dtype": "float32", "needed_seconds": needed[i],
                "ready_seconds": ready[i]}
               for i, (a, b) in reversed(list(enumerate(layers)))
               for name, shape in (("weight", [b, a]), ("bias", [b]))]
    return {"schema": "tutti-measured-1", "module": "mlp", "batch": batch, "forward_seconds": forward * second,
            "backward_seconds": backward * second, "activation_bytes": activations, "tensors": tensors}


class Measured(Case):
    def file(self, content):
        path = os.path.join(self.folder, "net.json")
        with open(path, "w") as f:
            json.dump(content, f)
        return path

    def model(self, content):
        return ("--model", f"measured(file={self.file(content)})")

    def platform(self, spec):
        path = os.path.join(self.folder, "platform.xml")
        with open(path, "w") as f:
            f.write(tutti("platform", spec).stdout)
        return path

    def json_of(self, *arguments):
        done = tutti("plan", *arguments, "--json", "--quiet")
        self.assertEqual(done.returncode, 0, done.stderr)
        return json.loads(done.stdout)

    @unittest.skipUnless(SIMULATOR, "the simulator is not built")
    def test_its_plan_is_that_of_a_network_of_ours_with_the_same_shapes_and_times(self):
        conditions = ("--data", DATA_OF_MLP, "-n", 4, "--batch", 16, "--slow", "2:2", "--over", 8, "--platform",
                      self.platform("cluster(n=4,rate=1Gbps,latency=100us)"), "--methods", ",".join(METHODS))
        out = self.out("ours")
        ours = self.json_of("--model", MLP, *conditions, "--step-time", STEP, "--out", out)
        kept = summary(os.path.join(out, "runs/0000"))["memory"]["activations"]
        theirs = self.json_of(*self.model(file_of_mlp(16, kept)), *conditions)
        same = ("method", "codec", "settled", "steps", "seconds_a_step", "exposed_share", "bytes_sent_a_step", "effect",
                "reason")
        rows = [m for m in ours["methods"] if not m["condition"]]
        self.assertEqual(len(rows), len(METHODS))
        self.assertEqual([[m[k] for k in same] for m in theirs["methods"]], [[m[k] for k in same] for m in rows])
        self.assertEqual(theirs["fastest"], ours["fastest"])
        memory = {m["method"]: m["memory_bytes"] for m in theirs["methods"]}
        self.assertEqual(memory["ddp"], next(m["memory_bytes"] for m in rows if m["method"] == "ddp"))
        # no command of ours trains it
        self.assertEqual((theirs["compare"], {m["command"] for m in theirs["methods"]}), (None, {None}))

    @unittest.skipUnless(SIMULATOR, "the simulator is not built")
    def test_times_are_of_its_batch_and_the_update_is_in_each_step(self):
        net = dict(file_of_mlp(16, 0), optimizer_seconds=0.002)
        where = ("-n", 1, "--platform", self.platform("cluster(n=1,speed=1000000Gf)"), "--methods", "ddp", "--over", 4)
        took = lambda *more: self.json_of(*self.model(net), *where, *more)["methods"][0]["seconds_a_step"]
        self.assertAlmostEqual(took(), STEP + 0.002, places=7)  # of a batch of 16, the file's
        self.assertAlmostEqual(took("--batch", 64), 4 * STEP + 0.002, places=7)
        self.assertAlmostEqual(took("--accumulate", 3), 3 * STEP + 0.002, places=7)
        self.assertAlmostEqual(took("--step-time", 0.01), 0.012, places=7)
        plan = self.json_of(*self.model(net), *where)
        self.assertEqual((plan["batch"], plan["step_time"]), (16, None))
        net["backward_seconds"] += 0.001  # after the last gradient
        self.assertAlmostEqual(took(), STEP + 0.003, places=7)

    @unittest.skipUnless(SIMULATOR, "the simulator is not built")
    def test_values_are_gathered_when_forward_reaches_them(self):
        net = file_of_mlp(16, 0)
        conditions = ("-n", 2, "--platform", self.platform("cluster(n=2,rate=1Gbps)"), "--methods", "ddp,zero(stage=3)",
                      "--over", 4)
        seconds = lambda: {m["method"]: m["seconds_a_step"] for m in
                           self.json_of(*self.model(net), *conditions)["methods"]}
        spread = seconds()
        for tensor in net["tensors"]:
            tensor["needed_seconds"] = 0
        at_once = seconds()
        self.assertEqual(spread["ddp"], at_once["ddp"])
        self.assertLess(spread["zero(stage=3)"], at_once["zero(stage=3)"])

    @unittest.skipUnless(SIMULATOR, "the simulator is not built")
    def test_without_a_platform_only_the_links_are_measured(self):
        net = dict(file_of_mlp(16, 0), optimizer_seconds=0.002)
        done = tutti("plan", *self.model(net), "-n", 2, "--methods", "ddp", "--over", 2)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn("measured before: a pass takes 3 ms and the rest of a step 2 ms; hosts and links are tutti "
                      "platform 'cluster(n=2,", " ".join(done.stdout.split()))
        self.assertIn('\n  method="ddp"\n', done.stdout)
        self.assertIn("\nmlp, 2 workers, batches of 16; 2 simulated steps of each method\n", done.stdout)
        self.assertNotIn("tutti train", done.stdout)

    @unittest.skipUnless(SIMULATOR, "the simulator is not built")
    def test_a_simulated_run_counts_what_the_plan_says_and_leaves_no_weights(self):
        conditions = (*self.model(file_of_mlp(16, 0)), "-n", 2, "--platform", self.platform("cluster(n=2)"))
        row = self.json_of(*conditions, "--methods", "ddp", "--over", 6)["methods"][0]
        out = self.out("run")
        done = tutti("train", *conditions, "--transport", "sim", "--final-eval", "off", "--steps", 6, "--quiet",
                     "--out", out)
        self.assertEqual(done.returncode, 0, done.stderr)
        s = summary(out)
        self.assertEqual((s["wall_seconds"] / 6, s["bytes_sent_total"] / 6 / 2),
                         (row["seconds_a_step"], row["bytes_sent_a_step"]))
        self.assertFalse(os.path.exists(os.path.join(out, "model.safetensors")))
        for option in (("--checkpoint-every", 2), ("--validation", 100), ("--target", "loss=1"), ("--init", "w")):
            done = tutti("train", *conditions, "--transport", "sim", "--final-eval", "off", *option)
            self.assertEqual(done.returncode, 2)
            self.assertIn(f"{option[0][2:]} is given, but model", done.stderr)

    @unittest.skipUnless(SIMULATOR, "the simulator is not built")
    def test_methods_that_need_layers_or_losses_say_so(self):
        plan = self.json_of(*self.model(file_of_mlp(16, 0)), "-n", 4, "--methods", "ddp,hetpipe,hermes", "--over", 2,
                            "--platform", self.platform("cluster(n=4)"))
        why = {m["method"]: m["why"] for m in plan["refused"]}
        self.assertIn("has measured times of the whole network, and no layers that stages could be cut from",
                      why["hetpipe"])
        self.assertIn("validation is given, but model", why["hermes"])
        self.assertEqual([m["method"] for m in plan["methods"]], ["ddp"])

    def test_nothing_trains_it(self):
        model = self.model(file_of_mlp(16, 0))
        sentence = (f"tutti: model is '{model[1]}', which has the shapes and times of a network and none of its "
                    "layers, so that it cannot train; `tutti plan` simulates methods with it\n")
        compared = ("compare", *model, "--methods", "ddp,zero", "-n", 2)
        simulated = (("train", *model, "--transport", "sim"), (*compared, "--transport", "sim", "--final-eval", "off"))
        for command in (("train", *model), ("train", *model, "-n", 2, "--transport", "tcp"), compared,
                        *(simulated if SIMULATOR else ())):
            done = tutti(*command, *(("--out", self.out("none")) if command[0] == "train" else ()))
            self.assertEqual((done.returncode, done.stderr), (2, sentence), command)
        self.assertFalse(os.path.exists(self.out("none")))
        profile = tutti("plan", *model, "-n", 2, "--profile")
        self.assertIn("has its own times; leave profile out", profile.stderr)

    def test_its_memory_is_planned_from_its_shapes(self):
        net = file_of_mlp(16, 4096)
        done = tutti("plan", "memory", *self.model(net), "-n", 2, "--batch", 32, "--json")
        self.assertEqual(done.returncode, 0, done.stderr)
        plan = json.loads(done.stdout)
        self.assertEqual(plan["params"], sum(a * b + b for a, b in zip(SIZES, SIZES[1:])))
        self.assertEqual({r["memory"]["activations"] for r in plan["ranks"]}, {2 * 4096})

    def test_a_file_that_is_wrong_is_refused_with_its_place(self):
        net = file_of_mlp(16, 0)
        missing = tutti("plan", "--model", "measured", "-n", 2)
        self.assertIn("model 'measured' needs the file of its measurements; write measured(file=F)", missing.stderr)
        absent = tutti("plan", "--model", f"measured(file={self.folder}/none.json)", "-n", 2)
        self.assertIn("none.json", absent.stderr)
        net["tensors"][1]["ready_seconds"] = 1
        done = tutti("plan", *self.model(net), "-n", 2)
        self.assertEqual(done.returncode, 2)
        self.assertIn("net.json: tensors, number 2: 'ready_seconds' is 1, after the end of backward at", done.stderr)


if __name__ == "__main__":
    unittest.main(verbosity=2)
