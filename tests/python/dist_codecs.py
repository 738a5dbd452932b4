"""What distributed_codec_test.py asks of groups with a codec on each rank. A case gives sentences about what is wrong.

A step is `with gradients(...)` here, where no model is trained. The first two of each order of calls are exact, since
it is not known yet; LEARN has them.
"""

from __future__ import annotations

import warnings

import dist_cases
import torch
import torch.distributed as dist
from torch.distributed import ReduceOp

import tutti
import tutti.torch.distributed
from tutti.torch.distributed import codec_of, gradients, options
from tutti.torch.hook import _tree

LEARN = 2
SIZE = 3000  # elements, of which no part of 2, 3 or 4 is a square
SPECS = [
    "fp32", "fp16", "bf16", "trunc16", "int8", "minmax8", "qsgd(bits=8)", "qsgd(coding=elias)", "nuqsgd", "alq", "amq",
    "ef(sign)", "ef(onebit)", "ef(onebit-col)", "sign-vote", "ef(topk(ratio=0.05))", "ef(threshold(value=0.01))",
    "ef(randomk(ratio=0.1))", "wangni(sparsity=0.2)", "ef(powersgd(rank=4))", "large(ef(topk(ratio=0.1)),min=500)",
    "ef(dct(topk=8,chunk=16))", "ef(chunk-topk(topk=8,chunk=16),decay=0.95)", "ef(e3m0)",
    "ef21(topk(ratio=0.2))", "dgc(topk(ratio=0.05))", "accordion(low=topk(ratio=0.5),high=topk(ratio=0.1))",
]


def given(step, rank, size=SIZE, dtype=torch.float32):
    return torch.randn(size, generator=torch.Generator().manual_seed(1000 * step + rank + 7)).to(dtype)


def all_given(step, n, size=SIZE):
    return [given(step, rank, size) for rank in range(n)]


def coded_group(n, spec, **more):
    return dist.new_group(list(range(n)), pg_options=options(codec=spec, **more))


def reduced(group, x, op=ReduceOp.AVG):
    x = x.clone()
    dist.all_reduce(x, op, group=group)
    return x


def in_steps(group, call, steps, name="", begin=0):
    """call(step) in each of so many steps after those that are exact."""
    found = []
    for k in range(begin, begin + LEARN + steps):
        with gradients(name, group):
            found.append(call(k))
    return found[LEARN:]


def after(n):
    """The number of a step in which the codec is used."""
    return LEARN + n


class Wrong(list):
    def unless(self, right, what):
        if not right:
            self.append(str(what))

    def refuses(self, words, attempt, error=ValueError):
        try:
            attempt()
            self.append(f"not refused: {words}")
        except error as e:
            self.unless(words in str(e), f"refused without {words!r}: {e}")


# ---- what comes out ----

