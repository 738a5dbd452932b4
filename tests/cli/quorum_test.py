"""Too few workers, no majority of them, or a signal to all (train --workers): what is printed, how the run ends, and
that it continues to the model of an undisturbed run."""
import json, os, re, signal, unittest
from elastic_runs import *


class Quorum(ElasticRuns):

    def test_with_too_few_workers_the_run_waits(self):
        run, out = self.begin("few", 60, "--workers", "2:3", "-n", "2", "--restarts", "0")
        os.kill(children_of(run.pid)[0], signal.SIGTERM)
        self.until(lambda: "fewer than 2: the run waits for others to join" in self.said("few"), "few")
        for of in out, run.pid: # it has no world, and no rank in one
            found = tutti("why", of, "--json")
            self.assertEqual(found.returncode, 0, found.stderr)
            found = json.loads(found.stdout)
            self.assertEqual([(r["rank"], r["in"]) for r in found["ranks"]], [(None, "wait for more workers")], found)
            self.assertRegex(found["diagnosis"], r"\A1 process is between two epochs of the members; %d is in wait for "
                             r"more workers, for \d+\.\d s\.\Z" % found["ranks"][0]["process"])
        self.assertRegex(tutti("why", out).stdout, r"\n-  +\d+ +\d+ +\d+\.\d s wait for more workers\n")
        joined = self.start("more", "join", out)
        self.ends(0, run, "few", "more")
        self.ends(0, joined, "few", "more")
        self.same_as_undisturbed(60, out)

    def lose_two_of_three(self, name, *arguments, slow=60):
        """A run that waits without a majority; gives its process and its folder."""
        run, out = self.begin(name, 60, "--workers", "1:6", "-n", "3", "--restarts", "0", *arguments,
                              slow=slow)
        for worker in children_of(run.pid)[:2]:
            os.kill(worker, signal.SIGKILL)
        alone = re.compile("1 of [23] workers answers, which is no majority: no step is made, since the others may go "
                           "on elsewhere; the run waits for them for ") # of 2: the first was missed in between
        self.until(lambda: alone.search(self.said(name)), name)
        return run, out

    def test_without_a_majority_the_run_says_so_and_ends_with_its_last_step(self):
        run, out = self.lose_two_of_three("alone", "--checkpoint-every", "1000", "--workers-timeout", "0.5")
        self.ends(3, run, "alone")
        ended = re.search(r"worker 2: 1 of [23] workers answered for \d\.\d s, which is no majority, so the run ends; "
                          r"the last agreed step is (\d+), and this worker has the state of step (\d+); continue "
                          r"by tutti train --resume (\S+) --workers 1:6, or with -n N\n", self.said("alone"))
        self.assertTrue(ended, self.said("alone"))
        self.assertLessEqual(int(ended.group(2)) - int(ended.group(1)), 1)
        self.assertEqual(ended.group(3), out + "/checkpoints/step-%08d" % int(ended.group(2)))
        self.resume(ended.group(3), 2)
        self.same_as_undisturbed(60, out)

    def test_a_long_path_is_not_cut_in_the_command_that_continues(self):
        name = "long" * 40
        run, out = self.lose_two_of_three(name, "--checkpoint-every", "1000", "--workers-timeout", "0.5")
        self.ends(3, run, name)
        for said in r"If they are lost, end it, and it saves its last step", r"the state of step \d+":
            self.assertRegex(self.said(name), said + r"[:;] continue by tutti train --resume PATH --workers 1:6, or "
                             r"with -n N, where PATH is the run's folder \(--out\)\n")
        self.resume(out, 2)

    def test_a_run_without_a_majority_that_is_stopped_keeps_its_last_step(self):
        state = ["--model", "resnet(depth=8)", "--threads", "1"] # its batch norms have state of each worker
        run, out = self.lose_two_of_three("ended", "--checkpoint-every", "1000", *state, slow=3)
        run.terminate()
        self.ends(143, run, "ended")
        self.assertRegex(self.said("ended"), r"the newest checkpoint is \S+/step-\d+; to continue from there: ")
        self.resume(out, 1)
        self.same_as_undisturbed(60, out, *state)

    def test_without_checkpoints_there_is_nothing_to_continue_from(self):
        run, out = self.lose_two_of_three("none", "--workers-timeout", "0.5")
        self.ends(3, run, "none")
        self.assertIn("there is no checkpoint, since checkpoint-every is 0, so begin again", self.said("none"))
        self.assertFalse(os.path.exists(os.path.join(out, "checkpoints")))

    def test_too_few_workers_for_too_long_end_the_run(self):
        run, out = self.begin("lack", 60, "--workers", "2:3", "-n", "2", "--restarts", "0", "--workers-timeout", "0.5",
                              "--checkpoint-every", "1000")
        os.kill(children_of(run.pid)[1], signal.SIGKILL)
        self.ends(3, run, "lack")
        self.assertRegex(self.said("lack"), r"the run had 1 worker for \d\.\d s, and is to have 2 at least; nobody "
                         r"else has come; the last agreed step is (\d+), and this worker has the state of step \1; "
                         r"continue by tutti train --resume \S+/step-0*\1 --workers 2:3, or with -n N")
        self.resume(out, 3)
        self.same_as_undisturbed(60, out)

    def test_a_run_that_is_stopped_while_it_waits_for_others_keeps_its_last_step(self):
        run, out = self.begin("waits", 60, "--workers", "2:3", "-n", "2", "--restarts", "0",
                              "--checkpoint-every", "1000")
        os.kill(children_of(run.pid)[1], signal.SIGKILL)
        self.until(lambda: "fewer than 2: the run waits for others to join" in self.said("waits"), "waits")
        run.terminate()
        self.ends(143, run, "waits")
        self.resume(out, 2)
        self.same_as_undisturbed(60, out)

    def test_a_run_that_is_stopped_ends(self):
        run, out = self.begin("stopped", 100000, "--workers", "1:3", "-n", "3")
        workers = children_of(run.pid)
        run.send_signal(signal.SIGINT)
        self.ends(130, run, "stopped")
        self.assertIn("stopped by signal 2 (SIGINT)", self.said("stopped"))
        self.assertFalse(any(map(alive, workers)))
        self.assertFalse(os.path.exists(os.path.join(out, "join")))

    def test_a_run_that_is_stopped_saves_where_it_is_asked_to(self):
        run, out = self.begin("kept", 240, "--workers", "1:6", "-n", "3", "--checkpoint-on-signal", "--restarts", "0")
        joined = self.start("kept-too", "join", out)
        self.workers_become(4, "kept", "kept-too")
        joined.send_signal(signal.SIGINT)
        self.workers_become(3, "kept", "kept-too")
        self.ends(0, joined, "kept", "kept-too")
        self.assertFalse(os.path.exists(os.path.join(out, "checkpoints")), "one alone leaves")
        workers = children_of(run.pid)
        run.terminate()
        self.ends(143, run, "kept")
        self.assertFalse(any(map(alive, workers)))
        newest = max(os.listdir(os.path.join(out, "checkpoints"))) # the last to leave may be a step ahead
        self.assertIn("the newest checkpoint is %s/checkpoints/%s; to continue from there: tutti train --resume %s "
                      "--workers 1:6\n" % (out, newest, out), self.said("kept"))
        self.resume(out, 2)
        self.same_as_undisturbed(240, out)


if __name__ == "__main__":
    unittest.main(verbosity=2)
