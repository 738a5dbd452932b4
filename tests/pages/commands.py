"""The commands that the pages show: found in their code blocks, one by one, with page and line; of those
that the build makes, in OPTIONS.md.

A block with no language, `sh` or `bash` has commands, a line each, or several that end in a
backslash. Where its first line begins with `$ `, such lines are commands and the lines below each
are its output. Blocks without commands name their language: `text`, `c`, `python`, `json`. An
indented block has commands, too, and docs/OPTIONS.md below each "Examples:". Of an example they are
those of the comment that it begins with.
"""
import glob, os, re

ROOT = os.path.abspath(os.path.join(os.path.dirname(__file__), "../.."))
OPTIONS = "docs/OPTIONS.md"
PROGRAMS = ("tutti ", "make ", "mpirun ", "torchrun ", "srun ", "python ", "pip ", "ctest ", "cmake ", "explore ",
            "cc ", "tools/", "bench/", "build/", "./", "TUTTI_", "RANK=", "export ", "source ", "git ", "cd ",
            "timeout ")


class Command:
    """words: as a shell takes it, in one line. shown: the lines that the page has below it, or None."""

    def __init__(self, page, line, words, block):
        self.page, self.line, self.words, self.block, self.shown = page, line, words, block, None
        self.text = re.sub(r"""('[^']*'|"[^"]*")|(^|\s+)#.*$""", r"\1", re.sub(r"\s*\\\n\s*", " ", words)).strip()

    def __str__(self):
        return "%s:%d: %s" % (self.page, self.line, self.text)


def page_names():
    """Those whose commands are collected."""
    names = ["README.md", "CONTRIBUTING.md", OPTIONS]
    for pattern in ("docs/*.md", "docs/design/*.md", "docs/methods/*.md"):
        names += sorted(os.path.relpath(path, ROOT) for path in glob.glob(os.path.join(ROOT, pattern)))
    return names


def text_of(name):
    path = os.path.join(os.environ["TUTTI_BUILD"] if name == OPTIONS else ROOT, name)
    with open(path, encoding="utf-8") as f:
        return f.read()


def blocks(text):
    """(line of the first line, language, lines) of each block of code, fenced or indented."""
    lines, k, listed = text.split("\n"), 0, False
    while k < len(lines):
        fence = re.match(r"^( *)```(.*)$", lines[k])
        if fence:
            end = next(i for i in range(k + 1, len(lines)) if lines[i].strip() == "```")
            yield k + 2, fence[2].strip(), [line[len(fence[1]):] for line in lines[k + 1:end]]
            k = end + 1
            continue
        if re.match(r"^ *([-*]|\d+\.) ", lines[k]):
            listed = True # what is indented below it goes on with it
        elif lines[k] and lines[k][0] != " ":
            listed = False
        if not listed and re.match(r"^    \S", lines[k]) and (k == 0 or lines[k - 1] == ""):
            end = next((i for i in range(k, len(lines)) if not re.match(r"^(    |$)", lines[i])), len(lines))
            body = [line[4:] for line in lines[k:end]]
            while body and not body[-1]:
                body.pop()
            yield k + 1, "indented", body
            k = end
            continue
        k += 1


def joined(first, lines):
    """(line, words) of each command of these lines."""
    k = 0
    while k < len(lines):
        begin = k
        while lines[k].endswith("\\") and k + 1 < len(lines):
            k += 1
        yield first + begin, "\n".join(lines[begin:k + 1])
        k += 1


def commands_of(name, text=None):
    """All commands of a page, in its order."""
    found = []
    for number, (first, language, lines) in enumerate(blocks(text_of(name) if text is None else text)):
        if language == "text" and "Examples:" in lines: # of --help
            at = lines.index("Examples:") + 1
            first, lines = first + at, [line.strip() for line in lines[at:]]
        elif language not in ("", "sh", "bash", "indented"):
            continue
        if language == "indented" and not any(line.startswith(PROGRAMS) for line in lines):
            continue # a formula
        printed = lines[0].startswith("$ ")
        of_block = []
        for line, words in joined(first, lines):
            if printed and not words.startswith("$ "):
                of_block[-1].shown = (of_block[-1].shown or []) + words.split("\n")
                continue
            command = Command(name, line, words[2:] if printed else words, number)
            if command.text:
                of_block.append(command)
        found += of_block
    return found


def commands_of_example(name):
    """What the comment at the top of an example says to type, and how to build it."""
    text = text_of(name)
    head = re.match(r'(?s)/\*.*?\*/|""".*?"""', text)[0]
    found = []
    for number, line in enumerate(head.split("\n"), 1):
        build = re.search(r"Build: (.*?)(?:\. |\. ?\*/|$)", line)
        words = build[1] if build else line.strip()
        if build or (line.startswith("    ") and words.startswith(PROGRAMS)):
            found.append(Command(name, number, words, number))
    return found


def collected():
    """Of all pages and examples."""
    found = [command for name in page_names() for command in commands_of(name)]
    for pattern in ("examples/*.c", "examples/*/*.py"):
        for path in sorted(glob.glob(os.path.join(ROOT, pattern))):
            found += commands_of_example(os.path.relpath(path, ROOT))
    return found


def in_sentences():
    """(page, line, text) of what sentences and tables name by a program of ours and what follows it:
    `bench/run links`. A `...` or a name in capitals stands for something."""
    for name in page_names():
        text = text_of(name)
        for first, _, lines in blocks(text): # these are looked at above
            text = text.split("\n")
            text[first - 1:first - 1 + len(lines)] = [""] * len(lines)
            text = "\n".join(text)
        for match in re.finditer(r"(?<!`)`([^`\n]+(?:\n[^`\n]+)?)`(?!`)", re.sub(r"(?m)^ *```.*$", "", text)):
            words = " ".join(match[1].split())
            if re.match(r"(tutti|make|ctest|explore|(tools|bench)/[\w-]+)( |$)", words):
                yield name, text.count("\n", 0, match.start()) + 1, words
