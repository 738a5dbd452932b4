#!/usr/bin/env python3
"""Goal: hosts of simulated workers fail at moments of virtual time; a method that continues does
so, reports whom it lost and when, and does so to the bit again; one that needs all stops and names
the worker and its host. Method: `tutti train --transport sim --fail`, exact times, and failures at
random ones."""
import json
import os
import random
import subprocess
import sys

sys.path.insert(0, os.path.join(os.path.dirname(__file__), "../cli"))
from command import scratch_folder

command = sys.argv[1]
# memory of dead workers is not freed
environment = dict(os.environ, ASAN_OPTIONS=os.environ.get("ASAN_OPTIONS", "") + ":detect_leaks=0")
GOES_ON = ("d-psgd(graph=ring)", "noloco(period=3)", "qg-dsgdm", "gut", "saddle", "hop(graph=ring)",
           "hop(graph=complete,backup=2,skip=on)", "prague", "prague(generator=static)", "sgp", "sgp(overlap=2)",
           "ad-psgd", "h-adpsgd(super_learner=2)", "rand-psgd", "rand-psgd(pace=own)", "asr-adpsgd",
           "lasgd(local_steps=4)", "bagua(algorithm=async,sync_interval_ms=15)")
STOPS = ("ddp", "pipe-sgd(warmup=0)", "local-sgd(period=4)", "asgd", "ssp", "saddle(variant=n)",
         "bagua(algorithm=low_precision_decentralized)")
TIMEOUT = 0.05


def train(out, *more, n=6, code=0, transport="sim(peer-timeout=%g)" % TIMEOUT):
    words = [command, "train", "--model", "quadratic(dim=20)", "-n", str(n), "--steps", "40", "--batch", "8",
             "--optimizer", "sgd(lr=0.01)", "--transport", transport, "--step-time", "0.01", "--quiet", "--out", out,
             *more]
    done = subprocess.run(words, env=environment, capture_output=True, text=True, timeout=100)
    assert done.returncode == code, f"{' '.join(words)}: {done.returncode}: {done.stderr}"
    return done.stderr


def read(out, name, mode="r"):
    with open(os.path.join(out, name), mode) as f:
        return f.read()


def summary(out):
    return json.loads(read(out, "summary.json"))


def without_host_times(out):
    s = summary(out)
    for key in ("host_seconds", "peak_rss_bytes_per_worker"):
        s.pop(key)
    return s


