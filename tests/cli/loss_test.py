"""Workers that die, signals, a launcher that is killed: the run ends, says who and why, and leaves nothing. Bounds are ten times those of the design (50 ms to
notice, 2 s to stop, 1 s after the launcher's death), since a test machine may be busy."""
import os, random, re, signal, subprocess, time, unittest
from command import *


class Loss(Case):
    def start(self, name, *arguments, n=3):
        run = subprocess.Popen([TUTTI, "train", "--model", "mlp", "--data", self.data, "-n", str(n), "--batch", "16", "--epochs", "100000", "--quiet",
                                "--out", self.out(name), *arguments], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                               env=clean_environment(ASAN_OPTIONS="handle_segv=0"))  # under the sanitizer a SIGSEGV sent by us must still kill
        deadline = time.monotonic() + 30
        while len(children_of(run.pid)) < n:
            self.assertLess(time.monotonic(), deadline, "workers did not start")
            self.assertIsNone(run.poll(), "it ended at once")
            time.sleep(0.005)
        return run, children_of(run.pid)

    def ended(self, run, seconds):
        try:
            out, err = run.communicate(timeout=seconds)
        except subprocess.TimeoutExpired:
            run.kill()
            self.fail("the run did not end within %g s" % seconds)
        return err

    def assert_gone(self, pids, seconds=10):
        deadline = time.monotonic() + seconds
        while any(alive(p) for p in pids):
            self.assertLess(time.monotonic(), deadline, "workers are left: %s" % [p for p in pids if alive(p)])
            time.sleep(0.01)

    def test_a_killed_worker_ends_the_run_with_rank_pid_and_signal_at_any_moment(self):
        before = shm_entries()
        rng = random.Random(1)
        for k in range(25):
            n = rng.choice([2, 3, 4])
            run, workers = self.start("k%d" % k, n=n)
            time.sleep(rng.choice([0, 0.02, 0.1, 0.3, 0.6]) * rng.random())
            rank = rng.randrange(n)
            sign = rng.choice([signal.SIGKILL, signal.SIGKILL, signal.SIGSEGV])
            os.kill(workers[rank], sign)
            begin = time.monotonic()
            err = self.ended(run, 20)
            self.assertEqual(run.returncode, 3, err)
            self.assertRegex(err, r"worker %d was lost: process %d was killed by signal %d \(%s\)" % (rank, workers[rank], sign, sign.name))
            self.assertEqual(err.count("\n"), 1, err)
            self.assertLess(time.monotonic() - begin, 15)
            self.assert_gone(workers)
        self.assertEqual(shm_entries(), before)

    def test_sigterm_and_ctrl_c_end_it_cleanly(self):
        before = shm_entries()
        for sign in (signal.SIGTERM, signal.SIGINT):
            for pause in (0.0, 0.5):
                run, workers = self.start("%s%g" % (sign.name, pause))
                time.sleep(pause)
                run.send_signal(sign)
                begin = time.monotonic()
                self.ended(run, 20)
                self.assertEqual(run.returncode, 128 + sign)
                self.assertLess(time.monotonic() - begin, 20)
                self.assert_gone(workers)
        self.assertEqual(shm_entries(), before)

    def test_ctrl_c_of_a_terminal_reaches_the_whole_group_and_ends_it_cleanly(self):
        run = subprocess.Popen([TUTTI, "train", "--model", "mlp", "--data", self.data, "-n", "2", "--epochs", "100000", "--quiet", "--out", self.out("g")],
                               stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=clean_environment(), start_new_session=True)
        time.sleep(1)
        workers = children_of(run.pid)
        os.killpg(run.pid, signal.SIGINT)
        self.ended(run, 20)
        self.assertEqual(run.returncode, 130)
        self.assert_gone(workers)

    def test_workers_leave_when_the_launcher_is_killed(self):
        before = shm_entries()
        for pause in (0.0, 0.3, 0.8):
            run, workers = self.start("l%g" % pause)
            time.sleep(pause)
            run.kill()
            run.communicate()
            self.assert_gone(workers, 10)
        self.assertEqual(shm_entries(), before)

    def test_too_little_shared_memory_is_a_sentence_and_not_a_bus_error(self):
        if os.geteuid() != 0 or subprocess.run(["unshare", "-m", "true"], capture_output=True).returncode != 0:
            self.skipTest("needs root and mount namespaces")
        for size in ("64k", "3m", "40m"):
            done = subprocess.run(["unshare", "-m", "sh", "-c", f'mount -t tmpfs -o size={size} tmpfs /dev/shm && exec "$@"', "sh", TUTTI, "train", "--model", "mlp",
                                   "-n", "3", "--out", self.out(size)], capture_output=True, text=True, timeout=60, env=clean_environment())
            self.assertNotEqual(done.returncode, 0)
            self.assertLess(done.returncode, 128, done.stderr)
            self.assertRegex(done.stderr, r"/dev/shm")
            self.assertRegex(done.stderr, r"\d+(\.\d+)? MiB|\d+ bytes")
            self.assertIn("fewer workers", done.stderr)


if __name__ == "__main__":
    unittest.main(verbosity=1)
