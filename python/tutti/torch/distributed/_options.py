"""What a group can be given: `pg_options` of torch's calls, and the values of `backend_override`."""

from __future__ import annotations

import os
from datetime import timedelta

from torch.distributed.constants import default_pg_timeout
from torch._C._distributed_c10d import Backend

from .. import _log_to
from ._coder import traits_of


class Options(Backend.Options):
    """transport: "shm", "tcp", with options (docs/CLUSTERS.md); "": as the processes of the group are placed, or as
    TUTTI_TRANSPORT has it. timeout: of a call, where torch is not given another one.

    codec: what gradients go through ("ef(topk(ratio=0.01))", tutti.codecs() lists them); "" and "none": they are sent
    as they are. minimum: elements from which on a tensor does. seed: of random codecs' draws. The three are the same on
    all ranks. ValueError: a codec that is none; the sentence has near names.

    trace: of the group that opens a world (the default group, or one beside another backend's): a folder for a trace of
    all ranks, figures and a summary, of which `tutti report DIR` makes a page. None: TUTTI_TRACE_DIR; without that
    nothing is recorded. trace_overwrite: an earlier record there is removed. log_to, metrics_port: as those of
    tutti.torch.prepare.
    """

    transport: str
    codec: str
    minimum: int
    seed: int
    trace: str | os.PathLike[str] | None
    trace_overwrite: bool
    log_to: _log_to.LogTo

    def __init__(self, transport: str = "", timeout: timedelta = default_pg_timeout, *, codec: str = "",
                 minimum: int = 1024, seed: int = 0, trace: str | os.PathLike[str] | None = None,
                 trace_overwrite: bool = False, log_to: _log_to.Given = None, metrics_port: int | str | None = None):
        super().__init__("tutti", timeout)
        if minimum < 1:
            raise ValueError(f"minimum={minimum}: elements from which on a tensor goes through the codec, from 1")
        self.transport = transport
        self.codec, self.minimum, self.seed = "" if codec == "none" else codec, minimum, seed
        self.trace, self.trace_overwrite = trace, trace_overwrite
        self.log_to = _log_to.plan_of(log_to, metrics_port)
        if self.codec:
            traits_of(self.codec)
