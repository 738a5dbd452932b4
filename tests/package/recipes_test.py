"""Recipes of packages (packaging, debian) and jobs (examples/jobs): each is read as its tool would read it, as far as
that can be done without the tool, and what it asks of Tutti is there. Where a part can be run it is: the scripts of
Slurm with an srun of the test's own, and spot-watch with a server of its own. tools/deb builds debian/."""
import ast, glob, http.server, json, os, re, shlex, shutil, signal, subprocess, threading, time, unittest
from package import *
import manifests

try:
    import yaml
except ImportError:
    yaml = None
TUTTI = os.path.join(BUILD, "bin/tutti")
JOBS = os.path.join(SOURCE, "examples/jobs")
INDEX = "metadata.annotations['batch.kubernetes.io/job-completion-index']"
KEY = "5" * 64
SCRIPTS = ("train.sbatch", "script.sbatch", "join.sbatch") # of Slurm
NEEDS_YAML = unittest.skipUnless(yaml, "skipped: no python3-yaml: tools/setup --test installs it")


def text(*path):
    with open(os.path.join(SOURCE, *path)) as f:
        return f.read()


def documents(name):
    return list(yaml.safe_load_all(text("examples/jobs", name)))


def version():
    numbers = re.findall(r"(?m)^#define TUTTI_VERSION_(?:MAJOR|MINOR|PATCH) (\d+)$", text("include/tutti/base.h"))
    return ".".join(numbers)


def interface():
    major, minor, _ = version().split(".")
    return f"0.{minor}" if major == "0" else major


def pods(document):
    """(the Job's spec or None, the pod's spec) of a manifest."""
    spec = document["spec"]
    if document["kind"] == "TrainingRuntime":
        spec = spec["template"]["spec"]
    jobs = [one["template"]["spec"] for one in spec["replicatedJobs"]] if "replicatedJobs" in spec else [spec]
    return [(job, job["template"]["spec"]) for job in jobs if "template" in job]


def stages(recipe):
    """(instruction, rest) of each line of a Dockerfile."""
    lines = re.sub(r"\\\n", " ", re.sub(r"(?m)^#.*\n", "", recipe)).split("\n")
    return [tuple(line.split(None, 1)) for line in lines if line.strip()]


def sections(definition):
    """(name, body) of each section of an Apptainer definition; the header's lines are of the name ''."""
    parts = re.split(r"(?m)^%(\w+)(?: .*)?\n", re.sub(r"(?m)^#.*\n", "", definition))
    return [("", parts[0])] + list(zip(parts[1::2], parts[2::2]))


def tutti_commands(script):
    """The arguments of each `tutti` that a part of shell calls, its variables as words."""
    script = re.sub(r"\\\n\s*", " ", script)
    found = []
    for line in script.split("\n"):
        match = re.match(r"\s*(?:srun |exec |- )?(?:\S*/)?tutti (.*?)(?: \|\| .*)?$", line)
        if match:
            found.append(shlex.split(re.sub(r'"?\$\w+"?', "4", match[1].replace('"$out"', "out"))))
    return found


