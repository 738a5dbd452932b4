"""Figures of tiers: what bench/run tier measures, judges and keeps (bench/results/tier.jsonl).

disk    writes and reads of `nvme` by io_uring and by threads (tier_bench.c), compared with fio's of the same disk,
        depth, size of a block and of the file, past the page cache, with pinned buffers, over blocks that have been
        written before, and without a flush at the end. Our memory is in large pages, which tutti_alloc asks for. fio's
        is in small ones, and a MiB of those is two requests of many a disk. In pairs: fio first and last in turn. The
        rate is the median of the pairs, the ratio the median of their ratios. DIR is TUTTI_TIER_DIR, or else the
        build's folder.
update  AdamW on host memory in tiles on one and two threads, with and without weights in BF16 (update_bench.c),
        compared with a hand-written loop that does the same (bench/limits/adamw_limit.c). In pairs, likewise."""
import json, os, statistics, subprocess, sys

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
MIB = 2 ** 20
FORMS = [("uring", 32, MIB), ("uring", 8, MIB), ("uring", 32, MIB // 8), ("threads", 32, MIB)]


class Tier:
    def __init__(self, tutti, record, quick, piece):
        self.build = os.path.dirname(os.path.dirname(tutti))
        self.record, self.quick, self.piece = record, quick, piece
        self.pairs = 1 if quick else 5

    def run(self):
        for name in ("disk", "update"):
            if name.startswith(self.piece):
                getattr(self, name)()

    def built(self, target):
        subprocess.run(["cmake", "--build", self.build, "--target", target], check=True, stdout=subprocess.DEVNULL)
        return os.path.join(self.build, "bench", target)

    @staticmethod
    def said(*command, code=0):
        """Standard output; None where a peer is absent."""
        done = subprocess.run([str(word) for word in command], capture_output=True, text=True)
        if done.returncode == 77:
            return None
        if done.returncode != code:
            sys.exit(f"bench/run: `{' '.join(map(str, command))}`: {done.stderr}")
        return done.stdout

    def judged(self, name, unit, ours, theirs, against, more_is_better, **facts):
        """One row of pairs; `theirs` has None where there is no peer."""
        if None in theirs:
            return self.record.absent(name, against + " is not here")
        ratios = [a / b if more_is_better else b / a for a, b in zip(ours, theirs)]
        self.record.row(name, statistics.median(ours), unit, statistics.median(ratios), against,
                        command="bench/run tier", pairs=len(ours), ratios=ratios, values=ours, peers=theirs, **facts)

    def in_turn(self, ours, theirs):
        """Both of each pair, the other one first each time."""
        found = [], []
        for k in range(self.pairs):
            for mine in (k % 2 == 0, k % 2 == 1):
                found[not mine].append(ours() if mine else theirs())
        return found

    def disk(self):
        bench, where = self.built("tier_bench"), os.environ.get("TUTTI_TIER_DIR", self.build)
        size = (64 if self.quick else 1024) * MIB
        for engine, depth, block in FORMS:
            spec = f'nvme(path="{where}",engine={engine},depth={depth},block={block})'
            made = []

            def tier():
                made.append(json.loads(self.said(bench, spec, size, 1)))
                return made[-1]["write"][0], made[-1]["read"][0]

            def fio():
                told = self.said(os.path.join(ROOT, "bench/peers/disk"), where, size, depth, block)
                return tuple(map(float, told.split())) if told is not None else (None, None)

            ours, theirs = self.in_turn(tier, fio)
            for k, what in enumerate(("write", "read")):
                self.judged(f"nvme, {engine}, {depth} x {block // 1024} KiB: {what}", "GB/s",
                            [o[k] * 1e-9 for o in ours], [t[k] and t[k] * 1e-9 for t in theirs], "fio", True,
                            spec=spec.replace(where, "DIR"), bytes=size, tier=made[-1]["is"].replace(where, "DIR"))

    def update(self):
        bench, limit = self.built("update_bench"), self.built("adamw_limit")
        n, rounds = (2 * 10 ** 6, 3) if self.quick else (10 ** 8, 11)
        for threads in (1, 2):
            for copy in (0, 1):
                words = n, threads, copy, rounds
                ours, theirs = self.in_turn(lambda: float(self.said(bench, *words)),
                                            lambda: self.number(limit, *words))
                self.judged(f"adamw, {threads} thread{'s' * (threads > 1)}{', weights in BF16' * copy}: "
                            "time of a parameter", "ns", ours, theirs, "hand-written loop", False, parameters=n)

    def number(self, *command):
        told = self.said(*command)
        return float(told) if told is not None else None