def lossless(wrong, n, rank):
    """codec='none' is no codec. fp32 loses nothing: the bits of no codec, all-reduced and reduce-scattered."""
    exact, none, fp32 = dist.group.WORLD, coded_group(n, "none"), coded_group(n, "fp32")
    wrong.unless(none._codec is None, "codec='none' is a codec")
    for dtype in (torch.float32, torch.bfloat16, torch.float16):
        def mine(k, dtype=dtype):
            return given(k, rank, dtype=dtype)

        for group in (none, fp32):
            for k, got in enumerate(in_steps(group, lambda k, group=group: reduced(group, mine(k)), 2, str(dtype))):
                wrong.unless(torch.equal(got, reduced(exact, mine(after(k)))), f"all_reduce of {dtype}, step {k}")

        def part(group, k):
            out = torch.empty(SIZE // n, dtype=dtype)
            dist.reduce_scatter_tensor(out, given(k, rank, SIZE // n * n, dtype), ReduceOp.AVG, group=group)
            return out

        for k, got in enumerate(in_steps(fp32, lambda k: part(fp32, k), 2, f"parts {dtype}")):
            wrong.unless(torch.equal(got, part(exact, after(k))), f"reduce_scatter of {dtype}, step {k}")
    wrong.unless(codec_of(fp32).coded == 3 * 2 * 2, f"{codec_of(fp32).coded} calls")
    sums = in_steps(fp32, lambda k: reduced(fp32, given(k, rank), ReduceOp.SUM), 1, "sum")[0]
    near = torch.allclose(sums, reduced(exact, given(after(0), rank), ReduceOp.SUM), rtol=1e-5, atol=1e-6)
    wrong.unless(near, "SUM is not the mean times the members")
    by = dist._make_nccl_premul_sum(0.5)
    halves = in_steps(fp32, lambda k: reduced(fp32, given(k, rank), by), 1, "premul")[0]
    wrong.unless(torch.allclose(halves, sums / 2, rtol=1e-5, atol=1e-6), "PREMUL_SUM")


def by_definition(wrong, n, rank):
    """fp16: each rank's values rounded, their mean in float32 in the one order, rounded."""
    group = coded_group(n, "fp16")
    for k, got in enumerate(in_steps(group, lambda k: reduced(group, given(k, rank)), 2)):
        rows = torch.stack([x.half().float() * (1 / n) for x in all_given(after(k), n)])
        wrong.unless(torch.equal(got, _tree(rows).half().float()), f"fp16, step {k}")
    group = coded_group(n, "topk(ratio=0.1)")
    for k, got in enumerate(in_steps(group, lambda k: reduced(group, given(k, rank)), 2)):
        kept = []
        for x in all_given(after(k), n):
            at = x.abs().topk(SIZE // 10).indices
            kept.append(torch.zeros(SIZE).index_put((at,), x[at]))
        wanted = torch.stack(kept).mean(0)
        wrong.unless(torch.allclose(got, wanted, rtol=1e-6, atol=1e-7), f"topk, step {k}")


def scattered(wrong, n, rank, specs):
    """A reduce-scatter of parts is an all-reduce of each, of which the owner's is used: bit by bit, step by step."""
    size = SIZE // n
    for spec in specs:
        one, all_ = coded_group(n, spec, minimum=100), coded_group(n, spec, minimum=100)

        def scatter(k, group=one):
            out, x = torch.empty(size), given(k, rank, size * n)
            before = x.clone()
            dist.reduce_scatter_tensor(out, x, ReduceOp.AVG, group=group)
            wrong.unless(torch.equal(x, before), "the input of a reduce-scatter has changed")
            return out

        def gather(k, group=all_):
            return [reduced(group, x) for x in given(k, rank, size * n).split(size)][rank]

        for k, (a, b) in enumerate(zip(in_steps(one, scatter, 4), in_steps(all_, gather, 4), strict=True)):
            wrong.unless(torch.equal(a, b), f"{spec}, step {k}: {(a - b).abs().max()}")
        if spec.startswith("ef("):
            a, b = (codec_of(g).state_dict()["orders"][""]["states"] for g in (one, all_))
            wrong.unless(all(torch.equal(a[name], b[name]) for name in a), f"{spec}: other residuals")
        for group in (one, all_):
            dist.destroy_process_group(group)


def uneven(wrong, n, rank):
    """Lists of parts of several sizes, strided tensors, and several tensors in one call."""
    for spec in ("fp16", "ef(topk(ratio=0.1))", "qsgd(coding=elias)", "ef(powersgd(rank=2))"):
        one, all_ = coded_group(n, spec, minimum=100), coded_group(n, spec, minimum=100)
        sizes = [500 + 37 * r for r in range(n)]

        def scatter(k, group=one, sizes=sizes):
            out = torch.empty(sizes[rank])
            dist.reduce_scatter(out, list(given(k, rank, sum(sizes)).split(sizes)), ReduceOp.AVG, group=group)
            return out

        def gather(k, group=all_, sizes=sizes):
            return [reduced(group, x) for x in given(k, rank, sum(sizes)).split(sizes)][rank]

        def strided(k, group=one):
            x = given(k, rank).view(60, 50).t()
            y = torch.zeros(60, 50).t()
            y.copy_(x)
            dist.all_reduce(y, ReduceOp.AVG, group=group)
            return y.contiguous().view(-1)

        def plain(k, group=all_):
            return reduced(group, given(k, rank).view(60, 50).t().contiguous()).view(-1)

        def coalesced(k, group=one):
            xs, opts = list(given(k, rank).split([1000, 2000])), dist.AllreduceCoalescedOptions()
            opts.reduceOp = ReduceOp.AVG
            group.allreduce_coalesced(xs, opts).wait()
            return torch.cat(xs)

        def apart(k, group=all_):
            return torch.cat([reduced(group, x) for x in given(k, rank).split([1000, 2000])])

        for a, b in ((scatter, gather), (strided, plain), (coalesced, apart)):
            for x, y in zip(in_steps(one, a, 2, a.__name__), in_steps(all_, b, 2, a.__name__), strict=True):
                wrong.unless(torch.equal(x, y), f"{spec}, {a.__name__}")


def feedback(wrong, n, rank):
    """What has come out, and the mean of what the ranks still keep, is the mean of what was given: over all steps."""
    for spec in ("ef(topk(ratio=0.05))", "ef(sign)", "ef(randomk(ratio=0.1))", "ef(powersgd(rank=2))"):
        group = coded_group(n, spec, minimum=100)
        total, came = torch.zeros(SIZE, dtype=torch.float64), torch.zeros(SIZE, dtype=torch.float64)
        for k, got in enumerate(in_steps(group, lambda k, group=group: reduced(group, given(k, rank)), 6)):
            total += torch.stack(all_given(after(k), n)).double().mean(0)
            came += got.double()
        residual = codec_of(group).state_dict()["orders"][""]["states"]["codec.e"][:SIZE].double()
        dist.all_reduce(residual, ReduceOp.AVG, group=group)  # outside of a step: exact
        off = float((total - came - residual).abs().max())
        wrong.unless(off < 1e-4, f"{spec}: {off} is lost")
        wrong.unless(float(residual.abs().max()) > 1e-5, f"{spec}: no residual")


# ---- what is sent ----

def traffic(wrong, n, rank):
    """Payload by the world's counter, of two ranks."""
    size, world = 4096, dist.group.WORLD._shared.world

    def sent(call):
        dist.barrier()
        before = world.sent()[0]
        call()
        return world.sent()[0] - before

    def whole(group):
        with gradients(group=group):
            reduced(group, given(1, rank, size))

    def parts(group):
        with gradients("parts", group):
            dist.reduce_scatter_tensor(torch.empty(size // n), given(1, rank, size), ReduceOp.AVG, group=group)

    exact = [sent(lambda call=call: call(dist.group.WORLD)) for call in (whole, parts)]
    wrong.unless(exact == [4 * size, 2 * size], f"exact: {exact}")
    for spec, lengths in (("fp16", 0), ("topk(ratio=0.05)", 0), ("qsgd(bits=8)", 0), ("qsgd(coding=elias)", 8)):
        group = coded_group(n, spec)
        for call, share in ((whole, 1), (parts, n)):
            for _ in range(LEARN):
                wrong.unless(sent(lambda call=call: call(group)) == exact[share > 1], f"{spec}: the first are exact")
            call(group)  # with which the codec is opened
            before = codec_of(group).bytes_encoded
            got = sent(lambda call=call: call(group))
            made = codec_of(group).bytes_encoded - before
            if spec == "qsgd(coding=elias)" and share > 1:  # parts have lengths of their own
                wrong.unless(made / 4 < got < made, f"{spec}: {got} bytes sent of parts, {made} encoded")
            else:
                wrong.unless(got == made // share + lengths, f"{spec}: {got} bytes sent, {made} encoded, {share}")
        wrong.unless(spec != "fp16" or made == 2 * size, f"fp16: {made}")


def stays_exact(wrong, n, rank):
    """Whatever is no gradient: outside of a step, small, integers, float64 that is small, other operations, moves."""
    group, world = coded_group(n, "topk(ratio=0.01)"), dist.group.WORLD
    big, step = given(3, rank), codec_of(group)
    wrong.unless(torch.equal(reduced(group, big), reduced(world, big)), "outside of a step")
    for k in range(LEARN + 1):
        with gradients(group=group):
            for what, op, x in (("an integer", ReduceOp.SUM, torch.arange(SIZE)), ("MAX", ReduceOp.MAX, big),
                                ("PRODUCT", ReduceOp.PRODUCT, big), ("a norm", ReduceOp.SUM, big[:1]),
                                ("small", ReduceOp.AVG, big[:1023]), ("small", ReduceOp.SUM, big[:9].double())):
                wrong.unless(torch.equal(reduced(group, x, op), reduced(world, x, op)), f"{what}, step {k}")
            x = big.clone()
            dist.broadcast(x, 0, group=group)
            wrong.unless(torch.equal(x, given(3, 0)), "broadcast")
            out = torch.empty(n * SIZE)
            dist.all_gather_into_tensor(out, big, group=group)
            wrong.unless(torch.equal(out, torch.cat(all_given(3, n))), "all_gather")
    wrong.unless(step.coded == 0, f"{step.coded} calls went through the codec")
    alone = [dist.new_group([r], pg_options=options(codec="sign-vote")) for r in range(n)][rank]
    got = in_steps(alone, lambda k: reduced(alone, given(k, rank)), 2)[-1]
    wrong.unless(torch.equal(got, given(after(1), rank)), "a group of one")
    with gradients("any", world):  # it has no codec
        wrong.unless(torch.equal(reduced(world, big), torch.stack(all_given(3, n)).mean(0)) or n > 2, "no codec")


# ---- what is refused ----

def refused(wrong, n, rank):
    """Alike on all ranks, and the group can be used as before."""
    world = dist.group.WORLD
    wrong.refuses("has no codec", lambda: codec_of(world))
    for spec, words in (("topkk", "did you mean 'topk'"), ("topk(ratioo=1)", "did you mean 'ratio'"),
                        ("ef", "wraps another one"), ("large(topk,exclude=late*)", "name")):
        wrong.refuses(words, lambda spec=spec: options(codec=spec))
    wrong.refuses("minimum=0", lambda: options(codec="fp16", minimum=0))
    group, vote = coded_group(n, "ef(topk(ratio=0.1))"), coded_group(n, "sign-vote")

    def step(*sizes, group=group, name="", op=ReduceOp.AVG, dtype=torch.float32):
        with gradients(name, group):
            for size in sizes:
                reduced(group, given(1, rank, size, dtype), op)

    wrong.refuses("codecs take float32", lambda: step(2000, dtype=torch.float64))
    step(2000, dtype=torch.complex64)  # which torch hands over as twice as many real numbers
    wrong.refuses("has no sum", lambda: step(2000, group=vote, op=ReduceOp.SUM))
    for _ in range(LEARN):
        step(2000, 3000)
    step(2000, 3000)
    wrong.unless(codec_of(group).coded == 2, f"{codec_of(group).coded} calls")
    wrong.refuses("all_reduce (AVG) of 2500 elements of float32 as its call 2", lambda: step(2000, 2500),
                  tutti.StateError)
    for _ in range(LEARN + 1):  # it is learned anew
        step(2000, 3000)
    wrong.refuses("as its call 3 with a codec, which in those before did not exist",
                  lambda: step(2000, 3000, 4000), tutti.StateError)
    for _ in range(LEARN + 1):
        step(2000, 3000, 4000)
    wrong.refuses("has ended after 1 calls", lambda: step(2000), tutti.StateError)
    wrong.refuses("the backward of 'other'", lambda: [step(s, name="other") for s in (2000, 2000, 2000, 3000)],
                  tutti.StateError)

    def nested():
        with gradients("a", group), gradients("b", group):
            pass

    wrong.refuses("within gradients('a')", nested, tutti.StateError)
    codec_of(group).shapes[2000] = [(3, 3)]
    wrong.refuses("which have 9", lambda: [step(2000, name="shapes") for _ in range(LEARN + 1)])
    codec_of(group).reset()
    codec_of(group).shapes.clear()
    for _ in range(LEARN + 1):
        step(2000)
    x = torch.ones(3)
    dist.all_reduce(x, group=group)
    wrong.unless(x.tolist() == [n] * 3, "after what was refused")


def unknown_shapes(wrong, n, rank):
    group = coded_group(n, "ef(powersgd(rank=1))", minimum=1)
    codec_of(group).shapes[60] = [(6, 10)]
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        in_steps(group, lambda step: [reduced(group, given(step, rank, size)) for size in (60, 70)], 2)
    texts = [str(w.message) for w in seen]
    wrong.unless(len(texts) == 1 and "of [60] elements are known, those of calls of [70] elements are not" in texts[0],
                 texts)


# ---- what it keeps ----

def apart(wrong, n, rank):
    """Two models of the same calls in one group, by names: each as in a group of its own."""
    group, found = coded_group(n, "ef(topk(ratio=0.05))"), {"a": [], "b": []}
    for k in range(LEARN + 4):
        for name in found:
            with gradients(name, group):
                found[name].append(reduced(group, given(2 * k + (name == "b"), rank)))
    for name in found:
        own = coded_group(n, "ef(topk(ratio=0.05))")

        def alone(k, group=own, name=name):
            return reduced(group, given(2 * k + (name == "b"), rank))

        for k, got in enumerate(in_steps(own, alone, 4)):
            wrong.unless(torch.equal(got, found[name][after(k)]), f"model {name}, step {k}")


def saved(wrong, n, rank):
    """A run that is saved and goes on, and one that goes on from what was saved: the same bits."""
    for spec in ("ef(topk(ratio=0.05))", "ef(powersgd(rank=2))", "qsgd(bits=4)"):
        one, other = coded_group(n, spec), coded_group(n, spec)

        def call(k, group):
            return torch.cat([reduced(group, given(k, rank)), reduced(group, given(k, rank, 2000))])

        in_steps(one, lambda k, one=one: call(k, one), 3)
        state = codec_of(one).state_dict()
        codec_of(other).load_state_dict(state, at_once=True)
        again = coded_group(n, spec)
        codec_of(again).load_state_dict(state)
        in_steps(again, lambda k, again=again: call(k, again), 0)  # learned: these two are exact
        for k in range(20, 23):
            found = []
            for group in (one, other, again):
                with gradients(group=group):
                    found.append(call(k, group))
            wrong.unless(torch.equal(found[0], found[1]), f"{spec}, at once, step {k}")
            wrong.unless(torch.equal(found[0], found[2]), f"{spec}, learned, step {k}")
        steps = codec_of(again).state_dict()["orders"][""]["steps"]
        wrong.unless(steps == 6, f"{spec}: {steps} steps")
    wrong.refuses("codec 'qsgd(bits=4)', and this group's is",
                  lambda: codec_of(coded_group(n, "fp16")).load_state_dict(codec_of(one).state_dict()))
    state["rank"] = (rank + 1) % n
    wrong.refuses("residuals are one a rank", lambda: codec_of(one).load_state_dict(state))


def disagree(wrong, n, rank):
    """Ranks with unlike codecs of messages of the same size: named before anything is decoded."""
    group = dist.new_group(list(range(n)), pg_options=options(codec="fp16", seed=rank))
    try:
        in_steps(group, lambda k: reduced(group, given(k, rank)), 1)
        wrong.append("not noticed")
    except tutti.StateError as e:
        wrong.unless(f"rank {(rank + 1) % n}" in str(e) and "seed" in str(e), e)
    except tutti.PeerError as e:  # the other has noticed first
        wrong.unless(e.rank == (rank + 1) % n, e)


CASES = (lossless, by_definition, uneven, feedback, stays_exact, refused, unknown_shapes, apart, saved)


def cases(rank, n, folder, names):
    dist_cases.start(folder, rank, n, "tutti")
    wrong = Wrong()
    for name in names:
        before = len(wrong)
        globals()[name](wrong, n, rank)
        wrong[before:] = [f"{name}: {text}" for text in wrong[before:]]
        dist.barrier()
    dist.destroy_process_group()
    return list(wrong)


def every_codec(rank, n, folder, specs):
    dist_cases.start(folder, rank, n, "tutti")
    wrong = Wrong()
    scattered(wrong, n, rank, specs)
    dist.barrier()
    dist.destroy_process_group()
    return list(wrong)
