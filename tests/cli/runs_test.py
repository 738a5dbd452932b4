"""A run and its directory: damaged checkpoints, which process may write there, what a refused
start leaves, signals that save first, and resuming where there is something to resume from."""
import glob, json, os, shutil, signal, subprocess, sys, time, unittest

sys.path.insert(0, os.path.join(os.path.dirname(__file__), ".."))
from command import *
from together import together

COMMON = ["--model", "mlp(hidden=16)", "--batch", "16", "--seed", "11", "--optimizer", "adamw(lr=0.002)",
          "--lr-schedule", "cosine(warmup=5)"]


class Runs(Case):
    def spoil(self, checkpoint, at, rank=0):
        """Turns a bit of a rank's file of a checkpoint over, `at` bytes from its end or, below 0,
        from its beginning."""
        path = os.path.join(checkpoint, sorted(f for f in os.listdir(checkpoint) if f.endswith(".safetensors"))[rank])
        with open(path, "r+b") as f:
            f.seek(-at if at < 0 else os.path.getsize(path) - at)
            byte = f.read(1)[0]
            f.seek(-1, os.SEEK_CUR)
            f.write(bytes([byte ^ 8]))
        return path

    def test_damaged_newest_checkpoint_is_reported_and_skipped(self):
        """In any part of any rank's file: all ranks take the same checkpoint, report which one was damaged
        (despite --quiet), and end with the bytes of the run that was not interrupted."""
        arguments = [*COMMON, "--model", "mlp(hidden=16)", "--data", self.data, "-n", "3", "--steps", "40",
                     "--checkpoint-every", "10", "--checkpoint-keep", "9"]
        whole = self.train("whole", *arguments)
        for k, (rank, at) in enumerate(((0, 100), (1, 4000), (2, 1), (1, -300), (0, -60))):
            out = self.out("c%d" % k)
            shutil.copytree(whole, out)
            path = self.spoil(os.path.join(out, "checkpoints", "step-00000040"), at, rank)
            again = tutti("train", "--resume", out, "--quiet")
            self.assertEqual((again.returncode, again.stdout), (0, ""), again.stderr)
            self.assertRegex(again.stderr, r"^tutti: passed over a damaged checkpoint, step-00000040: .*%s.*\ntutti: "
                             r"resumed from .*step-00000030 at step 30\n$" % os.path.basename(path))
            s = summary(out)
            self.assertEqual((s["resumed_at_step"], [(e["kind"], e["step"]) for e in s["events"]]),
                             (30, [("damaged-checkpoint", 30)]))
            self.assertIn("step-00000040: ", s["events"][0]["text"])
            self.assertIn(os.path.basename(path), s["events"][0]["text"])
            self.assertEqual(self.model(out), self.model(whole))

    @unittest.skipUnless(SIMULATOR, "the simulator is not built")
    def test_damaged_checkpoint_leaves_no_state_in_the_resumed_run(self):
        """Some of it has been read by then. A run that continues from the checkpoint before ends like
        one that never saw the damaged checkpoint."""
        cases = (("asgd(compensate=adaptive)", "--servers", 2), ("ringleader-asgd",), ("oscars(interval=3)",),
                 ("lasgd(local_steps=4,max_delay=3)",), ("ddp", "--codec", "ef(topk(ratio=0.1))"))
        for k, (method, *more) in enumerate(cases):
            whole = self.train("w%d" % k, "--model", "mlp(hidden=16)", "--data", self.data, "--batch", 12, "-n", 3,
                               "--checkpoint-every", 5, "--quiet", "--final-eval", "off", "--transport", "sim",
                               "--method", method, "--optimizer", "sgd(lr=0.02,momentum=0.5)", "--steps", 10, *more)
            older, newer = (os.path.join(whole, "checkpoints", "step-%08d" % step) for step in (5, 10))
            want = self.model(self.train("o%d" % k, "--resume", older, "--steps", 14))
            self.spoil(newer, 40, rank=1)
            again = tutti("train", "--resume", whole, "--steps", 14, "--quiet")
            self.assertEqual((again.returncode, summary(whole)["resumed_at_step"]), (0, 5), again.stderr)
            self.assertEqual(self.model(whole), want, method)

    def test_damaged_checkpoints_are_skipped_and_resume_fails_without_others(self):
        arguments = [*COMMON, "--model", "mlp(hidden=16)", "--data", self.data, "-n", "2", "--steps", "40",
                     "--checkpoint-every", "10", "--checkpoint-keep", "9"]
        out = self.train("a", *arguments)
        checkpoints, model = os.path.join(out, "checkpoints"), self.model(out)
        self.spoil(os.path.join(checkpoints, "step-00000040"), 100, 1)
        os.truncate(os.path.join(checkpoints, "step-00000030", "manifest.json"), 100)
        other = self.out("others")
        shutil.copytree(out, other)
        again = tutti("train", "--resume", out, "--quiet")
        self.assertEqual(again.returncode, 0, again.stderr)
        self.assertEqual((summary(out)["resumed_at_step"], len(summary(out)["events"]),
                          again.stderr.count("passed over")), (20, 2, 2))
        self.assertEqual(self.model(out), model)
        # by other workers, which do not read all of it
        more = tutti("train", "--resume", other, "-n", "4", "--batch", "8", "--quiet")
        self.assertEqual((more.returncode, summary(other)["resumed_at_step"], len(summary(other)["events"])),
                         (0, 20, 2), more.stderr)
        for name in os.listdir(checkpoints):
            self.spoil(os.path.join(checkpoints, name), 50)
        before = self.files(out)
        self.refused("none of the checkpoints in", "train", "--resume", out, "--quiet", code=1)
        self.assertEqual(self.files(out), before)

    def test_a_refused_run_changes_nothing(self):
        """Neither the directory of the run that it must not resume, so that the right command still
        resumes it, nor is a new directory left; whether the command or a worker refuses it."""
        out = self.train("a", *COMMON, "--data", self.data, "-n", "2", "--steps", "10", "--checkpoint-every", "5")
        before = self.files(out)
        for words in (["--seed", "12"], ["--model", "mlp(hidden=17)"], ["--batch", "17"], ["--method", "single"],
                      ["--data", self.folder], ["--collective-table", self.folder + "/none"]):
            self.assertIn(tutti("train", "--resume", out, "--steps", "20", *words).returncode, (1, 2), words)
            self.assertEqual(self.files(out), before, words)
            self.assertIn(tutti("train", "--resume", out, "--steps", "20", *words,
                                "--out", self.out("new/below/this")).returncode, (1, 2), words)
            self.assertFalse(os.path.exists(self.out("new")), words)
        again = tutti("train", "--resume", out, "--steps", "20")
        self.assertEqual(again.returncode, 0, again.stderr)
        self.assertEqual(summary(out)["steps"], 20)
        for k, words in enumerate((["--data", self.folder], ["--method", "d-psgd(graph=none)"],
                                   ["--optimizer", "sgd(lr=-1)"], ["--model", "mlp(hidden=0)"], ["--validation", "600"],
                                   ["--resume", self.folder])):
            done = tutti("train", "--model", "mlp(hidden=16)", "--data", self.data, "-n", 2, "--steps", 2, *words,
                         "--out", self.out("fresh/below"))
            self.assertEqual(done.returncode, 2, (words, done.stderr))
            self.assertFalse(os.path.exists(self.out("fresh")), words)
        os.mkdir(self.out("mine"))  # what was there stays
        self.assertEqual(tutti("train", "--data", self.folder, "--out", self.out("mine/new")).returncode, 2)
        self.assertEqual(os.listdir(self.out("mine")), [])

    def running(self, name, *arguments, lines=1, **more):
        """A run that would take for ever, once it has reported `lines` lines."""
        out = self.out(name)
        run = subprocess.Popen([TUTTI, "train", *COMMON, "--data", self.data, "--report-every", "1",
                                "--final-eval", "off", "--quiet", "--out", out, *map(str, arguments)],
                               stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, env=clean_environment(),
                               **more)
        self.addCleanup(lambda: (run.kill(), run.communicate()) if run.poll() is None else None)
        until = time.monotonic() + 60
        while lines_told(out) < lines:
            self.assertIsNone(run.poll(), "it ended at once")
            self.assertLess(time.monotonic(), until, "it makes no steps")
            time.sleep(0.01)
        return run, out

    def test_a_directory_belongs_to_one_run_at_a_time(self):
        run, out = self.running("a", "-n", 2, "--steps", 1000000, "--checkpoint-every", 5, lines=20)
        owner = (r"is written by a run that is under way \(process %d on host '%s'\); wait for its end, "
                 r"or give this run another --out" % (run.pid, os.uname().nodename))
        for words in (["--resume", out], ["--out", out, "--overwrite"], ["--out", out],
                      ["--resume", out, "--out", out + "/."]):
            done = tutti("train", *COMMON, "--data", self.data, "-n", 2, *words)
            self.assertEqual(done.returncode, 2, done.stderr)
            self.assertRegex(done.stderr, owner)
            self.assertIsNone(run.poll())
        run.kill()  # not even its file is taken away
        run.communicate()
        self.assertTrue(os.path.exists(os.path.join(out, "lock")))
        last = max(int(name[5:]) for name in os.listdir(os.path.join(out, "checkpoints")) if name.startswith("step-"))
        again = tutti("train", "--resume", out, "--steps", last + 3)
        self.assertEqual(again.returncode, 0, again.stderr)
        self.assertEqual(summary(out)["steps"], last + 3)
        self.assertFalse(os.path.exists(os.path.join(out, "lock")))

    def test_output_path_that_is_no_directory_is_rejected(self):
        out = self.out("a")
        os.makedirs(out)
        with open(os.path.join(out, "checkpoints"), "w"):
            pass
        small = (*COMMON, "--data", self.data, "-n", 2, "--steps", 2)
        self.refused("cannot make directory '%s/checkpoints': '%s/checkpoints' is a file" % (out, out), "train", *small,
                     "--checkpoint-every", 1, "--out", out, code=1)
        self.assertEqual(os.listdir(out), ["checkpoints"])
        os.symlink("nowhere", self.out("b"))
        self.refused("'%s' is a link to what is not there" % self.out("b"), "train", *small, "--out", self.out("b"),
                     code=1)

    def test_one_of_four_concurrent_starts_gets_the_directory(self):
        for k in range(2):
            out = self.out("two%d" % k)
            runs = [subprocess.Popen([TUTTI, "train", *COMMON, "--data", self.data, "-n", "1", "--threads", "1",
                                      "--seed", str(seed), "--steps", "200", "--slow", "0:3", "--final-eval", "off",
                                      "--quiet", "--out", out], stderr=subprocess.PIPE, text=True,
                                     env=clean_environment()) for seed in range(4)]
            told = [run.communicate(timeout=100)[1] for run in runs]
            codes = [run.returncode for run in runs]
            self.assertEqual(sorted(codes), [0, 2, 2, 2], told)
            with open(os.path.join(out, "config.json")) as f:
                self.assertEqual((codes.index(0), summary(out)["seed"]), (json.load(f)["seed"],) * 2)

    def test_concurrent_unnamed_runs_get_separate_directories(self):
        os.mkdir(self.out("here"))
        runs = [subprocess.Popen([TUTTI, "train", "--model", "logistic", "--threads", "1", "--seed", str(seed),
                                  "--steps", "30", "--final-eval", "off", "--quiet"], stderr=subprocess.PIPE, text=True,
                                 cwd=self.out("here"), env=clean_environment()) for seed in range(5)]
        told = [run.communicate(timeout=100)[1] for run in runs]
        self.assertEqual([run.returncode for run in runs], [0] * 5, told)
        outs = [os.path.join(self.out("here"), "runs", name)
                for name in os.listdir(os.path.join(self.out("here"), "runs"))]
        self.assertEqual(sorted(summary(out)["seed"] for out in outs), list(range(5)))

    def test_results_are_not_overwritten_unless_asked_for(self):
        small = (*COMMON, "--data", self.data, "-n", 2)
        out = self.train("a", *small, "--steps", 6)
        before = self.files(out)
        self.refused("%s already holds the results of a run (summary.json); give this run another --out, "
                     "or give --overwrite" % out, "train", *small, "--steps", 6, "--out", out)
        saved = self.train("b", *small, "--steps", 6, "--checkpoint-every", 2)
        # another run's
        self.refused("already holds the results of a run", "train", *small, "--resume", saved, "--steps", 8,
                     "--out", out)
        self.assertEqual(self.files(out), before)
        held = self.files(saved)
        self.refused("give --overwrite", "train", *small, "--steps", 4, "--out", saved)
        self.refused("no data at", "train", *small, "--data", self.folder + "/none", "--out", saved, "--overwrite")
        self.assertEqual(self.files(saved), held)  # not by a run that did not begin
        again = tutti("train", *small, "--steps", 6, "--checkpoint-every", 4, "--seed", 12, "--out", saved,
                      "--overwrite")
        self.assertEqual(again.returncode, 0, again.stderr)
        self.assertEqual(os.listdir(os.path.join(saved, "checkpoints")), ["step-00000004"])
        with open(os.path.join(saved, "config.json")) as f:
            self.assertEqual((json.load(f).get("overwrite", "not there"), summary(saved)["seed"]), ("not there", 12))
        self.assertEqual(tutti("train", "--resume", saved, "--steps", 9).returncode, 0)

    def test_partially_removed_checkpoints_are_not_resumed(self):
        """As after a kill: one file cannot be removed. A folder without a manifest was left, and a
        line with --resume auto was refused for ever."""
        words = ["--model", "quadratic(dim=8)", "-n", "2", "--checkpoint-every", "5", "--checkpoint-keep", "9"]
        out = self.train("a", *words, "--steps", "15")
        for step in (5, 10, 15):
            os.makedirs(os.path.join(out, "checkpoints", "step-%08d" % step, "mine", "own"))
        done = tutti("train", *words, "--steps", "5", "--out", out, "--overwrite")
        self.assertEqual(done.returncode, 1)
        self.assertIn("mine", done.stderr)
        self.assertEqual([f for f in os.listdir(os.path.join(out, "checkpoints")) if f.startswith("step-")], [])
        done = tutti("train", *words, "--steps", "20", "--out", out, "--resume", "auto")
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        self.assertEqual((summary(out)["steps"], summary(out)["resumed_at_step"]), (20, None))
        for folder in glob.glob(os.path.join(out, "checkpoints", "tmp-removed-*", "mine", "own")):
            os.removedirs(folder)
        done = tutti("train", *words, "--steps", "5", "--out", out, "--overwrite")
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        self.assertEqual(os.listdir(os.path.join(out, "checkpoints")), ["step-00000005"])

    def test_final_message_gives_the_resume_command(self):
        for k, (how, code) in enumerate((("term", 143), ("int", 130), ("worker", 3))):
            run, out = self.running("it's %d" % k, "-n", 2, "--steps", 1000000, "--checkpoint-every", 5, lines=12)
            if how == "worker":
                os.kill(children_of(run.pid)[1], signal.SIGKILL)
            else:
                run.send_signal(signal.SIGTERM if how == "term" else signal.SIGINT)
            err = run.communicate(timeout=60)[1]
            self.assertEqual(run.returncode, code, err)
            newest = max(os.path.join(out, "checkpoints", name) for name in os.listdir(os.path.join(out, "checkpoints"))
                         if name.startswith("step-"))
            self.assertEqual(err.splitlines()[1], "tutti: the newest checkpoint is %s; to continue from there: "
                             "tutti train --resume '%s'" % (newest, out.replace("'", "'\\''")))
            again = subprocess.run(["sh", "-c", err.splitlines()[1].split("to continue from there: ")[1].replace(
                "tutti", "'%s'" % TUTTI, 1) + " --steps %d" % (int(newest[-8:]) + 2)], capture_output=True, text=True,
                                   env=clean_environment())
            self.assertEqual(again.returncode, 0, again.stderr)

    def test_signal_saves_a_checkpoint_first_if_requested(self):
        """Sent to the whole job at once, as by Slurm and timeout: the launcher receives it twice.
        The run ends between two steps, and a resumed run ends with the bytes of the run that was
        not stopped."""
        background = ("--checkpoint-async", "on", "--checkpoint-every", 1, "--checkpoint-keep", 1)
        for k, (arguments, ask) in enumerate(((("-n", 2), 1), (("-n", 1), 1), (("-n", 2, *background), 1),
                                              (("-n", 2, "--method", "local-sgd(period=3)", "--report-every", 4), 4),
                                              (("-n", 2, "--transport", "tcp", "--accumulate", 2), 1))):
            whole = self.train("whole%d" % k, *COMMON, "--data", self.data, *arguments, "--steps", 60,
                               "--final-eval", "off", "--quiet")
            run, out = self.running("a%d" % k, *arguments, "--steps", 60, "--slow", "*:40",
                                    "--checkpoint-on-signal", lines=2, start_new_session=True)
            os.killpg(run.pid, signal.SIGTERM)
            err = run.communicate(timeout=100)[1]
            self.assertEqual(run.returncode, 143, err)
            saved = os.listdir(os.path.join(out, "checkpoints"))
            self.assertEqual(len(saved), 1, saved)
            self.assertTrue(2 <= int(saved[0][5:]) < 60 and int(saved[0][5:]) % ask == 0, saved)
            self.assertEqual(err, "tutti: stopped by signal 15 (SIGTERM)\ntutti: the newest checkpoint is "
                             "%s/checkpoints/%s; to continue from there: tutti train --resume %s\n"
                             % (out, saved[0], out))
            again = tutti("train", "--resume", out, "--slow", "")
            self.assertEqual(again.returncode, 0, again.stderr)
            self.assertEqual(self.model(out), self.model(whole), arguments)

    # Not with SimGrid's actors as OS threads, which the address sanitizer needs: there this many
    # interrupts end in SimGrid's own locks (all actors in begin_.acquire(), maestro in
    # end_.acquire()).
    @unittest.skipUnless(SIMULATOR, "the simulator is not built")
    def test_handlers_of_signals_leave_the_computation_alone(self):
        """The alarm of --checkpoint-on-signal only notes the time: as often as can be, in the
        middle of everything, it changes no bit."""
        common = ("--model", "mlp(hidden=128)", "--data", self.data, "-n", 2, "--transport", "sim", "--batch", 20,
                  "--epochs", 6, "--final-eval", "off", "--quiet", "--checkpoint-on-signal")
        whole = self.train("whole", *common)
        out, rung = self.out("rung"), 0
        run = subprocess.Popen([TUTTI, "train", *map(str, common), "--out", out], stderr=subprocess.PIPE, text=True,
                               env=clean_environment())
        until = time.monotonic() + 100
        while run.poll() is None:
            self.assertLess(time.monotonic(), until, "%d signals" % rung)
            if lines_told(out) > 0: # from then on the signal is handled
                run.send_signal(signal.SIGALRM)
                rung += 1
        self.assertEqual((run.returncode, run.communicate()[1]), (0, ""))
        self.assertGreater(rung, 100)
        self.assertEqual(self.model(out), self.model(whole))

    def test_signal_to_one_worker_saves_but_fails_the_run(self):
        """The run is saved as well, but it was not stopped by the user: the exit code does
        not mean that it is done."""
        run, out = self.running("a", "-n", 2, "--steps", 1000000, "--checkpoint-on-signal", lines=5)
        os.kill(children_of(run.pid)[1], signal.SIGTERM)
        err = run.communicate(timeout=100)[1]
        self.assertEqual((run.returncode, len(os.listdir(os.path.join(out, "checkpoints")))), (1, 1), err)
        self.assertRegex(err, r"^tutti: worker 1: process \d+ exited with code 143 after it had left the run.*\ntutti: "
                         r"the newest checkpoint is ")

    def test_asynchronous_and_simulated_runs_save_on_signal(self):
        cases = [("--method", "asgd"), ("--method", "d-psgd"), ("--method", "asgd", "--servers", 1)] + (
            [("--transport", "sim"), ("--transport", "sim", "--method", "ad-psgd")] if SIMULATOR else [])
        for k, case in enumerate(cases):
            run, out = self.running("a%d" % k, "-n", 3, "--steps", 1000000, "--optimizer", "sgd(lr=0.001)",
                                    "--checkpoint-on-signal", *case, lines=5)
            run.send_signal(signal.SIGINT)
            err = run.communicate(timeout=100)[1]
            self.assertEqual(run.returncode, 130, err)
            saved = os.listdir(os.path.join(out, "checkpoints"))
            self.assertEqual(len(saved), 1, (case, saved))
            again = tutti("train", "--resume", out, "--steps", int(saved[0][5:]) + 4)
            self.assertEqual(again.returncode, 0, again.stderr)
            self.assertEqual(summary(out)["resumed_at_step"], int(saved[0][5:]))

    def test_a_second_signal_ends_it_at_once(self):
        """In the middle of a step that takes minutes."""
        run, out = self.running("a", "-n", 2, "--steps", 10, "--slow", "*:200000", "--checkpoint-on-signal", lines=0)
        until = time.monotonic() + 60
        while not os.path.exists(os.path.join(out, "metrics.jsonl")):
            self.assertLess(time.monotonic(), until)
            time.sleep(0.01)
        workers = children_of(run.pid)
        run.terminate()
        time.sleep(1.2)  # longer than a launcher waits for workers that need not save
        self.assertEqual((run.poll(), [alive(pid) for pid in workers]), (None, [True, True]))
        run.terminate()
        self.assertEqual((run.communicate(timeout=60)[1], run.returncode),
                         ("tutti: stopped by signal 15 (SIGTERM)\n", 143))
        self.assertEqual(list_of(os.path.join(out, "checkpoints")), [])

    def test_resume_auto_resumes_if_a_checkpoint_exists(self):
        out, words = self.out("a"), ("train", *COMMON, "--data", self.data, "-n", "2", "--checkpoint-every", "4",
                                     "--resume", "auto")
        for steps, first in ((6, 0), (10, 4), (14, 8)):
            done = tutti(*words, "--steps", steps, "--out", out)
            self.assertEqual(done.returncode, 0, done.stderr)
            self.assertEqual((summary(out)["steps"], summary(out)["resumed_at_step"] or 0), (steps, first))
        with open(self.out("job.yaml"), "w") as f:
            f.write("resume: auto\nout: %s\nsteps: 17\n" % out)
        self.assertEqual(tutti("train", self.out("job.yaml")).returncode, 0)  # the rest is that of the run
        self.assertEqual((summary(out)["steps"], summary(out)["seed"], summary(out)["resumed_at_step"]), (17, 11, 12))
        self.refused("resume is 'auto', which looks for a checkpoint in --out, and there is no --out; give it too",
                     *words)
        self.refused("resume is empty; give a run's --out, one of its checkpoints, or auto, or omit it", "train",
                     "--data", self.data, "--resume", "", "--out", self.out("b"))
        self.refused("resume is empty", "train", "--data", self.data, "--out", self.out("b"), TUTTI_RESUME="")
        for name in os.listdir(os.path.join(out, "checkpoints")):
            os.truncate(os.path.join(out, "checkpoints", name, "manifest.json"), 10)
        self.refused("is whole", *words, "--steps", 20, "--out", out, code=1)  # it does not start again over them


if __name__ == "__main__":
    together(3)
