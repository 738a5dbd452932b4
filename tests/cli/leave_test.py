"""A worker that leaves in an orderly way before the others: no worker waits for it, and all learn which worker has
left and in which step. A run in which all leave in order ends without output."""
import os, re
from command import *

LEAVER = os.environ["LEAVER"]
SERVERS = ("parameter-server", "herring", "byteps", "byteps(async=on)", "asgd", "ssp", "backup-workers",
           "ringmaster-asgd", "ringleader-asgd", "dude-asgd", "hermes(push=always,minibatch=1)", "oscars",
           "decoupled-diloco", "decoupled-diloco(quorum=1)", "parallax")
OTHERS = ("ddp", "bagua", "bagua(algorithm=async)", "hetero-ring", "ata", "stragglar", "pipe-sgd", "bytescheduler",
          "zero", "scadles", "powersgd", "qsgd", "nuqsgd", "alq", "amq", "gradient-sparsification", "dgc", "accordion",
          "onebit-adam", "qadam", "signum", "demo", "local-sgd", "diloco", "palsgd", "biased-local-sgd", "lasgd",
          "slowmo", "dabmd", "single", "d-psgd", "qg-dsgdm", "gut", "saddle", "noloco", "sgp", "ad-psgd",
          "rand-psgd", "rand-psgd(pace=own)",
          "asr-adpsgd", "asr-adpsgd(mixing=delay-by-one)", "h-adpsgd(super_learner=2)", "hop", "prague",
          "prague(generator=random,group_size=2)", "prague(generator=static)")
# These hold values by unit, off the device or in stages, which this client does not support.
WITHOUT = {"zero-infinity", "zero-offload", "hetpipe", "wavelet", "heterps"}
ALL = [(m, k) for m in SERVERS for k in (0, 1)] + [(m, 0) for m in OTHERS]
SHORT = [("byteps", 1), ("ringleader-asgd", 0), ("hop", 0), ("d-psgd", 0)]
LEFT = r"(?:step \d+|[a-z-]+ of \d+ elements over \d members): rank 1 is gone without a failure: its program has " \
       r"ended before this rank's; let all ranks make equally many steps, and end together|worker 1 has left the run"


class Leave(Case):
    def leaver(self, method, *words, servers=0, transport="shm", on_loss="stop"):
        n = 4 if "super_learner" in method else 3
        return subprocess.run([TUTTI, "run", "-n", str(n), "--servers", str(servers), "--transport", transport,
                               "--on-loss", on_loss, "--", LEAVER, method, *map(str, words)], capture_output=True,
                              text=True, timeout=60, env=clean_environment())

    def leaves(self, method, servers, *mode, **how):
        steps = 200 if method == "single" else 100000 # no worker needs another before the end
        done = self.leaver(method, 1, 5, steps, *mode, servers=servers, **how)
        self.assertEqual(done.returncode, 3, done.stderr)
        self.assertRegex(done.stderr.splitlines()[-1], r"^tutti: (host \S+: )?(worker \d: .*)?(%s)" % LEFT)

    def test_others_learn_which_worker_has_left(self):
        before = shm_entries()
        for k, (method, servers) in enumerate(ALL if LONG else SHORT):
            # where losses are gone on after, this is none
            for transport in ("shm", "tcp") if LONG else ("shm", "tcp")[k % 2:][:1]:
                with self.subTest(method, servers=servers, transport=transport):
                    self.leaves(method, servers, transport=transport, on_loss=("stop", "continue")[k % 2])
        self.assertEqual(shm_entries(), before)

    def test_others_learn_which_worker_has_left_with_assigned_gradients(self):
        for method, servers in (("asgd", 1), ("ad-psgd", 0)) if LONG else (("asgd", 1),):
            self.leaves(method, servers, "asks")

    def test_case_list_covers_every_method(self):
        done = tutti("methods")
        known = set(re.findall(r"^  ([a-z0-9-]+) ", done.stdout, re.M))
        self.assertEqual(known, {m.split("(")[0] for m, _ in ALL} | WITHOUT)

    def test_orderly_end_of_all_workers_prints_nothing(self):
        slow = ("asgd", 1), ("dude-asgd", 0), ("ad-psgd", 0), ("prague", 0), ("ssp", 1), ("byteps", 1)
        for method, servers in slow if LONG else slow[:1]: # the others are there long before
            done = self.leaver(method, 1, -1, 30, "slow", servers=servers)
            self.assertEqual((done.returncode, done.stderr), (0, ""), method)
        for method in ("byteps", "parameter-server", "herring") if LONG else ("byteps",): # whose models are the same
            for _ in range(20 if LONG else 2):
                done = self.leaver(method, -1, -1, 10, "bare")
                self.assertEqual((done.returncode, done.stderr), (0, ""), method)
        # one has its last answer while that of another, from it, is still on its way
        for method in ("byteps", "parameter-server", "herring") if LONG else ("herring", "parameter-server"):
            for _ in range(5 if LONG else 1):
                done = self.leaver(method, -1, -1, 5, "large", transport="tcp")
                self.assertEqual((done.returncode, done.stderr), (0, ""), method)


if __name__ == "__main__":
    unittest.main(verbosity=2)
