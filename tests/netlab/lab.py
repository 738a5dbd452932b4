"""What tests in test networks share: is there one here, and running it."""
import os, subprocess, sys, unittest

ROOT = os.path.abspath(os.path.join(os.path.dirname(__file__), "../.."))
NETLAB = os.path.join(ROOT, "tools", "netlab")


def possible():
    """Root and namespaces exist: then a lab that refuses is a failure and not a reason to skip."""
    return os.geteuid() == 0 and subprocess.run(["unshare", "--net", "true"], capture_output=True).returncode == 0


def netlab(*arguments, timeout=60, environment=None):
    return subprocess.run([NETLAB, *map(str, arguments)], capture_output=True, text=True, timeout=timeout, env=environment)


needs_lab = unittest.skipUnless(possible(), "needs root and network namespaces")
