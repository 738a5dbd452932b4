"""Every method of `tutti methods` and every codec of `tutti codecs`, over every transport and
through a checkpoint: a run over shared memory that saves half-way is the reference, and from that
checkpoint the second half is made over one of the other transports, alternately, in `make
check-long` over each. So each run tests whether messages, sums and states give the same bits there;
an asynchronous method makes the remaining steps, sends the bytes that are due and ends with a finite
loss. A new method or codec is included at once, and must give the same bits unless a row excludes
it. MPI, in `make check-long`: the launchers that TUTTI_MPI names, alternately, for every fourth
method or codec, since a job takes long to start (method/mpi-* has all of both under each, and
cli/mpi resumes from checkpoints)."""
import json, math, os, struct, unittest
from command import *
from mpi_test import LAUNCHERS, under

STEPS, HALF, N, BATCH = 6, 3, 4, 4
SMALL = ("--model", "mlp(hidden=24)", "--batch", BATCH, "--seed", 7, "--threads", 1, "--quiet")
PARAMS = 784 * 24 + 24 + 24 * 24 + 24 + 24 * 10 + 10
OTHERS = and_sim("tcp")
# Specs that cannot be run by their name alone, or should be run with several options: wrappers,
# those that change within the run only if asked to, those that follow the clock unless asked
# otherwise. A wrapper of the list stands for all that it may have inside.
CODECS = {"ef": ["ef(topk(ratio=0.05))", "ef(powersgd(rank=2),momentum=0.5)"], "ef21": ["ef21(sign,eta=0.5)"],
          "dgc": ["dgc(topk(ratio=0.02,warmup=1))"], "large": ["large(qsgd(bits=4),min=500)"],
          "accordion": ["ef(accordion(low=topk(ratio=0.2),high=topk(ratio=0.01),unit=step,interval=1,eta=0.5))"],
          "alq": ["alq(bucket=256,first=1,second=4)"], "amq": ["amq(bucket=256,first=1,second=4,coding=huffman)"],
          "qsgd": ["qsgd(bits=3,bucket=256,coding=elias)"], "randomk": ["randomk(ratio=0.1,block=8)"]}
