"""Ranks of one host that another launcher starts: they find each other without a key file,
share memory, see each other die, and leave nothing behind. MEMBER is a program of the library
(member.c). Bounds on time are ten times the promises, since a test machine may be busy."""
import os, re, shutil, signal, socket, stat, subprocess, sys, time, unittest

sys.path[:0] = [os.path.join(os.path.dirname(__file__), "..")]
from command import *
from mpi_test import LAUNCHERS, mpirun
from ports import free_port
from together import together

MEMBER = os.environ.get("MEMBER", os.path.join(os.path.dirname(TUTTI), "../tests/member"))
LINE = re.compile(r"^rank (\d) of (\d) over (\w+): (\d+);", re.M)
# What torchrun is to its workers: their parent, which lives as long as they.
PARENT = "import os, subprocess, sys; " \
    "p = [subprocess.Popen(sys.argv[2:], env=dict(os.environ, RANK=str(r), LOCAL_RANK=str(r), " \
    "TORCHELASTIC_RUN_ID='none')) for r in range(int(sys.argv[1]))]; " \
    "sys.exit(max(q.wait() for q in p))"


class Gathered(unittest.TestCase):
    def setUp(self):
        self.folder = scratch()
        self.place = os.path.join(self.folder, "tutti")
        self.runs = []

    def tearDown(self):
        for run in self.runs:
            if run.poll() is None:
                run.kill()
            run.communicate()
        shutil.rmtree(self.folder, ignore_errors=True)

    def torch(self, n, port=None, **more):
        """Variables by hand, as a person sets them for torch on one host."""
        port = str(port or free_port())
        return [dict(RANK=str(r), WORLD_SIZE=str(n), MASTER_ADDR="127.0.0.1", MASTER_PORT=port, **more)
                for r in range(n)]

    def start(self, place, *arguments):
        run = subprocess.Popen([MEMBER, *arguments], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                               env=clean_environment(**{"XDG_RUNTIME_DIR": self.folder, **place}))
        self.runs.append(run)
        return run

    def all(self, places, *arguments):
        return [self.start(place, *arguments) for place in places]

    def ends(self, runs, timeout=60):
        return [(*run.communicate(timeout=timeout), run.returncode) for run in runs]

    def sums(self, runs):
        """Each has begun: waits for its line."""
        return [run.stdout.readline() for run in runs]

    def left(self):
        return sorted(os.listdir(self.place)) if os.path.isdir(self.place) else []

    def met(self, told, n, transport):
        for r, (out, err, code) in enumerate(told):
            self.assertEqual(code, 0, out + err)
            self.assertIn("rank %d of %d over %s: %d;" % (r, n, transport, n * (n + 1) // 2), out)

    def test_process_without_launcher_variables_runs_alone(self):
        told = self.ends([self.start({})])
        self.met(told, 1, "shm")
        self.assertEqual(self.left(), [])

    def test_ranks_of_one_host_need_no_key(self):
        for transport, taken in (("", "shm"), ("shm", "shm"), ("tcp", "tcp")):
            before = shm_entries()
            self.met(self.ends(self.all(self.torch(3), transport)), 3, taken)
            self.assertEqual((self.left(), shm_entries()), ([], before))
        self.assertEqual(stat.S_IMODE(os.stat(self.place).st_mode), 0o700)

    def test_worlds_can_be_opened_one_after_another(self):
        for transport in "shm", "tcp":
            for out, err, code in self.ends(self.all(self.torch(3), transport, "twice")):
                self.assertEqual((code, len(LINE.findall(out))), (0, 2), out + err)

    def test_rank_0_may_start_last(self):
        places = self.torch(2)
        runs = [self.start(places[0], "", "late"), self.start(places[1])]
        self.met(self.ends(runs), 2, "shm")

    def test_manual_variables_connect_ranks_of_one_host(self):
        place = dict(TUTTI_SIZE="2", TUTTI_MEET="127.0.0.1:%d" % free_port())
        self.met(self.ends(self.all([dict(place, TUTTI_RANK=str(r)) for r in range(2)])), 2, "tcp")

    def test_slurm_variables_connect_ranks_of_one_host(self):
        step = dict(SLURM_NTASKS="3", SLURM_STEP_ID="0", SLURM_JOB_ID="4711", SLURM_STEP_NUM_NODES="1",
                    SLURM_NODELIST=socket.gethostname())
        self.met(self.ends(self.all([dict(step, SLURM_PROCID=str(r)) for r in range(3)])), 3, "shm")

    def test_concurrent_runs_are_distinguished_by_their_launchers(self):
        """Concurrent runs whose launchers set the same variables: the launchers' processes distinguish
        them."""
        for inner in ([MEMBER], ["sh", "-c", '"$0"; exit $?', MEMBER]):
            place = dict(WORLD_SIZE="2", LOCAL_WORLD_SIZE="2", MASTER_ADDR="localhost", MASTER_PORT="29500",
                         XDG_RUNTIME_DIR=self.folder)
            runs = [subprocess.Popen([sys.executable, "-c", PARENT, "2", *inner], stdout=subprocess.PIPE, text=True,
                                     env=clean_environment(**place)) for _ in range(3)]
            self.runs += runs
            for out, _, code in self.ends(runs):
                self.assertEqual((code, sorted(LINE.findall(out))),
                                 (0, [("0", "2", "shm", "3"), ("1", "2", "shm", "3")]), out)

    def test_runs_at_once_with_other_ports_do_not_mix(self):
        runs = [self.all(self.torch(2, port)) for port in (20001, 20002, 20003)]
        for pair in runs:
            self.met(self.ends(pair), 2, "shm")

    def test_train_uses_shared_memory_and_needs_no_key(self):
        data = small_mnist(os.path.join(self.folder, "data"))
        common = ("train", "--model", "mlp(hidden=48)", "--data", data, "--batch", "16", "--seed", "7",
                  "--threads", "1", "--out")
        done = tutti(*common, os.path.join(self.folder, "one"), "-n", 3)
        self.assertEqual(done.returncode, 0, done.stderr)
        for transport, given in (("shm", ()), ("tcp", ("--transport", "tcp"))):
            out = os.path.join(self.folder, transport)
            runs = [subprocess.Popen([TUTTI, *common, out, *given], stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                                     text=True, env=clean_environment(XDG_RUNTIME_DIR=self.folder, **place))
                    for place in self.torch(3, LOCAL_WORLD_SIZE="3")]
            self.runs += runs
            told = self.ends(runs)
            self.assertEqual([code for _, _, code in told], [0, 0, 0], told)
            self.assertEqual(told[0][0].splitlines()[0], "tutti: 3 workers started by torchrun (RANK=0, WORLD_SIZE=3), "
                             "transport " + transport)
            self.assertEqual(read(os.path.join(out, "model.safetensors")),
                             read(os.path.join(self.folder, "one", "model.safetensors")))
        lonely = subprocess.run([TUTTI, *common, os.path.join(self.folder, "b"), "--start-timeout", "1"],
                                capture_output=True, text=True, timeout=60,
                                env=clean_environment(XDG_RUNTIME_DIR=self.folder, **self.torch(2)[0]))
        self.assertEqual(lonely.returncode, 3)
        self.assertIn("1 of 2 workers had not come within 1 s", lonely.stderr)

    def test_train_continues_after_a_loss(self):
        data = small_mnist(os.path.join(self.folder, "data"))
        out = os.path.join(self.folder, "out")
        command = [TUTTI, "train", "--model", "mlp(hidden=48)", "--data", data, "--batch", "16", "--epochs", "100000",
                   "--report-every", "1", "--threads", "1", "--out", out, "--optimizer", "sgd(lr=0.001)",
                   "--method", "ad-psgd"]
        runs = [subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True,
                                 env=clean_environment(XDG_RUNTIME_DIR=self.folder, **place))
                for place in self.torch(3)]
        self.runs += runs

        def steps(more):
            now, until = lines_told(out), time.monotonic() + 60
            while lines_told(out) < now + more:
                self.assertIsNone(runs[0].poll())
                self.assertLess(time.monotonic(), until)
                time.sleep(0.01)

        steps(2)
        runs[2].kill()
        steps(50)
        self.assertEqual([run.poll() for run in runs[:2]], [None, None])

    @unittest.skipIf(not LAUNCHERS, "skipped: built without MPI, or its launchers are not installed")
    def test_ranks_connect_under_mpirun(self):
        for kind in LAUNCHERS:
            for transport, taken in (("", "shm"), ("tcp", "tcp"), ("mpi", "mpi")):
                launcher, variables = mpirun(kind, 2)
                done = subprocess.run([*launcher, MEMBER, transport], capture_output=True, text=True, timeout=120,
                                      env=clean_environment(XDG_RUNTIME_DIR=self.folder, **variables))
                self.assertEqual(sorted(LINE.findall(done.stdout)), [("0", "2", taken, "3"), ("1", "2", taken, "3")],
                                 done.stderr)
                self.assertEqual(self.left(), [])

    def test_several_hosts_still_need_a_key(self):
        for more in dict(LOCAL_WORLD_SIZE="1"), dict(MASTER_ADDR="192.0.2.1"):
            place = dict(self.torch(2)[1], **more)
            (out, _, code), = self.ends([self.start(place)])
            self.assertEqual(code, 2, out)
            self.assertIn("have no key to know each other by; make one with `tutti key > FILE`", out)
            (out, _, code), = self.ends([self.start(place, "shm")])
            self.assertEqual(code, 2, out)
            self.assertIn("nothing shows that all of them are on one host", out)

    def test_killed_rank_is_named_by_the_others_at_once(self):
        for transport in "shm", "tcp":
            for victim in 0, 1, 2:
                before = shm_entries()
                runs = self.all(self.torch(3), transport, "on")
                pids = [int(re.search(r"pid (\d+)", line)[1]) for line in self.sums(runs)]
                self.assertEqual(pids, [run.pid for run in runs])
                began = time.monotonic()
                runs[victim].kill()
                told = self.ends(runs)
                self.assertLess(time.monotonic() - began, 10) # 1 s is promised
                for r in {0, 1, 2} - {victim}:
                    out, _, code = told[r]
                    self.assertEqual(code, 3, out)
                    self.assertRegex(out, r"failed: status 7 rank %d " % victim)
                    self.assertIn("worker %d was lost: " % victim, out)
                    if transport == "shm":
                        self.assertIn("process %d ended in the middle of the run" % pids[victim], out)
                self.assertEqual((self.left(), shm_entries()), ([], before))

    def test_rank_that_exits_early_counts_as_lost(self):
        told = self.ends(self.all(self.torch(3), "", "exit:1:0"))
        self.assertEqual([code for _, _, code in told], [3, 0, 3], told)
        self.assertIn("worker 1 was lost: process", told[0][0])

    def test_stopped_rank_is_lost_and_does_not_rejoin(self):
        runs = self.all(self.torch(3), "", "on")
        self.sums(runs)
        runs[1].send_signal(signal.SIGSTOP)
        told = self.ends([runs[0], runs[2]])
        runs[1].send_signal(signal.SIGCONT)
        told += self.ends([runs[1]])
        for out, _, code in told[:2]:
            self.assertEqual(code, 3, out)
            self.assertIn("had been stopped (SIGSTOP) for", out)
        self.assertEqual(told[2][2], 3, told[2])

    def test_nothing_is_left_when_all_are_killed(self):
        before = shm_entries()
        for transport in "shm", "tcp":
            runs = self.all(self.torch(3), transport, "on")
            self.sums(runs)
            for run in runs:
                run.kill()
            self.ends(runs)
            self.assertEqual((self.left(), shm_entries()), ([], before))

    def test_leftovers_of_a_killed_run_do_not_block_another(self):
        places = self.torch(2, 20011)
        for _ in range(2):
            lonely = self.start(places[0])
            self.assertIn("waits: waiting for ranks of this host that have not come: 1 of 2", self.sums([lonely])[0])
            lonely.kill()
            self.ends([lonely])
            self.assertEqual(len(self.left()), 1)
        self.met(self.ends(self.all(places)), 2, "shm")
        self.assertEqual(self.left(), [])

    def test_another_run_removes_what_a_killed_one_has_left(self):
        lonely = self.start(self.torch(2, 20021)[0])
        self.sums([lonely])
        lonely.kill()
        self.ends([lonely])
        self.met(self.ends(self.all(self.torch(2, 20022))), 2, "shm")
        self.assertEqual(self.left(), [])

    def test_duplicate_rank_is_rejected(self):
        places = self.torch(3, 20031)
        first = self.start(places[0])
        self.sums([first])
        for rank, words in ((0, "another process is rank 0 of this run, and waits for the others"), ):
            (out, _, code), = self.ends([self.start(places[rank])])
            self.assertEqual(code, 2, out)
            self.assertIn(words, out)
        one = self.start(places[1])
        time.sleep(0.5)
        (out, _, code), = self.ends([self.start(places[1])])
        self.assertEqual(code, 2, out)
        self.assertIn("the place of worker 1 of 3 is taken already, by process %d" % one.pid, out)
        self.met(self.ends([first, one, self.start(places[2])]), 3, "shm")

    def test_rank_killed_during_startup_ends_the_others(self):
        places = self.torch(3)
        runs = self.all(places[:2])
        self.sums(runs[:1])
        runs[1].kill()
        out, _, code = self.ends(runs[:1])[0]
        self.assertEqual(code, 3, out)
        self.assertIn("worker 1 (process %d) ended before all had met" % runs[1].pid, out)
        runs = self.all(places[:2])
        self.sums(runs[:1])
        runs[0].kill()
        out, _, code = self.ends(runs[1:])[0]
        self.assertEqual(code, 3, out)
        self.assertIn("worker 0 ended before all had met", out)

    def test_a_dead_launcher_is_not_waited_for(self):
        place = dict(WORLD_SIZE="3", LOCAL_WORLD_SIZE="3", MASTER_ADDR="localhost", MASTER_PORT="29500",
                     XDG_RUNTIME_DIR=self.folder)
        launcher = subprocess.Popen([sys.executable, "-c", PARENT, "2", MEMBER], stdout=subprocess.PIPE, text=True,
                                    env=clean_environment(**place))
        self.runs.append(launcher)
        launcher.stdout.readline()
        launcher.kill()
        began = time.monotonic()
        out = launcher.communicate(timeout=60)[0] # to the end of the ranks, which have its output
        self.assertLess(time.monotonic() - began, 20)
        self.assertIn("torchrun (process %d) has ended while worker" % launcher.pid, out)
        self.assertEqual(self.left(), [])

    def test_open_timeout_of_the_transport_is_respected(self):
        for transport in "shm(open-timeout=1)", "tcp(open-timeout=1)":
            began = time.monotonic()
            (out, _, code), = self.ends([self.start(self.torch(3)[0], transport)])
            self.assertEqual(code, 3, out)
            self.assertIn("2 of 3 workers had not come within 1 s, on this host and of this user: 1 to 2", out)
            (out, _, code), = self.ends([self.start(self.torch(3)[1], transport)])
            self.assertEqual(code, 1, out)
            self.assertIn("worker 1 has not found worker 0 on this host within 1 s", out)
            self.assertLess(time.monotonic() - began, 30)
        (out, _, code), = self.ends([self.start(self.torch(3)[0], "shm(spin=x)")])
        self.assertEqual(code, 2, out) # before any rank waits

    def test_a_directory_that_others_can_enter_is_refused(self):
        os.mkdir(self.place, 0o700)
        for mode in 0o750, 0o701, 0o777:
            os.chmod(self.place, mode)
            (out, _, code), = self.ends([self.start(self.torch(2)[0])])
            self.assertEqual(code, 2, out)
            self.assertIn("'%s', where the ranks of this host meet, is not a directory of this user alone (mode %04o"
                          % (self.place, mode), out)
        os.rmdir(self.place)
        os.symlink(self.folder, self.place)
        (out, _, code), = self.ends([self.start(self.torch(2)[0])])
        self.assertEqual(code, 2, out)
        self.assertIn("is not a directory of this user alone", out)

    def test_socket_is_in_tmp_without_private_runtime_directory(self):
        os.chmod(self.folder, 0o755)
        self.met(self.ends(self.all(self.torch(2))), 2, "shm")
        self.assertFalse(os.path.exists(self.place))
        there = os.stat("/tmp/tutti-%d" % os.geteuid())
        self.assertEqual((stat.S_IMODE(there.st_mode), there.st_uid), (0o700, os.geteuid()))

    @unittest.skipIf(os.geteuid() != 0, "skipped: being another user takes root")
    def test_another_user_is_shut_out(self):
        os.mkdir(self.place, 0o700)
        os.chown(self.place, 65534, 65534)
        (out, _, code), = self.ends([self.start(self.torch(2)[0])])
        self.assertEqual(code, 2, out)
        self.assertIn("is not a directory of this user alone (mode 0700, owner 65534, not 0700 and 0)", out)
        os.rmdir(self.place)
        places = self.torch(2, 20041)
        first = self.start(places[0])
        self.sums([first])
        name, = self.left()

        def knock():
            """As another user: 1: may not; 2: was turned away; 3: was taken."""
            child = os.fork()
            if child == 0:
                code = 1
                try:
                    os.setgroups([])
                    os.setgid(65534)
                    os.setuid(65534)
                    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as s:
                        s.connect(os.path.join(self.place, name))
                        code = 2
                        s.settimeout(2)
                        code = 3 if s.recv(99) != b"" else 2
                except TimeoutError:
                    code = 3
                except OSError:
                    pass
                os._exit(code)
            return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])

        self.assertEqual(knock(), 1)
        # and where the directory does not stop it, worker 0 does
        os.chmod(self.folder, 0o711)
        os.chmod(self.place, 0o711)
        os.chmod(os.path.join(self.place, name), 0o777)
        self.assertEqual(knock(), 2)
        os.chmod(self.place, 0o700)
        os.chmod(self.folder, 0o700)
        self.met(self.ends([first, self.start(places[1])]), 2, "shm")

    def test_invalid_socket_connections_are_ignored(self):
        places = self.torch(2, 20051)
        first = self.start(places[0])
        self.sums([first])
        at = os.path.join(self.place, self.left()[0])
        for words in b"", b"x", b"y" * 144, b"z" * 100000:
            with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as s:
                s.connect(at)
                if words:
                    s.send(words)
        idle = []
        for _ in range(20): # more than it serves at once
            s = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
            s.connect(at)
            idle.append(s)
        for s in idle:
            s.close()
        self.met(self.ends([first, self.start(places[1])]), 2, "shm")

    def test_a_forked_child_is_no_rank(self):
        self.met(self.ends(self.all(self.torch(2), "", "fork")), 2, "shm")

    def test_children_of_a_rank_do_not_hide_its_end(self):
        """As data loaders do: processes forked from a rank have its descriptors."""
        for transport in "shm", "tcp":
            runs = self.all(self.torch(2), transport, "family")
            self.sums(runs)
            children = [p for run in runs for p in children_of(run.pid)]
            self.assertEqual(len(children), 2)
            try:
                runs[0].kill()
                out, _, code = self.ends(runs[1:])[0]
                self.assertEqual([alive(p) for p in children], [True, True]) # the end was seen while it lives
            finally:
                for p in children:
                    os.kill(p, signal.SIGKILL)
            self.assertEqual(code, 3, out)
            self.assertIn("worker 0 was lost: ", out)
            if transport == "shm":
                self.assertIn("process %d ended in the middle of the run" % runs[0].pid, out)


if __name__ == "__main__":
    # What others' shared memory would confuse comes first, alone.
    together(4, ("test_ranks_of_one_host", "test_killed_rank", "test_nothing_is_left", "test_children_of_a_rank"))
