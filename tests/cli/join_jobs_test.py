"""Workers that a scheduler starts and takes, by the scripts that docs/JOBS.md has (examples/jobs): real processes, and
the model, byte for byte, of a run that nothing disturbs."""
import http.server, os, re, shlex, shutil, textwrap, threading, unittest
from elastic_runs import *


class JoinJobs(ElasticRuns):

    def test_a_spot_machine_that_is_taken_leaves_by_what_the_page_of_jobs_has(self):
        if not shutil.which("curl"):
            self.skipTest("skipped: no curl: tools/setup --test installs it")
        taken = threading.Event()

        class Cloud(http.server.BaseHTTPRequestHandler):
            def do_GET(self): # the question that waits
                body = b"TRUE" if taken.wait(60) else b"FALSE"
                self.send_response(200)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *_):
                pass

        server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Cloud)
        self.addCleanup(server.server_close)
        self.addCleanup(server.shutdown)
        self.addCleanup(taken.set)
        threading.Thread(target=server.serve_forever, daemon=True).start()
        run, out = self.begin("stays", 160, "--workers", "1:6", "-n", "2", "--restarts", "0", "--meet", "127.0.0.1")
        address = re.search(r"tutti join (\S+) --key", self.said("stays")).group(1)
        spot = self.start("spot", "join", address, "--key", os.path.join(out, "join"),
                          before=[os.path.join(os.path.dirname(__file__), "../../examples/jobs/spot-watch"), "gcp"],
                          METADATA="http://127.0.0.1:%d" % server.server_port)
        self.workers_become(3, "stays", "spot")
        taken.set()
        self.workers_become(2, "stays", "spot")
        self.ends(0, spot, "stays", "spot")
        self.assertIn("spot-watch: this machine will be taken; the command gets SIGTERM\n", self.said("spot"))
        self.assertIn("this worker has left the run", self.said("spot"))
        self.ends(0, run, "stays", "spot")
        self.same_as_undisturbed(160, out)

    def test_pods_that_are_taken_leave_and_join_again_by_the_manifest(self):
        with open(os.path.join(os.path.dirname(__file__), "../../examples/jobs/elastic.yaml")) as f:
            script = re.search(r"- bash\n +- -c\n +- \|\n(.*?)          env:\n", f.read(), re.S).group(1)
        script = textwrap.dedent(script)
        out, steps = self.out("pods"), 200
        own = [*COMMON, "--data", self.data, "--steps", steps, "--slow", "*:150"]
        for before, after in (("--model=cnn --data=mnist --epochs=10 --batch=32", shlex.join(map(str, own))),
                              ("--workers=1:8", "--workers=1:6"), ("--threads=4", "--threads=1"), ("/runs/cnn", out)):
            self.assertEqual(script.count(before), 1)
            script = script.replace(before, after)

        def pod(index, start):
            return self.start("pod%d-%d" % (index, start), before=["bash", "-c", script], POD_IP="127.0.0.1",
                              PATH=os.path.dirname(TUTTI) + ":" + os.environ["PATH"], JOB_COMPLETION_INDEX=str(index))

        def workers(n):
            self.until(lambda: ": %d worker" % n in tutti("leave", out).stdout, *names)

        names = ["pod%d-%d" % (index, start) for start in (1, 2) for index in range(3)]
        for name in names: # all are read
            for end in (".out", ".err"):
                open(os.path.join(self.folder, name + end), "w").close()
        second = pod(1, 1) # before there is a run
        self.processes.insert(0, first := pod(0, 1))
        third = pod(2, 1)
        workers(3)
        second.terminate()
        self.ends(143, second, *names)
        workers(2)
        again = pod(1, 2)
        workers(3)
        first.terminate() # the launcher
        self.ends(143, first, *names)
        self.processes.insert(0, third)
        self.refused("the run of '%s/join' is under way, and its workers answer; take part by `tutti join OUT`" % out,
                     "train", *own, "--out", out, "--overwrite") # the launcher and its claim are gone
        last = pod(0, 2)
        workers(3)
        for process in (again, third, last):
            self.ends(0, process, *names)
        self.same_as_undisturbed(steps, out)
        self.ends(0, pod(2, 2), *names) # made again after the end


if __name__ == "__main__":
    unittest.main(verbosity=2)
