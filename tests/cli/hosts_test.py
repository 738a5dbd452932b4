"""Runs over several hosts and under other launchers. A host is a loopback address that a script
"logs in" to, or, as root, a network namespace of tools/netlab. Bounds on time are ten times the
promises (a killed worker named within 1 s, a silent host within 3 s), since a test machine may be
busy."""
import glob, json, os, re, signal, subprocess, sys, time, unittest

sys.path[:0] = [os.path.join(os.path.dirname(__file__), folder) for folder in ("..", "../netlab")]
from command import *
from lab import NETLAB, needs_lab
from ports import free_port
from together import together

HERE = "sh -c 'eval \"$1\"'"  # RSH HOST COMMAND: the command, here
TWO = "127.0.0.1:1,127.0.0.2:2"


def workers_of(out):
    """Worker processes of the run: pid by rank, found by their output directory and environment."""
    found = {}
    for path in glob.glob("/proc/[0-9]*/cmdline"):
        try:
            with open(path, "rb") as f:
                words = f.read().split(b"\0")
            if ("--out=" + out).encode() not in words:
                continue
            with open(path.replace("cmdline", "environ"), "rb") as f:
                variables = dict(v.split(b"=", 1) for v in f.read().split(b"\0") if b"=" in v)
        except (FileNotFoundError, ProcessLookupError, PermissionError):
            continue
        if b"TUTTI_RANK" in variables:
            found[int(variables[b"TUTTI_RANK"])] = (int(path.split("/")[2]), variables)
    return found


def clocks_can_differ():
    return subprocess.run(["unshare", "--time", "--monotonic", "5000", "--fork", "true"], stderr=subprocess.DEVNULL,
                          check=False).returncode == 0


class HostCase(Case):
    def start(self, name, *arguments, workers=3, command=(), ready=True):
        """A run for ever; comes back once all workers have made a step."""
        out = self.out(name)
        run = subprocess.Popen([*command, TUTTI, "train", "--model", "mlp(hidden=64)", "--data", self.data,
                                "--batch", "16", "--epochs", "100000", "--report-every", "1", "--final-eval", "off",
                                "--out", out, *arguments], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True,
                               env=clean_environment())
        until = time.monotonic() + 40
        # one look at /proc may miss a process, while others begin and end
        while ready and (len(found := workers_of(out)) < workers or lines_told(out) == 0):
            self.assertIsNone(run.poll(), "it ended at once")
            if time.monotonic() > until:
                run.kill()
                self.fail("workers did not start: " + run.communicate()[1])
            time.sleep(0.01)
        return run, out, found if ready else workers_of(out)

    def ended(self, run, seconds=30):
        try:
            return run.communicate(timeout=seconds)[1]
        except subprocess.TimeoutExpired:
            run.kill()
            self.fail("the run did not end within %g s: %s" % (seconds, run.communicate()[1]))

    def nothing_is_left(self, out, seconds=15):
        until = time.monotonic() + seconds
        while workers_of(out):
            self.assertLess(time.monotonic(), until, "workers are left: %s" % workers_of(out).keys())
            time.sleep(0.02)


