"""`tutti compare` and `tutti report`: the same numbers in table, CSV and page; a killed comparison
continues and ends with the same files; pages that need nothing but themselves."""
import csv, html.parser, json, os, re, shutil, signal, subprocess, time, unittest
from command import *

GNUPLOT, BROWSER = shutil.which("gnuplot") is not None, shutil.which("chromium")
if not GNUPLOT:
    narrowed("pages have no pictures here: gnuplot is not installed")


class Page(html.parser.HTMLParser):
    """What a test asks of a page: text of its table's cells, ids, links, elements."""
    def __init__(self, path):
        super().__init__()
        self.ids, self.links, self.asked, self.tags, self.rows, self.cell = [], [], [], [], [], None
        self.text = read(path).decode()
        self.feed(self.text)

    def handle_starttag(self, tag, attributes):
        a = dict(attributes)
        self.tags.append(tag)
        self.ids += [a["id"]] if "id" in a else []
        self.links += [a["href"]] if tag == "a" else []
        self.asked += [v for k, v in attributes if k in ("src", "href", "xlink:href") and not v.startswith("#")]
        if tag == "tr":
            self.rows.append([])
        if tag in ("td", "th"):
            self.rows[-1].append("")
            self.cell = self.rows[-1]

    def handle_endtag(self, tag):
        if tag in ("td", "th"):
            self.cell = None

    def handle_data(self, data):
        if self.cell is not None:
            self.cell[-1] += data


class Pages(Case):
    def whole(self, path):
        """It asks for nothing from anywhere, and each of its links leads somewhere in it."""
        page = Page(path)
        self.assertEqual(page.asked, [])
        self.assertNotRegex(page.text.replace("http://www.w3.org/1999/xlink", ""), r"https?://|url\(|@import|<script")
        self.assertEqual(len(page.ids), len(set(page.ids)), "an id twice")
        self.assertLessEqual({link[1:] for link in page.links}, set(page.ids))
        self.assertEqual(page.tags.count("figure") > 0, GNUPLOT)
        for figure in re.findall(r"<figure.*?</figure>", page.text, re.S):
            self.assertIn('href="#command"', figure)
        self.assertEqual("gpPt6" in page.ids, GNUPLOT)
        self.assertNotRegex(page.text, r"<use[^>]*gpDot", "a point of the ground's colour")
        self.assertNotIn("gnuplot_plot", page.text)
        self.assertNotRegex(page.text, r"~\d+~", "a place for a name")
        series = page.text.count('<g class="series">')
        self.assertEqual(series > 0, GNUPLOT)
        self.assertEqual(page.text.count('<g class="series"><title>'), series, "who points at it sees its name")
        for table in re.findall(r"<table>.*?</table>", page.text, re.S): # on a telephone
            if table.split("</tr>")[0].count("<th") > 4:
                at = page.text.index(table)
                self.assertIn('<p class="more">The table continues to the right.</p>', page.text[at - 120:at])
        return page

    def seen(self, path):
        """In a browser, wide and narrow, light and dark, nothing goes over the edge."""
        if BROWSER is None or not GNUPLOT:
            narrowed("no page was looked at in a browser: chromium or gnuplot is not installed")
            return
        looked = os.path.join(os.path.dirname(path), "looked.html")
        with open(looked, "w") as f:
            f.write(read(path).decode() + "<script>const e=document.documentElement,s=getComputedStyle;"
                    "e.dataset.seen=JSON.stringify([innerWidth,e.scrollWidth,"
                    "Math.min(...[...document.querySelectorAll('figure')].map(x=>x.clientWidth)),"
                    "s(document.body).color,s(document.querySelector('figure text')).fill])</script>")
        for width in (1280, 390):
            for dark in (False, True):
                done = subprocess.run([BROWSER, "--headless", "--no-sandbox", "--disable-gpu", "--dump-dom",
                                       "--hide-scrollbars",
                                       "--user-data-dir=" + os.path.join(self.folder, "browser"),
                                       "--blink-settings=preferredColorScheme=%d" % (0 if dark else 1),
                                       "--window-size=%d,900" % width, "file://" + looked],
                                      capture_output=True, text=True, timeout=120, env=clean_environment())
                found = re.search(r'data-seen="(.*?)"', done.stdout)
                self.assertIsNotNone(found, done.stderr)
                inner, most, figure, ink, fill = json.loads(found[1].replace("&quot;", '"'))
                self.assertLessEqual(most, inner, (width, dark))
                self.assertGreater(figure, 300)
                self.assertEqual(ink, fill, "an axis in the colour of the text")
                self.assertEqual(int(re.findall(r"\d+", ink)[0]) > 128, dark)

    def pictures(self):
        return [] if GNUPLOT else ["--pictures", "off"]


