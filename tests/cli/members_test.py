"""Methods without a central worker continue without lost workers: whichever worker is killed, and whenever,
the others end normally, report which worker was lost, and leave one complete model."""
import glob, math, os, random, re, sys

sys.path.insert(0, os.path.join(os.path.dirname(__file__), ".."))
from command import *
from ports import free_port

# messages of 220 KB, steps of less than a millisecond
TRAIN = ["--model", "mlp(hidden=64)", "--optimizer", "sgd(lr=0.02)", "--batch", "16", "--quiet"]
LARGE = ["--model", "mlp(hidden=512)"]  # of 2.7 MB


class Running(Case):
    def start(self, name, *arguments, n=4, method="d-psgd"):
        out = self.out(name)
        run = subprocess.Popen([TUTTI, "train", "--method", method, "--data", self.data, "-n", str(n), *TRAIN,
                                "--out", out, *map(str, arguments)], stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                               text=True, env=clean_environment())
        self.addCleanup(lambda: (run.kill(), run.communicate()) if run.poll() is None else None)
        return run, out

    def lines(self, out, last=0):
        """Of its metrics, all or the last ones."""
        try:
            with open(os.path.join(out, "metrics.jsonl")) as f:
                return [json.loads(line) for line in f.read().split("\n")[:-1][-last:]]
        except FileNotFoundError:
            return []

    def until(self, run, out, step):
        """Waits until a line of metrics has that step; gives the workers' processes, by rank."""
        deadline = time.monotonic() + 60
        while not any(line["step"] >= step for line in self.lines(out, 1)):
            self.assertIsNone(run.poll(), run.stderr.read() if run.poll() is not None else "")
            self.assertLess(time.monotonic(), deadline, "step %d is not reached" % step)
            time.sleep(0.002)
        return children_of(run.pid)

    def ended(self, run, code=0, seconds=100):
        try:
            _, err = run.communicate(timeout=seconds)
        except subprocess.TimeoutExpired:
            run.kill()
            self.fail("the run did not end within %g s" % seconds)
        self.assertEqual(run.returncode, code, err)
        return err

    def check(self, out, n, lost, accuracy=0.4):
        """The summary and the model of a run of n workers after those in `lost` were killed."""
        s = summary(out)
        left = [r for r in range(n) if r not in lost]
        self.assertEqual(s["workers"], n)
        self.assertEqual(s["members"], left)
        self.assertEqual([row["worker"] for row in s["by_worker"]], left)
        events = [e for e in s["events"] if e["kind"] == "lost"]
        self.assertEqual(sorted(e["rank"] for e in events), sorted(lost))
        self.assertEqual([e["epoch"] for e in events], list(range(1, len(lost) + 1)))
        for e in events:
            self.assertRegex(e["text"], r"worker %d .*signal 9|worker %d " % (e["rank"], e["rank"]))
            self.assertLessEqual(e["step"], s["steps"])
        self.assertTrue(all(math.isfinite(v) for v in floats(os.path.join(out, "model.safetensors"))))
        if accuracy > 0:
            self.assertGreater(s["final_test_accuracy"], accuracy)
        for line in self.lines(out):
            for key in ("compute_seconds_by_worker", "wait_seconds_by_worker"):
                if key in line:
                    self.assertEqual(len(line[key]), n)
                    self.assertLessEqual([r for r in range(n) if line[key][r] is None], sorted(lost))
        return s

    def kill(self, pids, ranks):
        for r in ranks:
            os.kill(pids[r], signal.SIGKILL)


