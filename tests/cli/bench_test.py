"""`tutti bench`: rows and tables have what they promise, absent peers are reported, nothing is left
behind. What bench/run records with a row; how docs/PERFORMANCE.md uses rows and bounds. No
figure is judged."""
import contextlib, io, json, os, re, shutil, signal, subprocess, sys, time, unittest, unittest.mock
from command import *

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../netlab"))
from lab import NETLAB, needs_lab  # noqa: E402

ROOT = os.path.abspath(os.path.join(os.path.dirname(__file__), "../.."))
sys.path.insert(0, ROOT + "/bench")
import record  # noqa: E402


def rows(done):
    return [json.loads(line) for line in done.stdout.splitlines()]


def layers_last(found):
    """Names in order, but layers, which come by their time, by name."""
    return [name for name in found
            if not name.startswith("layer ")] + sorted(name for name in found if name.startswith("layer "))


class Bench(Case):
    IN_MEMORY = False  # disks are measured here

    def bench(self, *arguments, code=0, **environment):
        done = tutti("bench", *arguments, **environment)
        self.assertEqual(done.returncode, code, done.stderr + done.stdout)
        return done

    def peers(self, **scripts):
        """A folder with bench/peers/NAME for each; the command finds it from there."""
        folder = self.out("peers")
        os.makedirs(folder + "/bench/peers")
        for name, text in dict(dict(allreduce="exit 2", tune="exit 2"), **scripts).items():
            with open(f"{folder}/bench/peers/{name}", "w") as f:
                f.write("#!/bin/sh\n" + text)
            os.chmod(f.name, 0o755)
        return folder

    def at(self, folder, *arguments):
        return subprocess.run([TUTTI, "bench", *map(str, arguments)], capture_output=True, text=True, cwd=folder,
                              env=clean_environment(), timeout=60)

    def test_each_benchmark_has_a_help_page(self):
        for name, option in (("allreduce", "with-peers"), ("step", "method"), ("io", "dir"), ("kernels", "bytes"),
                             ("codec", "rows")):
            done = self.bench(name, "--help")
            self.assertIn("tutti bench " + name, done.stdout)
            self.assertRegex(done.stdout, r"(?m)^  --%s " % option)
            self.assertIn("tutti bench " + name, tutti("bench", "--help").stdout)

    def test_misspelt_options_and_invalid_values_are_rejected_with_hints(self):
        self.refused("name one: allreduce, step, io, kernels or codec", "bench")
        self.refused("there is no benchmark 'alreduce'; did you mean 'allreduce'?", "bench", "alreduce")
        self.refused("there is no option '--size' of bench allreduce; did you mean 'sizes'", "bench", "allreduce",
                     "--size", "4")
        self.refused("bench io takes options only, not 'here'", "bench", "io", "here")
        self.refused("option '--bytes' needs a value", "bench", "io", "--bytes")
        self.refused("'4k' is not a size; write a number of bytes such as 4, 64KiB, 16MiB or 1GiB", "bench",
                     "allreduce", "--sizes", "4k")
        self.refused("size '0' is out of range; it must be from 1 B to 1024 GiB", "bench", "allreduce", "--sizes", "0")
        self.refused("size '99999999999999999999' is out of range", "bench", "allreduce",
                     "--sizes", "99999999999999999999")
        self.refused("size 6 is no number of floats; it must be a multiple of 4 bytes", "bench", "allreduce",
                     "--sizes", "6")
        self.refused("size '4' stands behind a larger or equal one; write sizes in rising order", "bench", "allreduce",
                     "--sizes", "8,4")
        self.refused("no sizes", "bench", "allreduce", "--sizes", "")
        self.refused("-n is 0; it must be from 1 to 1024", "bench", "allreduce", "-n", "0")
        self.refused("it must be on, off or both", "bench", "allreduce", "--registered", "maybe")
        self.refused("no algorithm of collectives is named 'exchagne'; did you mean 'exchange'?", "bench", "allreduce",
                     "--algorithm", "exchagne")
        self.refused("shn", "bench", "allreduce", "--transport", "shn")
        self.refused("--tune measures every algorithm on one kind of buffer", "bench", "allreduce",
                     "--tune", self.out("t"))
        self.refused("there is no kernel 'axp'; did you mean 'axpy'", "bench", "kernels", "--only", "axp")
        self.refused("/nowhere", "bench", "io", "--dir", "/nowhere", "--bytes", "1MiB", code=1)
        self.refused("MiB free, but three times ", "bench", "io", "--dir", self.folder, "--bytes", "1024GiB")
        self.refused("the peer has models mlp, cnn, resnet(depth), vgg(small), gpt(layers,dim,heads,context), "
                     "wordlm(vocab,dim,hidden,context), blstm(layers,hidden) and ctr(dim,layers,hidden), "
                     "not 'mlp(hidden=8)'", "bench", "step", "--model", "mlp(hidden=8)", "--with-peers")
        self.refused("there is no method 'dpp'", "bench", "step", "--method", "dpp", "--data", self.data)

    def test_allreduce_measures_every_size_on_both_kinds_of_buffers(self):
        shm = shm_entries()
        found = rows(self.bench("allreduce", "-n", 3, "--sizes", "4,1KiB,65540", "--repeat", 2, "--seconds", 0.001,
                                "--json"))
        self.assertEqual([r["name"] for r in found], [f"allreduce/3/{size}/{kind}" for size in ("4B", "1KiB", "65540B")
                                                      for kind in ("registered", "foreign")])
        for r in found:
            self.assertLessEqual({"name", "value", "unit", "ratio", "against", "command", "tutti", "p99_us", "gbps",
                                  "bus_gbps", "calls"}, set(r))
            self.assertEqual(r["unit"], "us")
            self.assertLessEqual(r["min_us"], r["value"])
            self.assertLessEqual(r["value"], r["max_us"])
            self.assertGreaterEqual(r["p99_us"], r["min_us"])
            self.assertGreaterEqual(r["calls"], 7)
            self.assertAlmostEqual(r["gbps"] * r["value"] * 1e3 / r["bytes"], 1, 3)
            self.assertAlmostEqual(r["bus_gbps"] / r["gbps"], 2 * 2 / 3, 4)  # both are printed with six digits
        self.assertIn("-n 3 --sizes 4,1KiB,65540", found[0]["command"])
        self.assertEqual(shm_entries(), shm)

    def test_allreduce_prints_a_table_of_the_asked_kind_and_algorithm(self):
        done = self.bench("allreduce", "--sizes", "4,1KiB", "--registered", "off", "--algorithm", "tree", "--repeat", 1,
                          "--seconds", 0.001)
        self.assertIn("2 workers, shm, algorithm tree", done.stdout)
        self.assertRegex(done.stdout, r"(?m)^  1KiB +foreign +[0-9.]+ +[0-9.]+ +[0-9.]+ +[0-9.]+$")
        self.assertNotIn("registered", done.stdout)
        self.assertRegex(self.bench("allreduce", "-n", 1, "--sizes", "4", "--repeat", 1, "--seconds", 0.001).stdout,
                         r"4B +registered +[0-9.]+")

    def test_peers_alternate_and_ratios_compare_the_same_buffer_kind(self):
        folder = self.peers(allreduce='[ "$2 $3" = "2 4,1024" ] || exit 9\necho "$1" >>turns\n'
                            'p=; [ $1 = limit ] && p="limit-registered "; echo "${p}4 1000000 2000000 50"; '
                            '[ $1 = limit ] && p="limit-foreign "; echo "${p}1024 3000000 4000000 60"\n')
        done = self.at(folder, "allreduce", "--sizes", "4,1KiB", "--repeat", 2, "--seconds", 0.001,
                       "--with-peers", "--peers", "a,limit", "--json")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertEqual(read(folder + "/turns"), b"a\nlimit\n" * 2)
        found = {r["name"].split("/", 2)[2]: r for r in rows(done)}
        self.assertEqual(list(found), ["4B/registered", "4B/foreign", "4B/a", "4B/limit-registered", "1KiB/registered",
                                       "1KiB/foreign", "1KiB/a", "1KiB/limit-foreign"])
        self.assertEqual((found["4B/a"]["value"], found["4B/a"]["p99_us"], found["4B/a"]["calls"]), (1e6, 2e6, 50))
        for peer, ours in (("4B/a", "4B/foreign"), ("4B/limit-registered", "4B/registered"),
                           ("1KiB/limit-foreign", "1KiB/foreign")):
            self.assertAlmostEqual(found[peer]["ratio"] * found[ours]["value"] / found[peer]["value"], 1, 4)
            self.assertEqual(found[peer]["against"], ours.split("/")[1])

    def test_absent_peer_is_reported_and_other_results_are_kept(self):
        folder = self.peers(allreduce='[ $1 = away ] && { echo "tutti: peer is absent" >&2; exit 77; '
                            '}\necho "4 1 2 50"')
        done = self.at(folder, "allreduce", "--sizes", "4", "--repeat", 2, "--seconds", 0.001,
                       "--with-peers", "--peers", "away,here", "--json")
        self.assertEqual(done.returncode, 1)
        self.assertEqual(done.stderr.count("peer is absent"), 1)
        self.assertEqual([r["program"] for r in rows(done)], ["registered", "foreign", "here"])
        for script, sentence in (("exit 5", "peer 'x' failed with exit code 5; run `bench/peers/allreduce x 2 4 0.001` "
                                  "to see why"), ("echo 8 1 1 9", "was not asked for"),
                                 ("echo hello", "'hello' from x is no line of figures")):
            with open(folder + "/bench/peers/allreduce", "w") as f:
                f.write("#!/bin/sh\n" + script)
            done = self.at(folder, "allreduce", "--sizes", "4", "--repeat", 1, "--seconds", 0.001,
                           "--with-peers", "--peers", "x")
            self.assertEqual(done.returncode, 1)
            self.assertIn(sentence, done.stderr)

    def test_tune_writes_a_table_that_covers_all_sizes(self):
        path = self.out("table")
        self.bench("allreduce", "-n", 3, "--sizes", "4,4KiB,256KiB", "--registered", "on", "--repeat", 1,
                   "--seconds", 0.001, "--tune", path)
        lines = [line.split() for line in read(path).decode().splitlines() if not line.startswith("#")]
        self.assertTrue(1 <= len(lines) <= 3)
        for kind, members, size, algorithm in lines:
            self.assertEqual((kind, members), ("all-reduce", "3"))
            self.assertIn(algorithm, ("exchange", "doubling", "tree", "direct"))  # halving serves powers of two
        self.assertEqual(lines[-1][2], "*")
        self.assertTrue(set(line[2] for line in lines[:-1]) <= {"128", "32768"})
        self.refused("writing the table of algorithms '/nowhere/table'", "bench", "allreduce", "--sizes", "4",
                     "--registered", "on", "--repeat", 1, "--seconds", 0.001, "--tune", "/nowhere/table", code=1)

    def test_simulated_workers_are_measured_in_virtual_time(self):
        if not os.path.exists(os.path.join(os.path.dirname(TUTTI), "../lib/libtutti_transport_sim.so")):
            self.skipTest("this build has no simulator (SimGrid)")
        # in a sanitized build, where it stumbles over the threads that SimGrid leaves behind
        leaks = {"ASAN_OPTIONS": "detect_leaks=0"}
        found = [rows(self.bench("allreduce", "-n", 4, "--sizes", "1MiB", "--transport", "sim", "--registered", "off",
                                 "--repeat", 1, "--seconds", 0.001, "--json", **leaks)) for _ in range(2)]
        self.assertEqual(found[0], found[1])
        self.assertGreater(found[0][0]["value"], 2 * 3 / 4 * 2 ** 20 / 1.25e9 * 1e6)  # the bytes at 10 Gbit/s
        self.refused("virtual time", "bench", "allreduce", "--transport", "sim", "--with-peers")

    def test_kernels_are_timed_at_each_level_against_memcpy(self):
        found = rows(self.bench("kernels", "--bytes", "64KiB", "--repeat", 2, "--json"))
        names = [r["name"].split("/") for r in found]
        self.assertEqual(names[0], ["kernel", "memcpy"])
        self.assertEqual(found[0]["ratio"], 1)
        self.assertLessEqual({"axpy", "tree_sum_4", "step_sgd", "step_adam", "to_bf16", "from_f16", "norm2"},
                             {n[1] for n in names})
        self.assertEqual({n[2] for n in names[2:]} - {"scalar", "avx2", "avx512"}, set())
        for r in found:
            self.assertAlmostEqual(r["ratio"] * found[0]["value"] / r["value"], 1, 4)
        self.assertEqual({r["name"].split("/")[1] for r in rows(self.bench("kernels", "--bytes", "4KiB", "--repeat", 1,
                                                                           "--only", "axpy", "--json"))},
                         {"memcpy", "triad", "axpy"})

    def test_codecs_are_timed_against_memcpy(self):
        found = rows(self.bench("codec", "--rows", 40, "--cols", 50, "--repeat", 2, "--json"))
        self.assertEqual(found[0]["name"], "codec/memcpy")
        names = {r["name"] for r in found}
        for codec in ("fp16", "int8", "qsgd(bits=4)", "topk(ratio=0.01)", "ef(powersgd(rank=4))"):
            self.assertLessEqual({f"codec/{codec}/{part}" for part in ("encode", "decode", "both")}, names)
        for r in found[1:]:
            self.assertAlmostEqual(r["ratio"] * found[0]["value"] / r["value"], 1, 4)
        sizes = {r["name"].split("/")[1]: r["bytes"] for r in found[1:]}
        self.assertEqual((sizes["fp16"], sizes["int8"], sizes["sign"], sizes["topk(ratio=0.01)"]),
                         (4000, 2004, 254, 160))
        one = rows(self.bench("codec", "--rows", 4, "--cols", 5, "--repeat", 1, "--codec", "nuqsgd(bits=8)",
                              "--level", "scalar", "--json"))
        self.assertEqual([r["name"] for r in one],
                         ["codec/memcpy"] + ["codec/nuqsgd(bits=8)/" + part for part in ("encode", "decode", "both")])
        self.refused("unknown codec 'qsdg'; did you mean 'qsgd'", "bench", "codec", "--codec", "qsdg")
        self.refused("fewer than 2^31", "bench", "codec", "--rows", "100000", "--cols", "100000")

    def test_io_compares_with_direct_writes_and_leaves_nothing(self):
        folder = self.peers(disk='[ -d "$1" ] && [ "$2" = 2097152 ] || exit 9\necho 3e9 1e9')
        done = self.at(folder, "io", "--bytes", "2MiB", "--repeat", 2, "--json", "--with-peers")
        self.assertEqual(done.returncode, 0, done.stderr)
        found = {r["name"]: r for r in rows(done)}
        self.assertEqual(list(found), ["io/2MiB/" + what for what in ("direct write", "checkpoint write",
                                                                      "checkpoint write, older removed", "direct read",
                                                                      "checkpoint read", "fio write", "fio read")])
        for how in ("write", "read"):
            ours, direct = found[f"io/2MiB/checkpoint {how}"], found[f"io/2MiB/direct {how}"]
            self.assertAlmostEqual(ours["ratio"] * direct["value"] / ours["value"], 1, 4)
        self.assertEqual(found["io/2MiB/fio write"]["value"], 3)
        self.assertEqual(os.listdir(folder), ["bench"])

    def test_step_benchmark_compares_with_a_run_without_exchange(self):
        script = ('echo \'{"samples_per_second": 10, "wall_seconds": 1, "exposed_comm_seconds": 0, '
                  '"peak_rss_bytes_per_worker": 104857600, "host_seconds": 2, "torch": "9.9"}\'')
        tune = """[ "$* $TUTTI_PEER_SETTINGS" = "mlp 2 2 16 1 sgd(lr=0.05,momentum=0.9) " ] || exit 9
            echo '{"settings": "fused,compile", "tried": [["", 7.5], ["fused,compile", 9]]}'"""
        folder = self.peers(tune=tune, train='[ "$*" = "mlp 2 3 16 1 ddp 0 sgd(lr=0.05,momentum=0.9)" ] || [ "$*" = '
                            '"mlp 2 3 16 1 alone 0 sgd(lr=0.05,momentum=0.9)" ] || exit 9\n'
                            '[ "$TUTTI_PEER_SETTINGS" = "fused,compile" ] || exit 8\n' + script)
        temporary = self.out("tmp")
        os.makedirs(temporary)
        done = subprocess.run([TUTTI, "bench", "step", "--data", self.data, "--steps", "3", "--batch", "16",
                               "--repeat", "1", "--json", "--with-peers"], capture_output=True, text=True, cwd=folder,
                              env=clean_environment(TMPDIR=temporary), timeout=100)
        self.assertEqual(done.returncode, 0, done.stderr)
        found = {r["name"].split("/", 3)[3]: r for r in rows(done)}
        self.assertEqual(layers_last(found), ["ddp", "no exchange", "exposed communication", "run less no-exchange run",
                                              "memory", "command to the end of one step", "PyTorch DDP on Gloo",
                                              "PyTorch without exchange", "ddp against PyTorch",
                                              "PyTorch set up with nothing more", "PyTorch set up with fused,compile",
                                              "products of a worker", "layer linear 0", "layer linear 2",
                                              "layer linear 4"])
        # Three linear layers of 784, 1024 and 1024 inputs: a forward, and two products backward but
        # for the first.
        products = 2 * (784 * 1024 * 2 + 1024 * 1024 * 3 + 1024 * 10 * 3)
        self.assertAlmostEqual(found["products of a worker"]["value"] * 2e9 / products / found["ddp"]["value"], 1, 3)
        layers = [r for name, r in found.items() if name.startswith("layer ")]
        self.assertLess(sum(r["ratio"] for r in layers), 1)
        self.assertGreater(sum(r["ratio"] for r in layers), 0.5)
        for r in layers:
            self.assertAlmostEqual(r["forward_ms"] + r["backward_ms"], r["value"], 4)
        self.assertAlmostEqual(found["ddp"]["ratio"] * found["no exchange"]["value"] / found["ddp"]["value"], 1, 4)
        self.assertAlmostEqual(found["ddp against PyTorch"]["ratio"] * 10 / found["ddp"]["value"], 1, 4)
        self.assertAlmostEqual(found["memory"]["ratio"] * 100 / found["memory"]["value"], 1, 4)
        noted = [found["ddp against PyTorch"][k] for k in ("torch", "settings", "rounds")]
        self.assertEqual(noted, ["9.9", "fused,compile", 1])
        tried = [found["PyTorch set up with " + what]["value"] for what in ("nothing more", "fused,compile")]
        self.assertEqual(tried, [7.5, 9])
        self.assertEqual(os.listdir(temporary), [])

    def test_step_runs_each_python_and_compares_accuracies_over_seeds(self):
        figures = ('\'"samples_per_second": %d, "wall_seconds": 1, "exposed_comm_seconds": 0, '
                   '"peak_rss_bytes_per_worker": 1, "host_seconds": 2, "torch": "\'$TUTTI_PYTHON\'"\'')
        tune = """case "$TUTTI_PYTHON" in
            absent) echo "no torch in absent" >&2; exit 77;;
            *) echo '{"settings": "'$TUTTI_PYTHON'", "tried": []}';;
            esac"""
        folder = self.peers(tune=tune, train=f"""[ "$TUTTI_PEER_SETTINGS" = "$TUTTI_PYTHON" ] || exit 8
            case "$TUTTI_PYTHON $3" in
            absent*) echo "no torch in absent" >&2; exit 77;;
            *epoch) [ "$*" = "mlp 2 epoch 16 1 ddp $7 sgd(lr=0.05,momentum=0.9)" ] || exit 9
                echo "{{"{figures % 1}', "accuracy": 0.'$((3 + 2 * $7))'}}';;
            one*) echo "{{"{figures % 10}"}}";;
            *) echo "{{"{figures % 20}"}}";;
            esac""")
        words = [TUTTI, "bench", "step", "--data", self.data, "--steps", "2", "--batch", "16", "--repeat", "1",
                 "--seeds", "2", "--with-peers"]
        done = subprocess.run(words + ["--json"], capture_output=True, text=True, cwd=folder,
                              env=clean_environment(TUTTI_PYTHON="one:absent:three"), timeout=100)
        self.assertEqual((done.returncode, done.stderr), (1, "no torch in absent\n"), done.stdout)
        found = {r["name"].split("/", 3)[3]: r for r in rows(done)}
        self.assertEqual(layers_last(found)[6:],
                         ["PyTorch DDP on Gloo", "PyTorch without exchange", "ddp against PyTorch",
                          "PyTorch three DDP on Gloo", "PyTorch three without exchange", "ddp against PyTorch three",
                          "accuracy after 1 epoch", "PyTorch accuracy after 1 epoch", "accuracy off from PyTorch",
                          "PyTorch three accuracy after 1 epoch", "accuracy off from PyTorch three",
                          "products of a worker", "layer linear 0", "layer linear 2", "layer linear 4"])
        noted = [[found["ddp against " + name][k] for k in ("torch", "settings")]
                 for name in ("PyTorch", "PyTorch three")]
        self.assertEqual(noted, [["one", "one"], ["three", "three"]])
        for name in ("accuracy after 1 epoch", "accuracy off from PyTorch three"):
            self.assertEqual(found[name]["seeds"], 2)
        self.assertAlmostEqual(found["ddp against PyTorch"]["ratio"] / found["ddp against PyTorch three"]["ratio"], 2,
                               4)
        ours, theirs, off = (found[name] for name in ("accuracy after 1 epoch", "PyTorch accuracy after 1 epoch",
                                                      "accuracy off from PyTorch"))
        self.assertEqual((theirs["value"], theirs["min"], theirs["max"]), (40, 30, 50))
        self.assertAlmostEqual(off["value"], abs(ours["value"] - 40), 3)
        self.assertAlmostEqual(off["ratio"], off["value"] / max(20, ours["max"] - ours["min"]), 3)
        many = subprocess.run(words, capture_output=True, text=True, cwd=folder,
                              env=clean_environment(TUTTI_PYTHON="a:b:c:d:e"), timeout=100)
        self.assertEqual(many.returncode, 2)
        self.assertIn("TUTTI_PYTHON is 'a:b:c:d:e'; it may name 4 Pythons", many.stderr)

    def test_tune_finds_the_fastest_pytorch_settings(self):
        def tuned(script, model="cnn", n=2, threads=1):
            with open(folder + "/bench/peers/train", "w") as f:
                f.write("#!/bin/sh\n" + script)
            words = [f"{folder}/bench/peers/tune", model, str(n), "5", "16", str(threads), "sgd(lr=0.1)"]
            return subprocess.run(words, capture_output=True, text=True, timeout=60)

        folder = self.peers(train="exit 2", tune=read(ROOT + "/bench/peers/tune").decode().partition("\n")[2])
        with open(folder + "/bench/peers/tune", "wb") as f:
            f.write(read(ROOT + "/bench/peers/tune"))
        rates = """[ "$*" = "cnn 2 5 16 1 ddp 0 sgd(lr=0.1)" ] || exit 9
            case "$TUTTI_PEER_SETTINGS" in
            "") r=100;; fused) r=120;; compile) echo boom >&2; echo "no compiler" >&2; exit 1;;
            channels-last) r=130;; fused,channels-last) r=%d;; one-bucket) r=100.5;; *) r=90;;
            esac
            echo "{\\"samples_per_second\\": $r}\""""
        for both, best in ((150, "fused,channels-last"), (110, "channels-last")):
            done = tuned(rates % both)
            said = "tutti: PyTorch with compile gave no figures (exit code 1): no compiler\n"
            self.assertEqual((done.returncode, done.stderr), (0, said))
            found = json.loads(done.stdout)
            self.assertEqual(found["settings"], best)
            tried = dict(found["tried"])
            self.assertLessEqual({"keep-memory", "bucket-view", "static-graph", "one-bucket"}, set(tried))
            self.assertEqual((tried[""], tried["fused"], tried["fused,channels-last"]), (100, 120, both))
        one = json.loads(tuned('echo "{\\"samples_per_second\\": 1}"', "mlp", 1, 2).stdout)
        tried = dict(one["tried"])
        self.assertEqual((one["settings"], "bucket-view" in tried, "channels-last" in tried, "sleep" in tried),
                         ("", False, False, True))
        absent = tuned('echo "tutti: no Python with torch" >&2; exit 77')
        self.assertEqual((absent.returncode, absent.stderr), (77, "tutti: no Python with torch\n"))
        done = tuned('echo "no data" >&2; exit 3')
        self.assertEqual((done.returncode, done.stderr), (1, "tutti: PyTorch gave no figures (exit code 3): no data\n"))

    def test_peer_settings_become_environment_variables_of_its_process(self):
        def of(settings, threads):
            done = subprocess.run([ROOT + "/bench/peers/tuned", threads], capture_output=True, text=True,
                                  env=clean_environment(TUTTI_PEER_SETTINGS=settings))
            self.assertEqual(done.returncode, 0, done.stderr)
            return done.stdout.splitlines()
        self.assertNotIn("MALLOC_MMAP_MAX_=0", of("", "1"))
        self.assertIn("MALLOC_MMAP_MAX_=0", of("fused,keep-memory", "1"))
        self.assertFalse([line for line in of("own-kernels", "1") if line.startswith("LD_PRELOAD")])
        self.assertIn("OMP_WAIT_POLICY=passive", of("sleep,compile", "2"))

    def test_an_interrupted_benchmark_ends_by_the_signal_and_leaves_nothing(self):
        temporary, shm = self.out("tmp"), shm_entries()
        os.makedirs(temporary)
        for words in (("step", "--data", self.data, "--steps", "1000000"),
                      ("io", "--dir", temporary, "--bytes", "4MiB", "--repeat", "1000")):
            run = subprocess.Popen([TUTTI, "bench", *words], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
                                   env=clean_environment(TMPDIR=temporary), start_new_session=True)
            while not os.listdir(temporary):
                time.sleep(0.01)
            time.sleep(0.3)
            os.killpg(run.pid, signal.SIGINT)
            self.assertIn(run.wait(20), (-signal.SIGINT, 128 + signal.SIGINT))
            self.assertEqual(os.listdir(temporary), [])
        self.assertEqual(shm_entries(), shm)

    def test_no_peer_outlives_a_benchmark_that_is_killed(self):
        folder = self.peers(allreduce="echo $$ >pid.new && mv pid.new pid\nexec sleep 100")
        run = subprocess.Popen([TUTTI, "bench", "allreduce", "--sizes", "4", "--seconds", "0.001",
                                "--with-peers", "--peers", "x"], stdout=subprocess.DEVNULL, cwd=folder,
                               env=clean_environment())
        while not os.path.exists(folder + "/pid"):
            self.assertIsNone(run.poll(), "it ended before the peer began")
            time.sleep(0.01)
        peer = int(read(folder + "/pid"))
        run.kill()
        run.wait()
        deadline = time.monotonic() + 20
        while alive(peer) and time.monotonic() < deadline:
            time.sleep(0.01)
        self.assertFalse(alive(peer))

    def test_peer_scripts_report_when_their_program_is_absent(self):
        empty = {"PATH": self.out("empty"), "TUTTI_PEERS_BUILD": self.out("build")}
        os.makedirs(empty["PATH"])
        for name in ("bash", "dirname", "nproc", "env"):
            os.symlink("/usr/bin/" + name, f"{empty['PATH']}/{name}")
        for script, words in (("allreduce", ("openmpi", 2, 4, 1)), ("allreduce", ("mpich", 2, 4, 1)),
                              ("make", ("openmpi",)), ("make", ("mpich",)), ("allreduce", ("limit", 3, 4, 1)),
                              ("disk", ("/tmp", 4096))):
            done = subprocess.run([f"{ROOT}/bench/peers/{script}", *map(str, words)], capture_output=True, text=True,
                                  env=empty)
            self.assertEqual(done.returncode, 77, done.stderr)
            self.assertRegex(done.stderr, r"^tutti: peer '[a-z]+' is absent")

    @needs_lab
    def test_network_benchmark_prints_a_line_per_size_and_round(self):
        network, lab = ROOT + "/bench/peers/network", [NETLAB, "-n", "2", "--direct", "--timeout", "50", "--"]
        done = subprocess.run([*lab, network, "--tutti", TUTTI, "--programs", "tcp(streams=2,chunk=4096) line",
                               "--sizes", "4,65536", "--seconds", "0.005", "--rounds", "2"], capture_output=True,
                              text=True, timeout=100, env=clean_environment(TUTTI_PEERS_BUILD=self.out("build")))
        self.assertEqual(done.returncode, 0, done.stderr)
        lines = [json.loads(line) for line in done.stdout.splitlines()]
        goodput = [line for line in lines if line["program"] == "goodput"]
        self.assertEqual([line["round"] for line in goodput], [0, 1])
        self.assertGreater(min(line["bytes_per_second"] for line in goodput), 1e6)
        self.assertEqual([(line["round"], line["program"], line["bytes"]) for line in lines if line not in goodput],
                         [(r, program, size) for r in (0, 1) for program in ("tcp(streams=2,chunk=4096)", "line")
                          for size in (4, 65536)])
        self.assertTrue(all(0 < line["median_us"] <= line["p99_us"] and line["calls"] >= 7 for line in lines
                            if line not in goodput))
        done = subprocess.run([*lab, network, "--tutti", TUTTI, "--programs", "tcp(no=1)"], capture_output=True,
                              text=True, timeout=100, env=clean_environment(TUTTI_PEERS_BUILD=self.out("build")))
        self.assertEqual(done.returncode, 1)
        self.assertIn("network: tcp(no=1) gave 0 of 4 lines; exit codes [2, 2]; it said: tutti: transport 'tcp': "
                      "unknown option 'no'", done.stderr)


