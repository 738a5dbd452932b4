"""examples/cluster.c as its reader would run it: two processes that meet over tcp by variables,
what they save, and who answers with it. CLUSTER is that program, TUTTI the command."""
import os, re, subprocess, sys, tempfile, unittest

sys.path.insert(0, os.path.join(os.path.dirname(__file__), ".."))
from ports import free_port

CLUSTER, TUTTI = sys.argv[1:3]
DIM = 8


class Cluster(unittest.TestCase):
    def setUp(self):
        self.scratch = tempfile.TemporaryDirectory(prefix="tutti-cluster-")
        self.addCleanup(self.scratch.cleanup)
        self.folder = self.scratch.name
        subprocess.run([TUTTI, "key", os.path.join(self.folder, "run.key")], check=True)

    def start(self, ranks, size, *arguments):
        place = dict(os.environ, TUTTI_RUN_KEY_FILE=os.path.join(self.folder, "run.key"), TUTTI_SIZE=str(size),
                     TUTTI_MEET="127.0.0.1:%d" % free_port())
        return [subprocess.Popen([CLUSTER, *arguments], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                                 env=dict(place, TUTTI_RANK=str(r))) for r in ranks]

    def train(self, size, directory, steps):
        """What the first process printed."""
        told = [(*run.communicate(timeout=100), run.returncode)
                for run in self.start(range(size), size, "train", os.path.join(self.folder, directory), str(steps))]
        self.assertEqual([t[1:] for t in told], [("", 0)] * size, told)
        self.assertEqual([t[0] for t in told[1:]], [""] * (size - 1))
        return told[0][0]

    def ask(self, directory, x):
        done = subprocess.run([CLUSTER, "ask", os.path.join(self.folder, directory), *map(str, x)], capture_output=True,
                              text=True, timeout=60)
        self.assertEqual(done.returncode, 0, done.stderr)
        return re.fullmatch(r"step (\d+): y = (-?[0-9.]+)\n", done.stdout).groups()

    def test_two_processes_train_save_resume_and_predict(self):
        self.assertEqual(self.train(2, "a", 150), "2 processes, from step 0\n")
        early = self.ask("a", [0] * DIM)
        self.assertEqual(early[0], "150")
        self.assertEqual(self.train(2, "a", 400), "2 processes, from step 150\n")
        self.assertEqual(self.train(2, "b", 400), "2 processes, from step 0\n")
        for x in ([0] * DIM, [1] + [0] * (DIM - 1), [0.5, -1, 2, 0, 1, 0, 0, -3]):
            step, y = self.ask("a", x)
            self.assertEqual(step, "400")
            self.assertEqual((step, y), self.ask("b", x))  # as if it had never stopped
            self.assertAlmostEqual(float(y), sum((0.5 * k - 1) * v for k, v in enumerate([*x, 1])), delta=2e-3)
        self.assertEqual(self.train(1, "a", 420), "1 processes, from step 400\n")  # another number of processes
        self.assertEqual(self.ask("a", [0] * DIM)[0], "420")

    def test_a_process_that_is_missing_is_named(self):
        run, = self.start([0], 2, "train", os.path.join(self.folder, "a"), "10")
        self.addCleanup(lambda: (run.kill(), run.communicate()))
        self.assertRegex(run.stderr.readline(),
                         r"^waiting for ranks that have not come to the meeting place: 1 of 2; here are: 0 on ")

    def test_missing_checkpoint_directory_is_reported(self):
        done = subprocess.run([CLUSTER, "ask", os.path.join(self.folder, "none"), *["0"] * DIM], capture_output=True,
                              text=True, timeout=60)
        self.assertEqual((done.returncode, done.stdout), (1, ""))
        self.assertRegex(done.stderr, r"^cluster: .*none")


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1], verbosity=2)
