"""Workers come, leave and are lost (train --workers, tutti join): real processes, and the model, byte for byte, of a
run that nothing disturbs. The protocol is in explore/, what a process does in train/nodes."""
import glob, json, os, random, re, signal, socket, sys, time, unittest
from elastic_runs import *


class Join(ElasticRuns):

    def test_one_joins_one_is_killed_and_one_leaves(self):
        run, out = self.begin("cut", 160, "--workers", "1:6", "-n", "3", "--restarts", "0")
        self.assertEqual(os.stat(os.path.join(out, "join")).st_mode & 0o777, 0o600)
        joined = self.start("joined", "join", out)
        self.workers_become(4, "cut", "joined")
        workers = children_of(run.pid)
        key = re.search(r"key (\w+)", read(os.path.join(out, "join")).decode()).group(1)
        for pid in (run.pid, joined.pid, *workers):
            self.assertNotIn(key.encode(), read("/proc/%d/cmdline" % pid))
        os.kill(workers[0], signal.SIGKILL)
        self.workers_become(3, "cut", "joined")
        os.kill(workers[2], signal.SIGTERM)
        self.workers_become(2, "cut", "joined")
        self.ends(0, run, "cut", "joined")
        self.ends(0, joined, "cut", "joined")
        self.assertIn("worker 0 was lost: process %d was killed by signal 9 (SIGKILL); the run goes on without it"
                      % workers[0], self.said("cut"))
        self.assertIn("worker 2 has left the run", self.said("cut"))
        self.same_as_undisturbed(160, out)
        epochs = [e for e in summary(out)["events"] if e["kind"] == "epoch"]
        self.assertEqual([e["workers"] for e in epochs], [3, 4, 3, 2])
        self.assertNotIn("seconds", epochs[0])
        for epoch in epochs[1:]:
            self.assertEqual(sorted(epoch["seconds"]), ["agree", "close", "meet", "open"])
            self.assertGreaterEqual(min(epoch["seconds"].values()), 0)
        self.assertFalse(os.path.exists(os.path.join(out, "join")), "the run has ended")

    def test_a_round_of_local_steps_is_made_as_a_whole(self):
        local = ["--method", "local-sgd(period=3,outer=sgd(lr=0.7,momentum=0.9,nesterov=true))", "--optimizer",
                 "adamw(lr=0.01)", "--clip-norm", "0.5", "--eval-every", "20", "--checkpoint-every", "25"]
        run, out = self.begin("cut", 60, "--workers", "1:6", "-n", "3", "--restarts", "0", *local)
        joined = self.start("joined", "join", out)
        self.workers_become(4, "cut", "joined")
        workers = children_of(run.pid)
        os.kill(workers[0], signal.SIGKILL)
        self.workers_become(3, "cut", "joined")
        os.kill(workers[2], signal.SIGTERM)
        self.workers_become(2, "cut", "joined")
        self.ends(0, run, "cut", "joined")
        self.ends(0, joined, "cut", "joined")
        self.same_as_undisturbed(60, out, *local)
        self.assertEqual(summary(out)["samples"], 60 // 9 * 600 + 6 * 72)
        self.assertEqual([e["workers"] for e in summary(out)["events"] if e["kind"] == "epoch"], [3, 4, 3, 2])

    def test_residuals_of_powersgd_go_with_the_shares(self):
        """One joins, one leaves and one joins: 3, 4, 3, then 4 workers, and as many whole states."""
        power = ["--method", "powersgd(rank=2)", "--optimizer", "sgd(lr=0.02,momentum=0.9)", "--eval-every", "20",
                 "--checkpoint-every", "25"]
        run, out = self.begin("power", 160, "--workers", "1:6", "-n", "3", "--restarts", "0", *power)
        joined = self.start("power-1", "join", out)
        self.workers_become(4, "power", "power-1")
        os.kill(children_of(run.pid)[0], signal.SIGTERM)
        self.workers_become(3, "power", "power-1")
        again = self.start("power-2", "join", out)
        self.workers_become(4, "power", "power-1", "power-2")
        for one in (run, joined, again):
            self.ends(0, one, "power", "power-1", "power-2")
        self.same_as_undisturbed(160, out, *power)
        self.assertEqual([e["workers"] for e in summary(out)["events"] if e["kind"] == "epoch"], [3, 4, 3, 4])

    def test_residuals_of_a_killed_worker_are_on_another_one(self):
        """4 -> 3 -> 4 -> 3 -> 2 by kills and joins at drawn moments, some before the first copies."""
        power = ["--method", "powersgd(rank=2)", "--optimizer", "sgd(lr=0.02,momentum=0.9)", "--eval-every", "20",
                 "--checkpoint-every", "25"]
        for seed in range(3):
            draw = random.Random(seed)
            name = "killed-%d" % seed
            names = [name]
            run, out = self.begin(name, 160, "--workers", "1:6", "-n", "4", "--restarts", "0", "--copy-every",
                                  draw.choice((5, 8, 16)), *power, slow=120)
            time.sleep(draw.uniform(0, 1))
            os.kill(draw.choice(children_of(run.pid)), signal.SIGKILL)
            self.workers_become(3, *names)
            names.append(name + "-1")
            joined = self.start(names[-1], "join", out)
            self.workers_become(4, *names)
            for n in (3, 2):
                time.sleep(draw.uniform(0, 1))
                os.kill(draw.choice(children_of(run.pid)), signal.SIGKILL)
                self.workers_become(n, *names)
            self.ends(0, run, *names)
            self.ends(0, joined, *names)
            self.processes.clear()
            self.assertNotIn("a part of the state was on workers", self.said(*names))
            self.same_as_undisturbed(160, out, *power)
            self.assertEqual([e["workers"] for e in summary(out)["events"] if e["kind"] == "epoch"], [4, 3, 4, 3, 2])
            rows = [(r["step"], "test_loss" in r) for r in map(json.loads, read(os.path.join(out, "metrics.jsonl")).
                                                               decode().splitlines())]
            self.assertEqual(len(rows), len(set(rows)), "a report or an evaluation is there twice")

    def test_residuals_of_a_codec_of_ddp_are_on_another_worker_too(self):
        for name, codec in (("random", "ef(randomk(ratio=0.2),momentum=0.5)"), ("rank", "large(ef(powersgd),min=50)"),
                            ("nothing-kept", "randomk(ratio=0.3)")):
            coded = ["--codec", codec, "--optimizer", "sgd(lr=0.02,momentum=0.9)"]
            run, out = self.begin(name, 120, "--workers", "1:6", "-n", "3", "--restarts", "0", "--copy-every", "8",
                                  *coded, slow=120)
            os.kill(children_of(run.pid)[0], signal.SIGKILL)
            self.workers_become(2, name)
            joined = self.start(name + "-1", "join", out)
            self.workers_become(3, name, name + "-1")
            os.kill(children_of(run.pid)[1], signal.SIGKILL)
            self.ends(0, run, name, name + "-1")
            self.ends(0, joined, name, name + "-1")
            self.processes.clear()
            self.assertEqual([e["workers"] for e in summary(out)["events"] if e["kind"] == "epoch"], [3, 2, 3, 2])
            self.same_as_undisturbed(120, out, *coded)

    def test_a_kill_costs_at_most_as_many_steps_as_it_leaves(self):
        """Copies are made after 1, 2, 4, 8 ... steps, so the interval may be longer than the run."""
        power = ["--method", "powersgd", "--optimizer", "sgd(lr=0.02,momentum=0.9)"]
        run, out = self.begin("early", 60, "--workers", "1:6", "-n", "3", "--restarts", "0", "--copy-every", "1000",
                              *power)
        os.kill(children_of(run.pid)[0], signal.SIGKILL)
        self.ends(0, run, "early")
        begins = re.search(r"epoch 2 of the members: 2 workers, from step (\d+)\n", self.said("early"))
        self.assertIn(int(begins[1]), (0, 1, 2, 4, 8, 16, 32))
        self.same_as_undisturbed(60, out, *power)

    def test_residuals_that_are_lost_with_their_copies_end_the_run_which_is_resumed(self):
        power = ["--method", "powersgd", "--optimizer", "sgd(lr=0.02,momentum=0.9)", "--checkpoint-every", "10"]
        run, out = self.begin("lost", 200, "--workers", "1:6", "-n", "5", "--restarts", "0", "--workers-timeout", "2",
                              "--copy-every", "4", *power)
        self.until(lambda: glob.glob(os.path.join(out, "checkpoints", "step-*[0-9]", "manifest.json")), "lost")
        for worker in children_of(run.pid)[1:3]:
            os.kill(worker, signal.SIGKILL)
        self.ends(3, run, "lost")
        self.assertRegex(self.said("lost"), r"a part of the state was on workers that are lost \(state of step \d+"
                         r": .*; what rank \d of 5 had is nowhere\)")
        self.assertRegex(self.said("lost"), r"continue by tutti train --resume \S+/checkpoints/step-\d+ --workers 1:6")
        done = tutti("train", "--resume", out, "--workers", "1:6", "-n", "2", "--slow", "*:1")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.same_as_undisturbed(200, out, *power)

    def test_a_resumed_run_has_copies_from_its_first_step_on(self):
        power = ["--method", "powersgd", "--optimizer", "sgd(lr=0.02,momentum=0.9)", "--checkpoint-every", "7"]
        first, out = self.begin("resumed", 100, "--workers", "1:6", "-n", "3", "--restarts", "0", *power)
        self.until(lambda: glob.glob(os.path.join(out, "checkpoints", "step-*[0-9]", "manifest.json")), "resumed")
        for process in (*children_of(first.pid), first.pid): # the kernel kills those that the launcher leaves
            os.kill(process, signal.SIGKILL)
        first.wait()
        self.processes.remove(first)
        run = self.start("again", "train", "--resume", out, "--workers", "1:6", "-n", "4", "--restarts", "0",
                         "--copy-every", "30")
        self.until(lambda: "from step" in self.said("again") or " steps" in self.said("again"), "again")
        time.sleep(0.3)
        os.kill(children_of(run.pid)[2], signal.SIGKILL)
        self.workers_become(3, "again")
        self.ends(0, run, "again")
        self.same_as_undisturbed(100, out, *power)

    def test_shares_are_dealt_by_speed(self):
        more = ["--elastic-shares", "12"]
        run, out = self.begin("speeds", 120, "--workers", "1:6", "-n", "2", "--restarts", "0", "--batch-share", "auto",
                              *more)
        joined = self.start("slow", "join", out, "--slow", "*:300")
        self.ends(0, run, "speeds", "slow")
        self.ends(0, joined, "speeds", "slow")
        self.same_as_undisturbed(120, out, *more)
        epochs = [e["shares"] for e in summary(out)["events"] if e["kind"] == "epoch"]
        self.assertEqual({sum(shares) for shares in epochs}, {12})
        self.assertEqual([len(shares) for shares in epochs], [2] + [3] * (len(epochs) - 1))
        self.assertIn(epochs[1][2], (3, 4), "a newcomer's speed is not known")
        self.assertLess(2 * epochs[-1][2], min(epochs[-1][:2]))
        self.assertGreaterEqual(epochs[-1][2], 1)
        self.assertRegex(self.said("speeds", "slow"),
                         r"(?m)^epoch 3 of the members: 3 workers, from step \d+; shares \[")

    def test_options_that_have_state_or_files_of_their_own(self):
        more = ["--precision", "fp16", "--loss-scale", "dynamic(init=64,interval=5)", "--nonfinite", "skip",
                "--optimizer", "adamw(lr=0.01)", "--lr-schedule", "cosine(warmup=9)", "--clip-norm", "0.5",
                "--accumulate", "2", "--collective", "tree", "--validation", "50", "--final-eval", "all",
                "--eval-every", "20"]
        run, out = self.begin("more", 120, "--workers", "1:6", "-n", "3", "--restarts", "0", "--log-to",
                              "csv,prometheus,tensorboard", "--lane", "on", *more)
        os.kill(children_of(run.pid)[0], signal.SIGKILL)
        self.workers_become(2, "more")
        self.ends(0, run, "more")
        self.same_as_undisturbed(120, out, *more)
        rows = read(os.path.join(out, "metrics.csv")).decode().splitlines()
        self.assertEqual(len(rows) - 1, lines_told(out))
        self.assertRegex(read(os.path.join(out, "metrics.prom")).decode(), r'(?m)^tutti_step\{run="\S+"\} 120$')

    def told_by_commands(self, name, *lines, code):
        """A run of two commands, the first of which tells the launcher these lines, and fails if there are any."""
        told = "".join(line + "\n" for line in lines)
        of = ("import os, sys; os.environ['TUTTI_RANK'] == '0' or sys.exit(); "
              "os.write(int(os.environ['TUTTI_TELL']), %r); sys.exit(%d)") % (
                  told.encode(), 2 if "refused" in told else 5 if told else 0)
        run = self.start(name, "run", "--workers", "1:2", "-n", "2", "--restarts", "0", "--pass",
                         os.path.join(self.folder, name + ".join"), "--", sys.executable, "-c", of)
        self.ends(code, run, name)
        return self.said(name)

    def test_a_pass_is_of_one_run_at_a_time(self):
        kept, begun = os.path.join(self.folder, "kept.join"), os.path.join(self.folder, "begun")
        line = ["run", "--workers", "1:1", "--restarts", "0", "--pass", kept, "--", sys.executable, "-c"]
        run = self.start("one", *line, f"import time; open({begun!r}, 'w').close(); time.sleep(60)")
        self.until(lambda: os.path.exists(begun), "one")
        other = self.start("other", *line, "pass")
        self.ends(2, other, "other")
        self.assertIn(f"{kept} is written by a run that is under way (process ", self.said("other"))
        self.assertIn("another --pass", self.said("other"))
        run.terminate()
        self.ends(143, run, "one")
        self.assertFalse(os.path.exists(kept + ".lock"))

    def test_the_pass_of_another_run_is_left_as_it_is(self):
        """As where the folder is another run's by the time that a frozen one goes on."""
        run, out = self.begin("mine", 100, "--workers", "1:3", "-n", "3", "--restarts", "0")
        path = os.path.join(out, "join")
        theirs = re.sub(rb"run \w+", b"run " + b"5b" * 16, read(path))
        self.assertNotEqual(theirs, read(path))
        with open(path, "wb") as f:
            f.write(theirs)
        os.kill(children_of(run.pid)[2], signal.SIGKILL)
        self.workers_become(2, "mine")
        self.ends(0, run, "mine")
        self.assertEqual(read(path), theirs)

    def test_a_command_that_takes_no_part_is_no_success(self):
        said = self.told_by_commands("plain", code=1)
        self.assertIn("the command has ended without having taken part in the run", said)

    def test_a_command_that_ends_with_2_by_itself_is_told(self):
        """Exit code 2 is that of a worker that Tutti has refused in a sentence. Any program may have it."""
        kept = os.path.join(self.folder, "two.join")
        line = ["--", sys.executable, "-c", "import sys; sys.exit(2)"]
        run = self.start("two", "run", "--workers", "1:2", "-n", "1", "--pass", kept, *line)
        self.ends(2, run, "two")
        self.assertRegex(self.said("two"), r"^tutti: worker 0 was lost: process \d+ exited with code 2, before all "
                                           r"workers had met\n$")
        self.assertEqual(self.told_by_commands("refused", "0 refused", code=2), "")

    def test_one_that_tells_its_epoch_late_hides_no_lost_results(self):
        """Worker 0 is rank 0 of epoch 8, and is lost; worker 1 was stopped as it was to say that it is in epoch 7."""
        at = "0 at 127.0.0.1:1", "1 at 127.0.0.1:2"
        self.assertIn("the first worker was lost as the run ended",
                      self.told_by_commands("late", *at, "0 in 0 8", "1 in 1 7", "1 ended", code=3))
        self.assertIn("rank 0 at the end was a worker that has joined",
                      self.told_by_commands("elsewhere", *at, "0 in 0 8", "1 in 1 9", "1 ended", code=0))

    def test_results_of_an_older_epoch_hide_no_loss_in_the_newest(self):
        """Worker 1, rank 0 of epoch 7, has written the results. Worker 0 makes the end again as rank 0 of epoch 8, and
        is lost as it writes them once more."""
        at = "0 at 127.0.0.1:1", "1 at 127.0.0.1:2"
        lost = "the first worker was lost as the run ended"
        self.assertIn(lost, self.told_by_commands("again", *at, "0 in 1 7", "1 in 0 7", "1 ended", "0 in 0 8", code=3))
        self.assertIn(lost, self.told_by_commands("before", *at, "0 in 1 7", "1 in 0 7", "0 in 0 8", "1 ended", code=3))
        self.assertIn("worker 0 failed after the end of the run",
                      self.told_by_commands("both", *at, "0 in 1 7", "1 in 0 7", "1 ended", "0 in 0 8", "0 ended",
                                            code=5))

    def test_what_one_worker_refuses_ends_the_run(self):
        other = self.train("other", "--model", "mlp(hidden=8)", "--data", self.data, "--steps", "1", "-n", "1")
        out = self.out("refused")
        run = self.start("refused", "train", *COMMON, "--data", self.data, "--steps", "5", "--workers", "1:6",
                         "-n", "3", "--out", out, "--init", os.path.join(other, "model.safetensors"))
        self.ends(2, run, "refused")
        self.assertIn("does not fit model 'mlp(hidden=24)'", self.said("refused"))
        self.assertNotIn("was lost", self.said("refused"))

    def test_one_of_four_is_asked_to_leave(self):
        run, out = self.begin("leave", 160, "--workers", "2:6", "-n", "4", "--restarts", "0")
        listed = tutti("leave", out)
        self.assertEqual(listed.returncode, 0, listed.stderr)
        self.assertRegex(listed.stdout, r"\Aepoch 1: 4 workers from step 0\nworker 0 at 127\.0\.0\.1:\d+\nworker 1 at ")
        self.refused("there is no worker 9 among the 4 of epoch 1", "leave", out, "9")
        self.assertRegex(tutti("why", out).stdout, r"(?s)\Arank .*\n0 .*\n1 .*\n2 .*\n3 .*")
        worker = children_of(run.pid)[1]
        left = tutti("leave", out, "1", "--json")
        self.assertEqual(left.returncode, 0, left.stderr)
        after = json.loads(left.stdout)
        self.assertEqual([w["rank"] for w in after["workers"]], [0, 2, 3])
        self.workers_become(3, "leave")
        self.until(lambda: not alive(worker), "leave")
        self.ends(0, run, "leave")
        self.assertIn("worker 1 has left the run", self.said("leave"))
        self.assertNotIn("lost", self.said("leave"))
        self.same_as_undisturbed(160, out)
        epochs = [(e["workers"], e["step"]) for e in summary(out)["events"] if e["kind"] == "epoch"]
        self.assertEqual(epochs, [(4, 0), (3, after["step"])])

    def test_who_cannot_leave_is_told_why(self):
        self.refused("it takes the directory or the pass of a run, or HOST:PORT of a member, and the number of a "
                     "worker", "leave")
        self.refused("'two' is no number of a worker", "leave", "127.0.0.1:1", "two")
        run, out = self.begin("only", 100000, "--workers", "1:3", "-n", "1", "--meet", "127.0.0.1")
        self.refused("worker 0 is the only one, and the run would end without its results", "leave", out, "0")
        address = re.search(r"tutti join (\S+) --key", self.said("only")).group(1)
        listed = tutti("leave", address, "--key", os.path.join(out, "join"))
        self.assertIn("worker 0 at %s\n" % address, listed.stdout)
        run.terminate()
        self.ends(143, run, "only")

    def test_the_wait_before_a_restart_grows_with_losses_in_a_row_only(self):
        run, _ = self.begin("waits", 100000, "--workers", "1:2", "-n", "2", "--restarts", "9")
        first = children_of(run.pid)[0]
        for lasts, wait in ((0, 1), (0, 2), (11, 1), (0, 2)):
            time.sleep(lasts)
            os.kill(next(child for child in children_of(run.pid) if child != first), signal.SIGKILL)
            self.workers_become(1, "waits")
            self.assertEqual(re.findall(r"it is started again in (\d+) s", self.said("waits"))[-1], str(wait))
            self.workers_become(2, "waits")
        run.terminate()
        self.ends(143, run, "waits")

    def test_a_lost_worker_is_started_again_and_one_joins_by_address(self):
        run, out = self.begin("again", 300, "--workers", "1:6", "-n", "2", "--meet", "127.0.0.1", "--restarts", "1")
        os.kill(children_of(run.pid)[1], signal.SIGKILL)
        self.workers_become(1, "again")
        self.workers_become(2, "again")
        self.assertIn("; the run goes on, and it is started again in 1 s", self.said("again"))
        copy = os.path.join(self.folder, "copy")
        shutil.copy(os.path.join(out, "join"), copy)
        address = re.search(r"tutti join (\S+) --key", self.said("again")).group(1)
        elsewhere = os.path.join(self.folder, "not", "here") # a machine without the run's folder keeps no pass
        joined = self.start("other", "join", address, "--key", copy, "--out", elsewhere)
        self.workers_become(3, "again", "other")
        joined.terminate()
        self.ends(0, joined, "again", "other")
        self.assertIn("this worker has left the run", self.said("other"))
        self.assertNotIn("cannot write", self.said("other"))
        self.assertFalse(os.path.exists(elsewhere))
        self.ends(0, run, "again", "other")
        self.same_as_undisturbed(300, out)

    def test_a_newcomer_with_another_number_of_threads_is_refused_and_the_run_goes_on(self):
        run, out = self.begin("one", 60, "--workers", "1:6", "-n", "1", "--restarts", "0")
        other = self.start("other", "join", out, "--threads", 77)
        self.ends(2, other, "one", "other")
        self.assertRegex(self.said("other"), r"tutti: the workers of the run have \d+ threads each, so --threads "
                         r"77 is not possible; leave it out\n")
        self.ends(0, run, "one", "other")
        self.assertEqual([e["workers"] for e in summary(out)["events"] if e["kind"] == "epoch"], [1])
        self.same_as_undisturbed(60, out)

    def test_a_newcomer_with_other_data_is_refused_and_the_run_goes_on(self):
        run, out = self.begin("one", 60, "--workers", "1:6", "-n", "1", "--restarts", "0")
        data = self.out("data")
        shutil.copytree(self.data, data)
        (labels,) = glob.glob(os.path.join(data, "train-labels*"))
        changed = bytearray(read(labels))
        changed[-1] = (changed[-1] + 1) % 10
        with open(labels, "wb") as f:
            f.write(changed)
        other = self.start("other", "join", out, "--data", data)
        self.ends(2, other, "one", "other")
        self.assertRegex(self.said("other"), r"tutti: the data of this worker, \S+, have the hash \w{16}, and those of "
                         r"the run \w{16}; --data says where the same are\n")
        self.ends(0, run, "one", "other")
        self.assertEqual([e["workers"] for e in summary(out)["events"] if e["kind"] == "epoch"], [1])
        self.same_as_undisturbed(60, out)

    def test_newcomers_with_data_elsewhere_or_another_speed_have_the_state_for_the_next(self):
        """What a newcomer has of its own is no difference of the states that the next one takes from several."""
        elsewhere = os.path.join(self.folder, "elsewhere")
        shutil.copytree(self.data, elsewhere)
        run, out = self.begin("own", 160, "--workers", "2:5", "-n", "2", "--restarts", "0")
        names, joined = ["own"], []
        for k, words in enumerate((["--slow", "*:2"], ["--data", elsewhere], [])):
            joined.append(self.start("own-%d" % k, "join", out, *words))
            names.append("own-%d" % k)
            self.workers_become(3 + k, *names)
        self.ends(0, run, *names)
        for one in joined:
            self.ends(0, one, *names)
        self.same_as_undisturbed(160, out)

    def test_a_newcomer_for_which_there_is_no_place_ends_with_the_run(self):
        run, out = self.begin("full", 300, "--workers", "1:3", "-n", "3", "--restarts", "1")
        joined = self.start("fourth", "join", out) # before the lost one is started again, after 1 s
        os.kill(children_of(run.pid)[0], signal.SIGKILL)
        self.workers_become(3, "full", "fourth")
        self.ends(0, joined, "full", "fourth")
        self.ends(0, run, "full", "fourth")
        self.same_as_undisturbed(300, out)

    def test_a_newcomer_that_waits_for_a_place_is_told_of_the_end(self):
        run, out = self.begin("took", 100, "--workers", "1:3", "-n", "3", "--restarts", "0")
        waits = self.start("waits", "join", out)
        self.ends(0, run, "took", "waits")
        self.ends(0, waits, "took", "waits")
        self.assertIn("this worker has left the run", self.said("waits"))
        self.same_as_undisturbed(100, out)

    def test_who_cannot_join_is_told_why(self):
        out = self.out("nothing")
        self.refused("by which a run is joined; if it is not there, no run whose workers may come and go (--workers) "
                     "is under way, or it has ended", "join", out + "/")
        self.refused("it takes the directory or the pass of a run, or HOST:PORT of a member", "join")
        self.refused("needs TUTTI_RUN_ID, which all members share", "join", "127.0.0.1:1")
        readable = os.path.join(self.folder, "readable")
        with open(readable, "w") as f:
            f.write("run %s\nkey %s\n" % ("1" * 32, "2" * 64))
        os.chmod(readable, 0o644)
        self.refused("others can read or change it", "join", "127.0.0.1:1", "--key", readable)
        os.chmod(readable, 0o600)
        run, out = self.begin("other", 100000, "--workers", "1:3", "-n", "1", "--meet", "127.0.0.1")
        address = re.search(r"tutti join (\S+) --key", self.said("other")).group(1)
        nobody = self.start("nobody", "join", "127.0.0.1:1", "--key", readable)
        stranger = self.start("stranger", "join", address, "--key", readable)
        for name, process in ("nobody", nobody), ("stranger", stranger):
            self.ends(1, process, name)
            self.assertIn("which may have ended, or have another key", self.said(name))
        self.refused("the run at %s is of `tutti train`, whose workers need no command: tutti join %s" % (out, out),
                     "join", out, "--", "true")
        self.refused("there is no command behind --", "join", out, "--")
        version = tutti("--version").stdout.split()[1]
        binary, other = read(TUTTI), os.path.join(self.folder, "other-version")
        with open(other, "wb") as f:
            f.write(binary.replace(b"\0%s\0" % version.encode(), b"\0%s\0" % (b"9" * len(version))))
        os.chmod(other, 0o755)
        done = subprocess.run([other, "join", out], capture_output=True, text=True, env=clean_environment())
        self.assertEqual(done.returncode, 2, done.stderr)
        self.assertIn("have tutti %s, and this one has %s; all have" % (version, "9" * len(version)), done.stderr)
        self.refused("meet is '127.0.0.1:77', but a worker that joins takes a free port", "join", out, "--meet",
                     "127.0.0.1:77")
        run.terminate()
        self.ends(143, run, "other")

    def test_a_name_that_is_a_loopback_address_here_is_no_place_to_meet(self):
        name = socket.gethostname()
        try:
            own = socket.getaddrinfo(name, 9, type=socket.SOCK_STREAM)[0][4][0]
        except OSError:
            self.skipTest("this machine's name has no address")
        if not own.startswith("127."):
            self.skipTest("this machine's name is %s, which others reach" % own)
        sentence = "meet is '%s', which is the loopback address %s on this machine, so no other machine" % (name, own)
        out = os.path.join(self.folder, "own-name")
        self.refused(sentence, "train", "--workers", "1:3", "--meet", name + ":4711", "--out", out)
        self.refused(sentence, "run", "--workers", "1:3", "--meet", name, "--", "true")

    def test_what_cannot_be_is_refused_before_the_run(self):
        for sentence, more in (
                ("write FEWEST:MOST, such as 2:8", ("--workers", "3")),
                ("write FEWEST:MOST, such as 2:8", ("--workers", "3:2")),
                ("n is 4, and workers '1:3' has the run begin with 1 to 3", ("--workers", "1:3", "-n", "4")),
                ("elastic-shares is 6, and workers '1:8' lets 8 take part", ("--workers", "1:8")),
                ("but method 'd-psgd' does more in a step than to add gradients",
                 ("--workers", "1:3", "--method", "d-psgd")),
                ("method 'local-sgd': warmup is 5, but with logical shares (elastic-shares, workers) each step",
                 ("--workers", "1:3", "--method", "local-sgd(warmup=5)")),
                ("codec is 'bf16', and it would encode the gradient of each worker, which depends on their number, but "
                 "method 'local-sgd' adds the gradients of logical shares here (elastic-shares, workers); omit codec, "
                 "or those", ("--workers", "1:3", "--method", "local-sgd", "--codec", "bf16")),
                ("but method 'ddp' has a codec, which keeps a part of the state on each worker, so that none saves",
                 ("--workers", "1:3", "--codec", "ef(randomk)", "--checkpoint-on-signal")),
                ("but method 'zero(group=1)' does more in a step than to add gradients",
                 ("--workers", "1:3", "--method", "zero(group=1)")),
                ("but method 'zero' has a part of the state on each worker, so that none saves all of it as it leaves",
                 ("--workers", "1:3", "--method", "zero", "--checkpoint-on-signal")),
                ("but method 'powersgd' has a part of the state on each worker, so that none saves all of it as it "
                 "leaves", ("--workers", "1:3", "--method", "powersgd", "--checkpoint-on-signal")),
                ("but the transport is another than tcp", ("--workers", "1:3", "--transport", "shm")),
                ("but checkpoint-async is on", ("--workers", "1:3", "--checkpoint-async", "on")),
                ("but on-loss is stop", ("--workers", "1:3", "--on-loss", "stop")),
                ("but on-loss is continue", ("--workers", "1:3", "--on-loss", "continue")),
                ("but min-workers is given", ("--workers", "1:3", "--min-workers", "2", "-n", "2")),
                ("codec is 'ef(topk(ratio=0.1))', and it would encode", ("--workers", "1:3", "--codec",
                                                                         "ef(topk(ratio=0.1))")),
                ("but codec-cost, codec-report, codec-checksum or codec-hierarchy is given",
                 ("--workers", "1:3", "--codec-report", "5")),
                ("but stream is given", ("--workers", "1:3", "--stream", "200")),
                ("but slow names a worker by its rank", ("--workers", "1:3", "--slow", "*:2,0:2")),
                ("but batch-share has weights by rank", ("--workers", "1:3", "-n", "2", "--batch-share", "2:1")),
                ("but collective 'ring(order=any)' adds in an order", ("--workers", "1:3", "--collective",
                                                                       "ring(order=any)")),
                ("but collective 'allgather' is for the messages of codecs", ("--workers", "1:3", "--collective",
                                                                              "allgather")),
                ("so there may be 3: ", ("--workers", "1:3", "-n", "2", "--collective", "halving")),
                ("there is no worker 3", ("--workers", "1:3", "--slow", "3:2")),
                ("use it with --transport sim", ("--workers", "1:3", "--step-time", "0.1"))):
            with self.subTest(more):
                self.refused(sentence, "train", *COMMON, "--data", self.data, "--out", self.out("no"), "--steps", "9",
                             *more)


if __name__ == "__main__":
    unittest.main(verbosity=2)
