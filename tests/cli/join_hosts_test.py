"""Workers of other hosts in a run whose workers come and go (train --workers -H, join --host): they
come, are lost, are started again and leave as those of this host. A host is a script that "logs in" to this one."""
import os, signal, unittest
from elastic_runs import *

OURS = "JOIN_HOSTS_TEST=%d" % os.getpid()  # in the environment of what this test starts
HERE = "sh -c 'export %s; eval \"$1\"'" % OURS  # RSH HOST COMMAND: the command, here
TWO = ("-H", "localhost:2,127.0.0.1:2", "--rsh", HERE)


def far_workers():
    """The processes of workers that an agent has started."""
    found = []
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            words, settings = (read("/proc/%s/%s" % (pid, name)).split(b"\0") for name in ("cmdline", "environ"))
        except OSError:
            continue
        if words[:3] == [TUTTI.encode(), b"join", b"-"] and OURS.encode() in settings:
            found.append(int(pid))
    return sorted(found)


def write_hosts(path, *lines):
    with open(path + ".new", "w") as f:
        f.writelines(line + "\n" for line in lines)
    os.replace(path + ".new", path)


class JoinHosts(ElasticRuns):
    def tearDown(self):
        super().tearDown()
        self.assertEqual(far_workers(), [])

    def test_a_worker_of_another_host_comes_is_lost_and_comes_again(self):
        run, out = self.begin("two", 300, "--workers", "2:6", *TWO)
        self.workers_become(4, "two")
        far = far_workers()
        self.assertEqual(len(far), 2)
        os.kill(far[0], signal.SIGKILL)
        self.workers_become(3, "two")
        self.workers_become(4, "two")
        self.ends(0, run, "two")
        self.assertRegex(self.said("two"), r"tutti: worker [23] was lost: its command, on host 127\.0\.0\.1, ended "
                         r"with code 137; the run goes on, and it is started again in 1 s\n")
        self.same_as_undisturbed(300, out)

    def test_those_of_other_hosts_go_on_without_this_one(self):
        run, out = self.begin("gone", 200, "--workers", "1:6", "--restarts", "0", *TWO)
        self.workers_become(4, "gone")
        own = [pid for pid in children_of(run.pid) if b"train" in read("/proc/%d/cmdline" % pid)]
        self.assertEqual(len(own), 2)
        for left, pid in zip((3, 2), own):
            os.kill(pid, signal.SIGKILL)
            self.workers_become(left, "gone")
        self.ends(0, run, "gone")
        self.same_as_undisturbed(200, out)

    def test_a_signal_to_the_launcher_is_for_all(self):
        run, out = self.begin("signal", 100000, "--workers", "2:6", *TWO)
        self.workers_become(4, "signal")
        run.terminate()
        self.ends(143, run, "signal")
        self.assertNotIn("was lost", self.said("signal"))

    def test_one_is_started_there_by_hand_and_asked_to_leave(self):
        run, out = self.begin("hand", 300, "--workers", "1:6", "-n", "2")
        far = self.start("far", "join", out, "--host", "127.0.0.2", "--rsh", HERE)
        self.workers_become(3, "hand", "far")
        left = tutti("leave", out, "2")
        self.assertEqual(left.returncode, 0, left.stderr)
        self.ends(0, far, "hand", "far")
        self.assertIn("this worker has left the run", self.said("far"))
        far = self.start("again", "join", out, "--host", "127.0.0.2", "--rsh", HERE)
        self.workers_become(3, "hand", "far", "again")
        self.ends(0, run, "hand")
        self.ends(0, far, "again")
        self.same_as_undisturbed(300, out)

    def test_workers_come_and_leave_with_the_lines_of_a_hosts_file(self):
        hosts = os.path.join(self.folder, "hosts")
        write_hosts(hosts, "b slots=1  # comes when the others have met", "localhost:2")
        run, out = self.begin("file", 100000, "--workers", "2:4", "-H", "@" + hosts, "--rsh", HERE)
        self.workers_become(3, "file")
        write_hosts(hosts, "localhost", "localhost", "b", "c:9")  # room for one of nine
        self.workers_become(4, "file")
        write_hosts(hosts, "localhost:2", "c:9")
        self.until(lambda: "host b is no longer listed with so many workers: 1 leaves" in self.said("file"),
                   "file")
        self.until(lambda: "host c is listed: 1 worker is started there" in
                   self.said("file").partition("no longer listed")[2], "file")
        self.workers_become(4, "file")
        self.assertEqual(len(far_workers()), 2)
        write_hosts(hosts, "localhost:2", "127.0.0.1:0")
        self.until(lambda: "hosts stay as they are until it can be read" in self.said("file"), "file")
        self.assertRegex(self.said("file"), "hosts '@.*hosts': line 2: .*'127.0.0.1:0' is no host with its workers")
        write_hosts(hosts, "localhost:2")
        self.workers_become(2, "file")
        run.terminate()
        self.ends(143, run, "file")
        self.assertNotIn("was lost", self.said("file"))

    def test_a_command_that_prints_hosts_is_executed_again(self):
        more = os.path.join(self.folder, "more")
        run, out = self.begin("command", 600, "--workers", "2:4", "--rsh", HERE, "-H",
                              "|echo localhost:2; [ ! -e %s ] || echo 127.0.0.1:2" % more, "--meet", "127.0.0.1")
        write_hosts(more)
        self.workers_become(4, "command")
        self.ends(0, run, "command")
        self.same_as_undisturbed(600, out)

    def test_what_cannot_be_is_refused(self):
        train = ("train", *COMMON, "--data", self.data, "--steps", "5", "--out", self.out("refused"))
        for sentence, words in (
                ("hosts begin with 'nowhere.invalid', which is another machine",
                 (*train, "--workers", "1:4", "-H", "nowhere.invalid:2,localhost:2")),
                ("the hosts 'localhost:2,127.0.0.1:3' have 5 workers, and workers is '1:4', 1 to 4",
                 (*train, "--workers", "1:4", "-H", "localhost:2,127.0.0.1:3")),
                ("n is 3, but the first of the hosts 'localhost:2,127.0.0.1:2', on which the run begins, has 2 workers",
                 (*train, "--workers", "1:4", "-H", "localhost:2,127.0.0.1:2", "-n", "3")),
                ("host is 'b:2', and one worker is started on one host", ("join", self.folder, "--host", "b:2")),
                ("rsh is given, and it does nothing without host", ("join", self.folder, "--rsh", "ssh")),
                ("in the variable TUTTI_JOIN_PASS: it is no pass", ("join", "-"))):
            self.refused(sentence, *words)


if __name__ == "__main__":
    unittest.main(verbosity=2)
