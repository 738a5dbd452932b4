#!/usr/bin/env python3
"""Figures of Herring: the time of a buffer that is two hops from its sum, and the balance of the
servers.

bench/run herring [--piece FIGURE] measures, judges and keeps them (bench/results/herring.jsonl). This
file alone prints them:

    bench/papers/herring.py [FIGURE ...] [--jobs N] [--quick] [--keep] [--date YYYY-MM-DD]

TUTTI names another command than that of the release. All is in virtual time: other work on the
machine changes nothing. An exchange is that of one buffer, or of all buffers of a step from the
beginning of the first to the end of the last, where there are several.

latency   2 to 64 workers on links of 1 ms, 4 kB of gradient: an exchange, of that with 2 workers. For
          comparison a ring (ddp, ring(order=any)), which has 2 (n - 1) hops instead of two.
balance   4 and 8 servers, gpt, whose table of words is most of the model, in buffers of 53,824 bytes: what the
          servers have, most less least, a buffer.
rails     4 machines of 4 workers, each with a way of its own out of the machine: an exchange of 5 MB by
          one rail, in multiples of that by 2 and by 4.
size      8 workers on links of 10 Gbit/s and 50 us: an exchange of 4 kB to 16 MB by herring, by a ring
          and by what ddp chooses itself, and the size from which herring is no faster than the ring.
slots     4 machines of 4, buffers of 256 KiB: an exchange of 5 MB with one slot, in multiples of that
          with 2, 4 and 8.
shards    the same with 4 slots and buffers of 1 MiB to 4 KiB, so that a server gets 64 KiB to 256 bytes
          of one: an exchange, in multiples of the quickest."""
import os, subprocess, sys

sys.dont_write_bytecode = True
from gossip import Papers, main  # noqa: E402

STEPS = 4
RING = ("ddp(bucket_mb=1024,first_bucket_mb=1024)", "--collective", "ring(order=any)")
CHOSEN = ("ddp(bucket_mb=1024,first_bucket_mb=1024)",)
FLAT = ("herring(node=none,fusion_mb=1024)",)
NIC, MEMORY = "10Gbps", "200Gbps"


def machines(n, each):
    """Machines of several hosts: fast links inside, and for each host a way of its own out of it."""
    lines = ["<?xml version='1.0'?>", '<!DOCTYPE platform SYSTEM "https://simgrid.org/simgrid.dtd">',
             '<platform version="4.1">', '  <zone id="all" routing="Full">']
    hosts = range(n * each)
    lines += [f'    <host id="w{k}" speed="50Gf"/>' for k in hosts]
    lines += ['    <link id="loopback" bandwidth="80Gbps" latency="0s" sharing_policy="FATPIPE"/>']
    for k in hosts:
        for way in ("up", "down"):
            lines += [f'    <link id="w{k}_{way}" bandwidth="{NIC}" latency="25us"/>',
                      f'    <link id="w{k}_in_{way}" bandwidth="{MEMORY}" latency="1us"/>']
    for a in hosts:
        for b in hosts:
            inside = "_in" if a // each == b // each else ""
            links = ("loopback",) if a == b else (f"w{a}{inside}_up", f"w{b}{inside}_down")
            route = "".join(f'<link_ctn id="{link}"/>' for link in links)
            lines.append(f'    <route src="w{a}" dst="w{b}" symmetrical="NO">{route}</route>')
    return "\n".join(lines + ["  </zone>", "</platform>", ""])