class Hosts(HostCase):
    def test_two_hosts_give_the_bits_of_one(self):
        common = ("--model", "mlp(hidden=48)", "--data", self.data, "--batch", 16, "--epochs", 1, "--seed", 7)
        one = self.train("one", *common, "-n", 3)
        two = self.train("two", *common, "-H", TWO, "--rsh", HERE)
        self.assertEqual(read(os.path.join(one, "model.safetensors")), read(os.path.join(two, "model.safetensors")))
        self.assertEqual((summary(two)["transport"], summary(two)["workers"], summary(one)["bytes_sent_total"]),
                         ("tcp", 3, summary(two)["bytes_sent_total"]))
        local = self.train("local", *common, "-n", 3, "--transport", "tcp")
        self.assertEqual(read(os.path.join(one, "model.safetensors")), read(os.path.join(local, "model.safetensors")))

    @unittest.skipUnless(clocks_can_differ(), "this kernel or user gives no clock of its own (unshare --time)")
    def test_traces_of_hosts_are_on_one_clock(self):
        """The second host's clock is 5000 s ahead. No host leaves an all-reduce before the other has arrived."""
        remote = ("sh -c 'case $0 in *.2) exec unshare --time --monotonic 5000 --fork -- sh -c \"$1\";; esac; "
                  "eval \"$1\"'")
        out = self.train("clocks", "--model", "mlp(hidden=48)", "--data", self.data, "--batch", 16, "--steps", 40,
                         "--lane", "off", "--trace-steps", "10:29", "--final-eval", "off",
                         "-H", "127.0.0.1:1,127.0.0.2:1", "--rsh", remote)
        with open(os.path.join(out, "trace.json")) as f:
            events = json.load(f)
        clocks = {e["pid"]: e["args"] for e in events if e["name"] == "clock"}
        self.assertEqual(clocks[0]["ahead_us"], 0)
        self.assertAlmostEqual(abs(clocks[1]["ahead_us"]), 5e9, delta=2e6)
        self.assertEqual({e["args"]["step"] for e in events if e["ph"] != "M"}, set(range(10, 30)))
        exchanged = [{(e["args"]["step"], e["name"]): e for e in events
                      if e.get("cat") == "exchange" and e["pid"] == rank} for rank in (0, 1)]
        self.assertEqual(exchanged[0].keys(), exchanged[1].keys())
        self.assertGreaterEqual(len(exchanged[0]), 20)
        for key, a in exchanged[0].items():
            for x, y in ((a, exchanged[1][key]), (exchanged[1][key], a)):
                self.assertLessEqual(x["ts"], y["ts"] + y["dur"] + 2 * clocks[1]["within_us"] + 1)

    def test_single_host_uses_shared_memory(self):
        out = self.train("one", "--model", "mlp(hidden=16)", "--data", self.data, "-H", "localhost:2", "--rsh", HERE,
                         "--steps", 3)
        self.assertEqual((summary(out)["transport"], summary(out)["workers"]), ("shm", 2))

    def test_a_killed_worker_on_another_host_is_named(self):
        for rank in (2, 0):
            run, out, workers = self.start("k%d" % rank, "-H", TWO, "--rsh", HERE)
            begin = time.monotonic()
            os.kill(workers[rank][0], signal.SIGKILL)
            err = self.ended(run)
            self.assertEqual(run.returncode, 3, err)
            self.assertRegex(err, r"tutti: worker %d was lost: process %d on host 127\.0\.0\.%d was killed by signal 9 "
                             r"\(SIGKILL\)" % (rank, workers[rank][0], 1 if rank == 0 else 2))
            self.assertLess(time.monotonic() - begin, 10)
            self.nothing_is_left(out)

    def test_ctrl_c_and_sigterm_leave_nothing(self):
        for sign in (signal.SIGINT, signal.SIGTERM):
            run, out, _ = self.start(sign.name, "-H", TWO, "--rsh", HERE)
            run.send_signal(sign)
            err = self.ended(run)
            self.assertEqual(run.returncode, 128 + sign, err)
            self.nothing_is_left(out)

    def test_workers_die_with_the_launcher(self):
        run, out, _ = self.start("l", "-H", TWO, "--rsh", HERE)
        run.kill()
        run.communicate()
        self.nothing_is_left(out)

    def test_two_host_names_of_one_machine_share_its_cores(self):
        """127.0.0.1 runs a second agent, for its server."""
        cores = []
        for name, how in (("one", ("-n", "2")), ("two", ("-H", "127.0.0.1:1,127.0.0.2:1", "--rsh", HERE))):
            run, out, workers = self.start(name, *how, "--method", "parameter-server", "--servers", "2", workers=4)
            cores.append({rank: (os.sched_getaffinity(pid), variables[b"OMP_NUM_THREADS"])
                          for rank, (pid, variables) in workers.items()})
            run.terminate()
            self.ended(run)
            self.nothing_is_left(out)
        self.assertEqual(sorted(cores[0]), [0, 1, 2, 3])
        self.assertEqual(cores[0], cores[1])

    def test_key_appears_on_no_command_line(self):
        run, out, workers = self.start("s", "-H", TWO, "--rsh", HERE)
        key = workers[0][1][b"TUTTI_RUN_KEY"]
        self.assertRegex(key.decode(), r"^[0-9a-f]{64}$")
        self.assertEqual({w[1][b"TUTTI_RUN_KEY"] for w in workers.values()}, {key})
        for path in glob.glob("/proc/[0-9]*/cmdline"):
            try:
                self.assertNotIn(key, read(path))
            except (FileNotFoundError, ProcessLookupError):
                pass
        run.terminate()
        self.ended(run)

    def test_a_missing_host_is_named_after_the_deadline(self):
        deaf = "sh -c 'if [ \"$0\" = 127.0.0.2 ]; then exec sleep 1000; fi; eval \"$1\"'"
        done = tutti("train", "--model", "mlp(hidden=16)", "--data", self.data, "-H", TWO, "--rsh", deaf,
                     "--start-timeout", 2.5, "--out", self.out("a"))
        self.assertEqual(done.returncode, 1, done.stderr)
        # on a busy machine the other host may be reported, too
        self.assertRegex(done.stderr, r"(?m)^tutti: 2 s: .*host 127\.0\.0\.2 \(ranks 1 to 2\) has not answered$")
        after = re.search(r"(?m)^tutti: after ([0-9.]+) s host 127\.0\.0\.2 \(ranks 1 to 2\) has not answered; "
                          r"raise --start-timeout if that was too short$", done.stderr)
        self.assertIsNotNone(after, done.stderr)
        self.assertTrue(2.5 <= float(after[1]) < 25, done.stderr)

    def test_worker_missing_at_the_meeting_place_is_named(self):
        """A worker of the second host is stopped as soon as it is there."""
        run, out, _ = self.start("w", "-H", TWO, "--rsh", "sh -c 'if [ \"$0\" = 127.0.0.2 ]; then export LD_PRELOAD=; "
                                 "fi; eval \"$1\"'", "--start-timeout", "4", ready=False)
        stopped = None
        until = time.monotonic() + 20
        while stopped is None and time.monotonic() < until and run.poll() is None:
            found = workers_of(out)
            if 2 in found:
                stopped = found[2][0]
                os.kill(stopped, signal.SIGSTOP)
        err = self.ended(run)
        self.assertNotEqual(run.returncode, 0)
        # before it had come, or after
        self.assertRegex(err, r"worker 2|from host 127\.0\.0\.2 rank 2 has not come to the meeting place")
        self.nothing_is_left(out)

    def test_failing_workers_message_is_reported_with_its_host(self):
        done = tutti("train", "--model", "mlp(hidden=64)", "--data", self.data, "-H", TWO, "--rsh", HERE,
                     "--optimizer", "sgd(lr=1e6)", "--epochs", 20, "--quiet", "--out", self.out("d"))
        self.assertEqual(done.returncode, 1, done.stderr)
        self.assertRegex(done.stderr, r"tutti: worker [012] \(host 127\.0\.0\.[12]\): "
                         r"the gradient of \d\.(weight|bias) is -?(nan|inf) at element \d+ in step \d+")

    def test_failed_login_is_reported_with_its_own_message(self):
        done = tutti("train", "--data", self.data, "-H", TWO, "--rsh", "sh -c 'echo No route to host >&2; exit 255'",
                     "--out", self.out("a"))
        self.assertEqual(done.returncode, 1, done.stderr)
        self.assertRegex(done.stderr, r"tutti: host 127\.0\.0\.(1 \(rank 0\)|2 \(ranks 1 to 2\)): 'sh' ended with "
                         r"code 255 before Tutti answered there: No route to host; '[^']*tutti' agent must work there")

    def test_an_address_that_hosts_cannot_reach_is_named(self):
        done = tutti("train", "--data", self.data, "-H", TWO, "--rsh", HERE, "--meet", "nowhere.invalid",
                     "--out", self.out("a"))
        self.assertEqual(done.returncode, 1, done.stderr)
        self.assertRegex(done.stderr, r"host 127\.0\.0\.[12]: cannot reach the launcher at nowhere\.invalid:\d+ "
                         r"\(.*\); allow that connection in firewalls, or give --meet with an address that this host "
                         r"reaches")

    def test_hosts_files_and_commands_are_read(self):
        path = os.path.join(self.folder, "machines")

        def hosts(text, source="@" + path):
            with open(path, "w") as f:
                f.write(text)
            done = tutti("config", "-H", source)
            self.assertEqual(done.returncode, 0, done.stderr)
            return json.loads(done.stdout)["hosts"], json.loads(done.stdout)["n"]

        self.assertEqual(hosts("a:2\n\n# none\n  me@b slots=3 max_slots=8 # three\nc\nc\r\ngpu[1-2]:4"),
                         ("a:2,me@b:3,c:2,gpu1:4,gpu2:4", 15))
        self.assertEqual(hosts("b\n" * 5, "|sort -u '%s'; echo a:3" % path), ("b:1,a:3", 4))
        self.assertEqual(hosts("h%d\n" * 2000 % tuple(range(2000)))[1], 2000)
        for text, sentence in (("", "have no host; write a line HOST:WORKERS for each"),
                               ("a\nb slots=0", "line 2: hosts: 'b:0' is no host"),
                               ("a\nb c", "line 2: 'c' behind host 'b'; write HOST:N or HOST slots=N"),
                               ("a\nb slots=4x", "line 2: 'slots=4x' behind host 'b'"),
                               ("a\0b\n", "it is no text: it has a byte 0")):
            with open(path, "w") as f:
                f.write(text)
            self.refused(sentence, "train", "-H", "@" + path, "--data", self.data)
        self.refused("hosts '@/nowhere/hosts': the file cannot be read (No such file", "train", "-H", "@/nowhere/hosts")
        self.refused("hosts '|exit 3': the command ended with code 3", "train", "-H", "|exit 3")
        self.refused("hosts '|kill -9 $$': the command ended with signal 9", "train", "-H", "|kill -9 $$")
        self.refused("hosts '@': write @FILE, or '|COMMAND' in quotes", "run", "-H", "@", "--", "true")
        done = self.train("three", "--model", "mlp(hidden=8)", "--data", self.data, "--steps", "2", "-H",
                          "|echo 127.0.0.1; echo 127.0.0.2; echo 127.0.0.2", "--rsh", HERE)
        self.assertEqual(summary(done)["workers"], 3)

    def test_invalid_host_options_are_rejected(self):
        self.refused("n is 5, but the hosts 'a:2,b:2' have 4 workers; omit -n, or write HOST:WORKERS", "train",
                     "-n", 5, "-H", "a:2,b:2")
        self.refused("hosts: host 'a' is named twice; write it once with all its workers, a:4", "train", "-H",
                     "a:2,a:2")
        self.refused("hosts: host '-oX' begins with '-'", "train", "-H", "-oX")
        self.refused("transport 'shm' does not reach several hosts from here; use tcp, or start the run by mpirun",
                     "train", "-H", "a,b", "--transport", "shm")
        if os.path.exists(os.path.join(os.path.dirname(TUTTI), "../lib/libtutti_transport_sim.so")):  # where SimGrid is
            self.refused("the workers of transport 'sim' live in one process; start `tutti train -n N` once, by itself",
                         "train", "-H", "a,b", "--transport", "sim")
        self.refused("--start-timeout is 0; it must be from 0.1", "train", "-H", "a,b", "--start-timeout", "0")
        self.refused("rsh is 'ssh 'x': a quote is not closed", "train", "-H", "a,b", "--rsh", "ssh 'x",
                     "--data", self.data, "--out", self.out("a"))
        self.refused("cannot execute '/nowhere/ssh' to start on host a; install it, or give --rsh", "train", "-H",
                     "a,b", "--rsh", "/nowhere/ssh", "--data", self.data, "--out", self.out("b"))


