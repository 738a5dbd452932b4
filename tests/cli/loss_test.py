"""Workers that die, signals, a launcher that is killed: the run ends, reports which worker and why, and leaves
nothing behind. Bounds are ten times those of the design (50 ms to notice, 2 s to stop, 1 s after the
launcher's death), since a test machine may be busy."""
import contextlib, os, random, re, signal, subprocess, sys, time, unittest

sys.path[:0] = [os.path.join(os.path.dirname(__file__), folder) for folder in ("..", "../netlab")]
import exposition
from command import *
from hosts_test import HERE, TWO, HostCase, workers_of
from lab import NETLAB, needs_lab
from ports import free_port
from together import together


class Loss(Case):
    IN_MEMORY = False  # another /dev/shm is mounted over that one here

    def start(self, name, *arguments, n=3, **more):
        # under the sanitizer a SIGSEGV sent by us must still kill
        run = subprocess.Popen([TUTTI, "train", "--model", "mlp(hidden=64)", "--data", self.data, "-n", str(n),
                                "--batch", "16", "--epochs", "100000", "--quiet", "--out", self.out(name), *arguments],
                               stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=clean_environment(
                                   ASAN_OPTIONS=os.environ.get("ASAN_OPTIONS", "") + ":handle_segv=0"), **more)
        deadline = time.monotonic() + 30
        while len(children_of(run.pid)) < n:
            self.assertLess(time.monotonic(), deadline, "workers did not start")
            self.assertIsNone(run.poll(), "it ended at once")
            time.sleep(0.005)
        return run, children_of(run.pid)

    def training(self, name, **more):
        """start(), and waits until all train, as the first line of the metrics shows."""
        run, workers = self.start(name, "--report-every", "1", **more)
        deadline = time.monotonic() + 60
        while lines_told(self.out(name)) == 0:
            self.assertLess(time.monotonic(), deadline, "nobody trains")
            self.assertIsNone(run.poll(), "it ended before it was to")
            time.sleep(0.005)
        return run, workers

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
        for k in range(12):
            n = rng.choice([2, 3, 4])
            run, workers = self.start("k%d" % k, n=n)
            time.sleep(rng.choice([0, 0.02, 0.1, 0.3, 0.6]) * rng.random())
            rank = rng.randrange(n)
            sign = rng.choice([signal.SIGKILL, signal.SIGKILL, signal.SIGSEGV])
            os.kill(workers[rank], sign)
            begin = time.monotonic()
            err = self.ended(run, 20)
            self.assertEqual(run.returncode, 3, err)
            self.assertRegex(err, r"worker %d was lost: "
                             r"process %d was killed by signal %d \(%s\)" % (rank, workers[rank], sign, sign.name))
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
        """A terminal's signal goes to all processes in the group of its foreground job."""
        run, workers = self.training("g", n=2, start_new_session=True)
        self.assertEqual([os.getpgid(p) for p in workers], [run.pid] * 2)
        os.killpg(run.pid, signal.SIGINT)
        err = self.ended(run, 20)
        self.assertEqual(run.returncode, 130, err)
        self.assertNotIn("was lost", err)  # a worker that only followed the signal is not reported as lost
        self.assert_gone(workers)

    def test_workers_exit_when_the_launcher_is_killed(self):
        before = shm_entries()
        for pause in (0.0, 0.3, 0.8):
            run, workers = self.start("l%g" % pause)
            time.sleep(pause)
            run.kill()
            run.communicate()
            self.assert_gone(workers, 10)
        self.assertEqual(shm_entries(), before)

    def test_a_small_dev_shm_as_of_a_container_is_enough(self):
        if os.geteuid() != 0 or subprocess.run(["unshare", "-m", "true"], capture_output=True).returncode != 0:
            self.skipTest("needs root and mount namespaces")
        for size in ("64k", "64m"):
            done = subprocess.run(["unshare", "-m", "sh", "-c", f'mount -t tmpfs -o size={size} tmpfs /dev/shm && exec '
                                   f'"$@"', "sh", TUTTI, "train", "--model", "mlp", "-n", "4", "--steps", "3",
                                   "--out", self.out(size)],
                                  capture_output=True, text=True, timeout=60, env=clean_environment())
            self.assertEqual(done.returncode, 0, done.stderr)

    def test_stopped_worker_is_lost_and_the_signal_reported(self):
        run, workers = self.training("t", n=3)
        begin = time.monotonic()
        os.kill(workers[1], signal.SIGSTOP)
        err = self.ended(run, 60)
        self.assertEqual(run.returncode, 3, err)
        self.assertRegex(err, r"^tutti: worker 1 was lost: process %d on host '\S+' had been stopped \(SIGSTOP\) for "
                         r"\d+\.\d s and was ended\n$" % workers[1])
        self.assertGreater(time.monotonic() - begin, 2)
        self.assert_gone(workers)


