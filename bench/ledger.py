"""What pages of figures state about a row: Figure has all rows of one name, and whether its bound is kept.

Of the rows with one name the last one measured on an idle machine (quiet) is shown, else the last. A bound
counts as missed until a row with the same name, of an idle machine if the one that missed was, meets that
bound: another name, a weaker bound or a removed bound does not end it."""
import os, sys, textwrap

sys.dont_write_bytecode = True
import record  # noqa: E402


def number(x):
    return "" if x is None else f"{x:.0f}" if abs(x) >= 1000 else f"{x:.3g}"


class Figure:
    """All rows of one name: the one that is shown, what is promised, and whether that is kept."""

    def __init__(self, rows, bounds):
        self.name, quiet = rows[0]["name"], [r for r in rows if not r["noisy"]]
        rows = quiet or rows
        self.row, self.promise = rows[-1], record.bound_of(bounds, rows[-1]["part"], self.name)
        still = lambda k, r: not any(self.meets(r, later) for later in rows[k:])
        missed = [r for k, r in enumerate(rows) if self.judges(r, r) and still(k, r)]
        self.missed = missed[-1] if missed else None
        self.judged = self.missed is not None or self.judges(self.row, self.row)

    def limit(self, r):
        """The bound of a row: the stricter one of its own and today's; (of, better, bound) or None."""
        own = None if r["bound"] is None else (r["of"], r["better"], r["bound"])
        today = self.promise and (self.promise["of"], self.promise["better"], self.promise["bound"])
        if own is None or today is None or own[:2] != today[:2]:
            return own or today
        return min(own, today) if own[1] == "less" else max(own, today)

    def judges(self, r, by):
        """Does row `by` count for the bound of row r?"""
        limit = self.limit(r)
        return limit is not None and by[limit[0]] is not None

    def meets(self, r, by):
        limit = self.limit(r)
        return self.judges(r, by) and record.met(by[limit[0]], limit[2], limit[1])

    def retired(self):
        return self.judged and self.promise is None

    def left_out(self):
        """Why the verdict does not count."""
        r = self.missed or self.row
        return flags(r) + ["late"] * (not r.get("bound_since"))


def figures(rows, bounds):
    """In the order in which they were first measured."""
    named = {}
    for r in rows:
        named.setdefault((r["part"], r["name"]), []).append(r)
    return [Figure(mine, bounds) for mine in named.values()]


def flags(r):
    return [word for word, on in (("noisy", r["noisy"]), ("dirty", r["dirty"]), ("rebased", "measured_at" in r)) if on]


def where(r):
    return f"{r['date']} {r['commit']}" + (f" ({', '.join(flags(r))})" if flags(r) else "")


def limit_words(limit):
    of, better, bound = limit
    return f"{'at most' if better == 'less' else 'at least'} {number(bound)}{' (ratio)' if of == 'ratio' else ''}"


def wrapped(text, begin="", width=100):
    return textwrap.fill(begin + text, width, subsequent_indent=" " * len(begin), break_on_hyphens=False,
                         break_long_words=False) + "\n"


def item(text):
    return wrapped(text, "- ")


def read(folder):
    rows, bounds = record.read(os.path.join(folder, "results")), record.read_bounds(os.path.join(folder, "bounds"))
    return figures(rows, bounds), bounds
