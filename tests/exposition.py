"""A reader of Prometheus' text format, version 0.0.4, that is written from its definition and refuses what that does
not allow. And a client that asks for such a text."""

from __future__ import annotations

import re
import urllib.request

_SAMPLE = re.compile(r"([a-zA-Z_:][a-zA-Z0-9_:]*)(?:\{(.*)\})? (\S+)")
_LABEL = re.compile(r'([a-zA-Z_][a-zA-Z0-9_]*)="((?:[^"\\\n]|\\[\\"n])*)"(?:,|$)')
TYPE = "text/plain; version=0.0.4; charset=utf-8"


def _labels(text: str, line: str) -> tuple[tuple[str, str], ...]:
    found, k = {}, 0
    while k < len(text):
        at = _LABEL.match(text, k)
        assert at is not None and at[1] not in found, line
        found[at[1]] = re.sub(r"\\(.)", lambda escaped: "\n" if escaped[1] == "n" else escaped[1], at[2])
        k = at.end()
    return tuple(sorted(found.items()))


def read(text: str) -> dict[str, dict[tuple[tuple[str, str], ...], float]]:
    """{name: {labels: value}}. The lines of a name follow one another, behind its HELP and its TYPE; no name has a
    second TYPE, no labels a second value."""
    assert text.endswith("\n"), text[-80:]
    found: dict[str, dict[tuple[tuple[str, str], ...], float]] = {}
    helped, now = None, None
    for line in text.split("\n")[:-1]:
        if line.startswith("# HELP "):
            helped = line.split(" ", 3)[2]
            assert line.count(" ") >= 3 and "\\" not in line, line
        elif line.startswith("# TYPE "):
            _, _, now, kind = line.split(" ")
            assert now == helped and now not in found, line
            assert kind == ("counter" if now.endswith("_total") else "gauge"), line
            found[now] = {}
        elif not line.startswith("#"):
            at = _SAMPLE.fullmatch(line)
            assert at is not None and at[1] == now, line
            labels = _labels(at[2] or "", line)
            assert labels not in found[now], line
            found[now][labels] = float(at[3])
    assert all(found.values()), text
    return found


def get(port: int, path: str = "/metrics") -> str:
    """What is answered there; OSError if there is no answer."""
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))  # none, whatever the environment says
    with opener.open(f"http://127.0.0.1:{port}{path}", timeout=20) as reply:
        assert reply.headers["Content-Type"] == TYPE, reply.headers
        return reply.read().decode()
