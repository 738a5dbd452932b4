"""Graphs of gossip methods: which workers average, with which weights, and how fast that mixes (gossip.h)."""

import ctypes
import weakref
from dataclasses import dataclass

from ._library import library as _c
from .errors import check


@dataclass(frozen=True, slots=True)
class Row:
    """One member's part of a round."""

    own: float  # weight of its own model
    takes: dict[int, float]  # members that it receives from: weight
    gives: dict[int, float]  # members that it sends to: weight


class Graph:
    """A graph of n members, with a matrix W of weights for each round.

    W is doubly stochastic; with push (for push-sum) only its columns sum to 1.
    """

    def __init__(self, spec: str, n: int, push: bool = False):
        self.spec = spec
        self._at = ctypes.c_void_p()
        check(_c.tutti_graph_open_push if push else _c.tutti_graph_open, self._at, spec.encode(), n)
        weakref.finalize(self, _c.tutti_graph_close, self._at)
        self.size: int = _c.tutti_graph_size(self._at)
        self.period: int = _c.tutti_graph_period(self._at)
        """Rounds after which W repeats; 0: each W is drawn at random."""
        self.degree: int = _c.tutti_graph_degree(self._at)
        """Most members that any member receives from, or sends to, in any round."""
        self.messages: float = _c.tutti_graph_messages(self._at)
        """Messages that all members together send in a round, on average."""

    def __repr__(self) -> str:
        return f"<tutti.Graph {self.spec!r} of {self.size}>"

    def row(self, member: int, k: int = 0) -> Row:
        """Returns the part of a member in round k."""
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
        """Returns W of round k as a list of rows: x_i <- sum_j W[i][j] x_j."""
        w = [[0.0] * self.size for _ in range(self.size)]
        for i in range(self.size):
            row = self.row(i, k)
            w[i][i] = row.own
            for j, weight in row.takes.items():
                w[i][j] = weight
        return w

    @property
    def gap(self) -> float:
        """The spectral gap: 1 - the largest factor by which a period multiplies the distance from the mean.

        ValueError: more than 2048 members, or W is not doubly stochastic.
        """
        gap = ctypes.c_double()
        check(_c.tutti_graph_gap, self._at, gap)
        return gap.value

    def has(self, fact: str) -> bool:
        """Returns whether the graph has this property.

        fact: static, symmetric, regular, doubly-stochastic, column-stochastic, bipartite, connected or exact.
        ValueError: any other.
        """
        known = ("static", "symmetric", "regular", "doubly-stochastic", "column-stochastic", "bipartite", "connected",
                 "exact")
        if fact not in known:
            raise ValueError(f"a graph cannot be asked whether it is '{fact}', only {', '.join(known)}")
        return bool(_c.tutti_graph_is(self._at, fact.encode()))

    def require(self, fact: str) -> None:
        """Raises ValueError unless has(fact). The text names a round, a member or a sum that shows it."""
        check(_c.tutti_graph_require, self._at, fact.encode())


def topology(spec: str, n: int, push: bool = False) -> Graph:
    """Returns the graph of n members for a spec such as "ring", "torus(rows=4)", "base(2)", "random-ring(seed=7)"."""
    return Graph(spec, n, push)