METHODS = {"parameter-server": ["parameter-server(servers=3)"],
           "byteps": ["byteps(partition_bytes=20000)", "byteps(partition_bytes=20000,node=2,wire=fp16)",
                      "byteps(partition_bytes=20000,priority=layer,cross_barrier=on)", "byteps(async=on)"],
           "herring": ["herring(node=2,fusion_mb=0.02,min_shard_kb=0)", "herring(servers=3,wire=fp16)"],
           "local-sgd": ["local-sgd(period=4)", "local-sgd(period=4,outer=sgd(lr=0.7,momentum=0.9,nesterov=true))"],
           "diloco": ["diloco(period=4,fragments=2,delay=1,mix=0.5)", "diloco(period=2)"],
           "bagua": ["bagua(algorithm=low_precision_decentralized,hierarchical=2)", "bagua(hierarchical=2)",
                     "bagua(algorithm=bytegrad,hierarchical=2)",
                     "bagua(algorithm=decentralized,peer_selection=shift_one)", "bagua(algorithm=decentralized)"],
           "lasgd": ["lasgd(local_steps=2,max_delay=1)"],
           "biased-local-sgd": ["biased-local-sgd(steps=1:2:2:2,bias_ratio=2)"],
           "dabmd": ["dabmd(compute_ms=1,microbatch=4,most=4)"],
           "slowmo": ["slowmo(base=sgp,overlap=1,period=2)", "slowmo(period=2)", "slowmo(base=d-psgd,period=4)"],
           "d-psgd": ["d-psgd", "d-psgd(one-peer-exponential,order=atc)"],
           "qg-dsgdm": ["qg-dsgdm(period=2)"], "noloco": ["noloco(period=3)"],
           "saddle": ["saddle(variant=n,sam_every=2)", "saddle"],
           "sgp": ["sgp", "sgp(graph=star(weights=push),overlap=2)"],
           "rand-psgd": ["rand-psgd", "rand-psgd(mixing=delay-by-one)", "rand-psgd(pace=own)"],
           "ad-psgd": ["ad-psgd", "ad-psgd(graph=ring,roles=bipartite)"],
           "prague": ["prague", "prague(generator=static,group_size=2)", "prague(generator=random,overlap=on)"],
           "asr-adpsgd": ["asr-adpsgd(mixing=delay-by-one)", "asr-adpsgd", "asr-adpsgd(mixing=random-ring,rounds=2)"],
           "h-adpsgd": ["h-adpsgd(super_learner=2)"], "backup-workers": ["backup-workers(backup=0)", "backup-workers"],
           "ringmaster-asgd": ["ringmaster-asgd(max_delay=-1)", "ringmaster-asgd(max_delay=2,stops=on)"],
           "dude-asgd": ["dude-asgd(table=worker)", "dude-asgd(group=2)"],
           "ringleader-asgd": ["ringleader-asgd", "ringleader-asgd(table=worker)"],
           "hermes": ["hermes(push=always,chunk=8,minibatch=2,local_passes=2)"], "oscars": ["oscars(interval=2)"],
           "decoupled-diloco": ["decoupled-diloco(period=4)", "decoupled-diloco(period=4,quorum=2)"],
           "hetero-ring": ["hetero-ring(allocation=static,shares=1:3:2:2,collective=ring)",
                           "hetero-ring(allocation=static,shares=1:3:2:2)"],
           "ata": ["ata(allocation=fixed,seconds=1:3:2:2)"], "stragglar": ["stragglar(straggler=1,min_bytes=1)"],
           "pipe-sgd": ["pipe-sgd(width=3,warmup=1)"],
           "hetpipe": ["hetpipe(in_flight=4)", "hetpipe(stages=1,in_flight=2)", "hetpipe(allocation=np,update=sum)"],
           "wavelet": ["wavelet", "wavelet(sync_mode=average,sync_rounds=2)", "wavelet(sync_mode=accumulate)",
                       "wavelet(waves=3)", "wavelet(stages=2)"],
           "heterps": ["heterps(stages=2)", "heterps", "heterps(stages=3,in_flight=1)"],
           "bytescheduler": ["bytescheduler(partition_mb=0.01,credit_mb=0.03,fuse_mb=0.01)",
                             "bytescheduler(over=servers,servers=3,partition_mb=0.01)",
                             "bytescheduler(partition_mb=0.01,tune=both,tune_points=2,tune_steps=4)"],
           "zero": ["zero(bucket_mb=0.02,first_bucket_mb=0.01)",
                    "zero(stage=2,bucket_mb=0.02,first_bucket_mb=0.01)",
                    "zero(stage=3,bucket_mb=0.02,first_bucket_mb=0.01)",
                    "zero(stage=2,group=2,bucket_mb=0.02,first_bucket_mb=0.01)",
                    "zero(stage=3,group=2,bucket_mb=0.02,first_bucket_mb=0.01)"],
           "zero-infinity": ["zero-infinity(bucket_mb=0.02,first_bucket_mb=0.01)"],
           "zero-offload": ["zero-offload(bucket_mb=0.02,first_bucket_mb=0.01)",
                            "zero-offload(delayed=on,delay_warmup=1,bucket_mb=0.02)"],
           "parallax": ["parallax(node=2)"],
           "scadles": ["scadles(rates=4,batch_min=1,simulate_clock=on)"],
           "alq": ["alq(bucket=256,first=1,second=4)"], "amq": ["amq(bucket=256,first=1,second=4)"],
           "dgc": ["dgc(ratio=0.05)"],
           "accordion": ["accordion(unit=step,interval=1)", "accordion(mode=batch,batch_high=32,unit=step,interval=1)"],
           "onebit-adam": ["onebit-adam(freeze_step=2)"], "qadam": ["qadam(warmup_steps=2)"]}
