#!/usr/bin/env python3
"""Figures of placing layers on unlike resources (`tutti plan stages`; HeterPS, Liu et al. 2021).

bench/run heterps [--piece FIGURE] measures, judges and keeps them (bench/results/heterps.jsonl). This
file alone prints them:

    bench/papers/heterps.py [FIGURE ...] [--jobs N] [--quick] [--keep] [--date YYYY-MM-DD]

TUTTI names another command than that of the release.

cost     four models of clicks with the paper's names and numbers of layers. Their layers are ours:
         tables of 64 values a category, then layers that narrow. CPU cores at 0.04 and GPUs at 2.42 an
         hour, a floor of 20,000 examples a second. The cost of what each search finds, of the optimum's
         (dp), the worst of the seeds for those that draw.
types    the same with a third type, an older GPU of a third of the price and a fifth of the speed.

Times are modelled (time()), not measured, and nothing depends on the machine but `seconds`."""
import json, os, subprocess, sys

sys.dont_write_bytecode = True
from gossip import Papers, main  # noqa: E402

BATCH, EXAMPLES, FLOOR = 4096, 1e9, 20000
# A host has 100 Gbit/s, and 96 cores, or 8 GPUs (as many of the old ones).
TYPES = {"cpu": dict(price=0.04, units=20000, flops=2e10, bandwidth=1.3e8, shares=(0.999, 0.999)),
         "gpu": dict(price=2.42, units=64, flops=7e12, bandwidth=1.5e9, shares=(0.99, 0.99)),
         "old": dict(price=0.8, units=64, flops=1.4e12, bandwidth=1.5e9, shares=(0.99, 0.99))}
# Categories of an example of each table, then the widths of the dense layers. A sum of rows is a
# layer, too.
MODELS = {"NCE": ([100], [512, 256, 128]),
          "2EMB": ([80, 120], [1024, 1024, 512, 512, 256, 128]),
          "MATCHNET": ([60, 60, 40], [2048, 2048, 1024, 1024, 1024, 512, 512, 512, 256, 256, 128, 64]),
          "CTRDNN": ([200], [4096, 2048, 2048, 1024, 1024, 1024, 512, 512, 512, 256, 256, 128, 64, 32])}
SEARCHES = ("rl", "genetic", "greedy", "fixed")
DRAWN = ("rl", "genetic")


def time(type, flops, bytes):
    t = TYPES[type]
    return {"compute": max(flops, 1e6) / t["flops"], "communicate": bytes / t["bandwidth"],
            "compute_share": t["shares"][0], "communicate_share": t["shares"][1]}


def layers_of(tables, widths, types):
    """What enters and its slope, rows of tables and their gradient with keys, dense values and theirs: bytes."""
    layers, width = [], 64 * len(tables)

    def add(name, kind, enters, sent, flops, values):
        layers.append({"name": name, "kind": kind, "enters": enters, "values": values,
                       "on": {type: time(type, flops, 2 * (enters + sent)) for type in types}})

    for k, named in enumerate(tables):
        add(f"table{k}", "tables", 8 * named * BATCH, named * BATCH * (64 * 4 + 8) / 4, 2 * 64 * named * BATCH, 2e9)
    add("sum", "sum", 4 * width * BATCH, 0, 2 * width * BATCH, 0)
    for k, out in enumerate(widths):
        add(f"fc{k}", "dense", 4 * width * BATCH, 4 * width * out, 6 * width * out * BATCH, 4 * width * out)
        width = out
    return layers


class HeterPS(Papers):
    FIGURES = ("cost", "types")
    SAMPLES = 200, 100

    def plan(self, path, search):
        words = ["plan", "stages", "--resources", path, "--search", search, "--json"]
        done = subprocess.run([self.tutti, *words], capture_output=True, text=True, check=True)
        return json.loads(done.stdout), "tutti " + " ".join(words).replace(self.folder, "DIR")

    def compared(self, types):
        for model, (tables, widths) in MODELS.items():
            path = os.path.join(self.folder, model + ".json")
            layers = layers_of(tables, widths, types)
            with open(path, "w") as f:
                json.dump({"schema": "tutti-resources-1", "batch": BATCH, "examples": EXAMPLES, "floor": FLOOR,
                           "types": [{"name": t, "price": TYPES[t]["price"], "units": TYPES[t]["units"]}
                                     for t in types], "layers": layers}, f)
            best, command = self.plan(path, "dp")
            name = f"{model}, {len(layers)} layers on {len(types)} types: cost"
            self.row(f"dp, {name}", best["cost"], "", command, stages=[[s["type"], s["end_layer"] - s["first_layer"],
                                                                         s["units"]] for s in best["stages"]])
            for search in SEARCHES:
                seeds = self.seeds if search in DRAWN else [None]
                got = [self.plan(path, search if seed is None else f"{search}(seed={seed})") for seed in seeds]
                costs = [o["cost"] / best["cost"] for o, _ in got]
                self.row(f"{search}, {name}, of dp's", max(costs), "", got[0][1], costs=costs)
            for type in types:
                alone = dict(json.load(open(path)), types=[{"name": type, "price": TYPES[type]["price"],
                                                            "units": TYPES[type]["units"]}])
                for layer in alone["layers"]:
                    layer["on"] = {type: layer["on"][type]}
                other = os.path.join(self.folder, f"{model}-{type}.json")
                with open(other, "w") as f:
                    json.dump(alone, f)
                try:
                    got, command = self.plan(other, "dp")
                except subprocess.CalledProcessError as refused:
                    print(f"  all on {type}, {name}: {refused.stderr.strip()}")
                    continue
                self.row(f"all on {type}, {name}, of dp's", got["cost"] / best["cost"], "", command)

    def cost(self):
        self.compared(("cpu", "gpu"))

    def types(self):
        self.compared(("cpu", "gpu", "old"))


if __name__ == "__main__":
    main(__doc__, "heterps", HeterPS, HeterPS.FIGURES)
