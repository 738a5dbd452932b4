"""Shares of a step by speed: sampler(shares="auto") with prepare(elastic=True).

As an epoch of the members begins they tell each other how long a share takes them, and each computes as many shares as
its speed allows. After some steps they compare again, and where another division would be worthwhile they ask for the
next epoch. The bits of a step do not depend on which worker computes which share.
"""

from __future__ import annotations

import ctypes

from .._library import library as _c
from ..world import World

_FIRST, _EVERY = 3, 10  # steps of an epoch after which they compare
_BETTER, _MUCH_BETTER = 0.9, 0.75  # of the longest part of a step, since a change costs some steps' time


class Speeds:
    """The speed of this process over the epochs, and the division of the present one."""

    def __init__(self, shares: int):
        self._shares = shares
        self._own = -1.0  # seconds of a share here; below 0: not measured
        self._dealt: list[int] = []
        self._was_slow = False  # another division was better at the last comparison
        self._since = (0, 0)  # nanoseconds of computing and steps at the last comparison

    def deal(self, world: World) -> list[int]:
        """Returns how many shares each member of an epoch that begins computes."""
        self._since = (0, 0)
        self._dealt = self._by(self._gather(world))
        return self._dealt

    def compare(self, world: World, computed_ns: int, steps: int) -> bool:
        """After that many steps of the epoch: is another division worthwhile? All members have the same answer."""
        if world.size == 1 or (steps != _FIRST and steps % _EVERY != 0):
            return False
        since_ns, since = self._since
        took = (computed_ns - since_ns) * 1e-9 / (steps - since) / self._dealt[world.rank]
        self._own = took if self._own < 0 else (self._own + took) / 2
        self._since = computed_ns, steps
        seconds = self._gather(world)
        new = self._by(seconds)
        part, was_slow = _longest(new, seconds) / _longest(self._dealt, seconds), self._was_slow
        self._was_slow = part < _BETTER
        return part < _MUCH_BETTER or (self._was_slow and was_slow)

    def _gather(self, world: World) -> list[float]:
        mine = [self._own if r == world.rank else -1.0 for r in range(world.size)]
        return [float(s) for s in world.reduce(mine, "max")]

    def _by(self, seconds: list[float]) -> list[int]:
        """In proportion to speed, one or more. Those that have measured nothing count as the others' mean."""
        n, known = len(seconds), [s for s in seconds if s > 0]
        mean = sum(known) / len(known) if known else 1.0
        part = (ctypes.c_int64 * n)()
        weight = (ctypes.c_double * n)(*(1 / (s if s > 0 else mean) for s in seconds))
        _c.tutti_share_apportion(self._shares, n, weight, 1, part)
        return list(part)


def _longest(dealt: list[int], seconds: list[float]) -> float:
    return max(n * s for n, s in zip(dealt, seconds, strict=True))