# The method decides how many samples a step has, so the number of steps is not known beforehand.
FREE = {"palsgd", METHODS["biased-local-sgd"][0]}
WITH = {"hermes": ("--validation", 60), "dgc": ("--optimizer", "sgd(lr=0.02)")}


def pushes(s):
    """Of each worker to the other servers, and what comes back; the model at the end."""
    cuts = [PARAMS // 16 * k // N * 16 for k in range(N)] + [PARAMS]
    return sum(2 * 4 * (PARAMS - (cuts[k + 1] - cuts[k])) * w["steps"]
               for k, w in enumerate(s["by_worker"])) + (N - 1) * 4 * PARAMS


def pairs(each):
    """Models to a neighbour and back, for each gradient; one average of all at the end."""
    return lambda s: (each * sum(w["steps"] for w in s["by_worker"]) + 2 * (N - 1)) * 4 * PARAMS


def one_server(s):
    return (2 * sum(w["steps"] for w in s["by_worker"][1:]) + N - 1) * 4 * PARAMS


# Asynchronous methods: the bytes that are due; None: they depend on which worker was fast.
AT_OWN_PACE = {"ad-psgd": pairs(2), "ad-psgd(graph=ring,roles=bipartite)": None, "rand-psgd(pace=own)": pairs(2),
               "asr-adpsgd": pairs(2), "asr-adpsgd(mixing=random-ring,rounds=2)": pairs(4),
               "prague": None, "prague(generator=random,overlap=on)": None, "h-adpsgd(super_learner=2)": None,
               "asgd": pushes, "byteps(async=on)": pushes, "ssp": pushes, "backup-workers": None,
               "ringmaster-asgd(max_delay=-1)": one_server, "ringmaster-asgd(max_delay=2,stops=on)": None,
               "ringleader-asgd": None, "ringleader-asgd(table=worker)": None, "dude-asgd(table=worker)": one_server,
               "dude-asgd(group=2)": one_server, METHODS["hermes"][0]: None, "oscars(interval=2)": None,
               "decoupled-diloco(period=4)": None, "decoupled-diloco(period=4,quorum=2)": None}


def steps_of(checkpoint):
    """Of each worker, as it was saved; where replicas are equal each has made all."""
    of = [HALF] * N
    for name in os.listdir(checkpoint):
        own = tensors(os.path.join(checkpoint, name)).get("engine.own/@0") if name.endswith(".safetensors") else None
        if own is not None:
            of[int(name.split("-")[1])] = struct.unpack("<q", own[2][:8])[0]
    return of


def forms(table, name):
    """The specs of that name, with their numbers: the first of them unless this is `make check-long`."""
    return list(enumerate(table.get(name, [name])))[:None if LONG else 1]


def launcher_of(k, of):
    return sorted(LAUNCHERS)[k // 4 % len(LAUNCHERS):][:1] if LONG and LAUNCHERS and of == 0 and k % 4 == 0 else []


class Transports(Case):
    def go(self, n, kinds, words, judge):
        """words through every transport (MPI: under `kinds`) from the checkpoint of a run over
        shared memory: judge(folder, transport, resumed)."""
        name = "-".join(str(w) for w in words[1::2]).replace("/", "") + "-%d" % n
        common = (*SMALL, "--data", self.data, *words, "--steps", STEPS, "--checkpoint-every", HALF)
        whole = self.train(name, *common, "-n", n)
        self.half = half = os.path.join(whole, "checkpoints", sorted(os.listdir(os.path.join(whole, "checkpoints")))[0])
        judge(whole, "shm", False)
        rest = (*common, "--resume", half, "--on-loss", "stop")
        for transport in one_of(self.turn, OTHERS): # all of them in `make check-long`
            judge(self.train(name + transport, *rest, "-n", n, "--transport", transport), transport, True)
        for kind in kinds:
            out = self.out(name + kind)
            done = under(kind, n, "train", *rest, "--transport", "mpi", "--out", out)
            self.assertEqual(done.returncode, 0, (kind, words, done.stderr + done.stdout))
            judge(out, "mpi", True)

    def agree(self, n, kinds, *words):
        first, sent = [], []

        def judge(out, transport, resumed):
            s, model = summary(out), read(os.path.join(out, "model.safetensors"))
            first.append((model, s["samples"], s["steps"] if words[1] in FREE else STEPS))
            self.assertEqual(first[-1][1:], (STEPS * n * BATCH, first[0][2]), (transport, words))
            self.assertEqual(model, first[0][0], (transport, words))
            if resumed and words[0] == "--codec":
                sent.append(s["bytes_sent_total"])
                self.assertEqual(sent[-1], sent[0], (transport, words))
            self.assertEqual((s["transport"], s["resumed_at_step"], s["steps"]),
                             (transport, HALF if resumed else None, first[0][2]), words)

        self.go(n, kinds, words, judge)

    def own_pace(self, kinds, bytes_due, *words):
        def judge(out, transport, resumed):
            s = summary(out)
            self.assertEqual((s["transport"], s["resumed_at_step"], s["steps"], s["members"]),
                             (transport, HALF if resumed else None, STEPS, list(range(N))), words)
            if words[1] != "backup-workers": # a worker that is overtaken skips the steps that others make
                self.assertEqual((s["samples"], sum(w["steps"] for w in s["by_worker"])),
                                 (STEPS * N * BATCH, STEPS * N), (transport, words))
            self.assertTrue(math.isfinite(s["final_test_loss"]) and s["final_test_loss"] < 4,
                            (transport, words, s["final_test_loss"]))
            for worker, before in zip(s["by_worker"], steps_of(self.half) if resumed else [0] * N):
                worker["steps"] -= before  # bytes are of this process, steps of the whole run
            if bytes_due is not None:
                self.assertEqual(s["bytes_sent_total"], bytes_due(s), (transport, words))

        self.go(N, kinds, words, judge)

    def test_codecs_are_bit_identical_across_transports_and_checkpoints(self):
        names = [c["name"] for c in json.loads(tutti("codecs", "--json").stdout)]
        self.assertLessEqual(set(CODECS), set(names))
        for k, name in enumerate(names):
            self.turn = k
            for of, spec in forms(CODECS, name):
                self.agree((2, 2, 4)[k % 3], launcher_of(k, of), "--codec", spec, "--final-eval", "off")

    def test_neighbour_exchanges_with_codecs_are_identical_across_transports(self):
        for k, spec in enumerate(("fp16", "topk(ratio=0.1)")):
            self.turn = k
            self.agree(3, launcher_of(k, 0), "--method", "d-psgd", "--codec", spec, "--final-eval", "off")

    def test_methods_are_bit_identical_or_consistent_across_transports(self):
        names = [m["name"] for m in json.loads(tutti("methods", "--json").stdout)]
        self.assertLessEqual(set(METHODS) | set(WITH), set(names))
        self.assertLessEqual(set(AT_OWN_PACE), {spec for name in names for spec in METHODS.get(name, [name])})
        for k, name in enumerate(names):
            self.turn = k
            for of, spec in forms(METHODS, name):
                words = ("--method", spec, *WITH.get(name, ()))
                if spec in AT_OWN_PACE:
                    # delays bear no more
                    self.own_pace(launcher_of(k, of), AT_OWN_PACE[spec], *words, "--optimizer", "sgd(lr=0.01)")
                else:
                    self.agree(N, launcher_of(k, of), *words, "--final-eval", "off")


if __name__ == "__main__":
    unittest.main(verbosity=2)
