"""What a figure is and where it is kept: bench/run makes rows, bench/results/PART.jsonl keeps them,
tools/performance-doc reads them.

A row: part, name, value, unit; ratio and against (what the ratio is to); its bound in bench/bounds (bound, better:
"more" or "less", of: "value" or "ratio", bound_since: the commit of the line, null if it is not committed) and met;
command, commit, dirty (the tree had changes elsewhere than in docs and bench/results), versions, machine, date, load
(processes that wanted to run when the part began, a minute's mean) and noisy (more than half of the cores: others were
at work); stolen (the share of processor time since then that the host has given to other machines). How often it was
measured is `seeds`, `pairs`, `runs` or `rounds`. bench/restamp adds measured_at where a commit is gone."""
import json, os, platform, re, subprocess, time

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
RESULTS = os.path.join(ROOT, "bench/results")
BOUNDS = os.path.join(ROOT, "bench/bounds")
SIGNS = {"<=": "less", ">=": "more"}
COUNTS = ("seeds", "pairs", "runs", "rounds")


def first_line(*command):
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    except (FileNotFoundError, subprocess.TimeoutExpired):
        return None
    return done.stdout.strip().split("\n")[0] if done.returncode == 0 and done.stdout.strip() else None


def last_word(*command):
    return (first_line(*command) or " ").split(" ")[-1] or None


def versions(tutti):
    mpich = (first_line("mpichversion") or "").replace("MPICH Version:", "").strip() or None
    found = {"tutti": last_word(tutti, "version"), "cc": last_word("cc", "-dumpfullversion"),
             "openmpi": last_word("mpirun.openmpi", "--version"), "linux": platform.release(),
             "fio": last_word("fio", "--version"), "mpich": mpich}
    python = first_line(os.path.join(ROOT, "bench/peers/python"))
    found["torch"] = first_line(python, "-c", "import torch; print(torch.__version__)") if python else None
    return {name: version for name, version in found.items() if version}


def machine():
    with open("/proc/cpuinfo") as f:
        cpu = re.search(r"(?m)^model name\s*: (.*)$", f.read())
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2 ** 30
    return {"cpu": cpu.group(1) if cpu else platform.machine(), "cores": len(os.sched_getaffinity(0)),
            "memory_gib": round(memory)}


def processor_times():
    """Of all cores since the start, in ticks: user, nice, system, idle, iowait, irq, softirq, steal."""
    with open("/proc/stat") as f:
        return [int(word) for word in f.readline().split()[1:9]]


def stolen(since):
    """The share of processor time since these times in which the host ran something else."""
    times = [now - then for now, then in zip(processor_times(), since)]
    return round(times[7] / max(1, sum(times)), 4)


def met(value, bound, better):
    return value <= bound if better == "less" else value >= bound


def read_bounds(path=BOUNDS):
    """The lines of bench/bounds: part, of, better, bound, pattern (the name, in which * stands for any words), line."""
    found = []
    with open(path) as f:
        for number, text in enumerate(f, 1):
            words = text.split(None, 4)
            if not words or words[0].startswith("#"):
                continue
            if len(words) < 5 or words[1] not in ("value", "ratio") or words[2] not in SIGNS:
                raise ValueError(f"{path}, line {number}: '{text.strip()}' is no bound; "
                                 "write PART value|ratio <=|>= BOUND NAME")
            found.append(dict(part=words[0], of=words[1], better=SIGNS[words[2]], bound=float(words[3]),
                              pattern=words[4].strip(), line=number))
    return found


def bound_of(bounds, part, name):
    """What is promised of a figure, or None."""
    fits = lambda pattern: re.fullmatch(".*".join(map(re.escape, pattern.split("*"))), name)
    found = [b for b in bounds if b["part"] == part and fits(b["pattern"])]
    if len(found) > 1:
        lines = " and ".join(str(b["line"]) for b in found)
        raise ValueError(f"bench/bounds: lines {lines} are both of '{name}'; leave one")
    return found[0] if found else None


def commits_of_lines(path):
    """{line: commit} of a file, without lines that are not committed."""
    words = ["git", "blame", "--porcelain", "--", os.path.basename(path)]
    done = subprocess.run(words, cwd=os.path.dirname(path), capture_output=True, text=True)
    heads = re.findall(r"(?m)^([0-9a-f]{40}) \d+ (\d+)", done.stdout) if done.returncode == 0 else []
    return {int(line): commit for commit, line in heads if commit.strip("0")}


