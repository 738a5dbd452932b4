"""Rounds of local steps (prepare(elastic_shares=) with local-sgd, diloco, slowmo).

With logical shares a step of the run is a round: each share makes its local steps from the common model on, and their
mean is the next model. A worker computes its shares one after the other, with one optimizer. It begins each of them as
it was in prepare(), and is so again after the round. So no bit depends on which worker computes which share.
"""

from __future__ import annotations

import copy
from typing import Any

import torch

from .. import _abi
from ..errors import StateError


def by_rounds(traits: int) -> bool:
    """Returns whether with logical shares a step of a method with these traits is a round of local steps."""
    return bool(traits & _abi.TUTTI_LOGICAL_SHARES) and not traits & _abi.TUTTI_REPLICAS_EQUAL


def settings(optimizer: torch.optim.Optimizer) -> list[dict[str, Any]]:
    """Returns the groups of the optimizer without their parameters."""
    return [{k: v.tolist() if isinstance(v, torch.Tensor) else v for k, v in group.items() if k != "params"}
            for group in optimizer.param_groups]


class Rounds:
    """The optimizer of a run whose steps are rounds, before its first step."""

    cut_short = False  # the script has ended the round: what is left of it has no local steps

    def __init__(self, optimizer: torch.optim.Optimizer):
        self._optimizer = optimizer
        state = optimizer.state
        self._state = copy.deepcopy({i: state[p] for i, p in enumerate(self._params()) if p in state})
        self._tried = False
        used = [name for one in self._state.values() for name in one if name in ("step", "momentum_buffer")
                and one[name] is not None and torch.as_tensor(one[name]).any()]
        if used:
            raise ValueError(f"the optimizer has made steps already (its state has '{used[0]}'), and with "
                             "elastic_shares= it begins each round of local steps as it is here; make a new one")

    def _params(self) -> list[torch.nn.Parameter]:
        return [p for group in self._optimizer.param_groups for p in group["params"]]

    def begin(self) -> None:
        """The state of the optimizer is what it was in prepare()."""
        self._optimizer.state.clear()
        for i, p in enumerate(self._params()):
            if i in self._state:
                self._optimizer.state[p] = copy.deepcopy(self._state[i])

    def step(self) -> None:
        """Makes a local step."""
        if self.cut_short:
            return
        if self._tried:
            self._optimizer.step()
            return
        before = settings(self._optimizer)
        self._optimizer.step()
        self._tried = True
        for a, b in zip(before, settings(self._optimizer), strict=True):
            changed = [name for name in b if a.get(name) != b[name]]
            if changed:
                kind = type(self._optimizer).__name__
                raise StateError(f"{kind} changes '{changed[0]}' of its groups in a step, and with elastic_shares= "
                                 "that would go from one share's round of local steps to the next one's; take another "
                                 "optimizer, or method='ddp'")
