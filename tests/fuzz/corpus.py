#!/usr/bin/env python3
r"""The inputs that the fuzz targets begin with, and every input that ever broke one.

usage: corpus.py add TARGET FILE NAME   appends a file, what libFuzzer found for example
       corpus.py unpack TEXT FOLDER     a file an input, which is what libFuzzer and replay read

tests/fuzz/corpus/TARGET.txt has all inputs of a target: a line is an input's name, a blank, its
bytes. What begins with four blanks goes on with the input above it, so long ones have several
lines. Printable ASCII stands for itself, anything else is escaped: \\, \n, \r, \t, \xHH. \{80*TEXT}
is TEXT 80 times; TEXT has no braces and no blanks. Blanks at the end of a line are written \x20,
and so is one that an input on its name's own line begins with. A line that begins with # is a
comment, an empty one is nothing.
"""
import os
import re
import shutil
import sys

ESCAPES = {"\\": 0x5C, "n": 0x0A, "r": 0x0D, "t": 0x09}
WIDTH = 110


def unescaped(text, where):
    out = bytearray()
    for at in re.finditer(r"\\\{(\d+)\*([^{}]+)\}|\\x([0-9a-fA-F]{2})|\\([\\nrt])|([ -\[\]-~])|(.)", text):
        times, again, digits, letter, plain, wrong = at.groups()
        if wrong is not None:
            sys.exit("%s: '%s' is neither printable ASCII nor one of the escapes" % (where,
                                                                                     text[at.start():at.start() + 8]))
        if times:
            out += unescaped(again, where) * int(times)
        else:
            out.append(int(digits, 16) if digits else ESCAPES[letter] if letter else ord(plain))
    return bytes(out)


def inputs(path):
    """Name and bytes of each input of a text."""
    found = {}
    name = None
    with open(path, encoding="ascii") as f:
        for number, line in enumerate(f, 1):
            where, line = "%s:%d" % (path, number), line.rstrip("\n")
            if line.startswith("    ") and name is not None:
                found[name] += unescaped(line[4:], where)
            elif line and not line.startswith("#"):
                name, _, text = line.partition(" ")
                if name in found or not re.fullmatch(r"[\w.-]*\w", name):
                    sys.exit("%s: '%s' is no name, or the name of two inputs" % (where, name))
                found[name] = unescaped(text, where)
    return found


def repeated(data, k):
    """How often a few bytes stand from k on, one behind the other: how many bytes, how often."""
    best = (1, 1)
    for n in range(1, 9):
        times = 1
        while data[k + n * times:k + n * (times + 1)] == data[k:k + n]:
            times += 1
        if times >= 6 and len(data[k:k + n]) == n and n * times > best[0] * best[1]:
            best = (n, times)
    return best


def escaped(data):
    """Its lines: one ends where the input's does, or where there is no more room, at a blank if
    there is one."""
    names = {code: "\\" + letter for letter, code in ESCAPES.items()}
    lines, k = [""], 0
    while k < len(data):
        n, times = repeated(data, k)
        token = "".join(names.get(c) or (chr(c) if 0x20 <= c < 0x7F else "\\x%02x" % c) for c in data[k:k + n])
        short = "\\{%d*%s}" % (times, re.sub("[{} ]", lambda brace: "\\x%02x" % ord(brace.group()), token))
        token = short if len(short) + 8 <= len(token) * times else token * times
        if k > 0 and data[k - 1] == ESCAPES["n"] and 0x20 <= data[k] < 0x7F:
            lines.append("")
        elif len(lines[-1]) + len(token) > WIDTH:
            at = max(lines[-1].rfind(" "), 0)
            at = at if at > WIDTH // 2 else len(lines[-1])
            lines[-1:] = [lines[-1][:at], lines[-1][at:]]
        lines[-1] += token
        k += n * times
    return [re.sub(r" +$", lambda blanks: "\\x20" * len(blanks.group()), line) for line in lines]


def entry(name, data):
    lines = escaped(data)
    if len(lines) == 1:
        return (name + " " + re.sub(r"^ ", r"\\x20", lines[0])).rstrip() + "\n"
    return "".join(line + "\n" for line in [name] + ["    " + line for line in lines])


def add(target, file, name):
    path = os.path.join(os.path.dirname(os.path.abspath(__file__)), "corpus", target + ".txt")
    if not os.path.exists(path):
        sys.exit("there is no target '%s': %s is not there" % (target, path))
    with open(file, "rb") as f:
        data = f.read()
    for other, same in inputs(path).items():
        if other == name or same == data:
            sys.exit("%s has an input '%s' with %s already" % (path, other,
                                                               "these bytes" if same == data else "this name"))
    with open(path, "a", encoding="ascii") as f:
        f.write(entry(name, data))
    assert inputs(path)[name] == data


def unpack(text, folder):
    shutil.rmtree(folder, ignore_errors=True)
    os.makedirs(folder)
    for name, data in inputs(text).items():
        with open(os.path.join(folder, name), "wb") as f:
            f.write(data)


def main():
    if len(sys.argv) == 5 and sys.argv[1] == "add":
        add(*sys.argv[2:])
    elif len(sys.argv) == 4 and sys.argv[1] == "unpack":
        unpack(*sys.argv[2:])
    else:
        sys.exit(__doc__.strip())


if __name__ == "__main__":
    main()