def git_of_this_tree(*words):
    there = shutil.which("git") is not None
    return subprocess.run(["git", "-C", ROOT, *words], capture_output=True, text=True).stdout if there else ""


needs_git = unittest.skipUnless(shutil.which("git"), "needs git")
needs_history = unittest.skipIf(git_of_this_tree("rev-parse", "--is-shallow-repository") != "false\n",
                                "this is no clone with its history")


@needs_git
class Tree(Case):
    """A repository with bounds, to measure in."""

    def setUp(self):
        super().setUp()
        self.tree = self.out("tree")
        self.git("init", "-q", self.tree, at=self.folder)
        self.write("src/a.c", "int a;")
        self.bounds("io ratio >= 0.8 checkpoint *, 512MiB")
        versions = unittest.mock.patch.object(record, "versions", return_value={})  # a second to ask everybody
        versions.start()
        self.addCleanup(versions.stop)

    def git(self, *words, at=None):
        words = ["git", "-c", "user.name=t", "-c", "user.email=t@t", "-C", at or self.tree, *words]
        done = subprocess.run(words, capture_output=True, text=True)
        self.assertEqual(done.returncode, 0, done.stderr)
        return done.stdout.strip()

    def write(self, name, text):
        os.makedirs(os.path.dirname(f"{self.tree}/{name}"), exist_ok=True)
        with open(f"{self.tree}/{name}", "w") as f:
            f.write(text)

    def commit(self):
        self.git("add", "-A")
        self.git("commit", "-q", "-m", "x")
        return self.git("rev-parse", "--short=7", "HEAD")

    def bounds(self, *lines):
        self.write("bench/bounds", "# PART of\n\n" + "".join(line + "\n" for line in lines))
        return self.commit()

    def recorder(self):
        return record.Recorder(TUTTI, "2026-11-22", True, self.tree)

    def keep(self, name="checkpoint read, 512MiB", ratio=1.0, part="io", quiet=True, recorder=None, **more):
        """Measures: the row is that of bench/run, but for whether others were at work."""
        r = recorder or self.recorder()
        with contextlib.redirect_stdout(io.StringIO()):
            r.part(part)
            r.load = dict(load=0.0, noisy=not quiet)
            r.row(name, 1.0, "GB/s", ratio, "direct read", **more)
        return r.rows[-1]