class GoesOn(HostCase):
    """Runs that continue without a lost worker, by --on-loss continue, which is the default of d-psgd over shm
    and tcp."""
    METHOD = ("--method", "d-psgd(graph=complete)", "--model", "mlp(hidden=16)")

    def going(self, name, *arguments, steps=800, **more):
        return self.start(name, *self.METHOD, "--steps", str(steps), *arguments, **more)

    def test_killed_worker_is_reported_and_the_others_finish(self):
        background = ("--checkpoint-async", "on", "--checkpoint-every", "10", "--checkpoint-keep", "3")
        for transport, saves in (("shm", background), ("tcp", ())):
            for rank in (2, 0):
                run, out, workers = self.going("%s%d" % (transport, rank), "-n", "3", "--transport", transport,
                                               "--log-to", "tensorboard,csv", *saves)
                os.kill(workers[rank][0], signal.SIGKILL)
                # 800 steps of two workers that wait for each other in each step: half a minute and
                # more with seven programs a core
                err = self.ended(run, 150)
                self.assertEqual(run.returncode, 0, err)
                self.assertEqual(err, "tutti: worker %d was lost: process %d was killed by signal 9 (SIGKILL); "
                                 "if the others can, the run continues with 2 workers\n" % (rank, workers[rank][0]))
                self.assertEqual(summary(out)["workers"], 3)
                self.nothing_is_left(out)
                # also if another worker has continued the files; the kill may have cut off one row
                told, events = told_of(out), events_of(out)
                self.assertEqual([one for one in told if one in events], events)
                self.assertLessEqual(len(told) - 1, len(events))
                self.assertGreater(len(events), 1)
                self.assertEqual(len(read(os.path.join(out, "metrics.csv")).splitlines()), 1 + len(told))
                if saves:  # the newest are by those who are left, and nothing of a spoilt one is there
                    self.assertEqual(sorted(os.listdir(os.path.join(out, "checkpoints"))),
                                     ["step-%08d" % step for step in (780, 790, 800)])
                    self.assertIn("saved by 2 workers", tutti("check", out).stdout)

    def step_at(self, port, seconds=60):
        """The step that is shown there, as soon as there is an answer."""
        until = time.monotonic() + seconds
        while True:
            with contextlib.suppress(OSError, KeyError):
                return next(iter(exposition.read(exposition.get(port))["tutti_step"].values()))
            self.assertLess(time.monotonic(), until, "no answer")
            time.sleep(0.02)

    def test_another_worker_answers_at_the_port_of_a_lost_one(self):
        port = free_port()
        run, out, workers = self.going("p", "-n", "3", "--metrics-port", str(port), steps=1000000)
        step = self.step_at(port)
        os.kill(workers[0][0], signal.SIGKILL)
        self.says(run, "the run continues with 2 workers\n")
        until = time.monotonic() + 60
        while self.step_at(port) <= step:
            self.assertLess(time.monotonic(), until, "the step stands")
            time.sleep(0.02)
        run.terminate()
        err = self.ended(run, 60)
        self.assertNotIn("metrics-port", err)
        self.nothing_is_left(out)

    @needs_lab
    def test_a_host_without_the_address_of_the_port_continues_with_a_warning(self):
        run, out, workers = self.going("q", "-H", "h1:1,h2:2", "--rsh", NETLAB + " rsh", "--metrics-port",
                                       "10.77.0.1:9400", steps=600,
                                       command=[NETLAB, "-n", "2", "--timeout", "100", "--"])
        os.kill(workers[0][0], signal.SIGKILL)
        err = self.ended(run, 90)
        self.assertEqual(run.returncode, 0, err)
        self.assertIn("the run continues without metrics-port: metrics-port 10.77.0.1:9400 cannot be had: it is no "
                      "address of this host", err)
        self.assertEqual(summary(out)["workers"], 3)
        self.nothing_is_left(out)

    def says(self, run, sentence):
        """Waits for this sentence; gives all output of the run by then."""
        said = b""
        while sentence.encode() not in said:
            part = os.read(run.stderr.fileno(), 4096)
            self.assertNotEqual(part, b"", "it has ended, and has said %s" % said)
            said += part
        return said.decode()

    def test_too_few_workers_end_the_run(self):
        run, out, workers = self.going("f", "-n", "3", "--min-workers", "2", steps=1000000)
        os.kill(workers[2][0], signal.SIGKILL)
        self.says(run, "the run continues with 2 workers\n")
        os.kill(workers[1][0], signal.SIGKILL)
        err = self.ended(run, 60)
        self.assertEqual(run.returncode, 3, err)
        self.assertIn("was killed by signal 9 (SIGKILL); 1 of 3 workers were left, fewer than the 2 of min-workers\n",
                      err)

    def test_on_loss_stop_ends_the_run(self):
        run, out, workers = self.going("s", "-n", "3", "--on-loss", "stop", steps=1000000)
        os.kill(workers[1][0], signal.SIGKILL)
        err = self.ended(run, 60)
        self.assertEqual(run.returncode, 3, err)
        self.assertEqual(err, "tutti: worker 1 was lost: process %d was killed by signal 9 (SIGKILL)\n" % workers[1][0])

    def test_loss_of_a_remote_worker_or_host_is_survived(self):
        run, out, workers = self.going("w", "-H", "127.0.0.1:2,127.0.0.2:2", "--rsh", HERE, steps=2500, workers=4)
        os.kill(workers[3][0], signal.SIGKILL)
        first = self.says(run, "the run continues with 3 workers\n")
        with open("/proc/%d/stat" % workers[2][0]) as f:
            launcher = int(f.read().rsplit(")", 1)[1].split()[1])
        with open("/proc/%d/stat" % launcher) as f:
            agent = int(f.read().rsplit(")", 1)[1].split()[1])
        os.kill(agent, signal.SIGKILL)  # the workers die with it
        err = first + self.ended(run, 90)
        self.assertEqual(run.returncode, 0, err)
        lines = [l for l in err.splitlines() if "the run continues" in l]
        self.assertEqual(lines[0], "tutti: worker 3 was lost: process %d on host 127.0.0.2 was killed by signal 9 "
                         "(SIGKILL); if the others can, the run continues with 3 workers" % workers[3][0])
        self.assertRegex(lines[1], r"^tutti: worker 2 was lost: .*; "
                         r"if the others can, the run continues with 2 workers$")
        self.assertEqual(len(lines), 2, err)
        self.nothing_is_left(out)

    @needs_lab
    def test_a_host_that_is_cut_off_is_lost_and_its_workers_stop(self):
        run, out, workers = self.going("c", "-H", "h1:2,h2:1", "--rsh", NETLAB + " rsh", steps=3000,
                                       command=[NETLAB, "-n", "2", "--timeout", "100", "--"])
        subprocess.run([NETLAB, "cut", "h2"], env=dict(os.environ, NETLAB=workers[0][1][b"NETLAB"].decode()),
                       check=True)
        err = self.ended(run, 90)
        self.assertEqual(run.returncode, 0, err)
        self.assertRegex(err, r"tutti: worker 2 was lost: it has been silent for \d\.\d s: .*; "
                         r"if the others can, the run continues with 2 workers\n")
        self.nothing_is_left(out)

    def test_on_loss_continue_is_rejected_where_unsupported(self):
        self.refused("on-loss is 'continue', but 'ddp' needs every worker in every step; use on-loss=stop and resume "
                     "from a checkpoint, or a method that continues (", "train", "-n", 2, "--on-loss", "continue")
        self.refused("min-workers is 4, but the run has 3 from its beginning; give at most 3", "train", "-n", 3,
                     "--min-workers", 4)
        if os.path.exists(os.path.join(os.path.dirname(TUTTI), "../lib/libtutti_transport_mpi.so")):
            self.refused("on-loss is 'continue', but transport 'mpi' does not outlive the loss of a worker; "
                         "use on-loss=stop, or a transport that does (shm, tcp)", "train", "-n", 2,
                         "--method", "d-psgd", "--on-loss", "continue", "--transport", "mpi")


if __name__ == "__main__":
    together(3)
