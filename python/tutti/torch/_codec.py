"""What a run does about its codec besides using it: its cost, measured before it is used, and the report of it."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from .. import _abi

if TYPE_CHECKING:
    from ..engine import Engine

_log = logging.getLogger("tutti")
_COSTS = {
    "off": _abi.TUTTI_CODEC_COST_OFF,
    "explain": _abi.TUTTI_CODEC_COST_EXPLAIN,
    "auto-off": _abi.TUTTI_CODEC_COST_AUTO_OFF,
}


def cost(value: object) -> int:
    """Returns the engine's option of codec_cost=."""
    if isinstance(value, int) and value in _COSTS.values() and not isinstance(value, bool):
        return int(value)
    if not isinstance(value, str) or value not in _COSTS:
        raise ValueError(f"codec_cost is {value!r}; it must be 'off', 'explain' or 'auto-off'")
    return _COSTS[value]


def tell(engine: Engine) -> None:
    """Logs what was measured, on rank 0. After the first step."""
    if engine.rank == 0:
        for event in engine.events():
            if event.kind in ("codec-cost", "codec"):
                _log.warning("%s: %s", event.kind, event.text)
