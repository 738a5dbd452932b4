"""Goal: `train --workers --trace` makes one trace of workers that come, leave and are killed: a track for each, with
the epochs that summary.json has, on one clock, whole at any time. Method: real processes; the trace is read as JSON,
and merged again (tutti report)."""
import json, os, signal, unittest
from elastic_runs import *

TRACED = ["--workers", "1:4", "--restarts", "0", "--trace"]


def trace_of(out):
    return json.loads(read(os.path.join(out, "trace.json")))


def parts_of(out):
    return sorted(name for name in os.listdir(os.path.join(out, "trace-parts")) if name.startswith("trace-"))


def tracks(trace):
    """{pid: its name}"""
    return {e["pid"]: e["args"]["name"] for e in trace if e["name"] == "process_name"}


def epochs(trace):
    """{epoch: {pid: its span}}"""
    found = {}
    for e in trace:
        if e.get("cat") == "epoch":
            assert e["ph"] == "X" and e["name"] == "epoch %d" % e["args"]["epoch"], e
            assert e["pid"] not in found.setdefault(e["args"]["epoch"], {}), e
            found[e["args"]["epoch"]][e["pid"]] = e
    return found


def changes(trace):
    """[(what, worker, epoch in which it was)], in the order of their times."""
    return [(e["name"], e["pid"], e["args"]["epoch"])
            for e in sorted((e for e in trace if e.get("cat") == "members"), key=lambda e: e["ts"])]


def work(trace, pid):
    """The spans of a worker's steps."""
    return [e for e in trace if e["ph"] == "X" and e["pid"] == pid and e["cat"] != "epoch"]