class Launchers(HostCase):
    """Each process is a worker itself; its rank comes from variables of another launcher."""
    def together(self, name, environments, *arguments, out=True):
        runs = [subprocess.Popen([TUTTI, "train", "--model", "mlp(hidden=48)", "--data", self.data, "--batch", "16",
                                  "--epochs", "1", "--seed", "7", *(("--out", self.out(name)) if out else ()),
                                  *arguments], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                                 env=clean_environment(**e), cwd=self.folder) for e in environments]
        return [(*r.communicate(timeout=60), r.returncode) for r in runs]

    def torchrun(self, n, **more):
        port = str(free_port())
        return [dict(RANK=str(r), WORLD_SIZE=str(n), LOCAL_RANK="0", LOCAL_WORLD_SIZE="1", MASTER_ADDR="127.0.0.1",
                     MASTER_PORT=port, **more) for r in range(n)]  # each on a host of its own

    def key(self, name=""):
        path = os.path.join(self.folder, self.id().split(".")[-1] + name + ".key")
        done = tutti("key", path)
        self.assertEqual((done.returncode, done.stdout), (0, ""), done.stderr)
        return path

    def test_torchrun_variables_start_a_run(self):
        one = self.train("one", "--model", "mlp(hidden=48)", "--batch", 16, "--epochs", 1, "--seed", 7,
                         "--data", self.data, "-n", 3)
        told = self.together("t", self.torchrun(3, TUTTI_RUN_KEY_FILE=self.key()))
        self.assertEqual([t[2] for t in told], [0, 0, 0], told)
        self.assertEqual(told[0][0].splitlines()[0],
                         "tutti: 3 workers started by torchrun (RANK=0, WORLD_SIZE=3), transport tcp")
        self.assertEqual((told[1][0], told[2][0]), ("", ""))
        self.assertEqual(read(os.path.join(one, "model.safetensors")),
                         read(os.path.join(self.out("t"), "model.safetensors")))

    def test_slurm_variables_start_a_run(self):
        common = dict(SLURM_NTASKS="2", SLURM_STEP_ID="0", SLURM_JOB_ID=str(os.getpid()), SLURM_NODELIST="localhost",
                      SLURM_STEP_NUM_NODES="2", TUTTI_RUN_KEY_FILE=self.key())
        told = self.together("s", [dict(SLURM_PROCID=str(r), **common) for r in range(2)])
        self.assertEqual([t[2] for t in told], [0, 0], told)
        self.assertEqual(told[0][0].splitlines()[0],
                         "tutti: 2 workers started by Slurm (SLURM_PROCID=0, SLURM_NTASKS=2), transport tcp")

    def test_manual_variables_start_a_run(self):
        """Rank, size, place and key: what docs/CLUSTERS.md asks for, and nothing else."""
        one = self.train("one", "--model", "mlp(hidden=48)", "--batch", 16, "--epochs", 1, "--seed", 7,
                         "--data", self.data, "-n", 2)
        place = dict(TUTTI_SIZE="2", TUTTI_MEET="127.0.0.1:%d" % free_port(), TUTTI_RUN_KEY_FILE=self.key())
        told = self.together("v", [dict(TUTTI_RANK=str(r), **place) for r in range(2)])
        self.assertEqual([t[2] for t in told], [0, 0], told)
        self.assertEqual(read(os.path.join(one, "model.safetensors")),
                         read(os.path.join(self.out("v"), "model.safetensors")))
        for wrong in "127.0.0.1:abc", "127.0.0.1:0", "127.0.0.1:99999":
            self.refused("TUTTI_MEET='%s' is no place to meet: write host:port" % wrong, "train", "--data", self.data,
                         TUTTI_RANK="1", **dict(place, TUTTI_MEET=wrong))
        for missing, sentence in (("TUTTI_MEET", "nothing gives the address where they meet; set TUTTI_MEET=HOST:PORT "
                                   "for all"),
                                  ("TUTTI_RUN_KEY_FILE", "have no key to know each other by")):
            self.refused(sentence, "train", "--data", self.data, "--transport", "tcp", "--out", self.out(missing),
                         TUTTI_RANK="0", **{k: v for k, v in dict(place, TUTTI_MEET="192.0.2.1:29500").items()
                                            if k != missing})

    def test_missing_rank_is_named_after_the_start_timeout(self):
        common = ("train", "--data", self.data, "--start-timeout", 3, "--out", self.out("a"))
        key, port = self.key(), free_port()
        for variables in (self.torchrun(3, TUTTI_RUN_KEY_FILE=key),
                          [dict(TUTTI_RANK=str(r), TUTTI_SIZE="3", TUTTI_MEET="127.0.0.1:%d" % port,
                                TUTTI_RUN_KEY_FILE=key) for r in range(3)],
                          [dict(SLURM_PROCID=str(r), SLURM_NTASKS="3", SLURM_STEP_ID="0", SLURM_STEP_NUM_NODES="3",
                                SLURM_JOB_ID=str(os.getpid() + 7), SLURM_NODELIST="localhost", TUTTI_RUN_KEY_FILE=key)
                           for r in range(3)]):
            begin = time.monotonic()
            runs = [subprocess.Popen([TUTTI, *map(str, common)], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE,
                                     text=True, env=clean_environment(**v)) for v in variables[0::2]]
            told = [run.communicate(timeout=60)[1] for run in runs]
            self.assertEqual([run.returncode for run in runs], [3, 3], told)
            self.assertLess(time.monotonic() - begin, 30)  # 60 s is the default
            self.assertRegex(told[0], r"^tutti: waiting for ranks that have not come to the meeting place: 1 of 3; "
                             r"here are: 0 on \S+, 2 on \S+\n")
            for t in told:
                self.assertIn("1 of 3 workers had not come to the meeting place when its time was up: 1;", t)
        self.assertFalse(os.path.exists(self.out("a")))

    def test_isolated_rank_reports_the_rank_it_waits_for(self):
        place = self.torchrun(2, TUTTI_RUN_KEY_FILE=self.key())[1]
        done = tutti("train", "--data", self.data, "--start-timeout", 2.5, "--out", self.out("a"), **place)
        self.assertEqual(done.returncode, 1, done.stderr)
        where = "127.0.0.1:" + place["MASTER_PORT"]
        self.assertRegex(done.stderr, r"^tutti: worker 1 waits for worker 0, "
                         r"which is to serve the meeting place at %s: Connection refused\n" r"tutti: worker 1 did not "
                         r"reach the meeting place at %s within 2\.5 s " % (re.escape(where), re.escape(where)))

    def test_all_ranks_agree_on_a_default_name_of_the_results(self):
        told = self.together("d", self.torchrun(2, TUTTI_RUN_KEY_FILE=self.key()), "--checkpoint-every", "10",
                             out=False)
        self.assertEqual([t[2] for t in told], [0, 0], told)
        runs = os.listdir(os.path.join(self.folder, "runs"))
        self.assertEqual(len(runs), 1)
        self.assertTrue({"config.json", "summary.json", "model.safetensors",
                         "checkpoints"} <= set(os.listdir(os.path.join(self.folder, "runs", runs[0]))))

    def told(self, runs):
        """The standard error of each run, and its exit code; one that hangs is killed, and
        the others with it."""
        try:
            return [(run.communicate(timeout=60)[1], run.returncode) for run in runs]
        except subprocess.TimeoutExpired:
            for run in runs:
                run.kill()
            self.fail("they hang: %s" % [run.communicate()[1] for run in runs])

    def test_differing_options_are_rejected_with_both_values(self):
        """Before anything is done together, and before anything is made; whichever rank it is that
        was started with another one."""
        key = self.key()
        for k, words in enumerate(
            ("--partition class(k=2)", "--final-eval off", "--trace", "--batch-share 1:2", "--batch-share auto",
             "--on-loss stop", "--min-workers 2", "--report-every 3", "--checkpoint-every 4", "--eval-every 3",
             "--target loss=0.1", "--validation 10", "--stream 1000", "--collective-table %s/none" % self.folder,
             "--steps 20", "--resume %s/none" % self.folder, "--checkpoint-on-signal", "--codec-report 2")):
            ranks, who = self.torchrun(2, TUTTI_RUN_KEY_FILE=key), k % 2
            runs = [subprocess.Popen([TUTTI, "train", "--model", "mlp(hidden=16)",
                                      "--batch", "16", "--data", self.data, *(words.split() if rank == who else ()),
                                      *(("--out", self.out("a/b")) if rank == 0 else ())], stdout=subprocess.PIPE,
                                     stderr=subprocess.PIPE, text=True, env=clean_environment(**ranks[rank]),
                                     cwd=self.folder) for rank in (0, 1)]
            told = self.told(runs)
            self.assertEqual([code for _, code in told], [2, 2], (words, told))
            for err, _ in told:
                self.assertRegex(err, r"^tutti: worker 1 has %s '[^']*' but worker 0 has '[^']*'; "
                                 r"start all workers with the same options, model and data\n$" % words.split()[0][2:])
            self.assertFalse(os.path.exists(self.out("a")), words)

    def test_results_are_written_where_rank_0_specifies(self):
        key = self.key()
        for k, given in enumerate(((True, False), (True, True), (False, True))):
            ranks, outs = self.torchrun(2, TUTTI_RUN_KEY_FILE=key), [self.out("%d-%d" % (k, rank)) for rank in (0, 1)]
            runs = [subprocess.Popen([TUTTI, "train", "--model", "mlp(hidden=16)", "--batch", "16", "--steps", "6",
                                      "--checkpoint-every", "3", "--data", self.data,
                                      *(("--out", outs[rank]) if given[rank] else ())], stdout=subprocess.DEVNULL,
                                     stderr=subprocess.PIPE, text=True, env=clean_environment(**ranks[rank]),
                                     cwd=self.folder) for rank in (0, 1)]
            told = self.told(runs)
            self.assertEqual([code for _, code in told], [0, 0], told)
            self.assertEqual([os.path.exists(out) for out in outs], [given[0], False])
            if given[0]:
                self.assertEqual(summary(outs[0])["steps"], 6)
                self.assertEqual(sorted(os.listdir(os.path.join(outs[0], "checkpoints"))),
                                 ["step-00000003", "step-00000006"])

    def test_a_signal_to_one_rank_saves_a_checkpoint_and_ends_all(self):
        out, key = self.out("a"), self.key()
        runs = [subprocess.Popen([TUTTI, "train", "--model", "mlp(hidden=16)", "--batch", "16", "--steps", "1000000",
                                  "--report-every", "1", "--checkpoint-on-signal", "--quiet", "--data", self.data,
                                  "--out", out], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True,
                                 env=clean_environment(**v)) for v in self.torchrun(3, TUTTI_RUN_KEY_FILE=key)]
        for run in runs:
            self.addCleanup(lambda run=run: (run.kill(), run.communicate()) if run.poll() is None else None)
        until = time.monotonic() + 60
        while lines_told(out) < 5:
            self.assertTrue(all(run.poll() is None for run in runs), "it ended at once")
            self.assertLess(time.monotonic(), until)
            time.sleep(0.01)
        self.refused("is written by a run that is under way (process %d on host" % runs[0].pid, "train",
                     "--data", self.data, "--out", out)
        runs[2].terminate()
        told = [run.communicate(timeout=60)[1] for run in runs]
        self.assertEqual([run.returncode for run in runs], [143] * 3, told)
        saved, = os.listdir(os.path.join(out, "checkpoints"))
        self.assertEqual(told,
                         ["tutti: stopped by signal 15 (SIGTERM)\ntutti: the newest checkpoint is %s/checkpoints/%s; "
                          "to continue from there: tutti train --resume %s\n" % (out, saved, out), "", ""])

    def test_without_a_key_it_shows_how_to_make_one(self):
        done = tutti("train", "--data", self.data, "--out", self.out("a"), **self.torchrun(2)[1])
        self.assertEqual(done.returncode, 2)
        self.assertIn("the 2 processes that torchrun has started have no key to know each other by; make one with "
                      "`tutti key > FILE` where all can read it, and set TUTTI_RUN_KEY_FILE=FILE for all", done.stderr)
        done = tutti("train", "--data", self.data, "--transport", "tcp", "--out", self.out("b"),
                     OMPI_COMM_WORLD_RANK="1", OMPI_COMM_WORLD_SIZE="2")
        self.assertEqual(done.returncode, 2)
        self.assertIn("but nothing gives the address where they meet; set TUTTI_MEET=HOST:PORT for all", done.stderr)

    def test_failing_rank_reports_its_failure(self):
        told = self.together("f", self.torchrun(2, TUTTI_RUN_KEY_FILE=self.key()), "--optimizer", "sgd(lr=1e6)",
                             "--epochs", "20")
        self.assertTrue(all(t[2] in (1, 3) for t in told), told)
        self.assertTrue(any("the gradient of" in t[1] for t in told), told)

    def test_loss_of_rank_0_is_handled_like_any_other(self):
        """Rank 0 is killed in the middle: the meeting place is lost with it, and no launcher could
        report the cause."""
        for method, code, steps in (("d-psgd(graph=complete)", 0, 1500), ("ddp", 3, 1000000)):
            out = self.out(method[:3])
            runs = [subprocess.Popen([TUTTI, "train", "--method", method, "--model", "mlp(hidden=16)", "--batch", "16",
                                      "--steps", str(steps), "--report-every", "1", "--data", self.data, "--out", out,
                                      "--quiet"], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True,
                                     env=clean_environment(**v))
                    for v in self.torchrun(3, TUTTI_RUN_KEY_FILE=self.key(method[:3]))]
            for run in runs:
                self.addCleanup(lambda run=run: (run.kill(), run.communicate()) if run.poll() is None else None)
            until = time.monotonic() + 40
            while lines_told(out) < 5:
                self.assertTrue(all(run.poll() is None for run in runs), "it ended at once")
                self.assertLess(time.monotonic(), until)
                time.sleep(0.01)
            runs[0].kill()
            told = [run.communicate(timeout=60)[1] for run in runs]
            self.assertEqual([run.returncode for run in runs], [-9, code, code], told)
            if code == 0:
                s = summary(out)
                self.assertEqual((s["members"], s["steps"], [(e["kind"], e["rank"]) for e in s["events"]]),
                                 ([1, 2], steps, [("lost", 0)]))
            else:
                for err in told[1:]:
                    self.assertRegex(err, r"^tutti: .*(worker|rank) 0 ")

    def test_contradictions_are_refused_with_both_values(self):
        self.refused("Open MPI reports that this is rank 1 of 4 (OMPI_COMM_WORLD_RANK=1, OMPI_COMM_WORLD_SIZE=4), "
                     "torchrun that it is rank 0 of 2 (RANK=0, WORLD_SIZE=2)", "train", "--data", self.data,
                     OMPI_COMM_WORLD_RANK="1", OMPI_COMM_WORLD_SIZE="4", RANK="0", WORLD_SIZE="2")
        self.refused("-n asks for 3 workers, but torchrun has started 2 processes (RANK=0, WORLD_SIZE=2); "
                     "omit -n, or start `tutti train` once", "train", "-n", 3, RANK="0", WORLD_SIZE="2")
        self.refused("-H asks for 3 workers, but Slurm has started 8 processes (SLURM_PROCID=3, SLURM_NTASKS=8); "
                     "omit -H", "train", "-H", "a:3", SLURM_PROCID="3", SLURM_NTASKS="8", SLURM_STEP_ID="0")
        self.refused("RANK is '2' and WORLD_SIZE is '2'", "train", RANK="2", WORLD_SIZE="2")
        self.refused("PMI_RANK is '(not set)' and PMI_SIZE is '2'", "train", PMI_SIZE="2")

    def test_single_process_launcher_is_ignored(self):
        out = self.train("one", "--model", "mlp(hidden=16)", "--data", self.data, "-n", 2, "--steps", 3,
                         SLURM_PROCID="0", SLURM_NTASKS="1", SLURM_STEP_ID="0")
        self.assertEqual(summary(out)["workers"], 2)

    def test_key_files_are_private_to_their_owner(self):
        path = self.key()
        self.assertEqual(os.stat(path).st_mode & 0o777, 0o600)
        self.assertRegex(read(path).decode(), r"^[0-9a-f]{64}\n$")
        self.refused("cannot make the key's file '%s'; a key is never written over another (File exists)" % path, "key",
                     path)
        redirected = path + "2"
        with open(redirected, "w") as f:
            self.assertEqual(subprocess.run([TUTTI, "key"], stdout=f).returncode, 0)
        self.assertEqual(os.stat(redirected).st_mode & 0o777, 0o600)
        self.assertNotEqual(read(path), read(redirected))
        os.chmod(path, 0o644)
        told = self.together("o", self.torchrun(2, TUTTI_RUN_KEY_FILE=path))
        self.assertEqual([t[2] for t in told], [2, 2], told)

    def test_manually_started_agent_explains_its_use(self):
        done = subprocess.run([TUTTI, "agent"], input="hello\n", capture_output=True, text=True)
        self.assertEqual(done.returncode, 1)
        self.assertIn("what came is no job; `tutti agent` is started by `tutti train -H`, not by hand", done.stdout)


