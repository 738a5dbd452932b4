"""`tutti compare METHODS -- COMMAND`: each run is `tutti run` of the command; what it leaves is checked;
a run without figures is named and spoils no other row; a comparison resumes by the same words alone."""
import csv, json, os, shutil, signal, subprocess, sys, time, unittest

from command import *
from compare_test import Page

GNUPLOT = shutil.which("gnuplot") is not None
# Rank 0 writes what its method's words ask for. With another library it would be the same.
SCRIPT = """
import json, os, sys, time
method, seed, more = sys.argv[1], int(sys.argv[2]), sys.argv[3:]
folder, rank = os.environ["TUTTI_TRACE_DIR"], int(os.environ["TUTTI_RANK"])
with open(os.path.join(os.path.dirname(os.path.abspath(__file__)), "calls.txt"), "a") as f:
    f.write(json.dumps([rank, os.environ["TUTTI_SIZE"], os.path.basename(folder), *sys.argv[1:]]) + "\\n")
if method == "fails" and rank == 1:
    sys.exit("ValueError: no \\x1b[1mdata")
if method == "argparse":
    sys.exit(2)
if method == "garbage":
    sys.stdout.buffer.write(b"\\xff\\x00\\n" * 100000)
if method in ("hangs", "slow"):
    time.sleep(0 if os.environ.get("QUICK") else 60)
if method == "killed" and rank == 0:
    os.kill(os.getpid(), 9)
if rank != 0 or method == "silent":
    sys.exit(0)
bytes_sent = 1000 * (2 if method.startswith("local-sgd") else 10)
of = dict(wall_seconds=0.05, bytes_sent_total=bytes_sent, samples_per_second=100 + seed, final_test_accuracy=0.5,
          final_test_loss=0.25 + seed, by_worker=[dict(worker=0, wall_seconds=0.05, exposed_comm_seconds=0.01)])
of.update({"ms": dict(wall_seconds=50000), "percent": dict(final_test_accuracy=50), "text": dict(wall_seconds="1 s"),
           "negative": dict(bytes_sent_total=-1), "nothing": dict(wall_seconds=None)}.get(method, {}))
lines = [dict(step=k, wall_seconds=k / 100, bytes_sent_total=bytes_sent * k / 5, test_loss=1 / k + seed,
              test_accuracy=k / 10) for k in range(1, 6)]
if method == "late":
    lines[3]["wall_seconds"] = 4000
if method == "training":
    del of["final_test_accuracy"], of["final_test_loss"]
    lines = [dict(step=line["step"], wall_seconds=line["wall_seconds"], train_loss=line["test_loss"]) for line in lines]
if method == "noseed":
    lines = [dict(line, test_loss=1 / line["step"]) for line in lines]
if method == "codecless":
    json.dump(dict(method="codecless", codec=""), open(folder + "/config.json", "w"))
if method == "prints":
    print("the beginning")
    for k in range(80):
        print(("%07d" % k + "\\n") * 131072, end="", flush=True)
    for _ in range(200): # until it is bounded
        blocks = os.stat(folder + ".log").st_blocks
        time.sleep(0.05 if blocks * 512 > 33 << 20 else 0)
    open("blocks.txt", "w").write(str(blocks))
    print("the end", flush=True)
if method == "waits":
    of["by_worker"][0]["exposed_comm_seconds"] = 10
if method == "diverges":
    of["final_test_loss"] = None
if method == "diverges-late":
    del of["final_test_loss"]
    lines[4]["test_loss"] = None
if method.startswith("logs"): # figures of its own
    del of["final_test_accuracy"], of["final_test_loss"]
    at = dict(logs=(0.5, 0.75, 0.625), logsless=(0.25, 0.5, 0.5), logsnan=(0.5, 0.75, None))[method]
    lines = [dict(step=k, wall_seconds=k / 100, bytes_sent_total=bytes_sent * k / 5, train_loss=7 - k)
             for k in range(1, 6)]
    lines += [dict(step=k + 1, wall_seconds=k / 100 + 0.01, **{"val/f1": at[k] and at[k] + seed / 8}) for k in range(3)]
    lines.sort(key=lambda line: line["step"])
if method == "other":
    json.dump(dict(method="powersgd(rank=2)"), open(folder + "/config.json", "w"))
with open(folder + "/metrics.jsonl", "w") as f:
    f.write("".join(json.dumps(line) + "\\n" for line in lines) + ("[\\n" if method == "broken" else ""))
with open(folder + "/summary.json", "w") as f:
    f.write("nan" if method == "nan" else json.dumps(of))
if method == "after":
    sys.exit(5)
"""


