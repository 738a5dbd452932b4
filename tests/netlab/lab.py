"""What tests in test networks share: is there one here, and running it."""
import os, subprocess, unittest

ROOT = os.path.abspath(os.path.join(os.path.dirname(__file__), "../.."))
NETLAB = os.path.join(ROOT, "tools", "netlab")


def lacking():
    """Why there is no lab here; None: there is, and a lab that refuses is a failure and not a reason
    to skip."""
    done = subprocess.run([NETLAB, "check"], capture_output=True, text=True)
    return None if done.returncode == 0 else done.stderr.strip()


def netlab(*arguments, timeout=60, environment=None):
    return subprocess.run([NETLAB, *map(str, arguments)], capture_output=True, text=True, timeout=timeout,
                          env=environment)


WHY_NOT = lacking()
needs_lab = unittest.skipIf(WHY_NOT is not None, WHY_NOT)