def changes(root):
    """Has the tree changes that a figure could come from? Those of docs and of the results themselves are none."""
    words = ["git", "-C", root, "status", "--porcelain", "--", ".", ":!docs", ":!bench/results"]
    done = subprocess.run(words, capture_output=True, text=True)
    return done.returncode != 0 or done.stdout != ""


def times(row):
    """How often a figure was measured, in words. For rows without it, the value in their command."""
    for key in COUNTS:
        if isinstance(row.get(key), int):
            return f"{row[key]} {key if row[key] != 1 else key[:-1]}"
    for key in ("ratios", "rates"):
        if isinstance(row.get(key), list):
            return f"{len(row[key])} runs"
    rounds = re.search(r"--(?:repeat|rounds) (\d+)", row["command"])
    return "1 run" if rounds is None else f"{rounds[1]} round{'s' * (rounds[1] != '1')}"


class Recorder:
    """Prints rows as they come and keeps them."""

    def __init__(self, tutti, date, keep, root=ROOT):
        self.rows, self.keep, self.results = [], keep, os.path.join(root, "bench/results")
        bounds = os.path.join(root, "bench/bounds")
        self.bounds, self.since = read_bounds(bounds), commits_of_lines(bounds)
        self.common = dict(commit=first_line("git", "-C", root, "rev-parse", "--short", "HEAD"), dirty=changes(root),
                           versions=versions(tutti), machine=machine(), date=date)

    def settle(self, most=120):
        """Waits for what was measured before to leave the minute's mean, or `most` seconds."""
        until = time.monotonic() + most
        while os.getloadavg()[0] > len(os.sched_getaffinity(0)) / 2 and time.monotonic() < until:
            time.sleep(5)

    def part(self, name):
        self.name, load = name, os.getloadavg()[0]
        self.began = processor_times()
        self.load = dict(load=round(load, 2), noisy=load > len(os.sched_getaffinity(0)) / 2)
        print(f"\n{name}" + (f" (noisy: {load:.1f} processes were at work when it began)" if self.load["noisy"]
                             else ""), flush=True)

    def bound(self, name):
        """The bound in bench/bounds of a figure of this part, or None."""
        found = bound_of(self.bounds, self.name, name)
        return found and found["bound"]

    def row(self, name, value, unit, ratio=None, against=None, command="bench/run", show=True, timed=True, **more):
        """timed: false for virtual time and what does not depend on time at all: others at work do not change it."""
        b, promise = bound_of(self.bounds, self.name, name), dict(bound=None, of="value", better=None, met=None)
        if b is not None:
            judged = ratio if b["of"] == "ratio" else value
            promise = {key: b[key] for key in ("bound", "of", "better")}
            promise["met"] = None if judged is None else met(judged, b["bound"], b["better"])
            promise["bound_since"] = self.since.get(b["line"], "")[:7] or None
        self.rows.append(dict(part=self.name, name=name, value=value, unit=unit, ratio=ratio, against=against,
                              **promise,
                              command=command, **more, **self.common,
                              **{**self.load, "noisy": timed and self.load["noisy"], "stolen": stolen(self.began)}))
        if self.keep:
            os.makedirs(self.results, exist_ok=True)
            with open(os.path.join(self.results, self.name + ".jsonl"), "a") as f:
                f.write(json.dumps(self.rows[-1]) + "\n")
        if show or b is not None:
            text = f"  {name:<66} {value:10.4g} {unit:<10}"
            text += f" {ratio:8.3f} of {against}" if ratio is not None else ""
            sign = "<=" if promise["better"] == "less" else ">="
            limit = "" if b is None else f"  {sign} {b['bound']:g}  {'met' if promise['met'] else 'MISSED'}"
            print(text + limit, flush=True)

    def absent(self, name, why):
        print(f"  {name:<66} not measured: {why}", flush=True)

    def missed(self):
        return [r for r in self.rows if r["met"] is False]


def read(results=RESULTS):
    """All rows kept, oldest first."""
    rows = []
    for name in sorted(os.listdir(results)) if os.path.isdir(results) else []:
        if name.endswith(".jsonl"):
            with open(os.path.join(results, name)) as f:
                rows += [json.loads(line) for line in f if line.strip()]
    return rows
