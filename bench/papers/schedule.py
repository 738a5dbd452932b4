#!/usr/bin/env python3
"""How short a schedule of exchanges can make a step: the bound that bytescheduler.py judges by.

The model. A step has backward, which makes gradients ready from the last layer to the first, and the
next step's forward, which needs the layers from the first to the last. One link carries the
exchanges. Time 0 is the beginning of backward, and a step is over when the next forward is: then
backward begins again. Layer i (0: nearest the input) has

    f[i]   seconds of its forward
    r[i]   when its gradient is ready
    e[i]   seconds of its exchange on a link that carries nothing else

    fifo       what is ready first is sent first, in buckets, and forward waits for all of it: ddp
    optimum    the least length of a step that any schedule has. One link is one machine, a layer is a
               job with release r[i], work e[i] and tail q[i] = f[i] + f[i+1] + ... : what is left of
               forward once the layer has come. Jobs may be interrupted. The rule "longest tail first",
               that is "first layer first", is optimal (Jackson's schedule), and its length is

                   max over sets S of layers of  min r[S] + sum e[S] + min q[S]      (set_bound)

               and no less than computing alone
    window     parts of `delta` seconds at most, each with `theta` on top; no more than `credit` of
               them are admitted and unfinished: what bytescheduler does. The link serves admitted
               parts in the order of admission, without overtaking. It is at most
               optimum + sum of ceil(e/delta) theta + credit + ceil(credit/delta) theta

`bench/papers/schedule.py` tries all of it on random instances: the rule against an exhaustive search,
against the sets, and the window against its bound."""
import functools, itertools, math, random, sys


def tails(f):
    return [sum(f[i:]) for i in range(len(f))]


def fifo(f, r, e, back, buckets, theta=0.0):
    """buckets: lists of layers, in the order in which they are sent."""
    at = 0.0
    for bucket in buckets:
        at = max(at, max(r[i] for i in bucket)) + sum(e[i] for i in bucket) + theta
    return max(at, back) + sum(f)


def priority(f, r, e, back):
    """The interruptible schedule, first layer first: when each layer has come, and the length of the step."""
    left, come, at = list(e), [0.0] * len(f), 0.0
    while any(left):
        there = [i for i in range(len(f)) if left[i] > 0 and r[i] <= at]
        later = [r[i] for i in range(len(f)) if left[i] > 0 and r[i] > at]
        if not there:
            at = min(later)
            continue
        i = min(there)
        until = min([at + left[i], *later])
        left[i] = 0.0 if until >= at + left[i] else left[i] - (until - at)
        at = until
        if left[i] == 0:
            come[i] = at
    done = back
    for i in range(len(f)):
        done = max(done, come[i]) + f[i]
    return come, done


def optimum(f, r, e, back):
    return priority(f, r, e, back)[1]


def set_bound(f, r, e, back):
    q = tails(f)
    jobs = [i for i in range(len(f)) if e[i] > 0]
    sets = itertools.chain.from_iterable(itertools.combinations(jobs, k) for k in range(1, len(jobs) + 1))
    return max([back + sum(f), *(min(r[i] for i in s) + sum(e[i] for i in s) + min(q[i] for i in s) for s in sets)])


def search(f, r, e, back):
    """The least length by trying every choice in every unit of time; whole numbers, small ones."""
    n, q = len(f), tails(f)

    @functools.lru_cache(None)
    def least(at, left):
        if not any(left):
            return 0
        there = [i for i in range(n) if left[i] > 0 and r[i] <= at]
        if not there:
            return least(min(r[i] for i in range(n) if left[i] > 0), left)
        best = math.inf
        for i in there:
            after = left[:i] + (left[i] - 1,) + left[i + 1:]
            best = min(best, max(at + 1 + q[i] if after[i] == 0 else 0, least(at + 1, after)))
        return best
    return max(least(0, tuple(e)), back + sum(f))


def cut(e, delta):
    """Lengths of the parts of a layer: ceil(e / delta), the last one shorter."""
    parts = max(1, math.ceil(e / delta - 1e-12)) if e > 0 else 0
    return [min(delta, e - k * delta) for k in range(parts)]


def window(f, r, e, back, delta, credit, theta=0.0, strict=True):
    """strict: a part is admitted if it fits into what is left of the credit; else while any is left."""
    parts = [(i, k, length) for i in range(len(f)) for k, length in enumerate(cut(e[i], delta))]
    waiting, running = sorted(parts), []          # running: (ends, layer, length), one behind the other
    at, free, left, come = 0.0, 0.0, credit, [0.0] * len(f)
    while waiting or running:
        ended = [p for p in running if p[0] <= at + 1e-9]
        for end, i, length in ended:
            left += length
            come[i] = max(come[i], end)
        running = [p for p in running if p not in ended]
        ready = [p for p in waiting if r[p[0]] <= at + 1e-9]
        if ready and (ready[0][2] <= left + 1e-9 if strict else left > 1e-9):
            i, k, length = ready[0]
            waiting.remove(ready[0])
            left -= length
            free = max(free, at) + length + theta
            running.append((free, i, length))
        elif waiting or running:
            at = min([p[0] for p in running] + [r[p[0]] for p in waiting if r[p[0]] > at + 1e-9])
    done = back
    for i in range(len(f)):
        done = max(done, come[i]) + f[i]
    return done


def bound(f, r, e, back, delta, credit, theta=0.0, strict=True):
    parts = sum(len(cut(x, delta)) for x in e)
    inside = credit if strict else credit + delta
    return optimum(f, r, e, back) + parts * theta + inside + math.ceil(inside / delta) * theta


def drawn(rng, most, whole=False):
    """An instance: forward, releases from the last layer to the first, works, and where backward ends."""
    n = rng.randint(1, most)
    draw = (lambda high: rng.randint(0, high)) if whole else (lambda high: rng.random() * high)
    f, b, e = [[draw(high) for _ in range(n)] for high in (3, 4, 3 if whole else 6)]
    r, at = [0] * n, 0
    for i in reversed(range(n)):
        at += b[i]
        r[i] = at
    return f, r, e, at


def check(instances, seed):
    rng = random.Random(seed)
    for k in range(instances):
        case = drawn(rng, 4, whole=True)
        assert optimum(*case) == search(*case) == set_bound(*case), case
        case = drawn(rng, 7)
        least = optimum(*case)
        assert abs(least - set_bound(*case)) < 1e-9, case
        f, r, e, back = case
        assert least <= fifo(f, r, e, back, [[i] for i in reversed(range(len(f)))]) + 1e-9, case
        delta, theta = 0.05 + rng.random(), rng.choice((0.0, 0.2 * rng.random()))
        credit = delta * (1 + 3 * rng.random())
        for strict in (True, False):
            got = window(*case, delta, credit, theta, strict)
            most = bound(*case, delta, credit, theta, strict)
            assert least - 1e-9 <= got <= most + 1e-9, (case, delta, credit, theta)
        small = 0.1  # nothing on top, small parts: the optimum itself, but for a part
        assert window(*case, small, small) <= least + small + 1e-9, case


if __name__ == "__main__":
    count = int(sys.argv[1]) if len(sys.argv) > 1 else 300
    check(count, 1)
    print(f"{count} instances: the rule, the search and the sets agree; the window keeps its bound")
