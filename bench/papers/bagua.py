#!/usr/bin/env python3
"""Figures of BAGUA: the gain of each of its optimisations, which algorithm suits which network, and
what its tuner finds.

bench/run bagua [--piece FIGURE] measures, judges and keeps them (bench/results/bagua.jsonl). This
file alone prints them:

    bench/papers/bagua.py [FIGURE ...] [--jobs N] [--quick] [--keep] [--date YYYY-MM-DD]

TUTTI names another command than that of the release. All are in virtual time, in which all steps
take the same.

ablation  4 machines of 2 workers, 10 Gbit/s inside, between machines so slow that an all-reduce of
          the model by leaders takes as long as the computation of a step; buckets of 0.25 MiB. A step
          with overlap (O), fusion (F) or hierarchy (H) off, in multiples of one with all on; also the
          messages of a step of all workers. mlp has few large tensors, vgg more, and resnet many small
          ones.
networks  8 workers on equal links: 100 Mbit/s to 10 Gbit/s, 0.05 to 5 ms. How many times as many steps
          a second each algorithm makes as gradient_allreduce. How much a step gains in loss is not
          measured.
tuned     4 machines of 2 workers, links as above: a step after autotune is over, in multiples of one
          of the default; the part of the search that the tuner itself has taken."""
import os, subprocess, sys

sys.dont_write_bytecode = True
from gossip import Papers, main  # noqa: E402

MACHINES, EACH, COMPUTE, BUCKET = 4, 2, 0.01, 0.25
N = MACHINES * EACH
PARAMS = {"mlp(hidden=256)": 784 * 256 + 256 + 256 * 256 + 256 + 256 * 10 + 10, "vgg(small)": 584618,
          "resnet(depth=20)": 269434}
SWITCHES = {"O": "overlap=off", "F": "fusion=off", "H": "hierarchical=off"}
ABLATED = ("gradient_allreduce", "bytegrad", "decentralized")
ALGORITHMS = ("bytegrad", "decentralized", "decentralized,peer_selection=shift_one", "low_precision_decentralized",
              "async,sync_interval_ms=0")
RATES, LATENCIES = ("100Mbps", "1Gbps", "10Gbps"), ("50us", "1ms", "5ms")


class Bagua(Papers):
    FIGURES = ("ablation", "networks", "tuned")
    SAMPLES = 2000, 200

    def platform(self, spec):
        path = os.path.join(self.folder, f"{abs(hash(spec))}.xml")
        with open(path, "w") as f:
            subprocess.run([self.tutti, "platform", spec], check=True, stdout=f)
        return path

    def machines(self, model):
        """Links between machines over which leaders sum the model in COMPUTE, but for latencies."""
        mbits = 8e-6 * 2 * (MACHINES - 1) / MACHINES * 4 * PARAMS[model] / COMPUTE
        return self.platform(f"two-level(machines={MACHINES},per_machine={EACH},rate={mbits:.3f}Mbps,"
                             "inner_rate=10Gbps)")

    def steps(self, model, platform, method, steps):
        """Summary and command of a run of `steps` steps."""
        summary, lines, command = self.train("--model", model, "--data", self.data, "-n", N, "--batch", 2,
                                             "--transport", "sim", "--platform", platform, "--step-time", COMPUTE,
                                             "--threads", 1, "--steps", steps, "--report-every", max(1, steps // 4),
                                             "--final-eval", "off", "--seed", 1, "--method", method)
        return summary, lines, command

    def off(self, algorithm, words):
        """The method with everything on, but for what `words` turn off."""
        on = {"overlap": "on", "fusion": "on", "hierarchical": EACH}
        on.update(word.split("=") for word in words)
        if on["fusion"] == "on" and algorithm != "decentralized":
            on["bucket_mb"] = BUCKET
        return "bagua(algorithm=%s,%s)" % (algorithm, ",".join("%s=%s" % item for item in on.items()))

    def ablation(self):
        steps = 3 if self.quick else 8
        for model in PARAMS:
            platform = self.machines(model)
            for algorithm in ABLATED:
                base, _, command = self.steps(model, platform, self.off(algorithm, ()), steps)
                each = base["wall_seconds"] / steps
                self.row(f"bagua {algorithm}, {model}, all on, {MACHINES} machines of {EACH}: a step", 1e3 * each, "ms",
                         command, messages=N * base["messages_sent_per_worker"] / steps,
                         communicating_ms=1e3 * base["comm_seconds"] / steps)
                for name, word in SWITCHES.items():
                    got, _, command = self.steps(model, platform, self.off(algorithm, (word,)), steps)
                    self.row(f"bagua {algorithm}, {model}, {name} off, {MACHINES} machines of {EACH}: "
                             "a step, of all on",
                             got["wall_seconds"] / steps / each, "", command,
                             messages=N * got["messages_sent_per_worker"] / steps,
                             messages_all_on=N * base["messages_sent_per_worker"] / steps)

    def networks(self):
        model, steps = "resnet(depth=20)", 3 if self.quick else 24
        for rate in RATES:
            for latency in LATENCIES:
                platform = self.platform(f"cluster(n={N},rate={rate},latency={latency})")
                base = self.steps(model, platform, f"bagua(bucket_mb={BUCKET})", steps)[0]["wall_seconds"]
                for algorithm in ALGORITHMS:
                    got, _, command = self.steps(model, platform, f"bagua(algorithm={algorithm})", steps)
                    self.row(f"bagua {algorithm}, {N} workers, {rate}, {latency}: "
                             "steps a second, of gradient_allreduce's",
                             base / got["wall_seconds"], "", command, gradient_allreduce_ms=1e3 * base / steps)

    def tuned(self):
        points, each = (4, 2) if self.quick else (24, 4)
        steps = 4 * -(-(points + 6) * (each + 2) * 3 // 8)  # the last quarter is behind the search

        def last_quarter(lines):
            looks = [(line["step"], line["wall_seconds"]) for line in lines if "wall_seconds" in line]
            (first, begun), (last, ended) = looks[-2:]
            return (ended - begun) / (last - first)

        for model in ("mlp(hidden=256)", "resnet(depth=20)"):
            platform = self.machines(model)
            for start in (10, 0.02):
                words = f"bucket_mb={start},hierarchical={EACH}"
                base = self.steps(model, platform, f"bagua({words})", 16)[0]["wall_seconds"] / 16
                got, lines, command = self.steps(
                    model, platform, f"bagua({words},autotune=on,max_samples={points},sample_steps={each})", steps)
                figures = got["method_figures"]
                self.row(f"bagua autotune, {model}, from bucket_mb={start}, {MACHINES} machines of {EACH}: a step, "
                         "of the default's", last_quarter(lines) / base, "", command,
                         chosen={name: figures.get("tune_" + name) for name in ("bucket_mb", "hierarchical")},
                         tune_share=figures["tune_seconds"] / got["wall_seconds"])


if __name__ == "__main__":
    main(__doc__, "bagua", Bagua, Bagua.FIGURES)