with scratch_folder() as folder:
    for k, method in enumerate(GOES_ON):
        # Worker 4 at 0.2034 s, in the middle of a step, and worker 5 a little later; of a machine
        # of two both are lost anyway.
        outs = [f"{folder}/on{k}{turn}" for turn in "ab"]
        said = [train(out, "--method", method, "--fail", "4@0.2034:5@0.2781", "--report-every", "1",
                      "--checkpoint-every", "25") for out in outs]
        s = summary(outs[0])
        assert s["workers"] == 6 and s["members"] == [0, 1, 2,
                                                      3] and [w["worker"]
                                                              for w in s["by_worker"]] == s["members"], s["members"]
        lost = [e for e in s["events"] if e["kind"] == "lost"]
        assert [(e["rank"], e["epoch"]) for e in lost] == [(4, 1), (5, 2)], lost
        assert lost[0]["text"] == "worker 4 was lost: its host 'worker-4' failed at 0.203400000 s of virtual time", lost
        assert lost[0]["text"] + "; if the others can, the run continues with 5 workers" in said[0], said
        assert "the run continues with 4 workers" in said[0], said
        if "h-adpsgd" in method:
            assert lost[1]["text"].startswith("worker 5 failed: worker 5 leaves the run: "
                                              "the workers it sums with have lost worker 4"), lost
        elif method.startswith(("d-psgd", "qg-dsgdm", "gut", "sgp")):  # saddle's steps have two passes
            # No worker waits for the dead longer than for the time-out; from then on four workers
            # compute.
            assert 0.2034 + TIMEOUT <= s["wall_seconds"] < 40 * 0.01 + 2 * TIMEOUT + 0.05, s["wall_seconds"]
            assert 40 * 48 - 8 * (21 + 21) <= s["samples"] <= 40 * 48 - 8 * (20 + 12), s["samples"]
        # Again: the same bits, the same report, the same checkpoint.
        assert said[0] == said[1] and without_host_times(outs[0]) == without_host_times(outs[1]), method
        for name in ("model.safetensors", "metrics.jsonl"):
            assert read(outs[0], name, "rb") == read(outs[1], name, "rb"), (method, name)
        checkpoints = sorted(os.listdir(outs[0] + "/checkpoints"))
        manifest = json.loads(read(f"{outs[0]}/checkpoints/{checkpoints[-1]}", "manifest.json"))
        members = manifest["facts"]["members"]
        # step 25: worker 5 may be there
        assert manifest["world"] == len(members) and members in ([[0, 1, 2, 3]] if method.startswith(
            ("d-psgd", "qg-dsgdm", "gut", "saddle", "sgp", "h-")) else [[0, 1, 2, 3], [0, 1, 2, 3, 5]]), (method,
                                                                                                          members)
        # The first worker writes, prints and, under asynchronous methods, assigns gradients:
        # another takes that over.
        train(f"{folder}/first{k}", "--method", method, "--fail", "0@0.15", "--eval-every", "5")
        s = summary(f"{folder}/first{k}")
        assert s["members"] == ([2, 3, 4, 5] if "h-adpsgd" in method
                                else [1, 2, 3, 4, 5]) and s["events"][-1]["kind"] != "deadlock", s["members"]

    # Every machine has lost a worker: the run ends, and reports which worker was lost first.
    said = train(folder + "/machines", "--method", "h-adpsgd(super_learner=2)", "--fail", "1@0.1:3@0.15:5@0.2", code=3)
    assert said.endswith("tutti: worker 1 was lost: its host 'worker-1' failed at 0.100000000 s of virtual "
                         "time\n"), said
    train(folder + "/stop", "--method", "d-psgd", "--on-loss", "stop", "--fail", "1@0.1", code=3)
    for k, method in enumerate(STOPS):
        said = train(f"{folder}/stop{k}", "--method", method, "--fail", "3@0.1", code=3)
        assert said == "tutti: worker 3 was lost: its host 'worker-3' failed at 0.100000000 s of virtual time\n", (
            method, said)
    said = train(folder + "/least", "--method", "d-psgd", "--fail", "1@0.1:2@0.2", "--min-workers", "5", code=3)
    assert said.count("\n") == 2 and "the run continues with 5 workers" in said and "worker 2 was lost" in said, said
    assert "4 of 6 workers are left, fewer than the 5 of min-workers" in said, said

    # A user's platform: its hosts' names; --fail and the profile of a host do the same.
    platform = folder + "/p.xml"
    with open(platform, "w") as f:
        subprocess.run([command, "platform", "cluster(n=4)"], stdout=f, check=True)
    said = train(folder + "/platform", "--method", "sgp", "--platform", platform, "--fail", "3@0.1", n=4)
    assert "failed at 0.100000000 s of virtual time; if the others can, the run continues with 3 workers" in said, said
    assert summary(folder + "/platform")["members"] == [0, 1, 2]
    xml = read(folder, "p.xml")
    name = summary(folder + "/platform")["events"][-1]["text"].split("'")[1]
    assert xml.count('<host id="%s"' % name) == 1, xml[:500]
    with open(platform, "w") as f:
        f.write(xml.replace('<host id="%s"' % name, '<host id="%s" state_file="down.txt"' % name))
    with open(folder + "/down.txt", "w") as f:
        f.write("0.1 0\n")
    train(folder + "/profile", "--method", "sgp", "--platform", platform, "--on-loss", "continue", n=4)
    assert read(folder + "/profile", "model.safetensors", "rb") == read(folder + "/platform", "model.safetensors", "rb")

    # A simulated run in which no worker is to fail makes no agreements on the members.
    train(folder + "/nobody", "--method", "d-psgd")
    train(folder + "/continue", "--method", "d-psgd", "--on-loss", "continue")
    assert read(folder + "/nobody", "model.safetensors", "rb") == read(folder + "/continue", "model.safetensors", "rb")

    # A file of losses and returns: a lost worker does not come back, and the times are the file's.
    train(folder + "/said", "--method", "sgp", "--fail", "4@0.125:5@0.3")
    with open(folder + "/spot.txt", "w") as f:
        f.write("# hosts\n\n0.125 4 down\n0.2 4 up\n0.3\t5 down\r\n0.3 4 down\n99 5 up\n")
    train(folder + "/read", "--method", "sgp", "--fail", f"@{folder}/spot.txt")
    for name in ("model.safetensors", "metrics.jsonl"):
        assert read(folder + "/said", name, "rb") == read(folder + "/read", name, "rb"), name
    assert summary(folder + "/read")["members"] == [0, 1, 2, 3]
    drawn = subprocess.run([command, "platform", "spot(n=6,places=3,hours=0.001,events=1000,seed=3)"],
                           capture_output=True, text=True, check=True).stdout
    with open(folder + "/drawn.txt", "w") as f:
        f.write(drawn)
    lost = {int(line.split()[1]) for line in drawn.splitlines()
            if line.endswith("down") and float(line.split()[0]) < 0.35}
    train(folder + "/drawn", "--method", "sgp", "--fail", f"@{folder}/drawn.txt")
    assert lost and summary(folder + "/drawn")["members"] == sorted(set(range(6)) - lost), (lost, drawn)
    for text, sentence in (("1 2 down\n\n1.5 2 gone\n", "line 3 is '1.5 2 gone'; write SECONDS WORKER down|up"),
                           ("x", "line 1 is 'x'"), ("-1 2 down", "line 1 is '-1 2 down'"),
                           ("1 2 downwards", "line 1 is '1 2 downwards'"), ("1 2down", "line 1 is"),
                           ("inf 2 down", "line 1 is"), ("1 -2 down", "line 1 is"),
                           ("1 2 down 3", "line 1 is"), ("12.5 down", "line 1 is"),
                           ("1 up", "line 1 is"), ("1 6 down", "line 1: there is no worker 6"),
                           ("2 1 down\n1 2 down", "line 2 is of 1 s and the line before of 2 s"),
                           ("1 1 down\n2 1 down", "line 2: worker 1 is down already"),
                           ("1 1 up", "line 1: worker 1 is up already")):
        with open(folder + "/bad.txt", "w") as f:
            f.write(text)
        said = train(folder + "/no", "--method", "d-psgd", "--fail", f"@{folder}/bad.txt", code=2)
        assert f"fail: {folder}/bad.txt, {sentence}" in said, (text, said)
    for name in ("none.txt", ""):
        said = train(folder + "/no", "--method", "d-psgd", "--fail", f"@{folder}/{name}", code=2 if name else 1)
        assert f"'{folder}/{name}'" in said, said

    # Bad input: an error message, exit code 2, no file.
    for words, sentence in ((("--fail", "6@1"), "no worker 6: with 6 workers they are 0 to 5"),
                            (("--fail", "1@x"), "write RANK@SECONDS"),
                            (("--fail", "1@1:1@2"), "worker 1 cannot fail twice")):
        assert sentence in train(folder + "/no", "--method", "d-psgd", *words, code=2)
    assert "transport 'shm' has no fail; use it with --transport sim" in train(folder + "/no", "--fail", "1@1", code=2,
                                                                               transport="shm")
    assert "name the fail once" in train(folder + "/no", "--fail", "1@1", code=2, transport="sim(fail=2@1)")

    # Any worker, at any moment, several at once; at least one machine of h-adpsgd stays complete.
    rng = random.Random(int(sys.argv[2]) if len(sys.argv) > 2 else 5)
    for k in range(int(sys.argv[3]) if len(sys.argv) > 3 else 24):
        method = rng.choice(GOES_ON)
        victims = rng.sample(range(4), rng.randrange(1, 4))
        fail = ":".join("%d@%g" % (r, rng.choice([0.1, 0.15, 0.01 + rng.random() * 0.4])) for r in victims)
        train(f"{folder}/random{k}", "--method", method, "--fail", fail, "--eval-every", rng.choice(["0", "3"]),
              "--report-every", "1", "--checkpoint-every", rng.choice(["0", "4"]), "--slow", "1:2.7",
              transport="sim(peer-timeout=%g)" % rng.choice([0, 0.001, 3]))
        assert set(range(6)) - set(victims) >= set(summary(f"{folder}/random{k}")["members"]) >= {4, 5}