class JoinTrace(ElasticRuns):

    def whole(self, out, of_summary=True, within=1):
        """Checks what is so of each trace, and gives it. within: how wrong its clock may be, in us."""
        trace = trace_of(out)
        of = epochs(trace)
        if of_summary:
            told = {e["epoch"]: (e["step"], e["workers"]) for e in summary(out)["events"] if e["kind"] == "epoch"}
            self.assertEqual({n: {(s["args"]["step"], s["args"]["workers"]) for s in spans.values()}
                              for n, spans in of.items()}, {n: {at} for n, at in told.items()})
        for pid, name in tracks(trace).items():
            self.assertEqual(name, "worker %d" % pid)
            self.assertTrue(work(trace, pid), name)
            mine = sorted((spans[pid] for spans in of.values() if pid in spans), key=lambda s: s["args"]["epoch"])
            for e in work(trace, pid): # each within an epoch, by whose step it is no earlier one
                around = [s for s in mine if s["ts"] <= e["ts"] + within and
                          e["ts"] + e["dur"] <= s["ts"] + s["dur"] + within]
                self.assertEqual(len(around), 1, (name, e))
                self.assertGreaterEqual(e["args"]["step"], around[0]["args"]["step"])
        # one clock: all have left an epoch, or are cut off there, before any is in the next one
        for n in sorted(of)[1:]:
            self.assertLess(max(s["ts"] + s["dur"] for s in of[n - 1].values()),
                            min(s["ts"] for s in of[n].values()) + within)
        return trace

    def merged_again(self, out):
        before = read(os.path.join(out, "trace.json"))
        os.remove(os.path.join(out, "trace.json"))
        done = tutti("report", out)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertTrue(read(os.path.join(out, "trace.json")) == before, "another trace")

    def parts_have_work(self, out, n, *names):
        """Waits until n workers have written some: a process that is killed loses what it has not."""
        self.until(lambda: len([name for name in parts_of(out)
                                if b'"ph":"X"' in read(os.path.join(out, "trace-parts", name))]) == n, *names)

    def test_one_joins_and_one_leaves(self):
        run, out = self.begin("left", 80, *TRACED, "-n", "2")
        joined = self.start("joined", "join", out)
        self.workers_become(3, "left", "joined")
        os.kill(children_of(run.pid)[0], signal.SIGTERM)
        self.workers_become(2, "left", "joined")
        self.ends(0, run, "left", "joined")
        self.ends(0, joined, "left", "joined")
        self.same_as_undisturbed(80, out)
        left = int(re.search(r"worker (\d) has left the run", self.said("left")).group(1))
        trace = self.whole(out)
        self.assertEqual(set(tracks(trace)), {0, 1, 2})
        of = epochs(trace)
        self.assertEqual({n: set(spans) for n, spans in of.items()},
                         {1: {0, 1}, 2: {0, 1, 2}, 3: {0, 1, 2} - {left}})
        self.assertFalse([s for spans in of.values() for s in spans.values() if "cut" in s["args"]])
        self.assertEqual(changes(trace), [("join", 2, 2), ("leave", left, 2)])
        came = of[2][2]
        self.assertGreater(came["args"]["step"], 0)
        self.assertGreaterEqual(min(e["ts"] for e in work(trace, 2)), came["ts"])
        self.assertEqual({e["args"]["step"] for e in work(trace, 2)}, set(range(came["args"]["step"], 80)))
        self.assertEqual(self.said("left", "joined").count("note: trace.json"), 0)
        self.assertEqual(parts_of(out), ["trace-%05d.json" % k for k in range(3)])
        self.merged_again(out)

    def test_one_is_killed(self):
        run, out = self.begin("killed", 80, *TRACED, "-n", "3")
        self.parts_have_work(out, 3, "killed")
        lost = children_of(run.pid)[1]
        os.kill(lost, signal.SIGKILL)
        self.workers_become(2, "killed")
        done = tutti("report", out) # while the run lasts
        self.assertEqual(done.returncode, 0, done.stderr)
        now = self.whole(out, of_summary=False)
        self.ends(0, run, "killed")
        self.same_as_undisturbed(80, out)
        worker = int(re.search(r"worker (\d) was lost: process %d " % lost, self.said("killed")).group(1))
        trace = self.whole(out)
        for one in (now, trace):
            self.assertEqual(set(tracks(one)), {0, 1, 2})
            self.assertEqual(changes(one), [("loss", worker, 1)])
            self.assertEqual({n: set(spans) for n, spans in epochs(one).items()},
                             {1: {0, 1, 2}, 2: {0, 1, 2} - {worker}})
            self.assertEqual([pid for pid, s in epochs(one)[1].items() if "cut" in s["args"]], [worker])
        self.assertEqual(work(now, worker), work(trace, worker))
        labels = {e["pid"]: e["args"]["labels"] for e in trace if e["name"] == "process_labels"}
        self.assertTrue(labels[worker].endswith(", process %d" % lost), labels)
        self.merged_again(out)
        # a part that is cut off within a line, as one of a host that is switched off
        part = os.path.join(out, "trace-parts", "trace-%05d.json" % worker)
        os.truncate(part, os.path.getsize(part) - 30)
        self.assertEqual(tutti("report", out).returncode, 0)
        self.assertEqual(changes(trace_of(out)), [("loss", worker, 1)])
        self.assertEqual(len(work(trace_of(out), worker)), len(work(trace, worker)) - 1)

    def test_the_clock_of_the_run_outlives_the_worker_whose_clock_it_was(self):
        """In time namespaces the clocks of 1 and 2 are far from that of 0, which has left when 2 comes."""
        before = {1: 1000, 2: 3000}
        ahead = ["unshare", "-U", "-r", "-T", "--monotonic"]
        if subprocess.run([*ahead, "1000", "true"], capture_output=True).returncode != 0:
            self.skipTest("needs time namespaces")
        run, out = self.begin("clock", 60, *TRACED, "-n", "1", slow=30)
        first = self.start("clock-1", "join", out, before=[*ahead, str(before[1])])
        self.workers_become(2, "clock", "clock-1")
        os.kill(children_of(run.pid)[0], signal.SIGTERM)
        self.ends(0, run, "clock", "clock-1")
        self.processes.remove(run)
        self.workers_become(1, "clock-1")
        second = self.start("clock-2", "join", out, before=[*ahead, str(before[2])])
        self.workers_become(2, "clock-1", "clock-2")
        self.ends(0, first, "clock-1", "clock-2")
        self.ends(0, second, "clock-1", "clock-2")
        self.same_as_undisturbed(60, out)
        clocks = {e["pid"]: e["args"] for e in trace_of(out) if e["name"] == "clock"}
        for pid, seconds in {0: 0, **before}.items():
            self.assertLessEqual(abs(clocks[pid]["ahead_us"] - seconds * 1e6), clocks[pid]["within_us"] + 1, clocks)
        trace = self.whole(out, within=2 * max(clock["within_us"] for clock in clocks.values()) + 1000)
        self.assertEqual({n: set(spans) for n, spans in epochs(trace).items()}, {1: {0}, 2: {0, 1}, 3: {1}, 4: {1, 2}})
        self.assertEqual(changes(trace), [("join", 1, 2), ("leave", 0, 2), ("join", 2, 4)])

    def test_one_that_does_not_see_the_folder_says_so(self):
        run, out = self.begin("near", 80, *TRACED, "--trace-steps", "20:1000000", "-n", "2")
        elsewhere = self.out("elsewhere")
        joined = self.start("far", "join", out, "--out", elsewhere)
        self.workers_become(3, "near", "far")
        self.ends(0, run, "near", "far")
        self.ends(0, joined, "near", "far")
        self.same_as_undisturbed(80, out)
        self.assertIn("note: trace.json lacks what worker 2 does from here on: %s/trace-parts is not there" % elsewhere,
                      self.said("far"))
        trace = self.whole(out)
        self.assertEqual(set(tracks(trace)), {0, 1})
        self.assertEqual({n: {s["args"]["workers"] for s in spans.values()} for n, spans in epochs(trace).items()},
                         {1: {2}, 2: {3}})
        for pid in (0, 1):
            self.assertEqual({e["args"]["step"] for e in work(trace, pid)}, set(range(20, 80)))

    def test_parts_are_of_one_run_and_fixed_workers_have_none(self):
        """A run that takes the folder of another one has its own trace only."""
        run, out = self.begin("again", 40, *TRACED, "-n", "2", slow=20)
        self.ends(0, run, "again")
        self.whole(out)
        run = self.start("again", "train", *COMMON, "--data", self.data, "--steps", "30", "--out", out, "--overwrite",
                         "--workers", "1:4", "-n", "1", "--restarts", "0", "--trace")
        self.ends(0, run, "again")
        trace = self.whole(out)
        self.assertEqual((set(tracks(trace)), parts_of(out)), ({0}, ["trace-00000.json"]))
        self.assertEqual({e["args"]["step"] for e in work(trace, 0)}, set(range(30)))
        fixed = tutti("train", *COMMON, "--data", self.data, "--steps", "10", "--out", out, "--overwrite", "-n", "2",
                      "--trace")
        self.assertEqual(fixed.returncode, 0, fixed.stderr)
        self.assertFalse(os.path.exists(os.path.join(out, "trace-parts")))
        trace = trace_of(out)
        self.assertEqual((set(tracks(trace)), epochs(trace), changes(trace)), ({0, 1}, {}, []))
        self.assertEqual({e["tid"] for e in trace if "tid" in e}, {0, 1, 2})
        for pid in (0, 1):
            self.assertEqual({e["args"]["step"] for e in work(trace, pid)}, set(range(10)))


if __name__ == "__main__":
    unittest.main(verbosity=2)
