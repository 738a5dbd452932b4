"""How a process whose gradients went through PyTorch's Gloo ends here, and scripts that know nothing of it.

usage: gloo.py SCRIPT [ARGUMENT ...]
"""

import os
import runpy
import sys
import time

import torch.distributed as dist


def leave() -> None:
    """Ends the process group, and gives Gloo's thread the time to forget the last operation.

    To forget one that began in backward it takes the interpreter's lock (its ThreadLocalState has a Python object). An
    interpreter that ends meanwhile makes it leave by pthread_exit inside a destructor: "terminate called without an
    active exception", SIGABRT. PyTorch 2.13 by itself did so in 3 of 40 runs of a script whose last lines are
    backward, the optimizer's step and this. The lock changes hands after 5 ms.
    """
    if dist.is_initialized():
        dist.destroy_process_group()
    time.sleep(0.2)


if __name__ == "__main__":
    del sys.argv[0]
    # Kept, and left without destructors. That of a DDP has the last reference of Gloo's group, and
    # holds the interpreter's lock while it waits for Gloo's thread, which may be waiting for that.
    kept = runpy.run_path(sys.argv[0], run_name="__main__")
    leave()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(0)
