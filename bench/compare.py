"""bench/run compare: the comparison that the manual promises within ten minutes on two cores.

line    five methods, 16 simulated workers, three seeds, the mlp's whole epoch: how long that takes
resume  the same, killed (with all its runs) after a third of them, gone on with, killed once more, and gone on with:
        which files differ from those of the whole one. Also how many numbers of the table the page and the CSV file
        lack; tests check them cell by cell, in a smaller comparison (tests/cli/compare_test.py).

line must have run in the same call for resume, which is compared with it."""
import csv, filecmp, html, os, re, signal, subprocess, tempfile, time

from command import alive, children_of, clean_environment

METHODS, WORKERS, SEEDS, PLATFORM = "ddp,local-sgd,powersgd,ad-psgd,prague", 16, 3, "cluster(n=16,rate=1Gbps)"
FILES = ("table.txt", "results.csv", "runs.csv", "compare.html")


class Compare:
    def __init__(self, tutti, record, quick, piece):
        self.tutti, self.record, self.quick, self.piece = os.path.abspath(tutti), record, quick, piece or ""

    def run(self):
        with tempfile.TemporaryDirectory(prefix="tutti-bench-") as folder:
            for home in ("whole", "killed"):
                os.mkdir(f"{folder}/{home}")
            with open(f"{folder}/P", "w") as f:
                f.write(subprocess.run([self.tutti, "platform", PLATFORM], stdout=subprocess.PIPE, check=True,
                                       text=True).stdout)
            self.line(folder)
            if not self.piece.startswith("line"):
                self.resumed(folder)

    def words(self):
        return ["compare", "--methods", METHODS, "-n", str(WORKERS), "--transport", "sim", "--platform", "../P",
                "--seeds", "1" if self.quick else str(SEEDS), "--model", "mlp", "--out", "it",
                *(("--steps", "10") if self.quick else ())]

    def facts(self):
        words = " ".join(self.words()).replace("../P", "P")
        return dict(command=f"tutti platform '{PLATFORM}' > P; tutti {words}")

    def line(self, folder):
        began = time.monotonic()
        subprocess.run([self.tutti, *self.words()], cwd=folder + "/whole", check=True, stdout=subprocess.DEVNULL,
                       env=clean_environment())
        self.record.row("five methods, 16 simulated workers, 3 seeds, mlp: the comparison",
                        time.monotonic() - began, "s", **self.facts())
        self.record.row("the same: numbers of the table that its page or CSV file lacks",
                        self.lacking(folder + "/whole/it"), "", **self.facts())

    def lacking(self, out):
        with open(out + "/table.txt") as f:
            table = f.read()
        with open(out + "/results.csv", newline="") as f:
            cells = {cell for row in csv.reader(f) for cell in row}
        with open(out + "/compare.html") as f:
            page = html.unescape(re.sub(r"<[^>]*>", " ", f.read()))
        at = table.index("method ")
        body = table[at:table.index("\n\n", at)] if "\n\n" in table[at:] else table[at:]
        numbers = {n for line in body.splitlines()[1:] for n in re.findall(r"(?<![\w.-])\d[\d.]*(?![\w.(])", line)}
        words = set(re.split(r"[^\w.]+", page))
        return sum(n.rstrip(".") not in cells or n.rstrip(".") not in words for n in numbers)

    def ended(self, out):
        return sum(os.path.exists(f"{out}/runs/{k}/summary.json") for k in os.listdir(out + "/runs")) \
            if os.path.isdir(out + "/runs") else 0

    def kill_after(self, words, cwd, runs):
        one = subprocess.Popen([self.tutti, *words], cwd=cwd, env=clean_environment(), stdout=subprocess.DEVNULL,
                               stderr=subprocess.DEVNULL)
        while one.poll() is None and self.ended(cwd + "/it") < runs:
            time.sleep(0.05)
        workers = children_of(one.pid)
        one.send_signal(signal.SIGKILL)
        one.wait()
        while any(map(alive, workers)): # they end by themselves
            time.sleep(0.05)

    def resumed(self, folder):
        whole, killed = folder + "/whole", folder + "/killed"
        runs = len(os.listdir(whole + "/it/runs")) // 2
        self.kill_after(self.words(), killed, runs // 3)
        self.kill_after(["compare", "--resume", "it"], killed, runs * 2 // 3)
        subprocess.run([self.tutti, "compare", "--resume", "it"], cwd=killed, check=True, stdout=subprocess.DEVNULL,
                       env=clean_environment())
        models = [f"runs/{k}/model.safetensors" for k in sorted(os.listdir(whole + "/it/runs"))
                  if os.path.isdir(f"{whole}/it/runs/{k}")]
        differ = [name for name in (*FILES, *models)
                  if not filecmp.cmp(f"{whole}/it/{name}", f"{killed}/it/{name}", shallow=False)]
        self.record.row("the same, killed twice and resumed: files that differ", len(differ), "", differ=differ,
                        **self.facts())
