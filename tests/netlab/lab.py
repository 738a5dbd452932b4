"""What tests in test networks share: is there one here, and running it."""
import os, shutil, subprocess, sys, unittest

ROOT = os.path.abspath(os.path.join(os.path.dirname(__file__), "../.."))
NETLAB = os.path.join(ROOT, "tools", "netlab")


def lacking():
    """What a lab needs and is not there; None: all of it is, and a lab that refuses is a failure
    and not a reason to skip."""
    if os.geteuid() != 0 or subprocess.run(["unshare", "--net", "true"], capture_output=True).returncode != 0:
        return "root and network namespaces"
    if not (shutil.which("ip") and shutil.which("tc")):
        return "ip and tc (Debian: iproute2)"
    return None


def netlab(*arguments, timeout=60, environment=None):
    return subprocess.run([NETLAB, *map(str, arguments)], capture_output=True, text=True, timeout=timeout,
                          env=environment)


needs_lab = unittest.skipIf(lacking() is not None, f"needs {lacking()}")