class Recipes(Case):
    def accepted(self, words, **environment):
        """`tutti config` takes what `tutti train` would, variables too."""
        self.assertEqual(words[0], "train", words)
        said = run(TUTTI, "config", *[word for word in words[1:]], cwd=self.folder,
                   TUTTI_DATA=os.path.join(SOURCE, "data"), **environment)
        return json.loads(said)

    def bash(self, script, name):
        path = self.write(re.sub(r"\W", "-", name), script)
        run("bash", "-n", path)

    # ---- shell ----

    def test_shell_parts_are_shell(self):
        parts = {name: text("examples/jobs", name) for name in (*SCRIPTS, "spot-watch")}
        parts |= {os.path.join("debian/tests", name): text("debian/tests", name) for name in
                  re.findall(r"(?m)^Tests: (\w+)$", text("debian/tests/control"))}
        for k, (what, rest) in enumerate(stages(text("packaging/docker/Dockerfile"))):
            if what == "RUN":
                parts[f"Dockerfile {k}"] = re.sub(r"^(--\S+ +)*", "", rest)
        for k, (name, body) in enumerate(sections(text("packaging/apptainer/tutti.def"))):
            if name in ("post", "test", "runscript"):
                parts[f"tutti.def {k}"] = body
        if yaml:
            for one in yaml.safe_load(text("packaging/conda/recipe.yaml"))["build"]["script"]:
                parts["conda " + one[:20]] = one
            (task,) = documents("skypilot.yaml")
            parts |= {"skypilot setup": task["setup"], "skypilot run": task["run"]}
        for name, script in parts.items():
            with self.subTest(name):
                self.bash(script, name)
        with self.assertRaises(AssertionError):
            self.bash("if true; then", "broken")

    # ---- what is asked of the command ----

    def test_commands_are_accepted_with_their_options(self):
        found = 0
        scripts = {name: text("examples/jobs", name) for name in ("train.sbatch", "script.sbatch")}
        scripts["apptainer"] = dict(sections(text("packaging/apptainer/tutti.def")))["test"]
        if yaml:
            scripts["skypilot"] = documents("skypilot.yaml")[0]["run"]
            tests = yaml.safe_load(text("packaging/conda/recipe.yaml"))["tests"]
            scripts["conda"] = "\n".join(line for test in tests for line in test.get("script", []))
        for name in ("train",):
            scripts["debian"] = text("debian/tests", name)
        for name, script in scripts.items():
            for words in tutti_commands(script):
                with self.subTest(name, words=words):
                    if words[0] == "train":
                        self.accepted(words)
                        found += 1
                    else:
                        self.assertIn(words[0], ("version", "eval", "check"))
        self.assertGreaterEqual(found, 4)
        self.assertIn("no option", run(TUTTI, "config", "--checkpoint-evry", "2", code=2, both=True))

    def test_run_that_machines_join_is_accepted(self):
        model = self.write("run.yaml", "model: mlp\ndata: mnist\n")
        for path in ("examples/jobs/join.sbatch", "docs/JOBS.md"):
            (command,) = re.findall(r"tutti (train run\.yaml --workers .*)", text(path))
            settings = self.accepted(shlex.split(command.replace("run.yaml", model).replace("ADDRESS", "127.0.0.1")))
            self.assertEqual(settings["workers"], "1:8")
            self.assertEqual(settings["threads"], 4)
        self.assertIn(" --cpus-per-task=4\n", text("examples/jobs/join.sbatch"))

    @NEEDS_YAML
    def test_pods_run_commands_that_are_accepted_with_their_variables(self):
        for name in ("job.yaml", "jobset.yaml"):
            for document in documents(name):
                if "template" not in document["spec"] and "replicatedJobs" not in document["spec"]:
                    continue
                ((job, pod),) = pods(document)
                (container,) = pod["containers"]
                variables = {one["name"]: one.get("value", KEY if "KEY" in one["name"] else "0")
                             for one in container["env"]}
                with self.subTest(name):
                    self.assertEqual(container["command"][0], "tutti")
                    settings = self.accepted(container["command"][1:], **variables)
                    self.assertEqual(job["completions"], int(variables["TUTTI_SIZE"]))
                    self.assertEqual(job["parallelism"], job["completions"])
                    self.assertEqual(job["completionMode"], "Indexed")
                    self.assertGreaterEqual(settings["elastic-shares"], job["completions"])
                    self.assertIn({"name": "TUTTI_RANK", "valueFrom": {"fieldRef": {"fieldPath": INDEX}}},
                                  container["env"])
                    # rank 0's name: of the pod of index 0, below the service that is there
                    service = "tutti"
                    prefix = "tutti" if document["kind"] == "Job" else "tutti-worker-0"
                    self.assertEqual(variables["TUTTI_MEET"], f"{prefix}-0.{service}:29500")
                    if document["kind"] == "Job":
                        self.assertEqual(pod["subdomain"], service)
                        self.assertEqual(document["metadata"]["name"], prefix)
                        self.assertIn(service, [one["metadata"]["name"] for one in documents(name)
                                                if one["kind"] == "Service"])
                    self.assertTrue(pod["securityContext"]["runAsNonRoot"])
                    self.assertEqual(pod["restartPolicy"], "Never") # a pod failure policy asks for it
                    codes = {code for rule in job["podFailurePolicy"]["rules"] if "onExitCodes" in rule
                             for code in rule["onExitCodes"]["values"]}
                    self.assertLessEqual({3, 128 + signal.SIGTERM}, codes)

    @NEEDS_YAML
    def test_pods_that_come_and_go_run_what_is_accepted(self):
        (document,) = documents("elastic.yaml")
        ((job, pod),) = pods(document)
        (container,) = pod["containers"]
        (_, _, script) = container["command"]
        (command,) = re.findall(r"tutti (train .*?) &\n", re.sub(r"\\\n", " ", script))
        settings = self.accepted(shlex.split(command.replace("$POD_IP", "10.1.2.3").replace("$run", "/runs/cnn")))
        self.assertEqual(settings["workers"], "1:%d" % job["completions"])
        self.assertEqual(job["parallelism"], job["completions"])
        self.assertEqual(str(settings["threads"]), container["resources"]["limits"]["cpu"])
        self.assertIn({"name": "POD_IP", "valueFrom": {"fieldRef": {"fieldPath": "status.podIP"}}}, container["env"])
        (codes,) = [rule["onExitCodes"]["values"] for rule in job["podFailurePolicy"]["rules"]
                    if rule["action"] == "Ignore" and "onExitCodes" in rule]
        self.assertEqual(codes, [3, 128 + signal.SIGTERM])
        self.assertEqual(pod["restartPolicy"], "Never")
        self.assertTrue(pod["securityContext"]["runAsNonRoot"])

    # ---- manifests ----

    @NEEDS_YAML
    def test_manifests_have_fields_of_their_api_only(self):
        for name in ("job.yaml", "jobset.yaml", "trainjob.yaml", "elastic.yaml"):
            for document in documents(name):
                with self.subTest(name, kind=document["kind"]):
                    self.assertEqual(manifests.faults(document, manifests.KINDS[document["kind"]]), [])
        self.assertEqual(manifests.faults(documents("skypilot.yaml")[0], manifests.SKYPILOT), [])
        self.assertEqual(manifests.faults(yaml.safe_load(text("packaging/conda/recipe.yaml")), manifests.CONDA), [])

    @NEEDS_YAML
    def test_a_misspelt_misplaced_or_missing_field_is_named(self):
        def job():
            return documents("job.yaml")[1]

        def said(document):
            return manifests.faults(document, manifests.KINDS[document["kind"]])

        document = job()
        document["spec"]["paralelism"] = document["spec"].pop("parallelism")
        self.assertEqual(said(document), [".spec.paralelism: is no field here"])
        document = job()
        document["spec"]["terminationGracePeriodSeconds"] = 3
        self.assertEqual(said(document), [".spec.terminationGracePeriodSeconds: is no field here"])
        document = job()
        del document["spec"]["template"]["spec"]["containers"][0]["image"]
        self.assertEqual(said(document), [".spec.template.spec.containers[0].image: is missing"])
        document = job()
        document["spec"]["completions"] = "4"
        self.assertEqual(said(document), [".spec.completions: '4' is no int"])
        document = job()
        document["spec"]["podFailurePolicy"]["rules"][0]["action"] = "Restart"
        self.assertIn("'Restart' is none of", said(document)[0])

    @NEEDS_YAML
    def test_what_pods_mount_is_a_volume_of_theirs(self):
        for name in ("job.yaml", "jobset.yaml", "trainjob.yaml", "elastic.yaml"):
            for document in documents(name):
                for _, pod in pods(document):
                    volumes = {one["name"] for one in pod["volumes"]}
                    for container in pod["containers"]:
                        self.assertEqual({one["name"] for one in container["volumeMounts"]}, volumes, name)

    # ---- scripts of Slurm ----

    def submit(self, script, code, restarts=0, run="train.py", under_way=False, taken=False, slow=False):
        """The script's exit code, what srun was asked, and what scontrol was. run: its first argument; under_way: a
        folder of that name has the file `join`; taken: the script gets SIGTERM, and hands it on to srun; slow: it takes
        a while for each of its commands, so that SIGTERM comes as soon as it has begun srun."""
        home = os.path.join(self.folder, f"slurm-{script}-{code}-{restarts}-{under_way}-{taken}-{slow}")
        os.makedirs(home)
        if under_way:
            os.mkdir(os.path.join(home, run))
            with open(os.path.join(home, run, "join"), "w"):
                pass
        pause = os.path.join(home, "pause")
        with open(pause, "w") as f:
            f.write("trap 'sleep 0.2' DEBUG\n" if slow else "")
        ends = (f"trap 'exit {code}' TERM; kill -TERM $PPID; while [ -e {pause} ]; do sleep 0.05; done" if taken
                else f"exit {code}")
        for name, body in (("srun", f'printf "%s\\n" "$@" >{home}/asked; {ends}'),
                           ("scontrol", f'echo "$@" >{home}/queued')):
            path = os.path.join(home, name)
            with open(path, "w") as f:
                f.write("#!/bin/sh\n" + body + "\n")
            os.chmod(path, 0o755)
        done = subprocess.run(["bash", os.path.join(JOBS, script), run, "a b"], cwd=home, capture_output=True,
                              text=True, timeout=20, env=CLEAN | {
                                  "PATH": home + ":" + os.environ["PATH"], "HOME": home, "SLURM_JOB_ID": "17",
                                  "SLURM_CPUS_PER_TASK": "4", "SLURM_RESTART_COUNT": str(restarts),
                                  "BASH_ENV": pause})
        self.assertEqual(done.stderr, "")
        with open(os.path.join(home, "asked")) as f:
            asked = f.read().splitlines()
        if not os.path.exists(os.path.join(home, "queued")):
            return done.returncode, asked, None
        with open(os.path.join(home, "queued")) as f:
            return done.returncode, asked, f.read().strip()

    def test_slurm_queues_again_what_was_saved_and_nothing_else(self):
        for script, again in (("train.sbatch", (3, 143)), ("script.sbatch", (138, 143))):
            for code in (0, 1, 2, 3, 137, 138, 143):
                ended, asked, queued = self.submit(script, code)
                self.assertEqual(ended, code)
                self.assertEqual(queued, "requeue 17" if code in again else None, f"{script} {code}")
            self.assertIsNone(self.submit(script, 143, restarts=50)[2])
            self.assertEqual(self.submit(script, 143, restarts=49)[2], "requeue 17")
        self.assertEqual(asked, ["python", "train.py", "a b"])
        asked = self.submit("train.sbatch", 0, restarts=1)[1]
        settings = self.accepted(asked[1:])
        self.assertEqual((settings["checkpoint-on-signal"], settings["on-loss"], settings["threads"]),
                         (True, "stop", 4))
        for option, value in (("--resume", "auto"), ("--out", "runs/17")):
            self.assertEqual(asked[asked.index(option) + 1], value)

    def test_slurm_has_a_worker_join_again_while_the_run_is_under_way(self):
        """0 without a signal is that of `tutti leave`, or of the run's end."""
        for taken in (False, True):
            for code in (0, 1, 2, 3, 137, 143):
                ended, asked, queued = self.submit("join.sbatch", code, run="runs", under_way=True, taken=taken)
                self.assertEqual((ended, asked), (code, ["tutti", "join", "runs", "a b"]))
                self.assertEqual(queued, "requeue 17" if code == 3 or (code == 0 and taken) else None, code)
                self.assertIsNone(self.submit("join.sbatch", code, run="runs", taken=taken)[2])
        self.assertIsNone(self.submit("join.sbatch", 3, restarts=50, run="runs", under_way=True)[2])
        self.assertEqual(self.submit("join.sbatch", 0, run="runs", under_way=True, taken=True, slow=True),
                         (0, ["tutti", "join", "runs", "a b"], "requeue 17"))

    def test_slurm_sends_the_signal_that_the_program_saves_at(self):
        """`tutti train` knows SIGTERM alone; a script SIGUSR1, too (docs/PYTORCH.md)."""
        self.assertIn("#SBATCH --signal=TERM@120\n", text("examples/jobs/train.sbatch"))
        self.assertIn("#SBATCH --signal=USR1@120\n", text("examples/jobs/script.sbatch"))
        self.assertIn("#SBATCH --signal=B:TERM@60\n", text("examples/jobs/join.sbatch"))
        for name in SCRIPTS:
            script = text("examples/jobs", name)
            directives = [line for line in script.split("\n") if line.startswith("#SBATCH")]
            self.assertIn("#SBATCH --requeue", directives)
            before = script[:script.index(directives[-1])]
            self.assertTrue(all(line.startswith("#") for line in before.split("\n") if line)) # Slurm stops at a command

    # ---- spot-watch ----

    def watched(self, cloud, taken, *command):
        """Exit code and stderr of a command under spot-watch, whose cloud takes the machine, or not."""
        class Cloud(http.server.BaseHTTPRequestHandler):
            asked = []

            def answer(self, code, body, etag=None):
                self.asked.append(self.path)
                self.send_response(code)
                self.send_header("Content-Length", str(len(body)))
                if etag is not None:
                    self.send_header("ETag", etag)
                self.end_headers()
                self.wfile.write(body)

            def do_PUT(self):
                self.answer(200 if "X-aws-ec2-metadata-token-ttl-seconds" in self.headers else 400, b"token")

            def do_GET(self):
                if cloud == "aws":
                    if self.headers["X-aws-ec2-metadata-token"] != "token":
                        return self.answer(401, b"")
                    return self.answer(200, b'{"action": "terminate"}') if taken else self.answer(404, b"")
                if self.headers["Metadata-Flavor"] != "Google":
                    return self.answer(403, b"")
                # It is taken between the first answer and the second question.
                now = b"TRUE" if taken and len(self.asked) > 0 else b"FALSE"
                seen = re.search(r"[?&]last_etag=([^&]*)", self.path)
                if seen is None or seen.group(1) == f"e-{now.decode()}": # it waits for the next change
                    time.sleep(40 if taken else 1.5)
                self.answer(200, now, f"e-{now.decode()}")

            def log_message(self, *_):
                pass

        server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Cloud)
        threading.Thread(target=server.serve_forever, daemon=True).start()
        begun = time.monotonic()
        try:
            done = subprocess.run([os.path.join(JOBS, "spot-watch"), cloud, *command], capture_output=True, text=True,
                                  timeout=30, env=CLEAN | {"METADATA": f"http://127.0.0.1:{server.server_port}"})
        finally:
            server.shutdown()
            server.server_close()
        return done.returncode, done.stderr, time.monotonic() - begun

    def test_spot_watch_sends_sigterm_when_the_machine_is_taken(self):
        if not shutil.which("curl"):
            self.skipTest("skipped: no curl: tools/setup --test installs it")
        saving = "trap 'echo saved >&2; exit 143' TERM; while :; do sleep 0.1; done"
        for cloud in ("aws", "gcp"):
            code, said, _ = self.watched(cloud, True, "bash", "-c", saving)
            self.assertEqual(code, 143, said)
            self.assertEqual(said, "spot-watch: this machine will be taken; the command gets SIGTERM\nsaved\n")

    def test_spot_watch_ends_as_its_command_and_leaves_nothing(self):
        if not shutil.which("curl"):
            self.skipTest("skipped: no curl: tools/setup --test installs it")
        for cloud in ("aws", "gcp"):
            # what it leaves would keep stderr open, and the test waiting
            code, said, seconds = self.watched(cloud, False, "bash", "-c", "sleep 0.5; exit 7")
            self.assertEqual((code, said), (7, ""))
            self.assertLess(seconds, 20)

    def test_spot_watch_refuses_an_unknown_cloud(self):
        watch = os.path.join(JOBS, "spot-watch")
        self.assertEqual(run(watch, "azure", "true", code=2, both=True),
                         "spot-watch: there is no cloud 'azure'; aws and gcp are known\n")
        self.assertIn("usage", run(watch, "aws", code=2, both=True))

    # ---- images and packages ----

    def test_dockerfile_is_of_known_parts_and_ends_as_another_user_than_root(self):
        parts = stages(text("packaging/docker/Dockerfile"))
        known = {"ARG", "FROM", "COPY", "RUN", "USER", "WORKDIR", "CMD", "ENV"}
        self.assertEqual({what for what, _ in parts} - known, set())
        users, current, named = {}, None, {"debian:${DEBIAN}": None}
        for what, rest in parts:
            if what == "FROM":
                base, _, name = rest.partition(" AS ")
                self.assertIn(base, named)
                current, users[name] = name, named[base]
            if what == "USER":
                users[current] = rest
            if what in ("FROM", "USER"):
                named[current] = users[current]
        self.assertEqual({name: users[name] for name in ("command", "torch", "")},
                         dict.fromkeys(("command", "torch", ""), "1000:1000"))
        self.assertIn(("CMD", '["tutti", "version"]'), parts)

    def test_images_install_packages_that_debian_control_has(self):
        made = re.findall(r"(?m)^Package: (\S+)$", text("debian/control"))
        self.assertEqual(sorted(made), sorted(["libtutti" + interface(), "libtutti-dev", "python3-tutti", "tutti"]))
        for recipe in ("packaging/docker/Dockerfile", "packaging/apptainer/tutti.def"):
            patterns = re.findall(r"/packages/(\S+?)\*\.deb", text(recipe))
            self.assertEqual(len(patterns), 3, recipe)
            for pattern in patterns:
                self.assertEqual(sum((name + "_").startswith(pattern) for name in made), 1, pattern)

    def test_definition_of_apptainer_has_its_stages(self):
        parts = sections(text("packaging/apptainer/tutti.def"))
        known = {"", "files", "post", "runscript", "test", "labels", "help"}
        self.assertEqual({name for name, _ in parts} - known, set())
        whole = text("packaging/apptainer/tutti.def")
        self.assertEqual(re.findall(r"(?m)^Stage: (\w+)$", whole), ["build", "final"])
        self.assertEqual(len(re.findall(r"(?m)^Bootstrap: docker\nFrom: debian:\S+\nStage: ", whole)), 2)
        self.assertIn("%files from build\n", whole)

    def test_recipes_ask_for_the_libraries_of_the_build(self):
        """cmake/Dependencies.cmake names Debian's packages; what others call them stands here."""
        needed = set(re.findall(r"(?:;|Debian: )((?:lib|zlib)[a-z0-9]+-dev)", text("cmake/Dependencies.cmake")))
        self.assertGreaterEqual(len(needed), 11)
        asked = set(re.findall(r"(?m)^ ([a-z0-9-]+)(?: \(.*\))?,$", text("debian/control")))
        self.assertEqual(needed - asked, {"libcmocka-dev"})
        names = {"libdnnl-dev": ("onednn", "onednn"), "libhwloc-dev": ("libhwloc", "hwloc"),
                 "libjansson-dev": ("jansson", "jansson"), "liblapacke-dev": ("liblapacke", "netlib-lapack+lapacke"),
                 "libpng-dev": ("libpng", "libpng"), "libsodium-dev": ("libsodium", "libsodium"),
                 "libturbojpeg0-dev": ("libjpeg-turbo", "libjpeg-turbo"), "liburing-dev": ("liburing", "liburing"),
                 "libxxhash-dev": ("xxhash", "xxhash"), "libyaml-dev": ("yaml", "libyaml"),
                 "zlib1g-dev": ("zlib", "zlib-api"), "libsimgrid-dev": (None, "simgrid")}
        self.assertEqual(set(names), needed - {"libcmocka-dev"})
        conda, spack = text("packaging/conda/recipe.yaml"), text("packaging/spack/package.py")
        for in_conda, in_spack in names.values():
            if in_conda:
                self.assertIn(f"    - {in_conda}\n", conda)
            self.assertRegex(spack, rf'depends_on\("{re.escape(in_spack)}[@"]')

    # ---- Python ----

    def test_python_recipes_compile_and_call_what_there_is(self):
        for name in ("packaging/spack/package.py", "examples/jobs/ray_train.py"):
            compile(text(name), name, "exec")
        tree = ast.parse(text("examples/jobs/ray_train.py"))
        called = {ast.unparse(node) for node in ast.walk(tree) if isinstance(node, ast.Attribute)}
        public = {name for node in ast.walk(ast.parse(text("python/tutti/torch/__init__.py")))
                  if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "__all__"
                  for name in ast.literal_eval(node.value)}
        self.assertLessEqual({name[len("tutti.torch."):] for name in called if name.startswith("tutti.torch.")}, public)
        optimizer = next(node for node in ast.parse(text("python/tutti/torch/prepare.py")).body
                         if isinstance(node, ast.ClassDef) and node.name == "Optimizer")
        own = {node.name for node in optimizer.body if isinstance(node, ast.FunctionDef)}
        self.assertLessEqual({name[len("optimizer."):] for name in called if name.startswith("optimizer.")},
                             own | {"zero_grad", "step"})

    # ---- pages ----

    def test_pages_name_each_recipe_and_job(self):
        install, jobs = text("docs/INSTALL.md"), text("docs/JOBS.md")
        for path in glob.glob(os.path.join(SOURCE, "packaging/*/*")):
            self.assertIn("../" + os.path.relpath(path, SOURCE), install)
        for path in glob.glob(os.path.join(JOBS, "*")):
            if "__pycache__" not in path:
                self.assertIn("../" + os.path.relpath(path, SOURCE), jobs)


if __name__ == "__main__":
    unittest.main(verbosity=2)