@needs_lab
class Namespaces(HostCase):
    """Hosts with networks of their own: addresses come from routes, and nothing but the link
    connects them."""
    def lab(self, *options):
        return [NETLAB, "-n", "2", *options, "--timeout", "100", "--"]

    def test_a_run_crosses_the_link_and_gives_the_bits_of_one_host(self):
        common = ("--model", "mlp(hidden=48)", "--data", self.data, "--batch", "16", "--epochs", "1", "--seed", "7")
        one = self.train("one", *common, "-n", 3)
        report, out = os.path.join(self.folder, "report.json"), self.out("two")
        done = subprocess.run([NETLAB, "-n", "2", "--rate", "100mbit", "--timeout", "100", "--json", report, "--",
                               TUTTI, "train", *common, "-H", "h1:2,h2:1", "--rsh", NETLAB + " rsh", "--out", out],
                              capture_output=True, text=True, env=clean_environment())
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertEqual(read(os.path.join(one, "model.safetensors")), read(os.path.join(out, "model.safetensors")))
        with open(report) as f:
            links = json.load(f)["hosts"]
        crossed = summary(out)["bytes_sent_total"]
        self.assertGreater(links[1]["bytes_sent"], crossed / 10)  # it was this link
        self.assertLess(links[1]["bytes_sent"], crossed)

    def test_zero_in_groups_of_a_machine_has_the_bits_of_one_host(self):
        """Values stay on their side of the link, and the gradient's shards alone cross it."""
        common = ("--model", "mlp(hidden=48)", "--data", self.data, "--batch", "16", "--steps", "20", "--seed", "7",
                  "--clip-norm", "0.5", "--final-eval", "off")
        one = self.train("one", *common, "-n", 4)
        report, out = os.path.join(self.folder, "report.json"), self.out("two")
        method = "zero(stage=3,group=%s,bucket_mb=0.02)"
        done = subprocess.run([NETLAB, "-n", "2", "--rate", "100mbit", "--timeout", "100", "--json", report, "--",
                               TUTTI, "train", *common, "-H", "h1:2,h2:2", "--rsh", NETLAB + " rsh", "--method",
                               method % "machine", "--out", out], capture_output=True, text=True,
                              env=clean_environment())
        self.assertEqual(done.returncode, 0, done.stderr)
        s, here = summary(out), summary(self.train("here", *common, "-n", 4, "--method", method % 2))
        self.assertEqual(self.model(one), self.model(out))
        self.assertEqual((s["transport"], s["method_figures"]["updated_elements"]),
                         ("tcp", here["method_figures"]["updated_elements"]))
        with open(report) as f:
            links = json.load(f)["hosts"]
        crossed = 20 * 4 * s["params"]  # an all-reduce among two, by all workers of a host
        self.assertGreater(links[1]["bytes_sent"], crossed)
        self.assertLess(links[1]["bytes_sent"], 1.5 * crossed)
        done = subprocess.run([NETLAB, "-n", "2", "--timeout", "100", "--", TUTTI, "train", *common, "-H", "h1:1,h2:2",
                               "--rsh", NETLAB + " rsh", "--method", method % "machine", "--out", self.out("unequal")],
                              capture_output=True, text=True, env=clean_environment())
        self.assertEqual(done.returncode, 2, done.stderr)
        self.assertIn("method 'zero': group=machine: there are 2 workers on the machine of worker 1 and 1 on that of "
                      "worker 0; machines must have equally many, of consecutive ranks: change the hosts, or give "
                      "their number (group=N, which divides 3)", done.stderr)

    def test_a_killed_worker_on_another_host_is_named(self):
        run, out, workers = self.start("k", "-H", "h1:1,h2:2", "--rsh", NETLAB + " rsh", command=self.lab())
        begin = time.monotonic()
        os.kill(workers[2][0], signal.SIGKILL)
        err = self.ended(run)
        self.assertEqual(run.returncode, 3, err)
        self.assertIn("tutti: worker 2 was lost: "
                      "process %d on host h2 was killed by signal 9 (SIGKILL)" % workers[2][0], err)
        self.assertLess(time.monotonic() - begin, 12)  # the lab's own end included
        self.nothing_is_left(out)

    def test_a_host_that_falls_silent_is_named(self):
        run, out, workers = self.start("c", "-H", "h1:1,h2:2", "--rsh", NETLAB + " rsh", command=self.lab())
        begin = time.monotonic()
        subprocess.run([NETLAB, "cut", "h2"], env=dict(os.environ, NETLAB=workers[0][1][b"NETLAB"].decode()),
                       check=True)
        err = self.ended(run, 60)
        self.assertEqual(run.returncode, 3, err)
        self.assertRegex(err, r"tutti: .*worker [12] was lost.* silent for ")
        self.assertLess(time.monotonic() - begin, 30)
        self.nothing_is_left(out)

    def over_a_full_line(self, *arguments):
        """Links of 1 Mbit/s: two queues of 2 s each stand between two hosts as soon as both send."""
        return ("-H", "h1:1,h2:1,h3:1,h4:1", "--rsh", NETLAB + " rsh", "--method", "hop(backup=1)",
                *arguments), [NETLAB, "-n", "4", "--rate", "1mbit", "--timeout", "110", "--"]

    def test_healthy_worker_behind_a_saturated_link_is_not_lost(self):
        """A heartbeat comes later than peer-timeout, for it waits behind models of 220 KB."""
        out = self.out("full")
        words, lab = self.over_a_full_line()
        done = subprocess.run([*lab, TUTTI, "train", "--model", "mlp(hidden=64)", "--data", self.data, "--batch", "16",
                               "--steps", "3", "--final-eval", "off", "--out", out, *words],
                              capture_output=True, text=True, env=clean_environment())
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertNotIn("lost", done.stderr)
        self.assertEqual(summary(out)["workers"], 4)

    def test_silent_host_behind_a_saturated_link_is_named(self):
        words, lab = self.over_a_full_line("--on-loss", "stop")
        run, out, workers = self.start("silent", *words, workers=4, command=lab)
        begin = time.monotonic()
        subprocess.run([NETLAB, "cut", "h2"], env=dict(os.environ, NETLAB=workers[0][1][b"NETLAB"].decode()),
                       check=True)
        err = self.ended(run, 90)
        self.assertEqual(run.returncode, 3, err)
        self.assertRegex(err, r"tutti: .*worker \d was lost.*(tcp\(peer-timeout=3\)|timed out)")
        self.assertLess(time.monotonic() - begin, 60)  # ten times 3 s, its failure report, and the lab's own end
        self.nothing_is_left(out)

    def through(self, name, *faults):
        """Forty steps over a link with faults; gives what subprocess.run gives, and the output
        directory."""
        out = self.out(name)
        return subprocess.run([NETLAB, "-n", "2", "--rate", "200mbit", *faults, "--timeout", "100", "--", TUTTI,
                               "train", "--model", "mlp(hidden=64)", "--data", self.data, "--batch", "16",
                               "--steps", "40", "--final-eval", "off", "--out", out, "-H", "h1:1,h2:1",
                               "--rsh", NETLAB + " rsh"], capture_output=True, text=True, env=clean_environment()), out

    def test_packet_loss_and_reordering_change_no_bit(self):
        here = self.train("here", "--model", "mlp(hidden=64)", "--data", self.data, "--batch", 16, "--steps", 40,
                          "--final-eval", "off", "-n", 2)
        done, out = self.through("far", "--loss", "1%", "--duplicate", "1%", "--delay", "2ms", "--reorder", "1%")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertEqual(read(os.path.join(here, "model.safetensors")), read(os.path.join(out, "model.safetensors")))

    def test_reset_connections_and_corrupted_bytes_end_the_run(self):
        for name, faults, sentence in (("cut", ("--reset-after", "3MB"), r"worker [01] was lost: "
                                        r"(its connection|it and worker [01] cannot reach each other "
                                        r"\(its connection)"),
                                       ("wrong", ("--corrupt", "1%"), "worker [01] was lost: .*cannot be trusted")):
            done, out = self.through(name, *faults)
            self.assertEqual(done.returncode, 3, done.stderr)
            self.assertRegex(done.stderr, sentence)
            self.nothing_is_left(out)

    def test_torchrun_variables_start_a_run_on_two_hosts(self):
        key, out = os.path.join(self.folder, "key"), self.out("t")
        self.assertEqual(tutti("key", key).returncode, 0)
        done = subprocess.run([*self.lab("--each"), TUTTI, "train", "--model", "mlp(hidden=16)", "--data", self.data,
                               "--steps", "5", "--out", out], capture_output=True, text=True,
                              env=clean_environment(TUTTI_RUN_KEY_FILE=key))
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn("tutti: 2 workers started by torchrun (RANK=0, WORLD_SIZE=2), transport tcp", done.stdout)
        self.assertEqual(summary(out)["workers"], 2)

    def others_go_on(self, name, turns, *arguments, workers):
        """Stops one worker after the other, but not worker 0, which assigns gradients. Returns for
        each turn whether the others have made two steps meanwhile. All links are full, so messages are
        late: silence of 20 s is no loss here, nor for the command. On a busy machine the others may be
        late, so not every turn must show that they continue."""
        run, out, pids = self.start(name, "-H", "h1:2,h2:2", "--rsh", NETLAB + " rsh",
                                    "--transport", "tcp(peer-timeout=20)", *arguments, workers=workers,
                                    command=self.lab("--rate", "100mbit"))
        went_on = []
        for turn in range(turns):
            victim = pids[1 + turn % 3][0]
            time.sleep(0.02 * turn)
            os.kill(victim, signal.SIGSTOP)
            until = time.monotonic() + 3
            time.sleep(0.4)  # what was whole when it was stopped has been used by now
            begun = lines_told(out)
            while lines_told(out) < begun + 2 and time.monotonic() < until:
                time.sleep(0.02)
            went_on.append(lines_told(out) >= begun + 2)
            os.kill(victim, signal.SIGCONT)
            time.sleep(0.4)  # it continues, and with it all that it has held up
        run.send_signal(signal.SIGINT)
        self.assertNotIn("lost", self.ended(run))
        self.nothing_is_left(out)
        return went_on

    def test_a_frozen_worker_stops_nobody_at_a_server(self):
        """A model of 800 KB takes 64 ms over these links, so mostly a worker is stopped while its
        gradient or its answer is in flight. The others continue meanwhile, and it continues
        afterwards."""
        went_on = self.others_go_on("z", 6, "--method", "asgd", "--servers", "1", "--model", "mlp(hidden=200)",
                                    "--optimizer", "sgd(lr=0.001)", workers=5)
        self.assertGreaterEqual(sum(went_on), 4, went_on)

    def test_a_frozen_worker_stops_nobody_that_averages_in_pairs_or_rounds(self):
        """Questions to it stay unanswered, and other workers are asked. Rounds with it stay pending.
        Gradients continue. Computing is slowed, so that the cores are not fully used: otherwise the
        kernel starves other sessions, this run's and those of concurrent tests (docs/CLUSTERS.md,
        several hosts on one machine)."""
        for method in ("ad-psgd", "asr-adpsgd"):
            went_on = self.others_go_on("y-" + method, 3, "--method", method, "--model", "mlp(hidden=200)",
                                        "--optimizer", "sgd(lr=0.001)", "--batch", "128",
                                        "--slow", "0:10,1:10,2:10,3:10", workers=4)
            self.assertGreaterEqual(sum(went_on), 2, (method, went_on))

    def test_a_frozen_worker_stops_nobody_but_the_group_that_it_is_in(self):
        """prague: groups that have not started continue without it after group_timeout, which is what a step takes
        here: most groups of worker 0 have a worker that is stopped, or slow. Only a worker that is stopped while it
        waits in a group or is in the middle of a P-Reduce holds up its partner, which may be worker 0, the one that
        writes the output. So the model is small, P-Reduces are not overlapped, and the workers that are stopped are
        slow: they compute for most of the time. Worker 0 is not slowed, because --slow stretches the time by the
        clock, in which a busy machine has its pauses."""
        went_on = self.others_go_on("p", 4, "--method", "prague(group_size=2,inter_intra=off,group_timeout=0.2,"
                                    "generator=random,overlap=off)", "--model", "mlp(hidden=8)", "--optimizer",
                                    "sgd(lr=0.001)", "--batch", "64", "--slow", "1:300,2:300,3:300", workers=4)
        self.assertGreaterEqual(sum(went_on), 2, went_on)

    def test_launcher_respects_the_peer_timeout_of_its_workers(self):
        """A worker that is stopped for 4 s is lost after 3 s, unless peer-timeout is larger."""
        run, out, pids = self.start("t", "-H", "h1:1,h2:1", "--rsh", NETLAB + " rsh", "--method", "asgd",
                                    "--transport", "tcp(peer-timeout=20)", workers=2, command=self.lab())
        os.kill(pids[1][0], signal.SIGSTOP)
        time.sleep(4)
        os.kill(pids[1][0], signal.SIGCONT)
        time.sleep(0.5)
        run.send_signal(signal.SIGINT)
        self.assertNotIn("lost", self.ended(run))
        self.nothing_is_left(out)

    def test_ctrl_c_leaves_nothing_on_any_host(self):
        run, out, _ = self.start("i", "-H", "h1:1,h2:2", "--rsh", NETLAB + " rsh", command=self.lab())
        run.send_signal(signal.SIGINT)
        self.ended(run)
        self.assertEqual(run.returncode, 130)
        self.nothing_is_left(out)


if __name__ == "__main__":
    together(6)
