"""Which PyTorch this package works with, and what of torch has another name in some of these.

Its import is the first of the package, and refuses what is older than FLOOR before anything of torch is used. The tests
pass with TESTED. Before FLOOR, init_device_mesh() has no backend_override (2.8), or gives a group no timeout of its
options (2.9). A newer PyTorch than tested is used without a word. What torch has removed by then is an error of
Python's own where it is asked for, and calls of ProcessGroup that this package does not know are refused
(distributed/_unserved.py).
"""

from __future__ import annotations

import re
from typing import Any

FLOOR = "2.10"
TESTED = ("2.10.0", "2.13.0", "2.15.0")

_NEEDS = f"tutti.torch needs PyTorch {FLOOR} or newer"


def _release(version: str) -> tuple[int, ...]:
    """2.13.0+cpu, 2.13a0 and 2.13.0.dev20260801 as (2, 13): the numbers at the beginning of a version of PEP 440, whose
    end is not read. Empty if there are none: a build that names itself in another way is not refused. The script of
    `tutti doctor` has the same expression."""
    release = re.match(r"v?(?:[0-9]+!)?([0-9]+)(?:[.]([0-9]+))?", version)
    return (int(release[1]), int(release[2] or 0)) if release else ()


def _check() -> None:
    try:
        import torch
    except ModuleNotFoundError as e:
        if e.name != "torch":
            raise
        raise ImportError(f"{_NEEDS}, and this Python has none: pip install 'torch>={FLOOR}'", name="torch") from None
    release = _release(str(torch.__version__))
    if release and release < _release(FLOOR):
        raise ImportError(
            f"{_NEEDS}, and this one is {torch.__version__}: pip install --upgrade 'torch>={FLOOR}'",
            name="torch", path=getattr(torch, "__file__", None)
        )


def call_of(name: str, before: str) -> Any:
    """Of torch.distributed, by its name from PyTorch 2.13 on, else by the one before."""
    import torch.distributed as dist

    return getattr(dist, name, None) or getattr(dist, before)


def factor_of(op: Any) -> Any:
    """Of a ReduceOp that is PREMUL_SUM. `op.factor` is there from PyTorch 2.13 on."""
    return op.__getstate__()[1]


def records_itself(backend: str) -> None:
    """PyTorch 2.15 hangs its flight recorder on every group of a backend that is not in this list. A group that is
    written in Python cannot have it, and init_process_group would fail."""
    import torch.distributed as dist

    listed: set[str] = getattr(dist.distributed_c10d, "_FR_SELF_RECORDING_BACKENDS", set())
    listed.add(backend)


_check()