class Report(Pages):
    def run_of(self, *more):
        return self.train("run", "--model", "mlp(hidden=16)", "--data", self.data, "-n", "2", "--steps", "20",
                          "--batch", "16", "--eval-every", "5", "--report-every", "5", "--quiet", *more)

    def test_a_runs_page_has_its_figures_and_the_command_that_makes_it_again(self):
        out = self.run_of("--codec", "topk(ratio=0.1)")
        done = tutti("report", out, *self.pictures())
        self.assertEqual((done.returncode, done.stdout), (0, out + "/report.html\n"), done.stderr)
        page, s = self.whole(out + "/report.html"), summary(out)
        figures = dict(row for row in page.rows if len(row) == 2)
        self.assertEqual(float(figures["test accuracy, %"]), round(100 * s["final_test_accuracy"], 2))
        self.assertEqual(figures["steps"], "20")
        self.assertAlmostEqual(float(figures["sent by all, MB"]), s["bytes_sent_total"] / 1e6, delta=1e-3)
        workers = [row for row in page.rows if len(row) == 7][1:]
        self.assertEqual([row[:2] for row in workers], [["0", "20"], ["1", "20"]])
        self.assertAlmostEqual(float(workers[1][6]), s["by_worker"][1]["bytes_sent"] / 1e6, delta=1e-3)
        tensors = [row for row in page.rows if row[0] == "0.weight"]
        self.assertEqual(len(tensors), 1)
        command = html.unescape(re.search(r"<pre>(.*?)</pre>", page.text)[1])
        again = self.out("again")
        self.assertTrue(command.startswith("tutti train "))
        subprocess.run(TUTTI + command[5:] + " --quiet --out " + again, shell=True, check=True, env=clean_environment())
        self.assertEqual(self.model(again), self.model(out))
        self.seen(out + "/report.html")

    def test_evaluation_lines_have_time_and_bytes_sent(self):
        out = self.run_of()
        lines = [json.loads(line) for line in read(out + "/metrics.jsonl").splitlines()]
        last, s = [line for line in lines if "test_loss" in line][-1], summary(out)
        self.assertEqual((last["bytes_sent_total"], last["samples"]), (s["bytes_sent_total"], s["samples"]))
        self.assertAlmostEqual(last["wall_seconds"], s["wall_seconds"], delta=0.05)

    def test_unfinished_run_has_a_page_and_text_is_escaped(self):
        out = self.run_of()
        os.remove(out + "/summary.json")
        with open(out + "/metrics.jsonl", "a") as f:
            f.write('{"step": 30, "train_lo')
        config = json.loads(read(out + "/config.json"))
        config["data"] = "<b onclick=x>&'`touch here`"
        with open(out + "/config.json", "w") as f:
            json.dump(config, f)
        done = tutti("report", out, *self.pictures())
        self.assertEqual(done.returncode, 0, done.stderr)
        page = self.whole(out + "/report.html")
        self.assertIn("has not ended", page.text)
        self.assertNotIn("<b on", page.text)
        self.assertIn("&lt;b onclick=x&gt;&amp;", page.text)

    def test_the_command_of_a_run_has_what_counts_when_a_worker_is_lost(self):
        out = self.run_of("--method", "ad-psgd", "--min-workers", "2")
        done = tutti("report", out, *self.pictures())
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn(" --min-workers 2", self.whole(out + "/report.html").text)

    def test_report_rejects_invalid_runs_and_options(self):
        out = self.run_of()
        self.refused("which run? give its directory", "report")
        self.refused("holds no run: it has no config.json", "report", self.folder)
        self.refused("two directories", "report", out, out)
        self.refused("there is no option '--picture'; did you mean 'pictures'", "report", out, "--picture", "off")
        self.refused("gnuplot, which draws the pictures, cannot be started", "report", out, PATH="/nowhere")
        with open(out + "/metrics.jsonl", "a") as f:
            f.write("[1]\n")
        self.refused("metrics.jsonl:", "report", out, *self.pictures(), code=1)
        with open(out + "/summary.json", "w") as f:
            f.write("{}}")
        self.refused("summary.json:1", "report", out, *self.pictures(), code=1)