class Rows(Tree):
    def test_bound_is_recorded_with_the_commit_that_introduced_it(self):
        first = self.git("rev-parse", "--short=7", "HEAD")
        self.write("src/a.c", "int b;")
        later = self.commit()
        row = self.keep(ratio=0.7)
        noted = [row[k] for k in ("bound", "of", "better", "met", "bound_since", "commit", "dirty")]
        self.assertEqual(noted, [0.8, "ratio", "more", False, first, later, False])
        self.assertIs(self.keep(ratio=0.8)["met"], True)
        other = self.keep("direct read, 512MiB")
        self.assertEqual((other["bound"], other["met"], "bound_since" in other), (None, None, False))

    def test_uncommitted_bound_is_recorded_without_a_commit(self):
        self.write("bench/bounds", "io ratio >= 0.8 checkpoint *, 512MiB\nio value <= 3 direct read, 512MiB\n")
        row = self.keep("direct read, 512MiB")
        self.assertEqual((row["bound"], row["met"], row["bound_since"], row["dirty"]), (3, True, None, True))

    def test_changes_below_bench_make_a_row_dirty_and_results_do_not(self):
        self.write("bench/results/io.jsonl", "")
        self.write("docs/PERFORMANCE.md", "")
        self.assertIs(self.keep()["dirty"], False)
        self.write("bench/peers/train.py", "")
        self.assertIs(self.keep()["dirty"], True)
        self.commit()
        self.write("bench/bounds", "io ratio >= 0.7 checkpoint *, 512MiB\n")
        self.assertIs(self.keep()["dirty"], True)

    def test_benchmark_part_waits_for_the_load_to_settle(self):
        r, loads, slept = self.recorder(), [(3.0, 0, 0), (2.0, 0, 0), (0.1, 0, 0)], []
        replace = unittest.mock.patch
        with replace("os.sched_getaffinity", lambda _: {0, 1}), replace("time.sleep", slept.append):
            with replace("os.getloadavg", lambda: loads[min(len(slept), 2)]):
                r.settle()
            self.assertEqual(len(slept), 2)
            with replace("os.getloadavg", lambda: (3.0, 0, 0)), contextlib.redirect_stdout(io.StringIO()):
                r.settle(most=0.01)  # others do not leave: it begins and says so
                r.part("io")
        self.assertIs(r.load["noisy"], True)

    def test_malformed_and_duplicate_bound_lines_are_reported(self):
        self.bounds("io ratio > 0.8 checkpoint *, 512MiB")
        with self.assertRaises(ValueError) as refused:
            self.recorder()
        self.assertIn("bench/bounds, line 3: 'io ratio > 0.8 checkpoint *, 512MiB' is no bound; "
                      "write PART value|ratio <=|>= BOUND NAME", str(refused.exception))
        self.bounds("io ratio >= 0.8 checkpoint *", "io ratio >= 0.7 checkpoint read, *")
        with self.assertRaisesRegex(ValueError, "lines 3 and 4 are both of 'checkpoint read, 512MiB'; leave one"):
            self.keep()

    def test_benchmarks_define_no_bounds_outside_the_bounds_file(self):
        for name in ("run", "sim", "curves.py", "precision.py", "margins.py", "net.py", "losses.py",
                     "codecs_between_hosts.py", "papers/gossip.py", "papers/arrivals.py", "papers/edge.py",
                     "papers/links.py", "papers/unlike.py", "papers/hop.py"):
            self.assertNotRegex(read(f"{ROOT}/bench/{name}").decode(), r"\b(bound|better)=", name)
        measured = rows(tutti("bench", "codec", "--rows", 8, "--cols", 8, "--repeat", 1, "--json"))[1:]
        goals = {"codec {1}: {2}".format(*r["name"].split("/")): r["goal"] for r in measured}
        found = {name: record.bound_of(record.read_bounds(), "codec", name) for name in goals}
        self.assertEqual({name: b and b["bound"] for name, b in found.items()}, goals)


