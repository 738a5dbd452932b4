"""What a group can be given: `pg_options` of torch's calls, and the values of `backend_override`."""

from __future__ import annotations

from datetime import timedelta

from torch.distributed.constants import default_pg_timeout
from torch._C._distributed_c10d import Backend


class Options(Backend.Options):
    """transport: "shm", "tcp", with options (docs/CLUSTERS.md); "": as the processes of the group are placed, or as
    TUTTI_TRANSPORT has it. timeout: of a call, where torch is not given another one."""

    def __init__(self, transport: str = "", timeout: timedelta = default_pg_timeout):
        super().__init__("tutti", timeout)
        self.transport = transport
