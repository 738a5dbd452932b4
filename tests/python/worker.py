"""What launchers start: becomes the script, its output in files of this rank.

usage: worker.py FOLDER SCRIPT [ARGUMENT ...]
       worker.py --variables N WORKER.PY FOLDER ...    a launcher that says four variables and does nothing else
"""

import os
import subprocess
import sys

sys.path.append(os.path.join(os.path.dirname(__file__), ".."))
from ports import free_port  # noqa: E402

RANKS = ("TUTTI_RANK", "OMPI_COMM_WORLD_RANK", "PMI_RANK", "RANK")


def become(folder, *words):
    rank = next(os.environ[name] for name in RANKS if name in os.environ)
    for stream, name in ((1, "out"), (2, "err")):
        file = os.open(f"{folder}/{rank}.{name}", os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        os.dup2(file, stream)
        os.close(file)
    with open(f"{folder}/{rank}.part", "w") as f:
        f.write(str(os.getpid()))
    os.rename(f"{folder}/{rank}.part", f"{folder}/{rank}.pid")
    os.execv(sys.executable, [sys.executable, "-u", *words])


def by_variables(n, *words):
    said = {"TUTTI_SIZE": n, "TUTTI_MEET": f"127.0.0.1:{free_port()}"}
    ranks = [subprocess.Popen([sys.executable, *words], env=os.environ | said | {"TUTTI_RANK": str(r)})
             for r in range(int(n))]
    codes = [p.wait() for p in ranks]
    return next((code for code in codes if code), 0)


if __name__ == "__main__":
    if sys.argv[1] == "--variables":
        sys.exit(by_variables(*sys.argv[2:]))
    become(*sys.argv[1:])