class Script(unittest.TestCase):
    PICTURES = [] if GNUPLOT else ["--pictures", "off"]

    def setUp(self):
        self.folder = scratch()
        with open(os.path.join(self.folder, "s.py"), "w") as f:
            f.write(SCRIPT)

    def tearDown(self):
        shutil.rmtree(self.folder, ignore_errors=True)

    def compare(self, *arguments, code=0, command=("{method}", "{seed}"), **environment):
        words = [TUTTI, "compare", *arguments, *self.PICTURES]
        words += ["--", sys.executable, "s.py", *command] if command is not None else []
        done = subprocess.run(words, capture_output=True, text=True, errors="replace", timeout=120, cwd=self.folder,
                              env=clean_environment(**environment))
        self.assertEqual(done.returncode, code, done.stderr + done.stdout)
        return done

    def refused(self, sentence, *arguments, **more):
        done = self.compare(*arguments, code=2, **more)
        self.assertIn(sentence, done.stderr)
        self.assertEqual(self.calls(), [])
        self.assertFalse(os.path.exists(self.path("c")) and "c" in arguments)

    def path(self, *names):
        return os.path.join(self.folder, *names)

    def calls(self):
        path = self.path("calls.txt")
        return [json.loads(line) for line in read(path).splitlines()] if os.path.exists(path) else []

    def rows(self, name="results.csv", out="c"):
        with open(self.path(out, name), newline="") as f:
            return list(csv.DictReader(f))

    def test_each_run_gets_its_words_and_the_tables_have_what_it_wrote(self):
        odd = "own name(a='b c', {x})"
        done = self.compare("ddp", "local-sgd(period=8,warmup=2)", odd, "--seeds", "4,7", "-n", "2", "--out", "c",
                            "--target", "loss=8", command=["{method}", "{seed}", "{{a}}{seed}", "a b", ""])
        self.assertIn("the library has no method '%s'; the script gets it as a name of its own" % odd, done.stderr)
        self.assertNotIn("no method 'ddp'", done.stderr)
        calls = self.calls()
        self.assertEqual(len(calls), 12)
        self.assertEqual({call[1] for call in calls}, {"2"})
        wanted = [[m, s, "{a}" + s, "a b", ""] for s in "47" for m in ("ddp", "local-sgd(period=8,warmup=2)", odd)]
        for rank in (0, 1): # methods alternate
            self.assertEqual([call[3:] for call in calls if call[0] == rank], wanted)
            self.assertEqual([call[2] for call in calls if call[0] == rank], ["%04d" % k for k in range(6)])
        rows, runs = self.rows(), self.rows("runs.csv")
        self.assertEqual([r["method"] for r in rows], ["ddp", "local-sgd(period=8,warmup=2)", odd])
        self.assertEqual([(r["seeds"], r["accuracy_percent"], r["test_loss"], r["seconds"], r["waiting_percent"])
                          for r in rows], [("2", "50.00", "5.7500", "0.05000", "20.00")] * 3)
        self.assertEqual([r["megabytes"] for r in rows], ["0.01000", "0.002000", "0.01000"])
        self.assertEqual(rows[0]["samples_per_second"], "105.5")
        self.assertEqual((rows[0]["samples_per_second_least"], rows[0]["samples_per_second_most"]), ("104.0", "107.0"))
        self.assertEqual((rows[0]["reached"], rows[0]["seconds_to_target"]), ("2", "0.01000"))
        self.assertEqual(float(rows[0]["megabytes_to_target"]), 0.002)
        self.assertEqual([r["front"] for r in rows], ["", "yes", ""])
        self.assertNotIn("optimizer", rows[0])
        self.assertEqual([r["seed"] for r in runs], ["4"] * 3 + ["7"] * 3)
        subprocess.run(TUTTI + runs[4]["command"][5:], shell=True, check=True, cwd=self.folder,
                       env=clean_environment(TUTTI_TRACE_DIR=self.folder))
        self.assertEqual(sorted(self.calls()[12:])[0][3:], wanted[4], "the command of a table makes the run again")
        table = read(self.path("c/table.txt")).decode()
        self.assertIn(table, done.stdout)
        self.assertIn("Target: test loss 8.", table)
        self.assertIn("s.py '{method}' '{seed}' '{{a}}{seed}' 'a b' '', by tutti run -n 2.", table)
        page = Page(self.path("c/compare.html"))
        self.assertEqual(page.asked, [])
        self.assertIn(["samples/s"], [row[-1:] for row in page.rows])
        self.assertEqual(tutti("report", self.path("c/runs/0003"), *self.PICTURES).stderr, "")

    def test_runs_without_figures_are_named_and_spoil_no_other_row(self):
        sentences = {
            "silent": "ended, and has left no record: there is no summary.json in its folder, TUTTI_TRACE_DIR",
            "fails": "exited with code 1 before it had joined the run; its own output may give the reason; the last "
                     "line of its output: ValueError: no  [1mdata",
            "argparse": "exited with code 2",
            "killed": "was killed by signal 9 (SIGKILL)",
            "hangs": "took longer than --timeout, 2 s, and was ended",
            "ms": "summary.json has wall_seconds 50000; it is in seconds, and the whole run took",
            "percent": "summary.json has final_test_accuracy 50; it is a fraction of 1, not a percentage",
            "text": "summary.json has no wall_seconds above 0",
            "nothing": "summary.json has no wall_seconds above 0",
            "negative": "summary.json has bytes_sent_total -1; it is a number of bytes",
            "waits": "by_worker in summary.json has exposed_comm_seconds 10; it is in seconds, at most the worker's",
            "late": "metrics.jsonl has wall_seconds 4000 at step 4; it is in seconds",
            "broken": "metrics.jsonl:6 is no line of a run's metrics",
            "nan": "summary.json:1:",
            "after": "exited with code 5",
        }
        done = self.compare("ddp", *sentences, "garbage", "--seeds", "1", "-n", "2", "--out", "c", "--timeout", "2",
                            "--grace", "0.2", code=1)
        self.assertIn("tutti: 15 of 17 runs have failed; the table gives the reasons", done.stderr)
        self.assertEqual([r["method"] for r in self.rows()], ["ddp", "garbage"])
        table = read(self.path("c/table.txt")).decode()
        for method, sentence in sentences.items():
            with self.subTest(method):
                line = next(line for line in table.splitlines() if " runs: %s: " % method in line)
                self.assertIn(sentence, line)

    def test_where_no_run_has_results_each_method_is_named(self):
        done = self.compare("silent", "percent", "--seeds", "1", "-n", "1", "--out", "c", code=1)
        self.assertRegex(done.stderr, r"runs: silent: ended, and has left no record[^\n]*\n"
                                      r"[^\n]*runs: percent: summary.json has final_test_accuracy 50; [^\n]*\n"
                                      r"tutti: no run of the script has results\n$")

    def test_a_record_of_another_method_is_no_result(self):
        done = self.compare("ddp", "other", "--seeds", "1", "-n", "1", "--out", "c")
        self.assertEqual(len(self.rows()), 2, done.stdout) # the script's own name may be any method
        with open(self.path("s.py"), "a") as f:
            f.write("json.dump(dict(method='powersgd(rank=2)'), open(folder + '/config.json', 'w'))\n")
        done = self.compare("ddp", "powersgd", "--seeds", "1", "-n", "1", "--out", "d", code=1)
        self.assertIn("ddp: its record is of method 'powersgd(rank=2)', so the script has not taken 'ddp'", done.stdout)
        self.assertEqual([r["method"] for r in self.rows(out="d")], ["powersgd"])
        done = self.compare("powersgd(rank=4)", "powersgd", "own", "--seeds", "2", "-n", "1", "--out", "e")
        self.assertEqual(done.stdout.count(" name the same method, "), 1)
        self.assertIn("The records of powersgd(rank=4) and powersgd name the same method, powersgd(rank=2): if",
                      done.stdout)

    def test_a_codec_a_seed_and_options_that_a_script_does_not_take_are_named(self):
        done = self.compare("codecless", "own", "--codecs", "none,fp16,theirs", "--seeds", "1", "-n", "1", "--out", "c",
                            code=1, command=["{method}", "{seed}", "{codec}"])
        self.assertIn("codecless with fp16: its record has no codec, so the script has not taken the codec 'fp16'",
                      done.stdout)
        self.assertEqual([r["method"] for r in self.rows()], [
            "codecless", "own", "own with fp16", "codecless with theirs", "own with theirs"])
        done = self.compare("ddp", "noseed", "--seeds", "3", "-n", "1", "--out", "d")
        self.assertEqual(done.stdout.count(" have the same losses in each line"), 1)
        self.assertIn("The runs of noseed with seeds 0 and 1 have the same losses in each line: the script may not "
                      "have taken its seed", done.stdout)
        with open(self.path("s.py"), "a") as f:
            f.write("json.dump(dict(method='powersgd(rank=2)', codec='qsgd(bits=8)'), open(folder + '/config.json', "
                    "'w'))\n")
        done = self.compare("powersgd(rank=4)", "--seeds", "1", "-n", "1", "--out", "e")
        self.assertIn("The record of powersgd(rank=4) names the method powersgd(rank=2): the script has not taken all "
                      "of its options.", done.stdout)
        done = self.compare("powersgd(2)", "--seeds", "1", "-n", "1", "--out", "f")
        self.assertNotIn("not taken", done.stdout)
        done = self.compare("powersgd", "--codecs", "qsgd,fp16", "--seeds", "1", "-n", "1", "--out", "g", code=1,
                            command=["{method}", "{seed}", "{codec}"])
        self.assertIn("its record has codec 'qsgd(bits=8)', so the script has not taken the codec 'fp16'", done.stdout)

    def test_log_of_a_script_that_prints_without_end_has_its_head_and_its_tail(self):
        self.compare("prints", "garbage", "--seeds", "1", "-n", "1", "--out", "c")
        log = read(self.path("c/runs/0000.log"))
        self.assertLess(len(log), (32 << 20) + 200)
        self.assertTrue(log.startswith(b"the beginning\n0000000\n"))
        self.assertTrue(log.endswith(b"the end\n"), log[-40:])
        head, said, tail = log.partition(b"\ntutti: ")
        left_out, _, words = said and tail.partition(b" bytes of output are left out here: of a log that grows beyond")
        self.assertTrue(words.startswith(b" 32 MiB the first and the last 8 MiB stay\n"))
        self.assertEqual(len(head), 8 << 20)
        self.assertGreater(int(left_out), 32 << 20)
        self.assertLessEqual(int(left_out) + len(log) - len(said + words.partition(b"\n")[0]), (80 << 20) + 1000)
        self.assertNotIn(b"left out", read(self.path("c/runs/0001.log")))
        self.assertLessEqual(int(read(self.path("blocks.txt"))) * 512, 33 << 20) # while it runs

    def test_losses_are_of_training_only_where_no_run_has_a_test(self):
        self.compare("training", "--seeds", "2", "-n", "1", "--out", "c", "--target", "loss=1.4")
        row = self.rows()[0]
        self.assertEqual((row["train_loss"], row["accuracy_percent"], row["reached"]), ("0.7000", "", "2"))
        self.assertNotIn("test_loss", row)
        self.assertIn("losses are of training", read(self.path("c/table.txt")).decode())
        self.assertIn("Target: training loss 1.4", read(self.path("c/table.txt")).decode())
        self.compare("training", "ddp", "--seeds", "1", "-n", "1", "--out", "d")
        self.assertEqual([r["test_loss"] for r in self.rows(out="d")], ["", "0.2500"])

    def test_runs_are_compared_by_a_figure_that_scripts_log(self):
        words = ["logsless", "logs", "ddp", "--seeds", "1", "-n", "1"]
        done = self.compare(*words, "--out", "c", "--by", "max:val/f1", "--target", "val/f1=0.5")
        rows = {r["method"]: r for r in self.rows()}
        self.assertEqual([rows[m]["val/f1"] for m in ("logs", "logsless", "ddp")], ["0.6250", "0.5000", ""])
        self.assertEqual([(rows[m]["reached"], rows[m]["seconds_to_target"]) for m in ("logs", "logsless", "ddp")],
                         [("1", "0.01000"), ("1", "0.02000"), ("0", "")])
        self.assertNotIn("train_loss", rows["logs"])
        table = read(self.path("c/table.txt")).decode()
        for sentence in ("Compared by val/f1, the largest is the best; evaluations also have test_loss, test_accuracy.",
                         "These runs have never had a val/f1: ddp seed 0 (runs/0002).",
                         "Target: val/f1 at least 0.5", "Soonest at the target: logs (0.01"):
            self.assertIn(sentence, table)
        self.assertIn("val/f1", read(self.path("c/compare.html")).decode())
        self.compare(*words, "--out", "d", "--by", "min:val/f1", "--grid", "lr=1,2", code=0,
                     command=["{method}", "{seed}", "{lr}"])
        self.assertIn("the least is the best", read(self.path("d/table.txt")).decode())
        self.assertIn("No target; --target val/f1=V gives one.", read(self.path("d/table.txt")).decode())
        # without --by: the training loss, and a word on what else there is
        done = self.compare("logs", "logsless", "--seeds", "1", "-n", "1", "--out", "e")
        self.assertEqual([r["train_loss"] for r in self.rows(out="e")], ["2.0000", "2.0000"])
        self.assertIn("losses are of training", done.stdout)
        self.assertIn("Evaluations also have val/f1; --by max:NAME or min:NAME compares by one.", done.stdout)
        self.assertNotIn("never had", done.stdout)
        done = self.compare("logs", "ddp", "training", "--seeds", "1", "-n", "1", "--out", "f")
        self.assertIn("Losses are of tests", done.stdout)
        self.assertIn("These runs have never had a test loss: logs seed 0 (runs/0000), training seed 0 (runs/0002).",
                      done.stdout)
        done = self.compare("logsnan", "--seeds", "1", "-n", "1", "--out", "g", "--by", "max:val/f1")
        self.assertEqual(self.rows(out="g")[0]["val/f1"], "") # diverged at the end: no earlier one
        self.assertNotIn("never had", done.stdout)
        done = self.compare("--resume", "c", *words, "--by", "max:val/f1", "--target", "val/f1=0.5")
        self.assertEqual(read(self.path("c/table.txt")).decode(), table)
        for more in ([], ["--by", "min:val/f1"]):
            target = "val/f1=0.5" if more else "loss=1"
            done = self.compare("--resume", "c", *words, *more, "--target", target, code=2)
            self.assertIn("these words make other runs", done.stderr)

    def test_best_point_of_a_grid_is_that_of_the_better_end(self):
        with open(self.path("s.py"), "a") as f:
            f.write("of = json.dumps({'step': 6, 'g': 1 / float(more[0])}) + '\\n'\n"
                    "with open(folder + '/metrics.jsonl', 'a') as f:\n    f.write(of)\n")
        for by, best in (("max:g", "lr=1"), ("min:g", "lr=4")):
            self.compare("ddp", "--seeds", "1", "-n", "1", "--out", by[:3], "--grid", "lr=1,2,4", "--by", by,
                         command=["{method}", "{seed}", "{lr}"])
            self.assertEqual(self.rows(out=by[:3])[0]["tuned"], best + " (border)")

    def test_loss_that_is_no_number_at_the_end_is_not_that_of_an_earlier_line(self):
        self.compare("ddp", "diverges", "diverges-late", "--seeds", "1", "-n", "1", "--out", "c")
        self.assertEqual([r["test_loss"] for r in self.rows()], ["0.2500", "", ""])

    def test_runs_without_their_plan_or_folder_are_no_results(self):
        words = ["ddp", "after", "--seeds", "1", "-n", "1"]
        self.compare(*words, "--out", "c", code=1)
        shutil.rmtree(self.path("c/runs/0000"))
        before = len(self.calls())
        self.compare("--resume", "c", *words, code=1)
        self.assertEqual([call[3] for call in self.calls()[before:]], ["ddp", "after"])
        self.assertEqual([r["method"] for r in self.rows()], ["ddp"])
        os.remove(self.path("c/plan.json"))
        done = self.compare("powersgd", "--seeds", "1", "-n", "1", "--out", "c", code=2)
        self.assertIn("c holds runs of a comparison whose plan.json is gone", done.stderr)

    def test_codecs_grids_and_conditions_are_put_in_or_are_options_of_run(self):
        self.compare("ddp", "--codecs", "none,fp16", "--grid", "lr=0.1,0.2", "--vary", "n=1;2", "--vary", "data=x;y",
                     "--seeds", "1", "--out", "c", command=["{method}", "{seed}", "{codec}", "{lr}", "{data}"])
        calls = self.calls()
        self.assertEqual(len(calls), 8 + 16)
        self.assertEqual({(c[1], *c[5:]) for c in calls},
                         {(n, codec, lr, data) for n in "12" for codec in ("none", "fp16") for lr in ("0.1", "0.2")
                          for data in "xy"})
        self.assertEqual({(r["method"], r["condition"]) for r in self.rows()},
                         {(m, "n=%s data=%s" % (n, d)) for m in ("ddp", "ddp with fp16") for n in "12" for d in "xy"})

    def test_what_makes_no_sense_is_refused_before_the_first_run(self):
        for sentence, words, command in (
                ("the command has no {method}, so that each method would be the same run", ["ddp", "-n", "2"], ["0"]),
                ("the command has no {seed}", ["ddp", "-n", "2"], ["{method}"]),
                ("the command has {sed}, and nothing has that name; did you mean 'seed'", ["ddp", "-n", "2"],
                 ["{method}", "{sed}"]),
                ('{{"a": 1}} is text with braces', ["ddp", "-n", "2"], ["{method}", '{"a": 1}']),
                ("in which a brace is alone", ["ddp", "-n", "2"], ["{method}", "a}"]),
                ("in which a brace is alone", ["ddp", "-n", "2"], ["{method}", "{seed"]),
                ("--model is an option of `tutti train`, and this compares a script", ["ddp", "--model", "mlp"], None),
                ("--data is an option of `tutti train`", ["ddp", "--data=mnist"], None),
                ("--slow is an option of `tutti train`", ["ddp", "--slow", "0:5"], None),
                ("--batch is an option of `tutti train`", ["ddp", "--batch", "3"], None),
                ("there is no option '--transprt'; did you mean 'transport'", ["ddp", "--transprt", "tcp"], None),
                ("transport is 'sim'", ["ddp", "-n", "2", "--transport", "sim"], None),
                ("how many workers? give -n N", ["ddp"], None),
                ("nothing to compare; write the methods before --", ["-n", "2"], None),
                ("methods has 'ddp' twice", ["ddp", "ddp", "-n", "2"], None),
                ("methods has 'ddp' twice", ["ddp", "--methods", "ddp", "-n", "2"], None),
                ("method 'local-sgd'", ["local-sgd(perod=8)", "-n", "2"], None),
                ("'topk'", ["ddp", "--codecs", "topk(rato=1)", "-n", "2"], ["{method}", "{seed}", "{codec}"]),
                ("the command has no {codec}", ["ddp", "--codecs", "none,fp16", "-n", "2"], None),
                ("the command has no {codec}", ["ddp", "--codecs", "fp16", "-n", "2"], None),
                ("--grid is of 'lr'; the command has to take it: write {lr} there", ["ddp", "--grid", "lr=1,2", "-n",
                                                                                   "2"], None),
                ("--vary is of 'slow'; the command has to take it", ["ddp", "--vary", "slow=;0:5", "-n", "2"], None),
                ("--grid is of 'seed', which has a flag of its own", ["ddp", "--grid", "seed=1,2", "-n", "2"], None),
                ("jobs is 2, but scripts run one by one", ["ddp", "--jobs", "2", "-n", "2"], None),
                ("target is 'speed=3'", ["ddp", "--target", "speed=3", "-n", "2"], None),
                ("by is 'f1'; say which end of it is better: max:f1 or min:f1", ["ddp", "--by", "f1", "-n", "2"], None),
                ("by is 'max:'; write max:NAME", ["ddp", "--by", "max:", "-n", "2"], None),
                ("by is 'max:lr'; write max:NAME", ["ddp", "--by", "max:lr", "-n", "2"], None),
                ("target is 'loss=3'; runs are compared by f1, so write f1=V",
                 ["ddp", "--by", "max:f1", "--target", "loss=3", "-n", "2"], None),
                ("target is 'f1=nan'", ["ddp", "--by", "max:f1", "--target", "f1=nan", "-n", "2"], None)):
            with self.subTest(sentence):
                self.refused(sentence, *words, "--out", "c", command=command or ["{method}", "{seed}"])
        self.refused("--timeout is for scripts", "--methods", "ddp", "--timeout", "3", "--out", "c", command=None)
        for words, sentence in (([], "there is no command behind --"),
                                (["no-such-program", "{method}", "{seed}"], "there is no command 'no-such-program'")):
            done = subprocess.run([TUTTI, "compare", "ddp", "-n", "2", *self.PICTURES, "--", *words], cwd=self.folder,
                                  capture_output=True, text=True, env=clean_environment())
            self.assertEqual(done.returncode, 2)
            self.assertIn(sentence, done.stderr)

    def test_stopped_comparison_resumes_by_the_command_that_it_prints_and_by_no_other(self):
        words = ["ddp", "slow", "after", "--seeds", "1", "-n", "2", *self.PICTURES]
        command = ["--", sys.executable, "s.py", "{method}", "{seed}"]
        run = subprocess.Popen([TUTTI, "compare", *words, "--out", "c", *command], cwd=self.folder, text=True,
                               env=clean_environment(), stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        until = time.monotonic() + 60
        while len(self.calls()) < 4 and time.monotonic() < until and run.poll() is None:
            time.sleep(0.02)
        children = children_of(run.pid)
        run.send_signal(signal.SIGTERM)
        _, err = run.communicate(timeout=60)
        self.assertEqual(run.returncode, 128 + signal.SIGTERM, err)
        self.assertFalse(any(map(alive, children)))
        again = err[err.index("to continue: ") + len("to continue: "):].splitlines()[0]
        self.assertTrue(again.startswith("tutti compare --resume c "), again)
        before = self.calls()
        for other, sentence in ((["--resume", "c", *words[:-len(self.PICTURES) or None]], "a command counts only"),
                                (["--resume", "c", *words, *command, "more"], "these words make other runs"),
                                (["--resume", "c", "ddp", *words[2:], *command], "these words make other runs"),
                                (["--resume", "c", *words, "-n", "1", *command], "these words make other runs"),
                                (["--out", "c", *words, *command], "holds a comparison")):
            done = subprocess.run([TUTTI, "compare", *other, *self.PICTURES], cwd=self.folder, capture_output=True,
                                  text=True, env=clean_environment())
            self.assertEqual(done.returncode, 2, done.stderr)
            self.assertIn(sentence, done.stderr)
        elsewhere = self.path("elsewhere")
        os.mkdir(elsewhere)
        done = subprocess.run(TUTTI + again[5:].replace("--resume c", "--resume ../c"), shell=True, cwd=elsewhere,
                              capture_output=True, text=True, env=clean_environment())
        self.assertIn("its command may mean another file here; resume it there", done.stderr)
        self.assertEqual(self.calls(), before, "nothing was run")
        done = subprocess.run(TUTTI + again[5:], shell=True, cwd=self.folder, capture_output=True, text=True,
                              env=clean_environment(QUICK="1"))
        self.assertEqual(done.returncode, 1, done.stderr)
        self.assertEqual(sorted(call[3] for call in self.calls()[len(before):]), ["after", "after", "slow", "slow"])
        self.assertEqual([r["method"] for r in self.rows()], ["ddp", "slow"])
        self.assertTrue(os.path.exists(self.path("c/runs/0002/summary.json")), "what failed keeps its files")
        subprocess.run(TUTTI + again[5:], shell=True, cwd=self.folder, capture_output=True, env=clean_environment())
        self.assertEqual([call[3] for call in self.calls()[len(before) + 4:]], ["after"] * 2, "failed runs alone")


if __name__ == "__main__":
    unittest.main(verbosity=2)