class Members(Running):
    def test_run_survives_one_killed_worker_on_several_graphs(self):
        before = shm_entries()
        for graph, rank, steps, model in (("ring", 2, 400, []), ("complete", 0, 40, LARGE),
                                          ("exponential", 3, 400, [])):
            run, out = self.start(graph, *model, "--steps", steps, "--report-every", 5,
                                  method="d-psgd(graph=%s)" % graph)
            self.kill(self.until(run, out, steps // 20), [rank])
            self.ended(run)
            s = self.check(out, 4, [rank])
            self.assertEqual(s["steps"], steps)
            # ten steps go through all of the data, but for the part of the one that was lost
            self.assertLess(s["samples"], steps // 10 * 600)
            self.assertGreaterEqual(s["samples"], steps // 10 * 600 * 3 // 4)
            last = [line for line in self.lines(out) if "train_loss" in line][-1]
            self.assertIsNone(last["wait_seconds_by_worker"][rank])
            self.assertEqual(last["step"], steps)
        self.assertEqual(shm_entries(), before)

    def test_run_survives_losing_two_or_three_of_four_workers(self):
        for ranks in ((0, 1), (3, 1), (0, 2, 3)):
            run, out = self.start("-".join(map(str, ranks)), "--steps", 400, "--report-every", 5, "--seed", 3)
            self.kill(self.until(run, out, 10), ranks)
            self.ended(run)
            self.check(out, 4, list(ranks))

    def test_run_survives_workers_killed_one_after_another(self):
        run, out = self.start("then", "--steps", 600, "--report-every", 5, n=4, method="d-psgd(graph=complete)")
        pids = self.until(run, out, 10)
        self.kill(pids, [0])
        self.until(run, out, 150)
        self.kill(pids, [2])
        self.ended(run)
        s = self.check(out, 4, [0, 2])
        self.assertEqual([e["rank"] for e in s["events"] if e["kind"] == "lost"], [0, 2])
        steps = [line["step"] for line in self.lines(out) if "train_loss" in line]
        self.assertEqual(steps, sorted(set(steps)), "a report is there twice")

    def test_run_with_frequent_checkpoints_survives_kills_at_any_moment(self):
        rng = random.Random(7)
        for k in range(8 if LONG else 3):
            n = rng.choice([2, 3, 4])
            lost = rng.sample(range(n), rng.randrange(1, n))
            run, out = self.start("k%d" % k, "--steps", 100, "--report-every", 1, "--eval-every", 2,
                                  "--checkpoint-every", 2, n=n,
                                  method="d-psgd(graph=%s)" % rng.choice(["ring", "complete"]))
            pids = self.until(run, out, rng.randrange(1, 40))
            for r in lost:
                time.sleep(rng.random() * 0.02)
                os.kill(pids[r], signal.SIGKILL)
            self.ended(run)
            self.check(out, n, lost, accuracy=0)
            saved = sorted(glob.glob(os.path.join(out, "checkpoints", "*")))
            self.assertTrue(saved and all("tmp-" not in s and "-old" not in s for s in saved), saved)
            with open(os.path.join(saved[-1], "manifest.json")) as f:
                manifest = json.load(f)
            self.assertEqual(manifest["world"], n - len(lost))
            self.assertEqual(manifest["facts"]["members"], [r for r in range(n) if r not in lost])
            self.assertEqual(tutti("check", saved[-1]).returncode, 0)

    def test_checkpoint_of_remaining_workers_is_resumed_by_as_many(self):
        run, out = self.start("first", "--steps", 400, "--report-every", 5, "--checkpoint-every", 200, n=3)
        self.kill(self.until(run, out, 5), [0])
        self.ended(run)
        self.check(out, 3, [0], accuracy=0)
        again = ["train", "--method", "d-psgd", "--data", self.data, *TRAIN, "--steps", "420", "--resume", out]
        self.refused("resume it with -n 2 instead of 3", *again, "-n", "3", "--out", self.out("three"))
        done = tutti(*again, "-n", "2", "--out", self.out("two"))
        self.assertEqual(done.returncode, 0, done.stderr)
        s = summary(self.out("two"))
        self.assertEqual((s["steps"], s["resumed_at_step"], s["workers"], s["members"]), (420, 400, 2, [0, 1]))

    def test_on_loss_stop_ends_the_run_as_ddp_does(self):
        for method, extra in (("d-psgd", ["--on-loss", "stop"]), ("ddp", [])):
            run, out = self.start(method, "--steps", 100000, "--report-every", 5, *extra, method=method)
            self.kill(self.until(run, out, 5), [1])
            self.assertIn("worker 1 was lost", self.ended(run, code=3))

    def test_full_disk_ends_the_run_with_the_writers_message(self):
        if os.geteuid() != 0 or subprocess.run(["unshare", "-m", "true"], capture_output=True).returncode != 0:
            self.skipTest("needs root and mount namespaces")
        for transport, what, size in (("shm", ["--report-every", "1"], 24), ("tcp", ["--report-every", "1"], 24),
                                      ("shm", ["--checkpoint-every", "3"], 100),
                                      ("tcp", ["--checkpoint-every", "3"], 100)):
            out = self.out("full-" + transport + what[0])
            os.makedirs(out)
            done = subprocess.run(["unshare", "-m", "sh", "-c", 'mount -t tmpfs -o size=%dk tmpfs "$0" && exec "$@"'
                                   % size, out, TUTTI, "train", "--method", "d-psgd", "--data", self.data, "-n", "3",
                                   *TRAIN, "--steps", "100000", *what, "--transport", transport, "--out", out + "/run"],
                                  capture_output=True, text=True, timeout=100, env=clean_environment())
            self.assertEqual(done.returncode, 1, done.stderr)
            self.assertRegex(done.stderr,
                             r"^tutti: worker 0: .*metrics\.jsonl.*No space left on device.*\n$" if "report" in what[0]
                             else r"^tutti: worker \d: cannot save the checkpoint of step 3: .*free space there.*\n$")
            self.assertNotIn("continues", done.stderr)

    def test_run_survives_killed_workers_over_tcp(self):
        # large messages in flight: over shared memory above; over tcp in `make check-long`
        runs = [("complete", [0], 400, []), ("exponential", [3, 0], 400, [])]
        for graph, ranks, steps, model in runs + ([("ring", [1], 40, LARGE)] if LONG else []):
            run, out = self.start(graph, *model, "--steps", steps, "--report-every", 5, "--transport", "tcp",
                                  method="d-psgd(graph=%s)" % graph)
            self.kill(self.until(run, out, steps // 20), ranks)
            self.ended(run)
            self.check(out, 4, ranks)

    def test_asynchronous_run_survives_killed_workers(self):
        for k, (transport, method, ranks) in enumerate((("shm", "ad-psgd(graph=ring)", [2]),
                                                        ("shm", "ad-psgd(graph=complete,exchanges=0)", [3, 0]),
                                                        ("tcp", "ad-psgd", [0]),
                                                        ("shm", "prague(sync_every=1)", [0]),
                                                        ("tcp", "prague(generator=random,group_size=2)", [2, 0]))):
            run, out = self.start("p%d" % k, "--steps", 100, "--report-every", 2, "--eval-every", 50,
                                  "--transport", transport, method=method)
            self.kill(self.until(run, out, 10), ranks)
            self.ended(run)
            s = self.check(out, 4, ranks)
            # 400 gradients were assigned; those of the lost workers are not computed by any other
            self.assertEqual(s["steps"], 100)
            left = sum(row["steps"] for row in s["by_worker"])
            self.assertLessEqual(left, 400)
            self.assertLessEqual(s["samples"], left * 16)
            self.assertGreater(s["samples"], 0.95 * left * 16) # the last batch of a pass of the data is smaller
            self.assertGreater(left, 10)

    def test_background_averaging_survives_killed_workers(self):
        for k, (transport, method, ranks) in enumerate((("shm", "asr-adpsgd", [0]),
                                                        ("tcp", "rand-psgd(pace=own,rounds=2)", [1, 0]),
                                                        ("shm", "lasgd(local_steps=2)", [2]),
                                                        ("tcp", "asr-adpsgd(mixing=delay-by-one)", [0, 3]),
                                                        ("tcp", "bagua(algorithm=async,sync_interval_ms=2)", [0]))):
            # assigned gradients of at most 16 samples; 10 steps are an epoch
            whole = 100 * 4 * 16 if k < 2 else 10 * 600
            run, out = self.start("a%d" % k, "--steps", 100, "--report-every", 2, "--eval-every", 50,
                                  "--transport", transport, method=method)
            self.kill(self.until(run, out, 10), ranks)
            self.ended(run)
            s = self.check(out, 4, ranks)
            self.assertEqual(s["steps"], 100)
            self.assertLess(s["samples"], whole)
            self.assertGreaterEqual(s["samples"], whole // 2 if k < 2 else whole * (4 - len(ranks)) // 4)

    def test_lasgd_warm_up_needs_all_workers(self):
        run, out = self.start("w", "--steps", 100000, "--report-every", 5, method="lasgd(warmup=2)")
        self.kill(self.until(run, out, 5), [1])
        self.assertIn("worker 1 was lost", self.ended(run, code=3))
        self.refused("needs every worker in every step", "train", "--method", "lasgd(warmup=2)", "-n", 2,
                     "--on-loss", "continue")

    def test_machine_with_a_lost_worker_retires_and_others_continue(self):
        for ranks, gone in (([3], [2, 3]), ([0], [0, 1])):
            run, out = self.start("m%d" % ranks[0], "--steps", 100, "--report-every", 2,
                                  method="h-adpsgd(super_learner=2)")
            self.kill(self.until(run, out, 10), ranks)
            self.assertIn("leaves the run: the workers it sums with have lost worker %d" % ranks[0], self.ended(run))
            self.assertEqual(self.check(out, 4, gone)["steps"], 100)

    def test_traces_of_remaining_workers_are_merged(self):
        run, out = self.start("trace", "--steps", 200, "--report-every", 5, "--trace")
        self.kill(self.until(run, out, 5), [0])
        self.ended(run)
        with open(os.path.join(out, "trace.json")) as f:
            self.assertEqual({e["pid"] for e in json.load(f)}, {1, 2, 3})


# Methods that continue after a loss, and dedicated servers: the workers then need no shard.
GO_ON = (("single", 0), ("bagua(algorithm=async)", 0), ("lasgd", 0), ("d-psgd", 0), ("qg-dsgdm", 0), ("gut", 0),
         ("saddle", 0), ("noloco(period=8)", 0), ("sgp", 0), ("ad-psgd", 0), ("rand-psgd", 0), ("asr-adpsgd", 0),
         ("h-adpsgd(super_learner=2)", 0), ("hop", 0), ("prague", 0), ("prague(generator=random,group_size=2)", 0),
         ("prague(generator=static)", 0),
         ("parameter-server", 1), ("herring", 1), ("byteps(async=on)", 1), ("asgd", 1), ("ssp", 1),
         ("backup-workers", 1), ("ringmaster-asgd", 1), ("ringleader-asgd", 1), ("dude-asgd", 1),
         ("hermes(push=always,minibatch=1)", 1), ("oscars", 1),
         ("decoupled-diloco(period=8)", 1), ("decoupled-diloco(period=8,quorum=2)", 1))

IN_SHORT = ("ad-psgd", "h-adpsgd(super_learner=2)", "asgd") # of each kind of members


class GoesOn(Running):
    """The command that is printed at the end of a run that has lost a worker resumes it, and so does
    the original command, with --resume auto."""
    WORDS = ("--model", "quadratic(dim=32,samples=100000)", "--batch", "1", "--optimizer", "sgd(lr=0.0001)",
             "--checkpoint-on-signal", "--report-every", "20", "--eval-every", "0", "--final-eval", "off", "--quiet")

    def stopped(self, name, *words, lose=1, rank_of=None):
        """One of four workers is killed, and when the others have continued the run gets SIGTERM. Gives the
        folder, the command that was printed last, and the step that was saved."""
        out = self.out(name)
        run = subprocess.Popen([TUTTI, "train", *words, *self.WORDS, "--steps", "100000000", "--out", out],
                               stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=clean_environment())
        self.addCleanup(lambda: (run.kill(), run.communicate()) if run.poll() is None else None)
        pids = self.until(run, out, 20)
        self.kill(pids if rank_of is None else rank_of(out), [lose])
        while "continues" not in run.stderr.readline():
            self.assertIsNone(run.poll(), words)
        last, deadline = self.lines(out, 1)[0]["step"], time.monotonic() + 60
        while self.lines(out, 1)[0]["step"] <= last + 20:
            self.assertIsNone(run.poll(), words)
            self.assertLess(time.monotonic(), deadline, words)
            time.sleep(0.005)
        run.terminate()
        told = self.ended(run, code=143)
        steps = [int(name[5:]) for name in list_of(os.path.join(out, "checkpoints")) if name.startswith("step-")]
        self.assertEqual(len(steps), 1, told)
        said, step = told.splitlines()[-1], steps[0]
        self.assertIn("the newest checkpoint is %s/checkpoints/step-%08d; to continue from there: tutti train "
                      "--resume %s" % (out, step, out), said)
        return out, said.split("to continue from there: tutti ")[1], step

    def shell(self, words):
        return subprocess.run(["sh", "-c", TUTTI + " " + words], capture_output=True, text=True, timeout=120,
                              env=clean_environment())

    def goes_on(self, method, servers):
        words = ["--method", method, "-n", "4", "--servers", str(servers)]
        out, said, step = self.stopped(re.sub("[(=,)]", "-", method), *words)
        manifest = json.loads(read(os.path.join(out, "checkpoints", "step-%08d" % step, "manifest.json")))
        left, any_number = manifest["world"] - servers, servers > 0
        copy = out + "-auto"
        shutil.rmtree(copy, ignore_errors=True)
        shutil.copytree(out, copy)
        # as it is printed
        self.assertEqual(said, "train --resume %s%s" % (out, "" if any_number else " -n %d" % left))
        done = self.shell("%s --steps %d" % (said, step + 40))
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        now = 4 if any_number else left
        self.assertEqual((summary(out)["resumed_at_step"], summary(out)["workers"]), (step, now))
        # as the line that began it does, twice
        for k, of in ((1, ", the remaining ones of 4"), (2, "")):
            done = tutti("train", *words, *self.WORDS, "--resume", "auto", "--out", copy, "--steps", step + 40 * k,
                         "--checkpoint-every", 40)
            told = "tutti: the checkpoint in %s is of %d workers%s, and no other number can resume it: %d resume\n"
            self.assertEqual((done.returncode, done.stderr), (0, "" if any_number else told % (copy, left, of, left)))
            self.assertEqual((summary(copy)["steps"], summary(copy)["workers"]), (step + 40 * k, now))

    def test_every_fault_tolerant_method_resumes_by_the_printed_command(self):
        done = tutti("train", "--method", "ddp", "-n", "2", "--on-loss", "continue")
        known = done.stderr.split("a method that continues (")[1].split(")")[0].split(", ")
        self.assertEqual(set(known), {method.split("(")[0] for method, _ in GO_ON})
        # all of them in `make check-long`
        for method, servers in GO_ON if LONG else [m for m in GO_ON if m[0] in IN_SHORT]:
            with self.subTest(method):
                self.goes_on(method, servers)

    def test_user_given_worker_count_is_not_overridden(self):
        out, _, step = self.stopped("a", "--method", "ad-psgd", "-n", "4")
        self.refused("resume it with -n 3 instead of 4", "train", "--resume", out, "--steps", step + 10, "-n", "4")
        mine = self.out("mine.yaml")
        with open(mine, "w") as f:
            f.write("n: 4\n")
        self.refused("resume it with -n 3 instead of 4", "train", mine, "--resume", out, "--steps", step + 10)
        self.assertEqual(json.loads(tutti("config", "--resume", out).stdout)["n"], 3)
        done = tutti("train", "--resume", out, "--steps", step + 20)
        self.assertEqual((done.returncode, summary(out)["workers"]), (0, 3), done.stderr)

    def rank_of(self, out):
        """The processes of workers, by rank, on all hosts of a run."""
        found = {}
        for pid in filter(str.isdigit, os.listdir("/proc")):
            try:
                if ("--out=" + out).encode() in read("/proc/%s/cmdline" % pid).split(b"\0"):
                    found.update((int(v[11:]), int(pid)) for v in read("/proc/%s/environ" % pid).split(b"\0")
                                 if v.startswith(b"TUTTI_RANK="))
            except OSError:
                continue
        return found

    def test_resumed_hosts_have_the_remaining_workers(self):
        """Which host has lost one is known by its rank. The launcher names the one killed: on a machine that has 20
        others to run, a silence of 3 s says little."""
        here = "sh -c 'eval \"$1\"'"
        for lose, left in ((0, "127.0.0.2:2,127.0.0.3:1"), (2, "127.0.0.1:1,127.0.0.2:1,127.0.0.3:1"))[not LONG:]:
            words = ["--method", "d-psgd(graph=complete)", "-H", "127.0.0.1:1,127.0.0.2:2,127.0.0.3:1", "--rsh", here,
                     "--transport", "tcp(peer-timeout=30)"]
            out, said, step = self.stopped("h%d" % lose, *words, lose=lose, rank_of=self.rank_of)
            self.assertEqual(said, "train --resume %s -H %s --rsh '%s'" % (out, left, here.replace("'", "'\\''")))
            done = self.shell("%s --steps %d" % (said, step + 40))
            self.assertEqual((done.returncode, done.stderr), (0, ""))
            self.assertEqual((summary(out)["steps"], summary(out)["workers"]), (step + 40, 3))
        for lose in (3,) if LONG else ():
            out, _, step = self.stopped("again", *words, lose=lose, rank_of=self.rank_of)
            done = tutti("train", *words, *self.WORDS, "--resume", "auto", "--out", out, "--steps", step + 40)
            self.assertEqual(done.returncode, 0, done.stderr)
            self.assertEqual((summary(out)["steps"], summary(out)["workers"]), (step + 40, 3))

    def test_a_host_that_has_ended_does_not_keep_the_others_from_saving(self):
        """The command by which it was reached reads no more, and has not ended, when the signal comes."""
        self.stopped("ended", "--method", "d-psgd(graph=complete)", "-H", "127.0.0.1:1,127.0.0.2:3", "--rsh",
                     "sh -c '(eval \"$1\"); exec <&-; sleep 2'", "--transport", "tcp(peer-timeout=30)", lose=0,
                     rank_of=self.rank_of)

    def test_surplus_processes_of_another_launcher_exit(self):
        out, _, step = self.stopped("a", "--method", "ad-psgd", "-n", "4")
        port = str(free_port())
        runs = [subprocess.Popen([TUTTI, "train", "--method", "ad-psgd", *self.WORDS, "--resume", "auto", "--out", out,
                                  "--steps", str(step + 40)], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                                 env=clean_environment(RANK=str(r), WORLD_SIZE="4", LOCAL_RANK=str(r),
                                                       LOCAL_WORLD_SIZE="4", MASTER_ADDR="127.0.0.1",
                                                       MASTER_PORT=port)) for r in range(4)]
        for run in runs:
            self.addCleanup(lambda run=run: (run.kill(), run.communicate()) if run.poll() is None else None)
        told = [run.communicate(timeout=60)[1] for run in runs]
        self.assertEqual([run.returncode for run in runs], [0] * 4, told)
        self.assertEqual(told, ["tutti: the checkpoint in %s is of 3 workers, the remaining ones of 4, and no other "
                                "number can resume it: 3 resume\n" % out, "", "", ""])
        self.assertEqual((summary(out)["steps"], summary(out)["workers"]), (step + 40, 3))


if __name__ == "__main__":
    unittest.main(verbosity=2)
