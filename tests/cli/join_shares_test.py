"""Workers come, leave and are lost while each has a part of the state (train --workers --method zero): the model, byte
for byte, of a run that nothing disturbs, or a sentence where a part is lost with its copy."""
import os, signal, time, unittest
from elastic_runs import *


class JoinShares(ElasticRuns):

    def a_part_of_the_state(self, stage):
        zero = ["--method", "zero", "--optimizer", "adamw(lr=0.01)", "--clip-norm", "0.5"]
        run, out = self.begin("cut", 160, "--workers", "1:6", "-n", "4", "--restarts", "0", *zero, "--method",
                              "zero(stage=%d,bucket_mb=0.01,first_bucket_mb=0.01)" % stage)
        os.kill(children_of(run.pid)[2], signal.SIGKILL)
        self.workers_become(3, "cut")
        joined = self.start("joined", "join", out)
        self.workers_become(4, "cut", "joined")
        os.kill(children_of(run.pid)[0], signal.SIGKILL)
        self.workers_become(3, "cut", "joined")
        self.ends(0, run, "cut", "joined")
        self.ends(0, joined, "cut", "joined")
        self.same_as_undisturbed(160, out, *zero)

    def test_each_member_of_zero_has_a_part_of_the_state(self):
        self.a_part_of_the_state(1)

    def test_gradients_held_by_piece_have_the_bits_of_stage_1_too(self):
        self.a_part_of_the_state(2)

    def test_values_held_by_unit_have_the_bits_of_stage_1_too(self):
        self.a_part_of_the_state(3)

    def test_a_shard_that_is_lost_with_its_copy_ends_the_run(self):
        zero = ["--method", "zero", "--optimizer", "adamw(lr=0.01)", "--checkpoint-every", "2"]
        run, out = self.begin("lost", 60, "--workers", "1:6", "-n", "5", "--restarts", "0", "--workers-timeout", "4",
                              *zero)
        for worker in children_of(run.pid)[1:3]:
            os.kill(worker, signal.SIGKILL)
        self.ends(3, run, "lost")
        self.assertRegex(self.said("lost"), r"a part of the state was on workers that are lost \(state of step \d+: .*"
                         r"; what rank 2 of 5 had is nowhere\); the run waits for one that may have it for 4 s\. "
                         r"If there is none, end it: continue by tutti train --resume")
        self.assertRegex(self.said("lost"), r"a part of the state was on workers that are lost .*, so the run ends; "
                         r"the last agreed step is \d+, .* continue by tutti train "
                         r"--resume \S+/checkpoints/step-\d+ --workers 1:6, or with -n N\n")
        self.resume(out, 3)
        self.same_as_undisturbed(60, out, *zero)

    def two_neighbours_of_four(self, name, sends, again):
        zero = ["--method", "zero", "--optimizer", "adamw(lr=0.01)"]
        run, out = self.begin(name, 100, "--workers", "1:6", "-n", "4", "--restarts", "0", "--workers-timeout", "9",
                              *zero)
        workers = children_of(run.pid)[1:3]
        for worker in workers:
            os.kill(worker, sends)
        if again is not None:
            time.sleep(2.5)  # the others go on without them, or try to
            for worker in workers:
                os.kill(worker, again)
        self.ends(0, run, name)
        self.same_as_undisturbed(100, out, *zero)
        return [e["workers"] for e in summary(out)["events"] if e["kind"] == "epoch"]

    def test_two_neighbours_with_parts_leave_at_once(self):
        epochs = self.two_neighbours_of_four("leave-two", signal.SIGTERM, None)
        self.assertEqual((epochs[0], epochs[-1]), (4, 2))
        for worker in (1, 2):
            self.assertIn("worker %d has left the run" % worker, self.said("leave-two"))
        self.assertNotIn("lost", self.said("leave-two"))

    def test_two_neighbours_with_parts_come_back(self):
        epochs = self.two_neighbours_of_four("back-two", signal.SIGSTOP, signal.SIGCONT)
        self.assertEqual((epochs[0], epochs[-1]), (4, 4))

    def test_all_workers_of_a_machine_leave_and_take_no_part_of_the_state(self):
        zero = ["--method", "zero", "--optimizer", "adamw(lr=0.01)"]
        run, out = self.begin("machine", 100, "--workers", "1:6", "-n", "3", "--restarts", "0", "--workers-timeout",
                              "9", *zero)
        joined = self.start("machine-joined", "join", out)
        self.workers_become(4, "machine", "machine-joined")
        run.terminate()
        self.ends(143, run, "machine", "machine-joined")
        self.processes.remove(run)
        self.ends(0, joined, "machine", "machine-joined")
        self.same_as_undisturbed(100, out, *zero)


if __name__ == "__main__":
    unittest.main(verbosity=2)