class Compare(Pages):
    WORK = ["--model", "mlp(hidden=16)", "--batch", "16", "-n", "4", "--steps", "20"]

    def compare(self, out, *arguments, code=0, **more):
        done = tutti("compare", "--data", self.data, "--out", out, *self.WORK, *self.pictures(), *arguments, **more)
        self.assertEqual(done.returncode, code, done.stderr + done.stdout)
        return done

    def results(self, out, name="results.csv"):
        with open(os.path.join(out, name), newline="") as f:
            return list(csv.DictReader(f))

    @unittest.skipUnless(SIMULATOR, "the simulator is not built")
    def test_table_csv_and_page_have_the_same_numbers_and_they_are_the_runs(self):
        out = self.out("all")
        done = self.compare(out, "--transport", "sim", "--methods", "ddp,local-sgd(4),ad-psgd", "--codecs", "none,fp16",
                            "--vary", "slow=;0:5", "--seeds", "2", "--target", "accuracy=0.3")
        page, rows, runs = self.whole(out + "/compare.html"), self.results(out), self.results(out, "runs.csv")
        table = read(out + "/table.txt").decode()
        self.assertIn(table, done.stdout)
        self.assertEqual(len(rows), 10, "ad-psgd takes no codec")
        self.assertEqual(len(runs), 20)
        self.assertEqual(table.count("No results of 2 of 2 runs: ad-psgd with fp16, slow="), 2)
        self.assertEqual({(r["method"], r["condition"]) for r in rows},
                         {(m, c) for m in ("ddp", "local-sgd(4)", "ad-psgd", "ddp with fp16", "local-sgd(4) with fp16")
                          for c in ("slow=none", "slow=0:5")})
        head = next(k for k, row in enumerate(page.rows) if row[0] == "method")
        lines = table.splitlines()
        at = next(k for k, line in enumerate(lines) if line.startswith("method "))
        for k, row in enumerate(rows):
            shown = [row["method"], row["condition"], row["seeds"]]
            for name in ("accuracy_percent", "test_loss", "seconds", "megabytes", "waiting_percent", "reached",
                         "seconds_to_target", "megabytes_to_target"):
                middle, least, most = (row.get(name + end, row[name]) for end in ("", "_least", "_most"))
                shown.append("-" if middle == "" else middle if middle == least == most else
                             "%s (%s to %s)" % (middle, least, most or "never"))
            shown += [row["front"], row["optimizer"], row["learning_rate"]]
            self.assertEqual(page.rows[head + 1 + k], shown)
            self.assertEqual(re.split(r"  +", lines[at + 1 + k].strip()), [s for s in shown if s])
            mine = [r for r in runs if (r["method"], r["condition"]) == (row["method"], row["condition"])]
            self.assertEqual(len(mine), 2)
            self.assertEqual([row["seconds_least"], row["seconds_most"]],
                             sorted((r["seconds"] for r in mine), key=float))
        for r in runs:
            s = summary(os.path.join(out, "runs", r["run"]))
            self.assertAlmostEqual(float(r["seconds"]), s["wall_seconds"], delta=1e-3 * s["wall_seconds"])
            sent = s["bytes_sent_total"] / 1e6
            self.assertAlmostEqual(float(r["megabytes"]), sent, delta=1e-3 * sent)
            self.assertEqual(s["method"], r["method"].split()[0].split("(")[0])
            told = map(json.loads, read(os.path.join(out, "runs", r["run"], "metrics.jsonl")).splitlines())
            first = next((line for line in told if (line.get("test_accuracy") or 0) >= 0.3), None)
            self.assertEqual(r["seconds_to_target"] == "", first is None)
            if first is not None:
                self.assertAlmostEqual(float(r["seconds_to_target"]), first["wall_seconds"],
                                       delta=1e-3 * first["wall_seconds"])
        for condition in ("slow=none", "slow=0:5"):
            judged = [(float(r["seconds_to_target"]), float(r["megabytes_to_target"]), r["front"]) for r in rows
                      if r["condition"] == condition and r["seconds_to_target"]]
            for t, b, front in judged:
                beaten = any(x <= 1.01 * t and y <= 1.01 * b and (x < t / 1.01 or y < b / 1.01) for x, y, _ in judged)
                self.assertEqual(front, "" if beaten else "yes")
        self.seen(out + "/compare.html")

    @unittest.skipUnless(SIMULATOR, "the simulator is not built")
    def test_comparison_shows_optimizers_full_commands_and_ten_evaluations(self):
        """Of every method, with the defaults of its own. A command that is typed again is the same
        run, whatever the environment says an optimizer is."""
        methods = [m["name"] for m in json.loads(tutti("methods", "--json").stdout)]
        out = self.out("all-methods")
        done = self.compare(out, "--transport", "sim", "--step-time", "0.01", "--steps", "50", "--batch", "8",
                            "--seeds", "1", "--slow", "1:2", "--methods", ",".join(methods))
        setting = ("Model: mlp(hidden=16), data: %s, workers: 4, batch: 8, steps: 50, network: sim, "
                   "slow workers: 1:2, step-time: 0.01." % self.data)
        page, rows, runs = Page(out + "/compare.html"), self.results(out), self.results(out, "runs.csv")
        self.assertIn(setting, done.stdout)
        self.assertIn("<p>%s</p>" % setting, page.text)
        self.assertGreaterEqual(len(rows), len(methods) - 1, "one has no stages for so small a batch")
        rates = {}
        for k, (row, run) in enumerate(zip(rows, runs)):
            name = row["method"]
            folder = os.path.join(out, "runs", run["run"])
            with open(folder + "/config.json") as f:
                optimizer = json.load(f)["optimizer"]
            self.assertEqual((row["optimizer"], run["optimizer"]), (optimizer, optimizer), name)
            rates[name] = row["learning_rate"]
            self.assertIn(" --optimizer '%s'" % optimizer, run["command"])
            self.assertIn(html.escape(run["command"], quote=False), page.text.replace("&quot;", '"'))
            told = [json.loads(line) for line in read(folder + "/metrics.jsonl").splitlines()]
            # but for two that measure, steps of biased-local-sgd are longer than a tenth of the run
            steps = summary(folder)["steps"] - (2 if name == "biased-local-sgd" else 0)
            self.assertEqual(sum("test_loss" in line for line in told), min(10, steps), name)
            if LONG or k % 6 == 0:
                again = self.out("again-" + run["run"])
                subprocess.run(TUTTI + run["command"][5:] + " --quiet --out " + again, shell=True, check=True,
                               env=clean_environment(TUTTI_OPTIMIZER="sgd(lr=9)"))
                self.assertEqual(self.model(again), self.model(folder), name)
                for member in ("wall_seconds", "bytes_sent_total", "final_test_loss"):
                    self.assertEqual(summary(again)[member], summary(folder)[member], name)
        self.assertEqual((rates["ddp"], rates["asgd"], rates["signum"], rates["powersgd"]),
                         ("0.05", "0.025", "0.001", "0.02"))

    @unittest.skipUnless(SIMULATOR, "the simulator is not built")
    def test_ties_are_reported_and_plots_have_labels(self):
        """zero has ddp's time to some messages, so neither keeps the other from being first, and a few
        bytes make no front. Figures of a column have the same decimals. One evaluation is a dot."""
        out = self.out("near")
        methods = ["ddp", "zero", "parameter-server", "local-sgd(4)", "d-psgd", "sgp", "hop", "rand-psgd",
                   "local-sgd(period=10,warmup=3)"]
        done = self.compare(out, "--transport", "sim", "--step-time", "0.01", "--methods", ",".join(methods), "--seeds",
                            "2", "--steps", "60", "--slow", "1:2", "--target", "accuracy=0.5")
        rows = {r["method"]: r for r in self.results(out)}
        bytes_of = {m: float(rows[m]["megabytes_to_target"]) for m in ("ddp", "zero", "parameter-server")}
        self.assertLess(max(bytes_of.values()) / min(bytes_of.values()), 1.01)
        front = {m for m, r in rows.items() if r["front"]}
        self.assertTrue(front)
        for m in front:
            t, b = (float(rows[m][name]) for name in ("seconds_to_target", "megabytes_to_target"))
            self.assertFalse([o for o in rows.values() if float(o["seconds_to_target"] or "inf") <= 1.01 * t
                              and float(o["megabytes_to_target"] or "inf") < b / 1.01])
        answer = next(line for line in done.stdout.splitlines() if line.startswith("Soonest at the target: "))
        first, ties = re.match(r"Soonest at the target: (.*?) \([\d.]+ s\)"
                               r"(?:; tied within the seeds: (.*?))?\. Fewest", answer).groups()
        most = float(rows[first]["seconds_to_target_most"] or "inf")
        near = [m for m in methods if m != first and rows[m]["seconds_to_target"] and
                float(rows[m]["seconds_to_target_least"]) <= most]
        self.assertEqual(ties.split(", ") if ties else [], near)
        self.assertGreater(len(near), 0, answer)
        for member, decimals in (("accuracy_percent", 2), ("waiting_percent", 2), ("test_loss", 4)):
            self.assertEqual({len(r[member].partition(".")[2]) for r in rows.values()}, {decimals})
        page = self.whole(out + "/compare.html")
        if GNUPLOT:
            self.assertNotIn("in the order of the table", page.text)
            named = next(f for f in re.findall(r"<figure.*?</figure>", page.text, re.S) if "median and range" in f)
            shown = re.findall(r"<text>([^<]*)</text>", named)
            self.assertEqual([s for s in shown if s in methods], methods[:-1])
            self.assertIn("local-sgd(period=10,war\u2026", shown)
            curve = re.search(r"<figure.*?</figure>", page.text, re.S)[0]
            self.assertEqual(set(re.findall(r"<text>(\d)</text>", curve)) >= set("123456789"), True)
            self.assertIn("<i>9</i> local-sgd(period=10,warmup=3)", page.text)
            lines = re.findall(r"stroke='rgb\([^)]*\)'(?: stroke-dasharray='[^']*')?", curve[curve.index("series"):])
            self.assertEqual(len(set(lines)), 9)
        out = self.out("dot")
        self.compare(out, "--transport", "sim", "--methods", "ddp", "--seeds", "1", "--steps", "2", "--eval-every", "5")
        if GNUPLOT:
            curve = re.search(r"<figure.*?</figure>", read(out + "/compare.html").decode(), re.S)[0]
            scale = re.search(r"<use[^>]*scale\(([\d.]+)\)", curve.split('class="series"')[1])
            self.assertGreater(float(scale[1]), 4)

    @unittest.skipUnless(SIMULATOR, "the simulator is not built")
    def test_killed_comparison_resumes_and_ends_with_the_same_files(self):
        words = ["compare", "--data", self.data, "--out", "it", *self.WORK, *self.pictures(), "--transport", "sim",
                 "--methods", "ddp,ad-psgd", "--seeds", "3"]
        homes = [self.out("whole"), self.out("killed")]
        for home in homes:
            os.makedirs(home)
        subprocess.run([TUTTI, *words], check=True, cwd=homes[0], env=clean_environment(), capture_output=True)
        for how in (signal.SIGKILL, signal.SIGTERM):
            run = subprocess.Popen([TUTTI, *words], cwd=homes[1], env=clean_environment(), stdout=subprocess.PIPE,
                                   stderr=subprocess.PIPE, text=True)
            ended = os.path.join(homes[1], "it/runs/%s/summary.json" % ("0001" if how == signal.SIGKILL else "0003"))
            deadline = time.monotonic() + 60
            while not os.path.exists(ended) and time.monotonic() < deadline and run.poll() is None:
                time.sleep(0.01)
            children = children_of(run.pid)
            run.send_signal(how)
            _, err = run.communicate(timeout=60)
            while any(map(alive, children)) and time.monotonic() < deadline:
                time.sleep(0.01)
            self.assertFalse(any(map(alive, children)))
            self.assertFalse(os.path.exists(os.path.join(homes[1], "it/compare.html")), "it had ended by then")
            if how == signal.SIGTERM:
                self.assertEqual(run.returncode, 128 + how)
                self.assertIn("to continue: tutti compare --resume it", err)
            words = ["compare", "--resume", "it", *self.pictures()]
        kept = os.stat(os.path.join(homes[1], "it/runs/0001/summary.json")).st_mtime_ns
        done = subprocess.run([TUTTI, *words], cwd=homes[1], env=clean_environment(TUTTI_BATCH="32"),
                              capture_output=True, text=True)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertEqual(os.stat(os.path.join(homes[1], "it/runs/0001/summary.json")).st_mtime_ns, kept, "it ran again")
        # a run that is killed between its summary and its end is over; its lock stays, which no
        # process holds (src/launch/claim.c)
        names = lambda home: sorted(os.path.relpath(f, home) for f in self.files(home) if os.path.basename(f) != "lock")
        self.assertEqual(names(homes[0]), names(homes[1]))
        for name in ("table.txt", "results.csv", "runs.csv", "compare.html"):
            self.assertEqual(*(read(os.path.join(home, "it", name)) for home in homes), name)
        for k in range(6):
            self.assertEqual(*(read(os.path.join(home, "it/runs/%04d/model.safetensors" % k)) for home in homes))
        again = subprocess.run([TUTTI, *words], cwd=homes[1], env=clean_environment(), capture_output=True, text=True)
        self.assertEqual(again.returncode, 0, again.stderr)

    @unittest.skipUnless(SIMULATOR, "the simulator is not built")
    def test_methods_share_one_grid_and_show_their_best(self):
        out = self.out("grid")
        self.compare(out, "--transport", "sim", "--methods", "ddp,local-sgd(4)", "--seeds", "7,", code=2)
        self.compare(out, "--transport", "sim", "--methods", "ddp,local-sgd(4)", "--seeds", "7,9", "--grid",
                     "lr=1e-9,0.05,1e-8", "--grid", "momentum=0.5,0.9", "--target", "loss=1e-9")
        runs, rows = self.results(out, "runs.csv"), self.results(out)
        self.assertEqual(len(runs), 24)
        self.assertEqual({r["seed"] for r in runs}, {"7", "9"})
        for row in rows:
            self.assertRegex(row["tuned"], r"^lr=0.05 momentum=0\.[59] \(border\)$")
            self.assertEqual((row["reached"], row["seconds_to_target"]), ("0", ""))
        with open(out + "/plan.json") as f:
            plan = json.load(f)
        self.assertEqual([r["row"] for r in plan["runs"][:4]], [0, 1, 0, 1], "they take turns")
        self.assertIn("sgd(lr=1e-9,momentum=0.5)", plan["runs"][0]["words"])

    def test_real_time_comparison_rejects_concurrent_jobs(self):
        out = self.out("shm")
        self.compare(out, "--methods", "ddp,local-sgd(4)", "--seeds", "1", "-n", "2", "--jobs", "2", code=2)
        shutil.rmtree(out)
        self.compare(out, "--methods", "ddp,local-sgd(4)", "--seeds", "1", "-n", "2")
        self.assertEqual([r["method"] for r in self.results(out)], ["ddp", "local-sgd(4)"])

    def test_options_that_do_nothing_in_a_run_are_not_in_its_command(self):
        """As flags they would be refused there: min-workers counts in the second run alone, checkpoint-keep in none."""
        settings = self.out("settings") + ".yaml"
        with open(settings, "w") as f:
            f.write("checkpoint-keep: 5\n")
        out = self.out("void")
        self.compare(out, settings, "--methods", "ddp,ad-psgd", "--seeds", "1", "-n", "3", "--min-workers", "2",
                     "--transport", "shm")
        commands = [r["command"] for r in self.results(out, "runs.csv")]
        self.assertEqual(["--min-workers" in command for command in commands], [False, True], commands)
        self.assertFalse(any("--checkpoint-keep" in command for command in commands))

    def test_invalid_comparisons_are_rejected_before_anything_runs(self):
        out = self.out("none")
        work = ["compare", "--data", self.data, "--out", out, *self.WORK, *self.pictures()]
        for sentence, more in (
                ("nothing to compare; give --methods", []),
                ("there is no method 'dpd'", ["--methods", "ddp,dpd"]),
                ("methods has 'ddp' twice", ["--methods", "ddp,ddp"]),
                ("an element is missing next to a ','", ["--methods", "ddp,,d-psgd"]),
                ("there is no codec 'fp61'", ["--methods", "ddp", "--codecs", "fp61"]),
                ("--vary is 'slow'; write an option and its values", ["--methods", "ddp", "--vary", "slow"]),
                ("there is no option 'slw' of train", ["--methods", "ddp", "--vary", "slw=;0:5"]),
                ("rsh is given, and it does nothing without other hosts", ["--methods", "ddp", "--rsh", "ssh"]),
                ("slow is '9:5'", ["--methods", "ddp", "--vary", "slow=9:5"]),
                ("there is no option 'lrr' of the optimizer or of train", ["--methods", "ddp", "--grid", "lrr=1,2"]),
                ("--grid lr is -1", ["--methods", "ddp", "--grid", "lr=-1,2"]),
                ("seeds is 'x'", ["--methods", "ddp", "--seeds", "x"]),
                ("target is 'speed=3'", ["--methods", "ddp", "--target", "speed=3"]),
                ("target is 'loss=0x1'", ["--methods", "ddp", "--target", "loss=0x1"]),
                ("target is 'loss'", ["--methods", "ddp", "--target", "loss"]),
                ("--method is a list here", ["--methods", "ddp", "--method", "ddp"]),
                ("--seed is a list here", ["--methods", "ddp", "--seed", "1"]),
                ("there is no option '--methds'; did you mean 'methods'", ["--methods", "ddp", "--methds", "ddp"]),
                ("these lists make more than 10000 runs", ["--methods", "ddp,d-psgd", "--seeds", "1000", "--grid",
                                                           "lr=1,2,3,4,5,6"]),
                ("a comparison runs on this machine", ["--methods", "ddp", "-H", "a:2,b:2"])):
            with self.subTest(sentence):
                self.refused(sentence, *work, *more)
                self.assertFalse(os.path.exists(out))
        self.refused("holds no comparison", "compare", "--resume", self.folder, *self.pictures())
        self.refused("option '--methods' needs a value", "compare", "--methods")

    def test_a_plan_that_was_changed_by_hand_is_refused(self):
        out = self.out("plan")
        self.compare(out, "--methods", "ddp", "--seeds", "1", "-n", "1")
        self.refused("holds a comparison; continue it", "compare", "--methods", "ddp", "--out", out, *self.pictures())
        for more in (["--batch", "3"], ["--target", "loss=1"], ["--methods", "ddp"]):
            self.refused("continues a comparison as it was planned", "compare", "--resume", out, *more,
                         *self.pictures())
        plan = json.loads(read(out + "/plan.json"))
        for change in (dict(runs=[dict(plan["runs"][0], name="../x")]), dict(runs=[dict(plan["runs"][0], row=7)]),
                       dict(rows=[]), dict(command=[3]), dict(version=99), dict(points=[1])):
            with open(out + "/plan.json", "w") as f:
                json.dump(dict(plan, **change), f)
            self.refused("plan.json is ", "compare", "--resume", out, *self.pictures(), code=1)


if __name__ == "__main__":
    unittest.main(verbosity=2)
