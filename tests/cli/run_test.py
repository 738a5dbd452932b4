"""`tutti run`: any command as the workers of a run: places, variables, ends, signals, losses, several
hosts. MEMBER is a program of the library (member.c). Bounds on time are ten times the promises."""
import os, re, shutil, signal, subprocess, sys, time, unittest

from command import *
from gather_test import LINE, MEMBER
from hosts_test import HERE

HOST = os.uname().nodename


class Run(unittest.TestCase):
    def setUp(self):
        self.folder = scratch()
        self.before = shm_entries()

    def tearDown(self):
        self.assertEqual(shm_entries(), self.before)
        shutil.rmtree(self.folder, ignore_errors=True)

    def run_it(self, *arguments, timeout=60, **environment):
        done = subprocess.run([TUTTI, "run", *map(str, arguments)], capture_output=True, text=True, timeout=timeout,
                              env=clean_environment(**environment), cwd=self.folder)
        return done.stdout, done.stderr, done.returncode

    def start(self, *arguments, **environment):
        return subprocess.Popen([TUTTI, "run", *map(str, arguments)], stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                                text=True, env=clean_environment(**environment), cwd=self.folder)

    def refused(self, sentence, *arguments, **environment):
        out, err, code = self.run_it(*arguments, **environment)
        self.assertEqual(code, 2, err)
        self.assertIn(sentence, err)

    def test_out_of_memory_kill_is_reported(self):
        """In a control group of memory, with a limit, in which a worker takes more."""
        if os.environ.get("TUTTI_SIMULATED") == "off":
            narrowed("a limit on memory: under a sanitizer the launcher takes as much as the worker")
            return
        at = next((top for top in ("/sys/fs/cgroup/memory", "/sys/fs/cgroup")
                   if os.path.exists(top + "/memory.limit_in_bytes") or os.path.exists(top + "/memory.current")), None)
        group = "%s/tutti-test-%d" % (at, os.getpid())
        limit = "memory.limit_in_bytes" if at == "/sys/fs/cgroup/memory" else "memory.max"
        try:
            os.mkdir(group)
            self.addCleanup(os.rmdir, group)
            with open(os.path.join(group, limit), "w") as f:
                f.write(str(100 << 20))
        except OSError as why:
            self.skipTest("no control group of memory can be made here: %s" % why)
        eats = "import os\nif os.environ['TUTTI_RANK'] == '1':\n    x = bytearray(1 << 30)\nimport time; time.sleep(60)"
        for hosts, where in ((["-n", "2"], ""), (["-H", "127.0.0.1:1,127.0.0.2:1", "--rsh",
                                                 "sh -c 'eval \"$1\"'"], " on host 127.0.0.2")):
            done = subprocess.run(["sh", "-c", 'echo $$ > "$0"/cgroup.procs && exec "$@"', group, TUTTI, "run", *hosts,
                                   "--", sys.executable, "-c", eats], capture_output=True, text=True, timeout=60,
                                  env=clean_environment())
            self.assertEqual(done.returncode, 3, done.stderr)
            self.assertRegex(done.stderr, r"worker 1 was lost: process \d+%s was killed by signal 9 \(SIGKILL\)"
                             r"( before it had joined the run)?, as the kernel does for want of memory, and has done "
                             r"here since the run began: take fewer workers or smaller batches, or give the run more "
                             r"memory" % where)

    def test_each_worker_gets_its_rank_and_transport(self):
        for transport, taken in (("auto", "shm"), ("shm", "shm"), ("tcp", "tcp")):
            out, err, code = self.run_it("-n", 3, "--transport", transport, "--threads", 1, "--", MEMBER)
            self.assertEqual((err, code), ("", 0))
            self.assertEqual(sorted(LINE.findall(out)), [(str(r), "3", taken, "6") for r in range(3)])
            for r in range(3):
                self.assertRegex(out, r"rank %d .*; RANK %d LOCAL_RANK %d/3 MASTER 127.0.0.1 THREADS 1\n" % (r, r, r))

    def test_options_of_the_transport_reach_the_workers(self):
        for spec, taken in (("tcp(peer-timeout=20,streams=2)", "tcp"), ("shm(spin=5)", "shm")):
            out, err, code = self.run_it("-n", 2, "--transport", spec, "--", "sh", "-c",
                                         'echo "$TUTTI_TRANSPORT"; exec "$0"', MEMBER)
            self.assertEqual((err, code), ("", 0))
            self.assertEqual(sorted(LINE.findall(out)), [(str(r), "2", taken, "3") for r in range(2)])
            self.assertEqual(out.count(spec + "\n"), 2)
        out, err, code = self.run_it("-n", 2, "--", MEMBER, TUTTI_TRANSPORT="tcp")  # of before: not handed on
        self.assertEqual((err, code), ("", 0))
        self.assertEqual(sorted(LINE.findall(out)), [(str(r), "2", "shm", "3") for r in range(2)])
        # whose options are refused by the world itself
        out, err, code = self.run_it("-n", 1, "--", "sh", "-c", 'TUTTI_TRANSPORT="tcp(eager=1)" exec "$0"', MEMBER)
        self.assertIn("eager", out + err)
        self.assertNotEqual(code, 0)

    def test_program_may_request_tcp_explicitly(self):
        out, err, code = self.run_it("-n", 2, "--", MEMBER, "tcp", "twice", XDG_RUNTIME_DIR=self.folder)
        self.assertEqual((err, code), ("", 0), out)
        self.assertEqual(sorted(LINE.findall(out)), [(str(r), "2", "tcp", "3") for r in (0, 0, 1, 1)])

    def test_a_forked_child_is_no_rank(self):
        for transport in "shm", "tcp":
            out, err, code = self.run_it("-n", 2, "--transport", transport, "--", MEMBER, "", "fork")
            self.assertEqual((err, code), ("", 0), out)

    def test_variables_are_those_of_torchrun(self):
        names = "RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "MASTER_ADDR", "TUTTI_SERVERS", "GROUP_RANK"
        script = "echo " + " ".join("${%s--}" % name for name in names)
        # what an outer run left is not handed on; a MASTER_ADDR that was given is
        outer = dict(RANK="0", WORLD_SIZE="1", LOCAL_RANK="0", GROUP_RANK="0", TORCHELASTIC_RUN_ID="x")
        out, err, code = self.run_it("-n", 2, "--servers", 1, "--", "sh", "-c", script, **outer)
        self.assertEqual((err, code), ("", 0))
        self.assertEqual(sorted(out.splitlines()), ["%d 3 %d 3 127.0.0.1 1 -" % (r, r) for r in range(3)])
        out, _, _ = self.run_it("-n", 1, "--", "sh", "-c", "echo $MASTER_ADDR $MASTER_PORT", MASTER_ADDR="a",
                                MASTER_PORT="7")
        self.assertEqual(out, "a 7\n")
        # none that the kernel would give to a connection before rank 0 listens there
        script = "test $MASTER_PORT -gt 1000 -a $MASTER_PORT -lt 32768 && echo $OMP_NUM_THREADS"
        out, _, _ = self.run_it("-n", 1, "--", "sh", "-c", script, OMP_NUM_THREADS="7")
        self.assertEqual(out, "7\n")

    def test_workers_are_pinned_unless_told_otherwise(self):
        if len(os.sched_getaffinity(0)) < 2:
            self.skipTest("skipped: one core")
        show = (sys.executable, "-c", "import os; print(sorted(os.sched_getaffinity(0)))")
        out, _, _ = self.run_it("-n", 2, "--threads", 1, "--tag", "--", *show)
        cores = [line.split(None, 1)[1] for line in out.splitlines()]
        self.assertEqual((len(set(cores)), {c.count(",") for c in cores}), (2, {0}), out)
        out, _, _ = self.run_it("-n", 2, "--threads", 1, "--pin", "off", "--tag", "--", *show)
        self.assertEqual({line.split(None, 1)[1] for line in out.splitlines()}, {str(sorted(os.sched_getaffinity(0)))})

    def test_output_is_tagged_line_by_line(self):
        script = "echo one; echo two >&2; printf three"
        out, err, code = self.run_it("-n", 2, "--tag", "--", "sh", "-c", script)
        self.assertEqual((sorted(out.splitlines()), code),
                         (["[0] one", "[0] three", "[1] one", "[1] three"], 0))
        self.assertEqual(sorted(err.splitlines()), ["[0] two", "[1] two"])
        long = "x" * 20000
        out, _, _ = self.run_it("-n", 1, "--tag", "--", sys.executable, "-c", "print('%s')" % long)
        self.assertEqual(out.replace("[0] ", "").replace("\n", ""), long)
        # not waiting for those that a worker has left behind
        out, _, _ = self.run_it("-n", 1, "--tag", "--", "sh", "-c", "sleep 300 & echo here")
        self.assertEqual(out, "[0] here\n")

    def test_exit_codes_and_messages_match_the_lost_worker(self):
        for given, code in ((0, 0), (1, 1), (2, 2), (3, 3), (7, 1)):
            out, err, got = self.run_it("-n", 2, "--", MEMBER, "", "exit:1:%d" % given)
            if given == 0: # left in the middle
                code = 3
            self.assertEqual(got, code, err)
            self.assertRegex(err, r"^tutti: host %s: worker 1 was lost: process \d+ exited with code %d"
                             % (re.escape(HOST), given))
            self.assertIn("failed: status 7 rank 1", out) # the other one was notified
        out, err, code = self.run_it("-n", 2, "--", MEMBER, "", "die:0")
        self.assertEqual(code, 3)
        self.assertRegex(err, r"^tutti: host \S+: worker 0 was lost: process \d+ was killed by signal 9 \(SIGKILL\)")
        out, err, code = self.run_it("-n", 2, "--", "sh", "-c", "exit 5") # no program of ours
        self.assertEqual(code, 1)
        self.assertRegex(err, r"worker \d was lost: process \d+ exited with code 5")
        self.assertEqual(self.run_it("-n", 3, "--", "true"), ("", "", 0))

    def test_failing_worker_terminates_the_other_processes(self):
        began = time.monotonic()
        script = "test $RANK = 1 && exit 9; exec sleep 50"
        _, err, code = self.run_it("-n", 3, "--grace", 0.5, "--", "sh", "-c", script)
        self.assertEqual(code, 1, err)
        self.assertIn("worker 1 was lost", err)
        self.assertLess(time.monotonic() - began, 30)

    def test_run_continues_after_a_loss(self):
        run = self.start("-n", 3, "--on-loss", "continue", "--", MEMBER, "", "alone")
        pids = {}
        for _ in range(3):
            line = run.stdout.readline()
            pids[int(LINE.match(line)[1])] = int(re.search(r"pid (\d+)", line)[1])
        os.kill(pids[1], signal.SIGKILL)
        self.assertRegex(run.stderr.readline(), r"worker 1 was lost: process %d was killed by signal 9 \(SIGKILL\); "
                         "if the others can, the run continues with 2 workers" % pids[1])
        self.assertTrue(alive(pids[0]) and alive(pids[2]))
        os.kill(pids[0], signal.SIGKILL)
        self.assertIn("the run continues with 1 worker", run.stderr.readline())
        os.kill(pids[2], signal.SIGKILL)
        _, err = run.communicate(timeout=60)
        self.assertEqual(run.returncode, 3)
        self.assertIn("0 of 3 workers were left, fewer than the 1 of min-workers", err)

    def test_the_exit_code_after_a_loss_is_that_of_the_others(self):
        for transport in "shm", "tcp":
            out, err, code = self.run_it("-n", 3, "--on-loss", "continue", "--transport", transport, "--", MEMBER, "",
                                         "outlive:1")
            self.assertEqual(code, 0, err)
            self.assertRegex(err, r"^tutti: worker 1 was lost: .*; if the others can, the run continues "
                             r"with 2 workers\n$")
        out, err, code = self.run_it("-n", 3, "--on-loss", "continue", "--min-workers", 3, "--", MEMBER, "", "die:1")
        self.assertEqual(code, 3)
        self.assertIn("2 of 3 workers were left, fewer than the 3 of min-workers", err)

    def test_a_signal_ends_all(self):
        for number in signal.SIGTERM, signal.SIGINT, signal.SIGHUP:
            run = self.start("-n", 2, "--tag", "--", MEMBER, "", "alone")
            pids = [int(re.search(r"pid (\d+)", run.stdout.readline())[1]) for _ in range(2)]
            run.send_signal(number)
            _, err = run.communicate(timeout=60)
            self.assertEqual(run.returncode, 128 + number)
            self.assertEqual(err, "tutti: stopped by signal %d (%s)\n" % (number, number.name))
            self.assertEqual([alive(p) for p in pids], [False, False])

    def test_workers_have_time_to_end_and_a_second_signal_ends_it(self):
        # os.write: the signal may come while print is still at work, which cannot be entered twice
        deaf = "import os, signal, time; signal.signal(signal.SIGTERM, lambda *_: os.write(1, b'heard\\n')); " \
            "os.write(1, b'ready\\n'); [time.sleep(0.1) for _ in range(600)]"
        run = self.start("-n", 1, "--stop-timeout", "50", "--", sys.executable, "-c", deaf)
        self.assertEqual(run.stdout.readline(), "ready\n")
        run.send_signal(signal.SIGTERM)
        self.assertEqual(run.stdout.readline(), "heard\n")
        time.sleep(0.7) # else it is the first one's echo
        run.send_signal(signal.SIGTERM)
        began = time.monotonic()
        run.communicate(timeout=60)
        self.assertEqual(run.returncode, 143)
        self.assertLess(time.monotonic() - began, 20)

    def test_workers_die_with_a_launcher_that_is_killed(self):
        run = self.start("-n", 2, "--", MEMBER, "", "alone")
        pids = [int(re.search(r"pid (\d+)", run.stdout.readline())[1]) for _ in range(2)]
        run.kill()
        run.communicate(timeout=60)
        until = time.monotonic() + 10
        while any(map(alive, pids)) and time.monotonic() < until:
            time.sleep(0.01)
        self.assertEqual([alive(p) for p in pids], [False, False])

    # A worker that is a wrapper: it prints the process id of the program for which it waits, or
    # leaves.
    WRAPPER = "sh -c 'echo $$; exec sleep 300'; exit 7"

    def numbers(self, run, n):
        pids = [int(run.stdout.readline()) for _ in range(n)]
        self.assertEqual([alive(p) for p in pids], [True] * n)
        return pids

    def gone(self, pids):
        """A process that is killed with another's end may take a moment."""
        until = time.monotonic() + 10
        while any(map(alive, pids)) and time.monotonic() < until:
            time.sleep(0.005)
        self.assertEqual([alive(p) for p in pids], [False] * len(pids))

    def test_no_process_started_by_a_worker_remains(self):
        for end in (lambda run: os.kill(children_of(run.pid)[1], signal.SIGKILL),
                    lambda run: run.send_signal(signal.SIGTERM)):
            run = self.start("-n", 2, "--grace", 0.1, "--", "sh", "-c", self.WRAPPER)
            pids = self.numbers(run, 2)
            # a terminal's signals reach them
            self.assertEqual({os.getpgid(p) for p in pids}, {os.getpgid(run.pid)})
            end(run)
            run.wait(timeout=60)
            self.assertIn(run.returncode, (3, 143))
            self.assertEqual([alive(p) for p in pids], [False, False])
            run.communicate()
        for left in "sleep 300 & echo $!", "trap '' TERM; sleep 300 & echo $!", "setsid sleep 300 & echo $!":
            out, err, code = self.run_it("-n", 1, "--grace", 0.1, "--", "sh", "-c", left)
            self.assertEqual((err, code, alive(int(out))), ("", 0, False))
        # what was there before is not a worker's
        shell = 'sleep 300 >&- 2>&- & echo $!; exec "$0" run -n 1 -- sh -c "sleep 300 & echo \\$!"'
        done = subprocess.run(["sh", "-c", shell, TUTTI], capture_output=True, text=True, timeout=60,
                              env=clean_environment())
        before, left = map(int, done.stdout.split())
        self.assertEqual((alive(before), alive(left), done.returncode), (True, False, 0))
        os.kill(before, signal.SIGKILL)

    def test_program_in_a_wrapper_gets_the_signal_and_finishes(self):
        saves = """sh -c 'trap "sleep 0.1; echo saved; exit" TERM; echo $$; while :; do sleep 0.01; done'; exit 7"""
        run = self.start("-n", 1, "--stop-timeout", 60, "--", "sh", "-c", saves)
        self.numbers(run, 1)
        run.send_signal(signal.SIGTERM)
        self.assertEqual((run.communicate(timeout=60)[0], run.returncode), ("saved\n", 143))

    def test_survived_loss_also_ends_the_wrapped_program(self):
        run = self.start("-n", 2, "--on-loss", "continue", "--", "sh", "-c", '"$0" "" alone; exit 7', MEMBER)
        pids = {}
        for _ in range(2):
            line = run.stdout.readline()
            pids[int(LINE.match(line)[1])] = int(re.search(r"pid (\d+)", line)[1])
        shell = [p for p in children_of(run.pid) if children_of(p) == [pids[1]]]
        os.kill(shell[0], signal.SIGKILL)
        self.assertIn("the run continues with 1 worker", run.stderr.readline())
        self.gone([pids[1]])
        self.assertTrue(alive(pids[0]))
        run.send_signal(signal.SIGTERM)
        run.communicate(timeout=60)
        self.assertFalse(alive(pids[0]))

    def test_no_worker_process_remains_on_another_host(self):
        there = ("-H", "127.0.0.2:2", "--rsh", HERE, "--grace", 0.1, "--", "sh", "-c")
        for number in signal.SIGTERM, signal.SIGKILL: # of the second its agent knows by the end of its input
            run = self.start(*there, self.WRAPPER)
            pids = self.numbers(run, 2)
            run.send_signal(number)
            run.communicate(timeout=60)
            self.gone(pids)
        out, err, code = self.run_it(*there, "sleep 300 & echo $!")
        self.assertEqual((err, code), ("", 0))
        self.gone([int(p) for p in out.split()])

    def test_several_hosts(self):
        there = ("-H", "127.0.0.1:1,127.0.0.2:2", "--rsh", "env -u MORE -u OTHER " + HERE)
        script = "echo $RANK $WORLD_SIZE $LOCAL_RANK $LOCAL_WORLD_SIZE $MASTER_ADDR ${MORE--} ${OTHER--}"
        out, err, code = self.run_it(*there, "--export", "MORE", "--tag", "--", "sh", "-c", script, MORE="yes",
                                     OTHER="no")
        self.assertEqual(code, 0, err)
        # two names of one machine: its cores, and so the local ranks, are counted together
        self.assertEqual(sorted(out.splitlines()), ["127.0.0.2: [1] 1 3 1 3 127.0.0.1 yes -",
                                                    "127.0.0.2: [2] 2 3 2 3 127.0.0.1 yes -",
                                                    "[0] 0 3 0 3 127.0.0.1 yes -"])
        out, err, code = self.run_it(*there, "--servers", 1, "--", MEMBER)
        self.assertEqual(code, 0, err)
        self.assertEqual(sorted(re.findall(r"rank (\d) of 4 over tcp: 10", out)), ["0", "1", "2", "3"])
        out, err, code = self.run_it(*there, "--", MEMBER, "", "die:2")
        self.assertEqual(code, 3, err)
        self.assertRegex(err, r"tutti: worker 2 was lost: process \d+ on host 127.0.0.2 was killed by signal 9")
        out, err, code = self.run_it("-H", "127.0.0.2:2", "--rsh", HERE, "--", MEMBER)
        self.assertEqual((code, len(re.findall(" over shm: 3", out))), (0, 2), err)

    def test_invalid_options_are_rejected(self):
        self.refused("how many workers? give -n N, or -H HOST:N", "--", "true")
        self.refused("there is no command to run", "-n", 2)
        self.refused("there is no command 'no-such-program' in PATH", "-n", 2, "--", "no-such-program")
        self.refused("cannot execute './nothing' as worker 0", "-n", 2, "--", "./nothing")
        self.refused("there is no option '--tgg'; did you mean 'tag'?", "-n", 2, "--tgg", "--", "true")
        self.refused("there is no option '-x'", "-x", "--", "true")
        self.refused("needs a value", "-n")
        self.refused("-n is '0.5'", "-n", "0.5", "--", "true")
        self.refused("n is 3, but the hosts 'a:2' have 2 workers", "-n", 3, "-H", "a:2", "--", "true")
        self.refused("min-workers is 3, but the run has 2", "-n", 2, "--min-workers", 3, "--on-loss", "continue", "--",
                     "true")
        self.refused("min-workers is 2, but the run ends with the first loss", "-n", 2, "--min-workers", 2, "--",
                     "true")
        for name in "restarts", "workers-timeout", "pass":
            self.refused(f"{name} is for runs whose workers come and go; give --workers FEWEST:MOST too, or omit it",
                         "-n", 2, f"--{name}", 5, "--", "true")
        for name, value in (("rsh", "ssh"), ("meet", "127.0.0.1"), ("start-timeout", 5), ("export", "PATH")):
            self.refused(f"{name} is for runs of several hosts; give -H HOST:N,HOST:N too, or omit it", "-n", 2,
                         f"--{name}", value, "--", "true")
        self.refused("transport shm does not reach several hosts", "-H", "a,b", "--transport", "shm", "--", "true")
        self.refused("transport shm does not reach", "-H", "a,b", "--transport", "shm(spin=1)", "--", "true")
        self.refused("transport is 'mpi'; workers that `tutti run` starts meet over shm or tcp", "-n", 2, "--transport",
                     "mpi", "--", "true")
        self.refused("transport 'tcp': unknown option 'peer'", "-n", 2, "--transport", "tcp(peer=3)", "--", "true")
        self.refused("peer-timeout", "-n", 2, "--transport", "tcp(peer-timeout=0)", "--", "true")
        self.refused("on-loss is 'never'", "-n", 2, "--on-loss", "never", "--", "true")
        self.refused("torchrun has started 2 processes (RANK=0, WORLD_SIZE=2) already; start the command itself by it",
                     "-n", 2, "--", "true", RANK="0", WORLD_SIZE="2", MASTER_ADDR="a", MASTER_PORT="1")

    def test_run_can_be_nested_in_a_worker(self):
        for transport in "shm", "tcp":
            out, err, code = self.run_it("-n", 2, "--transport", transport, "--", TUTTI, "run", "-n", 2, "--", MEMBER)
            self.assertEqual(code, 0, err)
            self.assertEqual(sorted(LINE.findall(out)), [(str(r), "2", "shm", "3") for r in (0, 0, 1, 1)])

    def test_train_can_be_started_by_run(self):
        data = small_mnist(os.path.join(self.folder, "data"))
        common = ("train", "--model", "mlp(hidden=48)", "--data", data, "--batch", 16, "--seed", 7, "--threads", 1)
        out, err, code = self.run_it("-n", 2, "--", TUTTI, *common, "--out", "a")
        self.assertEqual(code, 0, err)
        done = tutti(*common, "-n", 2, "--out", os.path.join(self.folder, "b"))
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertEqual(*(read(os.path.join(self.folder, name, "model.safetensors")) for name in "ab"))


if __name__ == "__main__":
    unittest.main(verbosity=2)