class Herring(Papers):
    FIGURES = ("latency", "balance", "rails", "size", "slots", "shards")
    SAMPLES = 2000, 500

    def exchange(self, n, model, platform, method, *more):
        """Seconds of an exchange; the figures; the command."""
        data = {"quad": model, "gpt(": "moby-dick"}.get(model[:4], self.data)
        summary, _, command = self.train("--model", model, "--data", data, "-n", n, "--batch", 1, "--transport", "sim",
                                         "--platform", platform, "--step-time", 0.001, "--threads", 1, "--steps", STEPS,
                                         "--report-every", STEPS, "--eval-every", 1000, "--final-eval", "off", "--seed",
                                         1, "--method", method, *more)
        figures = summary["method_figures"]
        seconds = figures["exchange_seconds"][0] if figures else summary["comm_seconds"]
        return seconds / STEPS, figures, command

    def cluster(self, n, latency):
        path = os.path.join(self.folder, f"cluster-{n}-{latency}.xml")
        with open(path, "w") as f:
            subprocess.run([self.tutti, "platform", f"cluster(n={n},rate=10Gbps,latency={latency})"], check=True,
                           stdout=f)
        return path

    def latency(self):
        first = None
        for n in (2, 4) if self.quick else (2, 4, 8, 16, 32, 64):
            links = self.cluster(n, "1ms")
            took, _, command = self.exchange(n, "quadratic(dim=1000)", links, *FLAT)
            ring = self.exchange(n, "quadratic(dim=1000)", links, *RING)[0]
            first = first or took
            self.row(f"herring, {n} workers, 4 kB on links of 1 ms: an exchange, of that with 2", took / first, "",
                     command, ms=1e3 * took, ring_ms=1e3 * ring, ring_of_herring=ring / took)

    def balance(self):
        for n in (4,) if self.quick else (4, 8):
            _, figures, command = self.exchange(n, "gpt(layers=1,dim=32)", self.cluster(n, "50us"),
                                                "herring(node=none,fusion_mb=0.0513,min_shard_kb=0)")
            of = [value for _, value in figures["server_bytes"]]
            buffers = figures["server_shards"][0][1]
            self.row(f"herring, {n} servers, gpt in buffers of 53,824 bytes: most less least of a server, a buffer",
                     (max(of) - min(of)) / buffers, "B", command, bytes=of, buffers=buffers)

    def rails(self):
        first = None
        for rails in (1, 2, 4):
            took, _, command = self.exchange(16, self.model, self.wide, f"herring(node=4,rails={rails},fusion_mb=1024)")
            first = first or took
            self.row(f"herring, 4 machines of 4, {rails} rails, 5 MB: an exchange by one rail, of this", first / took,
                     "", command, ms=1e3 * took)

    def size(self):
        links = self.cluster(8, "50us")
        least = None
        models = [("quadratic(dim=1000)", 4e-3), ("quadratic(dim=16000)", 0.064), ("mlp(hidden=64)", 0.22),
                  ("mlp(hidden=256)", 1.1), ("mlp(hidden=700)", 4.2), ("mlp(hidden=1650)", 16.1)]
        for model, mb in models[:2] if self.quick else models:
            took, _, command = self.exchange(8, model, links, *FLAT)
            ring, chosen = (self.exchange(8, model, links, *way)[0] for way in (RING, CHOSEN))
            if ring <= took and least is None:
                least = mb
            self.row(f"herring, 8 workers, {mb:g} MB: an exchange by a ring, of this", ring / took, "", command,
                     ms=1e3 * took, ring_ms=1e3 * ring, chosen_ms=1e3 * chosen, of_chosen=chosen / took,
                     no_faster_from_mb=least)

    def slots(self):
        first = None
        for slots in (1, 2, 4, 8):
            took, figures, command = self.exchange(16, self.model, self.wide, f"herring(node=4,slots={slots},"
                                                   "fusion_mb=0.25,min_shard_kb=0)")
            first = first or took
            self.row(f"herring, 4 machines of 4, {slots} slots, 5 MB in buffers of 256 KiB: an exchange with one slot, "
                     "of this", first / took, "", command, ms=1e3 * took, most=figures["slots_most"][0],
                     mean=figures["slots_mean"][0])

    def shards(self):
        sizes = (1024, 256, 64) if self.quick else (1024, 256, 64, 16, 4)
        got = {kib: self.exchange(16, self.model, self.wide, f"herring(node=4,fusion_mb={kib / 1024},min_shard_kb=0)")
               for kib in sizes}
        quickest = min(took for took, _, _ in got.values())
        for kib, (took, _, command) in got.items():
            self.row(f"herring, 4 machines of 4, shards of {64 * kib} bytes: an exchange, of the quickest",
                     took / quickest, "", command, ms=1e3 * took)

    def prepare(self):
        self.model = "mlp(hidden=800)"
        self.wide = os.path.join(self.folder, "machines.xml")
        with open(self.wide, "w") as f:
            f.write(machines(4, 4))


if __name__ == "__main__":
    main(__doc__, "herring", Herring, Herring.FIGURES)
