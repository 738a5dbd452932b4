"""Mixing graphs of gossip methods: which workers average, with which weight, and how fast that mixes (gossip.h)."""

import ctypes
import weakref
from dataclasses import dataclass

from ._library import library as _c
from .errors import check


@dataclass(frozen=True, slots=True)
class Row:
    """A round as one member lives it: its own weight, and the members it takes from and gives to, with weights."""

    own: float
    takes: dict[int, float]
    gives: dict[int, float]


class Graph:
    """A graph of n members. W of a round is doubly stochastic; of a graph for push-sum its columns sum to 1."""

    def __init__(self, spec: str, n: int, push: bool = False):
        self.spec = spec
        self._at = ctypes.c_void_p()
        check(_c.tutti_graph_open_push if push else _c.tutti_graph_open, self._at, spec.encode(), n)
        weakref.finalize(self, _c.tutti_graph_close, self._at)
        self.size: int = _c.tutti_graph_size(self._at)
        self.period: int = _c.tutti_graph_period(self._at)
        """Rounds until W repeats; 0: each is drawn anew."""
        self.degree: int = _c.tutti_graph_degree(self._at)
        """Most members that any member takes from, or gives to, in any round."""
        self.messages: float = _c.tutti_graph_messages(self._at)
        """Sent in a round by all members together, on average."""

    def __repr__(self) -> str:
        return f"<tutti.Graph {self.spec!r} of {self.size}>"

    def row(self, member: int, k: int = 0) -> Row:
        """Round k of a member."""
        if not 0 <= member < self.size:
            raise IndexError(f"the graph has members 0 to {self.size - 1}, not {member}")
        room = max(self.degree, 1)
        members = (ctypes.c_int * room)(), (ctypes.c_int * room)()
        weights = (ctypes.c_double * room)(), (ctypes.c_double * room)()
        n_in, n_out, own = ctypes.c_int(), ctypes.c_int(), ctypes.c_double()
        _c.tutti_graph_round(self._at, k, member, members[0], weights[0], n_in, members[1], weights[1], n_out, own)
        takes, gives = (dict(zip(members[i][:n.value], weights[i])) for i, n in enumerate((n_in, n_out)))
        return Row(own.value, takes, gives)

    def weights(self, k: int = 0) -> list[list[float]]:
        """W of round k, row by row: x_i <- sum_j W[i][j] x_j."""
        w = [[0.0] * self.size for _ in range(self.size)]
        for i in range(self.size):
            row = self.row(i, k)
            w[i][i] = row.own
            for j, weight in row.takes.items():
                w[i][j] = weight
        return w

    @property
    def gap(self) -> float:
        """The spectral gap: 1 - the factor by which a period shrinks the distance from the mean at least.

        For at most 2048 members, whose weights are doubly stochastic; ValueError says so.
        """
        gap = ctypes.c_double()
        check(_c.tutti_graph_gap, self._at, gap)
        return gap.value

    def has(self, fact: str) -> bool:
        """static, symmetric, regular, doubly-stochastic, column-stochastic, bipartite, connected or exact.

        ValueError: it is none of these words.
        """
        known = ("static", "symmetric", "regular", "doubly-stochastic", "column-stochastic", "bipartite", "connected",
                 "exact")
        if fact not in known:
            raise ValueError(f"a graph cannot be asked whether it is '{fact}', only {', '.join(known)}")
        return _c.tutti_graph_is(self._at, fact.encode())

    def require(self, fact: str) -> None:
        """ValueError with what shows it, a round, a member or a sum, unless has(fact)."""
        check(_c.tutti_graph_require, self._at, fact.encode())


def topology(spec: str, n: int, push: bool = False) -> Graph:
    """The graph of n members that a spec gives: "ring", "torus(rows=4)", "base(2)", "random-ring(seed=7)"."""
    return Graph(spec, n, push)
