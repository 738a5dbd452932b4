"""unittest.main() for files whose tests wait more than they compute: for silences, for graces, for
links to come up. Several tests run at once, each in a process of its own. together.h is the same for
programs in C."""
import ctypes, os, signal, sys, tempfile, time, unittest


def flat(suite):
    return [t for part in suite for t in flat(part)] if isinstance(suite, unittest.TestSuite) else [suite]


def kill_with_children(pid):
    """Kills its children first: a process that has lost its parent cannot be found any more."""
    try:
        os.kill(pid, signal.SIGSTOP)
        with open(f"/proc/{pid}/task/{pid}/children") as f:
            for child in f.read().split():
                kill_with_children(int(child))
        os.kill(pid, signal.SIGKILL)
    except (FileNotFoundError, ProcessLookupError):
        pass


def together(at_once, alone=(), seconds=200):
    """Runs the file's tests, `at_once` of them side by side. Those whose names begin with a word of
    `alone` come first, one after the other. What a test prints comes when it has ended, in one piece.
    A test that has not ended after so many seconds is named and killed with its children. When this
    process is killed, so are they. With names on the command line, just those tests run, in this
    process."""
    if len(sys.argv) > 1:
        unittest.main(module="__main__", verbosity=2)
    waiting = flat(unittest.defaultTestLoader.loadTestsFromModule(sys.modules["__main__"]))
    running, failed, begin, parent = {}, [], time.monotonic(), os.getpid()
    n = len(waiting)
    waiting.sort(key=lambda t: not t._testMethodName.startswith(tuple(alone)))
    while waiting or running:
        while waiting and len(running) < (1 if waiting[0]._testMethodName.startswith(tuple(alone)) else at_once):
            test, said = waiting.pop(0), tempfile.TemporaryFile()
            pid = os.fork()
            if pid == 0:
                ctypes.CDLL(None).prctl(1, signal.SIGKILL)  # PR_SET_PDEATHSIG
                if os.getppid() != parent:
                    os._exit(1)
                os.dup2(said.fileno(), 1)
                os.dup2(said.fileno(), 2)
                good = unittest.TextTestRunner(verbosity=2).run(unittest.TestSuite([test])).wasSuccessful()
                sys.stdout.flush()
                os._exit(0 if good else 1)
            running[pid] = (test.id(), said, time.monotonic() + seconds)
        for pid, (name, said, until) in list(running.items()):
            late = time.monotonic() > until
            if late:
                kill_with_children(pid)
            ended, how = os.waitpid(pid, 0 if late else os.WNOHANG)
            if ended == 0:
                continue
            said.seek(0)
            text = said.read().decode(errors="replace")
            if how != 0:
                failed.append(name + (" (killed after %g s)" % seconds if late else ""))
            print(text if how != 0 else text.split("\n\n")[0], flush=True)
            del running[pid]
        time.sleep(0.005)
    print("%d tests, %d at once, in %.1f s" % (n, at_once, time.monotonic() - begin))
    if failed:
        print("failed: " + ", ".join(failed))
    sys.exit(1 if failed else 0)
