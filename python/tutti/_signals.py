"""Signal handlers during calls of the library that take long or call back into Python."""

import signal
import threading
from collections.abc import Callable
from typing import Any

from .errors import check


def apart(call: Callable[..., Any], *arguments: object) -> None:
    """Calls check() on another thread, so that signal handlers run meanwhile. If a handler raises, this function
    raises at once, and what the call opens is closed when it returns."""
    raised: list[BaseException] = []

    def run() -> None:
        try:
            check(call, *arguments)
        except BaseException as e:  # noqa: BLE001 (raised below)
            raised.append(e)

    thread = threading.Thread(target=run, name="tutti opening", daemon=True)
    thread.start()
    while thread.is_alive():
        thread.join(0.2)  # a signal just before a wait does not end the wait
    if raised:
        raise raised[0]


class Signals:
    """Delays signal handlers during one call of the library that may call back into Python.

    Python runs handlers as soon as it runs again, so before the first line of a callback. An exception there, such as
    KeyboardInterrupt, cannot be caught: ctypes would print and drop it, and the callback would return nothing. A
    delayed handler runs once the callback has begun (`within`), or after the call.
    """

    _HELD = ("SIGINT", "SIGTERM", "SIGHUP", "SIGQUIT", "SIGALRM", "SIGUSR1", "SIGUSR2", "SIGCHLD")

    def __init__(self) -> None:
        self.within = True  # a handler may run
        self._was: dict[int, Callable[[int, Any], Any]] = {}
        self._came: list[tuple[int, Any]] = []

    def _handle(self, number: int, frame: Any) -> None:
        if self.within:
            self._was[number](number, frame)
        else:
            self._came.append((number, frame))

    def begin(self) -> None:
        """Call at the beginning of a callback, within a try: runs delayed handlers, which may raise."""
        self.within = True
        while self._came:
            number, frame = self._came.pop(0)
            self._was[number](number, frame)

    def __enter__(self) -> None:
        if threading.current_thread() is not threading.main_thread():
            return  # Python runs handlers on the main thread only
        self.within = False
        try:
            for name in self._HELD:
                handler = signal.getsignal(number := getattr(signal, name))
                if callable(handler):
                    self._was[number] = handler
                    signal.signal(number, self._handle)
        except BaseException:
            self.__exit__()
            raise

    def __exit__(self, *_: object) -> None:
        try:
            self.begin()
        finally:
            for number, handler in self._was.items():
                if signal.getsignal(number) == self._handle:
                    signal.signal(number, handler)