class Page(Tree):
    def page(self, folder=None, *options):
        words = [sys.executable, "-B", ROOT + "/tools/performance-doc", *options, folder or self.tree + "/bench"]
        done = subprocess.run(words, capture_output=True, text=True)
        self.assertEqual(done.returncode, 0, done.stderr)
        return done.stdout

    def ledger(self, folder=None):
        return self.page(folder, "--ledger")

    def misses(self, folder=None):
        return self.page(folder, "--missed")

    def cells(self, name, ledger=None):
        """value, ratio, bound, since, verdict, taken, measured: of the ledger, in which a name has
        a line (or begins one and goes on, indented by two), what is known of it the next, indented
        by four, and what is above, after a #, is how and when it was measured."""
        found, lines = [], re.sub("\n  (?! )", " ", ledger or self.ledger()).splitlines()
        for k, line in enumerate(lines):
            if line != name:
                continue
            how = next(line for line in lines[k::-1] if line.startswith("# "))
            taken, measured = how[2:].split(", ", 1)
            below = lines[k + 1] + ("  " + lines[k + 2].strip() if lines[k + 2].startswith(" " * 8) else "")
            verdict, value, ratio, promise = re.split("  +", below.strip())
            bound, since = promise.split(", since ") if promise != "-" else ("", "")
            blank = lambda word: "" if word == "-" else word
            found.append([value, blank(ratio), bound, since, blank(verdict), taken, measured])
        self.assertEqual(len(found), 1, name)
        return found[0]

    def test_rows_show_repetitions_noise_and_uncommitted_changes(self):
        at = self.git("rev-parse", "--short=7", "HEAD")
        self.keep("a", pairs=7)
        self.keep("b", seeds=1, quiet=False)
        self.keep("c", command="tutti bench io --repeat 5")
        self.keep("d", rates=[1, 2, 3])
        self.write("src/a.c", "int b;")
        self.keep("e")
        self.keep("f", quiet=False)
        ledger, when = self.ledger(), "2026-11-22 " + at
        expected = [["7 pairs", when], ["1 seed", when + " (noisy)"], ["5 rounds", when], ["3 runs", when],
                    ["1 run", when + " (dirty)"], ["1 run", when + " (noisy, dirty)"]]
        self.assertEqual([self.cells(name, ledger)[5:] for name in "abcdef"], expected)

    def test_headline_counts_clean_rows_and_reports_excluded_ones(self):
        self.bounds("io ratio >= 0.8 *", "codec ratio <= 1 codec fp16: encode")
        for name, ratio in (("a", 1), ("b", 1), ("c", 0.5)):
            self.keep(name, ratio)
        for name, ratio in (("d", 1), ("e", 0.5)):
            self.keep(name, ratio, quiet=False)
        self.write("src/a.c", "int b;")
        self.keep("f")
        self.assertIn("By rows that count 2 of 3 bounds are met. Rows of 3 more bounds do not count "
                      "(2 noisy, 1 dirty, 0 rebased, 0 late): 2 of 3 are met. "
                      "Without a row yet are 1 lines of `bench/bounds`.", " ".join(self.page().split()))
        self.assertIn("Not measured yet:\n\n- codec fp16: encode (at most 1 (ratio))\n", self.ledger())

    def test_bound_newer_than_its_row_does_not_count(self):
        self.keep("direct read, 512MiB", 0.9)
        since = self.bounds("io ratio >= 0.8 direct read, 512MiB")
        self.assertEqual(self.cells("direct read, 512MiB")[2:5], ["at least 0.8 (ratio)", "not shown", "met"])
        self.assertIn("0 of 0 bounds are met", self.page())
        self.assertIn("(0 noisy, 0 dirty, 0 rebased, 1 late): 1 of 1 are met", " ".join(self.page().split()))
        self.keep("direct read, 512MiB", 0.7)
        self.assertEqual(self.cells("direct read, 512MiB")[2:5], ["at least 0.8 (ratio)", since, "MISSED"])

    def test_a_miss_stays_until_the_same_figure_meets_the_same_bound(self):
        name = "checkpoint read, 512MiB"
        missed = lambda: self.cells(name)[4] == "MISSED" and f"- {name} (bound 0.8)" in self.misses()
        self.keep(ratio=0.27)
        self.assertTrue(missed())
        self.keep("checkpoint read, 1GiB", 0.9)         # another figure
        self.assertTrue(missed())
        self.keep(ratio=0.9, quiet=False)               # it is not known what made it fast
        self.assertTrue(missed())
        self.bounds("io ratio >= 0.2 checkpoint *, 512MiB")  # a weaker bound
        self.keep(ratio=0.3)
        self.assertTrue(missed())
        self.assertIn("0 of 1 bounds are met", self.page())
        self.bounds("io ratio >= 0.8 direct *")         # none at all
        self.keep(ratio=0.3)
        self.assertTrue(missed())
        retired = f"- {name} (bound 0.8) (the bench no longer makes this figure). No cause found yet."
        self.assertIn(retired, self.misses().replace("\n  ", " "))
        self.bounds("io ratio >= 0.8 checkpoint *, 512MiB")
        self.keep(ratio=0.81)
        self.assertFalse(missed())
        self.assertRegex(self.misses(), r"\n\nNone\.\n\Z")
        self.assertEqual(self.cells(name)[4], "met")

    def test_stricter_bound_applies_to_existing_rows(self):
        self.keep(ratio=0.85)
        self.bounds("io ratio >= 0.9 checkpoint *, 512MiB")
        self.assertEqual(self.cells("checkpoint read, 512MiB")[2:5:2], ["at least 0.9 (ratio)", "MISSED"])

    def test_restamp_replaces_rebased_commits_by_those_adding_the_rows(self):
        at = self.git("rev-parse", "--short=7", "HEAD")
        self.keep(ratio=0.9)
        words = [sys.executable, "-B", ROOT + "/bench/restamp", self.tree]
        restamp = lambda: subprocess.run(words, capture_output=True, text=True)
        self.assertEqual((restamp().stdout, self.cells("checkpoint read, 512MiB")[6]), ("", "2026-11-22 " + at))
        self.git("commit", "-q", "--amend", "-m", "y")
        self.git("reflog", "expire", "--expire=now", "--all")
        self.git("gc", "-q", "--prune=now")
        self.assertIn("no commit has brought this row yet; commit it first", restamp().stderr)
        brought = self.commit()
        self.assertEqual(restamp().stdout, f"{at}: 1 row\n")
        self.assertEqual(self.cells("checkpoint read, 512MiB")[6], f"2026-11-22 {brought} (rebased)")
        self.assertEqual([r["measured_at"] for r in record.read(self.tree + "/bench/results")], [at])
        self.assertIn("0 of 0 bounds are met", self.page())

    @needs_history
    def test_the_rows_of_this_tree_are_of_commits_that_exist(self):
        there = {commit[:7] for commit in git_of_this_tree("rev-list", "HEAD").split()}
        for r in record.read():
            self.assertTrue(r["commit"][:7] in there, f"{r['name']}, {r['commit']}: bench/restamp mends it")
            self.assertTrue((r.get("bound_since") or r["commit"])[:7] in there, f"{r['name']}, {r.get('bound_since')}")

    @needs_history
    def test_no_row_stands_against_a_pytorch_that_was_set_up_badly(self):
        """Since a4b7203 it has its fastest kernels on any processor; now its settings are looked
        for in the same run, and noted. What was lost even to another stays."""
        tuned = {commit[:7] for commit in git_of_this_tree("rev-list", "a4b7203^..HEAD").split()}
        speeds = [r for r in record.read() if r["part"] == "step" and r["unit"] == "samples/s"]
        for r in speeds:
            if "PyTorch" in f"{r['name']} {r['against']}" and r["met"] is not False:
                self.assertTrue(r["commit"][:7] in tuned, f"{r['name']}, {r['ratio']}, {r['commit']}")
                self.assertTrue("settings" in r or r["commit"] == "a4b7203", r["name"])

    def test_losing_comparisons_have_bounds_too(self):
        ledger = self.ledger(ROOT + "/bench")
        between = [f"all-reduce, 2 hosts, {rate}, 1MiB: against the best peer"
                   for rate in ("unshaped", "10gbit", "1gbit")]
        for name in ("checkpoint write, 512MiB", "checkpoint write, older removed, 512MiB", "checkpoint read, 512MiB",
                     *between):
            cells = self.cells(name, ledger)
            self.assertRegex(cells[2], r"^at least 0\.[0-9]+ \(ratio\)$", name)
            self.assertIs(float(cells[1].split()[0]) < float(cells[2].split()[2]), cells[4] == "MISSED", name)

    def test_peer_figures_are_not_called_lower_bounds(self):
        figures = [f"{r['name']}, of {r['against']}" for r in record.read() if not r["name"].startswith("allreduce/")]
        for text in (read(ROOT + "/docs/PERFORMANCE.md").decode(), self.ledger(ROOT + "/bench"),
                     self.misses(ROOT + "/bench"),
                     tutti("bench", "--help").stdout, *figures):
            self.assertNotRegex(text, r"(?i)lower bound|the least that|\blimit-")

    def test_performance_page_matches_the_recorded_rows(self):
        old = "docs/PERFORMANCE.md is old: tools/performance-doc > docs/PERFORMANCE.md"
        self.assertEqual(read(ROOT + "/docs/PERFORMANCE.md").decode(), self.page(ROOT + "/bench"), old)

    def test_each_missed_figure_of_the_ledger_has_one_sentence(self):
        """As many as the ledger marks, each under a heading, and of each cause that is recorded its sentence."""
        ledger, text = self.ledger(ROOT + "/bench"), self.misses(ROOT + "/bench")
        items = re.findall(r"(?m)^- .*(?:\n  .*)*", text.split("\n## ", 1)[1])
        self.assertEqual(len(items), len(re.findall(r"(?m)^    MISSED ", ledger)))
        self.assertLessEqual(max(map(len, text.splitlines())), 100)
        whole = " ".join(text.split())
        with open(ROOT + "/bench/results/causes.json") as f:
            causes = json.load(f)
        shown = [name for name in causes if f"- {name} (bound " in whole]
        self.assertGreater(len(shown), 50)
        for name in shown:
            why = causes[name] if isinstance(causes[name], str) else causes[name]["why"]
            self.assertIn(" ".join(why[1:].rstrip(".").split()), whole, name)

    def test_performance_chart_matches_the_rows_and_shows_losses(self):
        picture = self.page(ROOT + "/bench", "--picture")
        old = "docs/performance.svg is old: tools/performance-doc --picture > docs/performance.svg"
        self.assertEqual(read(ROOT + "/docs/performance.svg").decode(), picture, old)
        screen = [line.split("|")[1:-1] for line in self.page(ROOT + "/bench").split("## ")[0].splitlines()
                  if line.startswith("| ")][1:]
        self.assertEqual((len(screen), picture.count("<rect x=")), (10, 10))
        self.assertTrue(any(float(cells[3]) < 1 for cells in screen))

    def test_results_page_has_every_row_of_the_shelf_and_covers_all_methods(self):
        made = subprocess.run([ROOT + "/tools/results-doc"], capture_output=True, text=True)
        self.assertEqual((made.stderr, made.returncode), ("", 0))
        shelf = read(ROOT + "/bench/shelf").decode()
        whole = " ".join(made.stdout.split())
        shown = re.findall(r"(?m)^  row +(\S+) +(.*\S)", shelf)
        self.assertGreater(len(shown), 50)
        for part, name in shown:
            self.assertRegex(whole, r"\*\*: %s: [^*]*? Part %s, " % (re.escape(name), part))
        self.assertEqual(len(re.findall(r"(?m)^- \*\*(?:met|MISSED)", made.stdout)), len(shown))
        self.assertEqual(made.stdout.count("\n```\n"), 2 * len(shown), "a command each")
        named = re.findall(r"(?m)^([a-z][a-z0-9-]*)$", read(ROOT + "/bench/shelf").decode())
        relatives = re.search(r"(?m)^relatives +(.*)$", read(ROOT + "/bench/shelf").decode())[1].split()
        order = re.findall(r"\]\(([a-z0-9-]+)\.md\)", read(ROOT + "/docs/methods/README.md").decode())
        order = [m for k, m in enumerate(order) if m not in order[:k]]
        self.assertEqual(named, [m for m in order if m not in relatives], "bench/shelf, in the order of docs/methods")
        self.assertLessEqual(set(relatives), set(order))

    def test_figures_that_pages_mark_are_those_of_the_rows(self):
        """Of this tree; and of another, where an old one, one without a row, and a mark without a
        meaning are found."""
        fill = lambda folder: subprocess.run([ROOT + "/tools/results-doc", "--pages", folder], capture_output=True,
                                             text=True)
        tree = self.out("marked")
        shutil.copytree(ROOT + "/docs", tree + "/docs", ignore=shutil.ignore_patterns("api", "*.svg"))
        shutil.copytree(ROOT + "/bench", tree + "/bench", ignore=shutil.ignore_patterns("papers", "peers"))
        made = fill(tree + "/bench")
        self.assertEqual((made.stdout, made.stderr, made.returncode), ("", "", 0), "tools/results-doc --pages")
        page, marks = tree + "/docs/methods/slowmo.md", tree + "/bench/marks"
        right = re.search(r"<!--slow-->(\d\.\d+)", read(page).decode())[1]
        for path, change, said, code in (
                (page, ("<!--slow-->" + right, "<!--slow-->0.144"),
                 f"docs/methods/slowmo.md: slow (0.144, now {right})\n", 0),
                (page, ("<!--slow-->", "<!--slaw-->"), "<!--slaw--> is no figure of this page\n", 1),
                (page, ("<!--slow-->", ""), "nothing is marked slow\n", 1),
                (marks, ("loss after 960 steps\n  local", "loss after 961 steps\n  local"),
                 "there is no value of 'ddp, 16 workers: loss after 961 steps' of periodic in bench/results\n", 1),
                (marks, ("  ddp = value .3f", "  ddp = value"),
                 "says no figure; write PAGE PART, and below it MARK = value .3f: NAME\n", 1),
                (marks, ("  local = ", "  ddp = "), "two figures of docs/methods/slowmo.md are called ddp\n", 1),
                (marks, ("docs/methods/slowmo", "docs/methods/none"), "there is no page docs/methods/none" ".md\n", 1)):
            text = read(path).decode()
            self.assertIn(change[0], text)
            with open(path, "w") as f:
                f.write(text.replace(*change))
            made = fill(tree + "/bench")
            self.assertEqual((made.returncode, (made.stdout + made.stderr).endswith(said)), (code, True), made)
            if code == 0:
                self.assertEqual(read(path).decode(), text)
            with open(path, "w") as f:
                f.write(text)
        marked = re.findall(r"(?m)^docs/methods/(\S+)\.md ", read(ROOT + "/bench/marks").decode())
        self.assertLessEqual({"slowmo", "palsgd", "bytescheduler"}, set(marked),
                             "pages whose figures were older than the rows")

    def test_each_row_records_the_command_of_its_method(self):
        """bench/papers/unlike.py: qg-dsgdm's distance is of the run of qg-dsgdm, not the last of its loop."""
        code = ("import sys; sys.argv = ['unlike']; sys.path[:0] = [%r, %r]\n"
                "import unlike\n"
                "class Made(unlike.Unlike):\n"
                "    def __init__(self): self.quick, self.names = False, []\n"
                "    def chosen(self, title): return True\n"
                "    def all(self, function, cases): return [function(*case) for case in cases]\n"
                "    def looks(self, words, every): return {every: {'test_loss': len(str(words)) * 1e-3, "
                "'test_accuracy': 1 - len(str(words)) * 1e-3}}, 0, ' '.join(map(str, words))\n"
                "    def tuned(self, title, rates, run, merit):\n"
                "        return rates[1], {s: run(rates[1], s) for s in self.seeds}, {}\n"
                "    def row(self, name, value, unit, command, **more):\n"
                "        print(name, '|', command, '|', len(self.seeds))\n"
                "Made().run()" % (ROOT + "/bench/papers", ROOT + "/bench"))
        done = subprocess.run([sys.executable, "-B", "-c", code], capture_output=True, text=True)
        self.assertEqual(done.returncode, 0, done.stderr)
        rows = [line.split(" | ") for line in done.stdout.splitlines()]
        self.assertGreater(len(rows), 20)
        for name, command, seeds in rows:
            self.assertEqual(seeds, "8", name)
            if not name.startswith("all,"):
                method = {"saddle through int8": "saddle"}.get(name.split(", ")[0], name.split(", ")[0])
                self.assertIn("--method %s " % method, command.replace("(order=atc)", ""), name)

    def test_every_part_has_a_title_and_rows_of_another_are_refused(self):
        """Rows of two parts without one stood on no page, and what they missed neither."""
        parts = subprocess.run([ROOT + "/bench/run", "--help"], capture_output=True, text=True).stdout
        parts = re.search(r"PART: ([a-z\s]+)\n\n", parts)[1].split()
        self.assertLessEqual({"io", "checkpoints", "zero"}, set(parts))
        recorder = self.recorder()
        for part in parts:
            self.keep("figure of " + part, part=part, recorder=recorder)
        self.assertEqual(sorted(re.findall("(?m)^figure of (.*)$", self.ledger())), sorted(parts))
        self.keep("a", part="elsewhere")
        for option in ("--ledger", "--missed"):
            done = subprocess.run([ROOT + "/tools/performance-doc", option, self.tree + "/bench"],
                                  capture_output=True, text=True)
            self.assertEqual((done.returncode, done.stderr), (1, "tools/performance-doc: no title for rows of the part "
                                                              "elsewhere: give it one in TITLES\n"))

    def test_each_cause_of_a_miss_is_one_sentence(self):
        with open(ROOT + "/bench/results/causes.json") as f:
            causes = json.load(f)
        for name, cause in causes.items():
            why = cause if isinstance(cause, str) else cause["why"]
            self.assertLessEqual(len(why.split()), 35, name)
            self.assertNotRegex(why, r"[.!?] [A-Z]", name)


if __name__ == "__main__":
    unittest.main(verbosity=2)
