"""The figures of a run as Prometheus reads them: in metrics.prom and at --metrics-port they are those of
metrics.jsonl, and the dashboard in examples/grafana has names of figures only."""
import json, os, re, signal, socket, subprocess, sys, time, unittest

sys.path.insert(0, os.path.join(os.path.dirname(__file__), ".."))
import exposition
from command import *
from ports import free_port

DASHBOARD = os.path.join(os.path.dirname(__file__), "../../examples/grafana/tutti.json")


def rows_of(out):
    return [json.loads(line) for line in read(os.path.join(out, "metrics.jsonl")).splitlines()]


def wanted(out):
    """{(name, labels): value} of the rows: of each figure the last one there was, unless that is null; of tensors those
    of each."""
    found = {}
    for row in rows_of(out):
        tensor, evaluates = row.get("tensor"), "test_loss" in row
        prefix = "codec/" if tensor else "evaluation/" if evaluates else ""
        numbers = {n: v for n, v in row.items() if not isinstance(v, list)} if tensor else row
        named = [(prefix + "step", row["step"])]
        null = {n: None for n, v in row.items() if v is None}
        named += [("codec/" + n if tensor else n, v) for n, v in {**curves(numbers), **null}.items()]
        for name, value in named:
            worker = re.fullmatch(r"(.*)/(\d+)", name)
            labels = {"run": os.path.basename(out)}
            if tensor:
                labels["tensor"] = tensor
            elif worker:
                name, labels["worker"] = worker[1], worker[2]
            found["tutti_" + re.sub(r"\W", "_", name), tuple(sorted(labels.items()))] = value
    return {at: value for at, value in found.items() if value is not None}


def flat(text):
    return {(name, labels): value for name, of in exposition.read(text).items() for labels, value in of.items()}


class Metrics(Case):
    def test_files_have_the_latest_figures_and_the_dashboard_names_that_there_are(self):
        out = self.train("a", "--model", "mlp(hidden=16)", "--data", self.data, "-n", 2, "--batch", 20, "--epochs", 2,
                         "--report-every", 5, "--codec", "ef(topk(ratio=0.1))", "--codec-report", 10,
                         "--log-to", "prometheus")
        figures = flat(read(os.path.join(out, "metrics.prom")).decode())
        self.assertEqual(figures, wanted(out))
        self.assertNotIn("metrics.prom.part", os.listdir(out))
        names = {name for name, _ in figures}
        self.assertGreater(len(names), 20)
        with open(DASHBOARD) as f:
            dashboard = json.load(f)
        asked = [target["expr"] for panel in dashboard["panels"] for target in panel.get("targets", ())]
        asked += [variable["definition"] for variable in dashboard["templating"]["list"] if "definition" in variable]
        self.assertGreater(len(asked), 10)
        for text in asked:
            known = set(re.findall(r"\btutti_\w+", text))
            self.assertTrue(known and known <= names, text)
            self.assertTrue("$run" in text or text.startswith("label_values("), text)
        ids = [panel["id"] for panel in dashboard["panels"]]
        self.assertEqual(len(ids), len(set(ids)))

    def test_a_run_that_goes_on_has_its_figures(self):
        common = ("--model", "quadratic(dim=8)", "-n", "2", "--report-every", "5", "--log-to", "prometheus")
        out = self.train("a", *common, "--steps", "10", "--checkpoint-every", "10")
        done = tutti("train", "--resume", out, "--steps", "20")
        self.assertEqual(done.returncode, 0, done.stderr)
        figures = flat(read(os.path.join(out, "metrics.prom")).decode())
        self.assertEqual(figures, wanted(out))
        self.assertEqual(figures["tutti_step", (("run", os.path.basename(out)),)], 20)

    def began(self, *arguments):
        """A run that ends at a signal, and its port, which answers."""
        port, out = free_port(), self.out("port")
        run = subprocess.Popen([TUTTI, "train", "--model", "quadratic(dim=8)", "--steps", "3000000", "-n", "2",
                                "--report-every", "1000", "--quiet", "--out", out, "--metrics-port", str(port),
                                *arguments], stderr=subprocess.PIPE, text=True, env=clean_environment())
        deadline = time.monotonic() + 60
        while run.poll() is None and time.monotonic() < deadline:
            try:
                if "tutti_step" in exposition.get(port):
                    return run, out, port
            except OSError:
                pass
            time.sleep(0.02)
        run.kill()
        self.fail(run.communicate()[1])

    def test_a_port_has_the_latest_figures_until_the_run_ends(self):
        run, out, port = self.began("--checkpoint-on-signal")
        with socket.create_connection(("127.0.0.1", port)), socket.create_connection(("127.0.0.1", port)) as garbage:
            garbage.sendall(b"\x16\x03\x01" * 100)
            run_label = (("run", os.path.basename(out)),)
            step = flat(exposition.get(port))["tutti_step", run_label]
            deadline = time.monotonic() + 60
            while flat(exposition.get(port))["tutti_step", run_label] <= step and time.monotonic() < deadline:
                time.sleep(0.02)
            self.assertGreater(flat(exposition.get(port))["tutti_step", run_label], step)
            second = self.out("second")
            self.refused("metrics-port %d cannot be had: another program, or another run of this one, has it" % port,
                         "train", "--model", "quadratic(dim=8)", "--steps", "10", "--metrics-port", str(port),
                         "--out", second)
            self.assertFalse(os.path.exists(second))
            run.send_signal(signal.SIGTERM)
            _, err = run.communicate(timeout=60)
        self.assertEqual(run.returncode, 128 + signal.SIGTERM, err)
        with self.assertRaises(OSError):
            exposition.get(port)
        self.assertNotIn("metrics.prom", os.listdir(out))

    def test_a_place_that_cannot_be_is_refused_before_anything_is_written(self):
        out = self.out("refused")
        for place, more, sentence in (("0", (), "metrics-port is '0'; give a port from 1 to 65535"),
                                      ("host:9400", (), "one of its addresses in numbers"),
                                      ("192.0.2.1:9400", (), "it is no address of this host"),
                                      ("9400", ("--transport", "sim"), "but the run is simulated")):
            self.refused(sentence, "train", "--model", "quadratic(dim=8)", "--steps", "10", "--metrics-port", place,
                         "--out", out, *more)
            self.assertFalse(os.path.exists(out))


if __name__ == "__main__":
    unittest.main(verbosity=2)
