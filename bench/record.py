"""What a figure is and where it is kept: bench/run makes rows, bench/results/PART.jsonl keeps them, tools/performance-doc reads them.

A row: part, name, value, unit; ratio and against (what the ratio is to); bound, better ("more" or "less": on which side of the bound it has to be) and met; command,
commit, dirty (the tree had changes), versions, machine, date, load (processes that wanted to run when the part began, a minute's mean) and noisy (more than half
of the cores: others were at work)."""
import json, os, platform, re, subprocess

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
RESULTS = os.path.join(ROOT, "bench/results")


def first_line(*command):
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    except (FileNotFoundError, subprocess.TimeoutExpired):
        return None
    return done.stdout.strip().split("\n")[0] if done.returncode == 0 and done.stdout.strip() else None


def last_word(*command):
    return (first_line(*command) or " ").split(" ")[-1] or None


def versions(tutti):
    found = {"tutti": last_word(tutti, "version"), "cc": last_word("cc", "-dumpfullversion"), "openmpi": last_word("mpirun.openmpi", "--version"), "linux": platform.release(),
             "fio": last_word("fio", "--version"), "mpich": (first_line("mpichversion") or "").replace("MPICH Version:", "").strip() or None}
    python = first_line(os.path.join(ROOT, "bench/peers/python"))
    found["torch"] = first_line(python, "-c", "import torch; print(torch.__version__)") if python else None
    return {name: version for name, version in found.items() if version}


def machine():
    with open("/proc/cpuinfo") as f:
        cpu = re.search(r"(?m)^model name\s*: (.*)$", f.read())
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2 ** 30
    return {"cpu": cpu.group(1) if cpu else platform.machine(), "cores": len(os.sched_getaffinity(0)), "memory_gib": round(memory)}


def met(value, bound, better):
    return value <= bound if better == "less" else value >= bound


class Recorder:
    """Prints rows as they come and keeps them."""

    def __init__(self, tutti, date, keep):
        self.rows, self.keep = [], keep
        self.common = dict(commit=first_line("git", "-C", ROOT, "rev-parse", "--short", "HEAD"), dirty=first_line("git", "-C", ROOT, "status", "--porcelain", "--", "src", "include") is not None,
                           versions=versions(tutti), machine=machine(), date=date)

    def part(self, name):
        self.name, load = name, os.getloadavg()[0]
        self.load = dict(load=round(load, 2), noisy=load > len(os.sched_getaffinity(0)) / 2)
        print(f"\n{name}" + (f" (noisy: {load:.1f} processes were at work when it began)" if self.load["noisy"] else ""), flush=True)

    def row(self, name, value, unit, ratio=None, against=None, bound=None, better="more", command="bench/run", show=True, of="value", timed=True, **more):
        """of: which of the two, value or ratio, the bound is for. timed: false for virtual time and what does not depend on time at all: others at work on the machine do not change it."""
        judged = ratio if of == "ratio" else value
        verdict = None if bound is None or judged is None else met(judged, bound, better)
        self.rows.append(dict(part=self.name, name=name, value=value, unit=unit, ratio=ratio, against=against, bound=bound, of=of, better=better, met=verdict, command=command,
                              **more, **self.common, **{**self.load, "noisy": timed and self.load["noisy"]}))
        if self.keep:
            os.makedirs(RESULTS, exist_ok=True)
            with open(os.path.join(RESULTS, self.name + ".jsonl"), "a") as f:
                f.write(json.dumps(self.rows[-1]) + "\n")
        if show or bound is not None:
            text = f"  {name:<66} {value:10.4g} {unit:<10}" + (f" {ratio:8.3f} of {against}" if ratio is not None else "")
            limit = "" if bound is None else f"  {'<=' if better == 'less' else '>='} {bound:g}  {'met' if verdict else 'MISSED'}"
            print(text + limit, flush=True)

    def absent(self, name, why):
        print(f"  {name:<66} not measured: {why}", flush=True)

    def missed(self):
        return [r for r in self.rows if r["met"] is False]


def read():
    """All rows kept, oldest first."""
    rows = []
    for name in sorted(os.listdir(RESULTS)) if os.path.isdir(RESULTS) else []:
        if name.endswith(".jsonl"):
            with open(os.path.join(RESULTS, name)) as f:
                rows += [json.loads(line) for line in f if line.strip()]
    return rows
