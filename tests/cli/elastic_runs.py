"""Runs whose workers come and go (train --workers, tutti join): what their tests share."""
import os, re, subprocess, time
from command import *

SHARES = 6
PATIENCE = 300 # s: for runs of a few seconds, where a machine does much else
COMMON = ["--model", "mlp(hidden=24)", "--batch", "4", "--seed", "11", "--report-every", "5", "--elastic-shares",
          SHARES]


class ElasticRuns(Case):
    undisturbed = {}  # (model, what its summary has), of arguments

    def setUp(self):
        self.processes = []

    def tearDown(self):
        for process in self.processes:
            if process.poll() is None:
                process.kill()
                process.wait()

    def start(self, name, *arguments, before=(), **environment):
        """Starts the command, with words before it; what it prints goes to files of that name."""
        files = [open(os.path.join(self.folder, name + end), "w") for end in (".out", ".err")]
        process = subprocess.Popen([*before, TUTTI, *map(str, arguments)], stdout=files[0], stderr=files[1],
                                   env=clean_environment(**environment))
        for f in files:
            f.close()
        self.processes.append(process)
        return process

    def said(self, *names):
        return "".join(read(os.path.join(self.folder, name + end)).decode() for name in names
                       for end in (".out", ".err"))

    def until(self, what, *names):
        """Waits until that is true; names: whose output tells why it is not."""
        deadline = time.monotonic() + PATIENCE
        while not what():
            if time.monotonic() > deadline or self.processes[0].poll() is not None:
                self.fail(self.said(*names))
            time.sleep(0.01)

    def begin(self, name, steps, *arguments, slow=60):
        """A run that has begun; gives its process and its folder."""
        out = self.out(name)
        shutil.rmtree(out, ignore_errors=True)
        run = self.start(name, "train", *COMMON, "--data", self.data, "--steps", steps, "--slow", "*:%d" % slow,
                         "--out", out, *arguments)
        self.until(lambda: lines_told(out) > 1, name)
        return run, out

    def workers_become(self, n, *names):
        """Waits for an epoch of n workers, and 0.2 s more."""
        found = re.compile(r"^epoch \d+ of the members: (\d+) worker", re.M)
        self.until(lambda: found.findall(self.said(*names))[-1:] == [str(n)], *names)
        time.sleep(0.2)

    def ends(self, code, process, *names):
        try:
            process.wait(timeout=PATIENCE)
        except subprocess.TimeoutExpired:
            self.fail("no end: " + self.said(*names))
        self.assertEqual(process.returncode, code, self.said(*names))

    def same_as_undisturbed(self, steps, out, *more):
        if (steps, *more) not in self.undisturbed:
            whole = self.train("whole", *COMMON, "--data", self.data, "--steps", steps, "-n", "1", *more)
            self.undisturbed[steps, *more] = self.model(whole), summary(whole)
        model, whole = self.undisturbed[steps, *more]
        self.assertEqual(self.model(out), model)
        for key in ("samples", "steps", "final_test_loss", "final_train_loss"):
            self.assertEqual(summary(out)[key], whole[key], key)

    def resume(self, out, n, *arguments):
        done = tutti("train", "--resume", out, "-n", n, "--slow", "0:1", *arguments)
        self.assertEqual(done.returncode, 0, done.stderr)
