"""`tutti plan stages`: a schedule from layers in a file and from a model, what --compare prints, what
is refused. Searches themselves are tests/placement's."""
import json, os, unittest
from command import *

TYPES = [{"name": "cpu", "price": 0.04, "units": 4000, "flops": 2e10, "bandwidth": 1e9, "communicate_share": 0.99},
         {"name": "gpu", "price": 2.42, "units": 64, "flops": 5e12, "bandwidth": 4e9, "communicate_share": 0.95}]


def layer(name, kind, cpu, gpu):
    return {"name": name, "kind": kind, "values": 1e6, "on": {
        type: {"compute": compute, "communicate": communicate}
        for type, (compute, communicate) in (("cpu", cpu), ("gpu", gpu))}}


LAYERS = [layer("embedding", "tables", (0.02, 0.5), (0.02, 0.4)), layer("pool", "dense", (0.05, 0.02), (0.02, 0.02)),
          layer("fc0", "dense", (6, 0.05), (0.02, 0.01)), layer("fc1", "dense", (6, 0.05), (0.02, 0.01))]


class Stages(Case):
    def file(self, **members):
        path = os.path.join(self.folder, "resources.json")
        with open(path, "w") as f:
            json.dump({"schema": "tutti-resources-1", "examples": 1e8, "floor": 20000, "batch": 64, "types": TYPES,
                       **members}, f)
        return path

    def plan(self, path, *arguments):
        done = tutti("plan", "stages", "--resources", path, *arguments)
        self.assertEqual((done.returncode, done.stderr), (0, ""), arguments)
        return done.stdout

    def refused(self, words, *arguments, code=2):
        done = tutti("plan", "stages", *arguments)
        self.assertEqual((done.returncode, done.stdout), (code, ""), done.stderr)
        self.assertIn(words, done.stderr)
        self.assertEqual(done.stderr.count("\n"), 1)

    def test_stages_are_planned_from_a_layers_file(self):
        path, out = self.file(layers=LAYERS), os.path.join(self.folder, "stages.json")
        o = json.loads(self.plan(path, "--json", "--compare", "--schedule", out))
        self.assertEqual([(s["type"], s["first_layer"], s["end_layer"], s["sparse"]) for s in o["stages"]],
                         [("cpu", 0, 2, True), ("gpu", 2, 4, False)])
        self.assertGreaterEqual(o["examples_a_second"], 20000)
        prices = sum(s["units"] * {"cpu": 0.04, "gpu": 2.42}[s["type"]] for s in o["stages"])
        self.assertAlmostEqual(o["cost"] / (1e8 / o["examples_a_second"] / 3600 * prices), 1, places=9)
        for s in o["stages"]:
            self.assertAlmostEqual(max(s["compute_seconds"], s["communicate_seconds"]) * o["examples_a_second"],
                                   1 - s["slack"], places=9)
        costs = {c["search"]: c["of_least"] for c in o.pop("compared")}
        self.assertEqual(set(costs), {"rl", "dp", "brute", "greedy", "genetic", "fixed"})
        self.assertEqual((costs["dp"], costs["brute"], costs["rl"]), (1, 1, 1))
        self.assertGreater(costs["fixed"], 1)
        with open(out) as f:
            self.assertEqual(json.load(f), o)
        self.refused("choose another name", "--resources", path, "--schedule", out, code=1)  # it is there
        table = self.plan(path, "--compare")
        self.assertIn("4 layers on 2 stages: ", table)
        self.assertRegex(table, r"\n1 +gpu +\d+ .*fc0 to fc1\n")
        self.assertRegex(table, r"\ngreedy +\d")

    def test_stages_are_planned_from_a_model(self):
        path = self.file(floor=1)
        o = json.loads(self.plan(path, "--json", "--search", "dp", "--model", "gpt(layers=2,dim=32,heads=2)", "--data",
                                 "moby-dick", "--batch", 8))
        self.assertEqual((o["model"], o["batch"]), ("gpt(layers=2,dim=32,heads=2)", 8))
        self.assertEqual(o["stages"][0]["first_unit"], 0)
        self.assertTrue(o["stages"][0]["sparse"])
        self.assertEqual(len(o["layers"]), o["stages"][-1]["end_layer"])
        # a higher floor is never cheaper
        more = json.loads(self.plan(path, "--json", "--search", "dp", "--floor", 20000, "--model",
                                    "gpt(layers=2,dim=32,heads=2)", "--data", "moby-dick", "--batch", 8))
        self.assertGreaterEqual(more["cost"], o["cost"])
        self.assertGreaterEqual(more["examples_a_second"], 20000)

    def test_invalid_stage_plans_are_rejected(self):
        path = self.file(layers=LAYERS)
        self.refused("it needs --resources FILE")
        self.refused("--resources needs a value", "--resources")
        self.refused("nowhere.json", "--resources", "nowhere.json")
        self.refused("there is no search 'gready'; did you mean 'greedy'", "--resources", path, "--search", "gready")
        self.refused("leave one of them out", "--resources", path, "--model", "mlp")
        self.refused("option 'floor' is 0; it must be from", "--resources", path, "--floor", "0")
        self.refused("even in the fastest plan: the floor of 1e+09 examples a second is out of reach: layers ",
                     "--resources", path, "--floor", "1e9")
        self.refused("has no layers; give them there", "--resources", self.file())
        self.refused("type 'cpu': flops is 0", "--resources", self.file(types=[{"name": "cpu", "price": 1,
                                                                                "units": 1}]), "--model", "mlp")
        self.refused("must be a whole number from 1 to", "--resources", self.file(types=[{"name": "cpu", "price": 1,
                                                                                          "units": 0}]))
        self.assertIn("baseline_decay", tutti("plan", "stages", "--help").stdout)
        self.assertIn("tutti plan stages", tutti("plan", "--help").stdout)


if __name__ == "__main__":
    unittest.main(verbosity=2)
