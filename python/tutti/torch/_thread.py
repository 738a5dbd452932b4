"""A thread that processes items in order, and is ended before the interpreter ends."""

import atexit
import queue
import threading
from collections.abc import Callable
from typing import Any

_running: "list[Worker]" = []


class Worker:
    """Calls work(item) on its thread for each item of put(), in order. work must not raise.

    A thread that is within torch when the interpreter ends would abort the process. So all threads are ended before;
    one that hangs in a collective because its peers are lost is waited for 2 seconds only.
    """

    def __init__(self, work: Callable[[Any], None], name: str) -> None:
        self._items: queue.SimpleQueue[tuple[Any] | None] = queue.SimpleQueue()
        self._work = work
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._thread.start()
        _running.append(self)

    def put(self, item: Any) -> None:
        self._items.put((item,))

    def close(self, seconds: float | None = None) -> bool:
        """Ends the thread when all items are done. False: that takes longer than `seconds`; None: without a limit."""
        if self in _running:
            _running.remove(self)
            self._items.put(None)
            self._thread.join(seconds)
        return not self._thread.is_alive()

    def _run(self) -> None:
        while (item := self._items.get()) is not None:
            self._work(*item)


@atexit.register
def end_all() -> None:
    for worker in list(_running):
        worker.close(2)
