#!/usr/bin/env python3
"""Figures of BytePS: the gain of splitting over servers on the workers' machines and on machines of
their own.

bench/run byteps [--piece FIGURE] measures, judges and keeps them (bench/results/byteps.jsonl). This
file alone prints them:

    bench/papers/byteps.py [FIGURE ...] [--jobs N] [--quick] [--keep] [--date YYYY-MM-DD]

TUTTI names another command than that of the release. All but `netlab` is in virtual time: other work on the
machine changes nothing there. An exchange is that of all chunks of a step, from the beginning of the first
to the end of the last. All ranks have a link of their own, 1 Gbit/s each way and 50 us.

split     4 machines, 0 to 6 servers, 5.1 MB in 50 chunks: an exchange, of what a link carries by the
          split (t_opt): 1.5, 1.333, 1.2, 1.091, 1 and 1 times the gradient. With 3 servers, whose part
          is six times a machine's, six chunks are sent at a time, so they are 100 and not 50.
chunks    4 machines, 2 servers, chunks of 4 MB to 25.6 kB: an exchange, of t_opt.
window    the same with 1 to 16 chunks under way.
wire      4 machines, 2 servers: an exchange with fp32, in multiples of that with fp16, and of that
          through onebit both ways, whose messages have a thirty-second of the bytes.
netlab    4 machines and 0, 1, 2 and 4 servers, a host of a lab of tools/netlab (root) each, at 100 Mbit/s:
          `split` with what such a line carries in the long run. For comparison the same in virtual
          time. It needs a machine on which nothing else runs."""
import json, os, subprocess, sys

sys.dont_write_bytecode = True
from gossip import Papers, main  # noqa: E402
from net import Bench  # noqa: E402

STEPS = 2
RATE = 1.25e8  # bytes a second of a link each way


class BytePS(Papers):
    FIGURES = ("split", "chunks", "window", "wire", "netlab")
    SAMPLES = 2000, 500

    def exchange(self, servers, method, links="rate=1Gbps,latency=50us", *more):
        """Seconds of an exchange; the summary; the command."""
        path = os.path.join(self.folder, f"cluster-{servers}.xml")
        with open(path, "w") as f:
            subprocess.run([self.tutti, "platform", f"cluster(n={4 + servers},{links})"], check=True, stdout=f)
        summary, _, command = self.train("--model", "mlp(hidden=800)", "--data", self.data, "-n", 4, "--servers",
                                         servers, "--batch", 1, "--transport", "sim", "--platform", path,
                                         "--step-time", 0.001, "--threads", 1, "--steps", STEPS, "--report-every",
                                         STEPS, "--eval-every", 1000, "--final-eval", "off", "--seed", 1, "--method",
                                         method, *more)
        figures = summary["method_figures"]
        seconds = figures["exchange_seconds"][0] if figures else summary["comm_seconds"]
        return seconds / STEPS, summary, command

    def of_split(self, servers, spec):
        """An exchange, of what the split lets it take; the same, of the gradient's bytes; the command."""
        took, summary, command = self.exchange(servers, f"byteps({spec})")
        gradient = 4 * summary["params"] / RATE
        return took / gradient / summary["method_figures"]["share_of_link"], took / gradient, command

    def split(self):
        for servers in (0, 2) if self.quick else (0, 1, 2, 3, 4, 6):
            ratio, of_gradient, command = self.of_split(servers, "partition_bytes=51200" if servers == 3
                                                        else "partition_bytes=102400")
            self.row(f"byteps, 4 machines, {servers} servers, 5 MB: an exchange, of t_opt", ratio, "", command,
                     of_gradient=of_gradient)

    def chunks(self):
        for size in (409600, 102400) if self.quick else (4096000, 1024000, 409600, 102400, 51200, 25600):
            ratio, of_gradient, command = self.of_split(2, f"partition_bytes={size}")
            self.row(f"byteps, 4 machines, 2 servers, chunks of {size} bytes: an exchange, of t_opt", ratio, "",
                     command, of_gradient=of_gradient)

    def window(self):
        for credits in (1, 8) if self.quick else (1, 2, 4, 6, 8, 16):
            ratio, of_gradient, command = self.of_split(2, f"partition_bytes=102400,credits={credits}")
            self.row(f"byteps, 4 machines, 2 servers, {credits} chunks under way: an exchange, of t_opt", ratio, "",
                     command, of_gradient=of_gradient)

    def wire(self):
        links = "rate=1Gbps,latency=50us"
        plain, half, coded = (self.exchange(2, f"byteps(partition_bytes={size}{more})", links, *codec)
                              for size, more, codec in ((102400, "", ()), (204800, ",wire=fp16", ()),
                                                        (1638400, "", ("--codec", "onebit"))))
        for name, took in (("fp16", half), ("onebit", coded)):
            self.row(f"byteps, 4 machines, 2 servers, {name}: an exchange with fp32, of this", plain[0] / took[0], "",
                     took[2])

    # ---- real links ----
    def there(self, lab, servers, method, rate, steps):
        """exchange(), on a host each. The last ranks serve."""
        name = f"{self.folder}/lab-{servers}"
        command, _ = lab.lab([self.tutti, "train", "--model", "mlp(hidden=800)", "--data", self.data, "--servers",
                              servers, "--batch", 1, "--transport", "tcp", "--threads", 1, "--steps", steps,
                              "--report-every", steps, "--eval-every", 1000, "--final-eval", "off", "--seed", 1,
                              "--quiet", "--method", method, "--out", name], 4 + servers, rate, False, ["--each"])
        with open(name + "/summary.json") as f:
            summary = json.load(f)
        return max(summary["method_figures"]["exchange_seconds"]) / steps, summary, command.replace(self.folder, "DIR")

    def netlab(self):
        lab = Bench(self.tutti, self.record, self.quick, "")
        if not lab.possible():
            return
        rate, steps, method = "100mbit", 2 if self.quick else 10, "byteps(partition_bytes=102400)"
        goodput, latency = lab.line(rate)
        for servers in (0, 2) if self.quick else (0, 1, 2, 4):
            key = os.environ["TUTTI_RUN_KEY_FILE"] = os.path.join(self.folder, f"key-{servers}")
            subprocess.run([self.tutti, "key", key], check=True, stdout=subprocess.DEVNULL)
            took, summary, command = self.there(lab, servers, method, rate, steps)
            del os.environ["TUTTI_RUN_KEY_FILE"]
            links = f"rate={1e-6 * goodput:.3f}Mbps,latency={1e6 * latency:.2f}us"
            simulated = self.exchange(servers, method, links)[0]
            gradient = 32 * summary["params"] / goodput
            share = summary["method_figures"]["share_of_link"]
            self.record.row(f"byteps, 4 machines, {servers} servers, 5 MB, {rate}, netlab: an exchange, of t_opt",
                            took / gradient / share, "", command=command, of_gradient=took / gradient,
                            simulated=simulated / gradient / share, simulated_of_gradient=simulated / gradient,
                            goodput_mbits=1e-6 * goodput, latency_us=1e6 * latency, cc=lab.cc)


if __name__ == "__main__":
    main(__doc__, "byteps", BytePS, BytePS.FIGURES)
