"""Tutti as a backend of torch.distributed (docs/TORCH-DISTRIBUTED.md). Importing this registers it.

    import tutti.torch.distributed
    torch.distributed.init_process_group("tutti")

or for one axis of a mesh only, of which the others keep their backend:

    init_device_mesh("cpu", (2, 4), mesh_dim_names=("replicate", "shard"), backend_override={"replicate": "tutti"})

With a codec for gradients (_codec.py):

    backend_override={"replicate": ("tutti", tutti.torch.distributed.options(codec="ef(powersgd(rank=4))"))}

One world a job or one a group? _worlds.py says which, and why.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, cast

import torch.distributed as dist

from ..._library import library as _c
from .. import _logged, _versions
from . import _unserved
from ._codec import Codec, codec_of, gradients
from ._group import ProcessGroupTutti
from ._options import Options
from ._tensors import KINDS

__all__ = ["Codec", "Options", "ProcessGroupTutti", "codec_of", "gradients", "log", "options"]

options = Options


def log(figures: Mapping[str, Any] | None = None, /, *, loss: Any = None, group: dist.ProcessGroup | None = None,
        **more: Any) -> None:
    """As optimizer.log() of tutti.torch.prepare, for the record (trace=) of a group; None: the default group."""
    record = cast(ProcessGroupTutti, dist.group.WORLD if group is None else group)._shared.record
    _logged.log(record, _c.tutti_call_record_log, figures, loss, more)


def _make(opts: Any, options: Any) -> ProcessGroupTutti:
    if options is not None and not isinstance(options, Options):
        raise TypeError(
            f"the backend 'tutti' takes pg_options=tutti.torch.distributed.Options(...), and this is a "
            f"{type(options).__name__}"
        )
    _unserved.check(opts)
    return ProcessGroupTutti(opts, options or Options())


if not hasattr(dist.Backend, "TUTTI"):
    dist.Backend.register_backend("tutti", _make, extended_api=True, devices=[*KINDS])
    _versions.records_itself("tutti")
