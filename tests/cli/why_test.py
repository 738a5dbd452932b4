"""`tutti why`: what the ranks of a run are in and who holds it up, for runs that hang and runs that do
not. MEMBER is a program of the library (member.c)."""
import json, os, signal, subprocess, sys, time, unittest

from command import *
from gather_test import MEMBER


class Why(unittest.TestCase):
    def setUp(self):
        self.before = shm_entries()
        self.addCleanup(lambda: self.assertEqual(shm_entries(), self.before))  # after all have ended, killed or not

    def start(self, *arguments):
        process = subprocess.Popen([TUTTI, *map(str, arguments)], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE,
                                   text=True, env=clean_environment())

        def end():
            for found in self.stopped:
                try:
                    os.kill(found, signal.SIGCONT)
                except ProcessLookupError:
                    pass
            process.terminate()
            process.communicate(timeout=60)

        self.stopped = []
        self.addCleanup(end)
        return process

    def answer(self, of, until, patience=30):
        """The first answer of which `until` is true."""
        by = time.monotonic() + patience
        while True:
            done = tutti("why", of, "--json")
            found = json.loads(done.stdout) if done.returncode == 0 else {"ranks": [], "diagnosis": done.stderr}
            if until(found):
                return found
            self.assertLess(time.monotonic(), by, found)
            time.sleep(0.05)

    def stop(self, found, rank):
        process = found["ranks"][rank]["process"]
        self.stopped.append(process)
        os.kill(process, signal.SIGSTOP)
        return process

    def test_a_rank_that_does_not_come_is_named(self):
        deadlock = 'if [ $TUTTI_RANK = 1 ]; then exec "$0" "" alone; else exec "$0" "" on; fi'
        for transport in "shm", "tcp":
            run = self.start("run", "-n", 3, "--transport", transport, "--", "sh", "-c", deadlock, MEMBER)
            found = self.answer(run.pid, lambda a: a.get("certain"))
            one = found["ranks"][1]
            self.assertRegex(found["diagnosis"], r"^rank 1 has not entered all-reduce 1 of 1 elements, in which ranks "
                             r"0 and 2 have waited for \d+\.\d s; its process %d is in code of its own, in no call of "
                             r"Tutti(, for \d+\.\d s)?\.$" % one["process"])
            self.assertEqual([r["rank"] for r in found["ranks"]], [0, 1, 2])
            self.assertEqual((found["size"], found["transport"], found["elsewhere"]), (3, transport, 0))
            self.assertEqual([r["in"] for r in found["ranks"][::2]], ["all-reduce 1 of 1 elements"] * 2)
            # the same of a worker's number, as a table
            shown = tutti("why", one["process"]).stdout
            self.assertRegex(shown, r"\n1 +%d +- .*code of its own" % one["process"])
            self.assertIn("rank 1 has not entered", " ".join(shown.split()))

    def test_a_stopped_worker_is_named_and_children_are_no_ranks(self):
        for transport in "shm", "tcp":
            run = self.start("run", "-n", 3, "--transport", transport, "--", MEMBER, "", "family")
            found = self.answer(run.pid, lambda a: len(a["ranks"]) == 3)
            self.assertFalse(found["certain"], found)
            self.assertEqual(found["diagnosis"],
                             "no rank of this host has waited in a collective for a second: the run goes on.")
            process = self.stop(found, 2)
            found = self.answer(run.pid, lambda a: a.get("certain") and "waited" in a["diagnosis"], 12)
            self.assertEqual(len(found["ranks"]), 3)
            self.assertRegex(found["diagnosis"], r"process %d is stopped \(SIGSTOP\)" % process)
            self.assertRegex(found["diagnosis"], r"have waited .*for \d+\.\d s")

    def test_training_by_the_runs_directory(self):
        with scratch_folder() as folder:
            out = os.path.join(folder, "run")
            for transport in "shm", "tcp":
                run = self.start("train", "-n", 3, "--transport", transport, "--model", "quadratic(dim=9,condition=7)",
                                 "--steps", 10 ** 9, "--out", out, "--overwrite")
                found = self.answer(out, lambda a: len(a["ranks"]) == 3 and a["ranks"][0]["step"] > 3)
                process = self.stop(found, 1)
                found = self.answer(out, lambda a: a.get("certain") and "waited" in a["diagnosis"], 12)
                self.assertIn("its process %d is stopped (SIGSTOP)" % process, found["diagnosis"])
                self.assertRegex(found["ranks"][0]["in"],
                             r"^(wait for others|compute|outside steps|between passes|evaluation|report)")
                os.kill(process, signal.SIGCONT)
                run.send_signal(signal.SIGTERM)
                run.communicate(timeout=60)
                done = tutti("why", out)
                self.assertEqual(done.returncode, 2)
                self.assertIn("no process of this host has '%s' as its run's directory" % os.path.realpath(out),
                              done.stderr)

    def test_a_lost_worker_leaves_flight_records_of_the_others(self):
        with scratch_folder() as folder:
            out = os.path.join(folder, "run")
            run = self.start("train", "-n", 3, "--model", "quadratic(dim=9,condition=7)", "--steps", 10 ** 9,
                             "--out", out)
            found = self.answer(run.pid, lambda a: len(a["ranks"]) == 3 and a["ranks"][0]["step"] > 3)
            os.kill(found["ranks"][1]["process"], signal.SIGKILL)
            _, err = run.communicate(timeout=60)
            self.assertEqual((run.returncode, err.count("\n")), (3, 1), err)
            for rank in 0, 2:
                path = os.path.join(out, "flight-%d.json" % rank)
                with open(path) as f:
                    flight = json.load(f)
                self.assertEqual((flight["rank"], flight["size"]), (rank, 3))
                self.assertLessEqual(len(flight["events"]), 64)
                self.assertIn("collective", {e["kind"] for e in flight["events"]})
                ended = [e["began_ago"] - e["took"] for e in flight["events"]]
                for before, after in zip(ended, ended[1:]):  # oldest first, as far as threads and the clock tell
                    self.assertGreaterEqual(before + 0.05, after)
            self.assertFalse(os.path.exists(os.path.join(out, "flight-1.json")))

    def test_nothing_to_read_is_said(self):
        for given, sentence in ((os.getpid(), "process %d is no rank of a run of Tutti" % os.getpid()),
                                (2 ** 22 + 1, "there is no process %d: the run has ended" % (2 ** 22 + 1)),
                                ("/nowhere/at/all", "'/nowhere/at/all' is neither the number of a process nor a")):
            done = tutti("why", given)
            self.assertEqual((done.returncode, done.stdout), (2, ""))
            self.assertIn(sentence, done.stderr)
        self.assertEqual(tutti("why").returncode, 2)
        self.assertEqual(tutti("why", 1, 2).returncode, 2)

    def test_records_of_other_processes_that_cannot_be_read_are_none_of_this(self):
        """As of another version of Tutti, which runs here, too."""
        fd = os.memfd_create("tutti-activity")
        os.write(fd, b"x" * 100)
        other = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"])
        try:
            done = tutti("why", other.pid)
        finally:
            other.kill()
            other.wait()
            os.close(fd)
        self.assertEqual((done.returncode, done.stdout), (2, ""), done.stderr)
        self.assertIn("process %d is no rank of a run of Tutti" % other.pid, done.stderr)

    def test_damaged_records_are_said(self):
        """A process whose descriptor has the name of a record, but not its bytes."""
        for content in b"", b"x" * 100, b"\xff" * 65536:
            fd = os.memfd_create("tutti-activity")
            os.write(fd, content)
            done = tutti("why", os.getpid())
            os.close(fd)
            self.assertEqual(done.returncode, 1, done.stderr)
            self.assertRegex(done.stderr,
                             r"no rank of a run can be read: process %d: the record (has|does)" % os.getpid())


if __name__ == "__main__":
    unittest.main(verbosity=2)
