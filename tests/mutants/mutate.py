#!/usr/bin/env python3
"""Mutants: product sources with one mistake put in, each of which the explorer must catch.

mutants.txt describes them; see its opening. This script is used while building (one file with its
mistake) and for testing (all of them):

    mutate.py list  MUTANTS                     name, source and file of each, a line each, for CMake
    mutate.py make  MUTANTS SOURCE_DIR OUT      writes the mutated sources, OUT/NAME/FILE; of a header that is
                                                mutated a copy beside the source, which takes it from there
    mutate.py check MUTANTS BIN_DIR EXPLORE [--last N] [NAME ...]
"""
import concurrent.futures
import os
import re
import subprocess
import sys


def parse(path):
    mutants, now, place = [], None, None
    for number, line in enumerate(open(path, encoding="utf-8"), 1):
        line = line.rstrip("\n")
        if place is None and (not line.strip() or line.startswith("#")):
            continue
        if place is None and line == "<<<<":
            now["changes"].append(["", ""])
            place = 0
        elif place == 0 and line == "====":
            place = 1
        elif place == 1 and line == ">>>>":
            place = None
        elif place is not None:
            now["changes"][-1][place] += line + "\n"
        else:
            word, _, rest = line.partition(" ")
            if word == "mutant":
                now = {"name": rest, "changes": [], "why": ""}
                mutants.append(now)
            elif word in ("file", "within", "piece", "seed", "why") and now is not None:
                now[word] = (now.get(word, "") + " " + rest).strip() if word == "why" else rest
            else:
                sys.exit(f"{path}:{number}: '{line}' is neither mutant, file, piece, seed, why nor <<<<")
    for m in mutants:
        if not all(m.get(k) for k in ("file", "piece", "seed", "changes")):
            sys.exit(f"{path}: mutant '{m['name']}' needs a file, a piece, a seed and a change")
        if m["file"].endswith(".h") != ("within" in m):
            sys.exit(f"{path}: mutant '{m['name']}' needs a line 'within' if its file is a header, and else has none")
        m.setdefault("within", m["file"])
    return mutants


def read(path):
    with open(path, encoding="utf-8") as file:
        return file.read()


def write(path, text):
    """Unless it says so already: what is made of it is not made again then."""
    if not os.path.exists(path) or read(path) != text:
        os.makedirs(os.path.dirname(path), exist_ok=True)
        with open(path, "w", encoding="utf-8") as file:
            file.write(text)


def make(mutant, source_dir, out):
    name, text = mutant["name"], read(os.path.join(source_dir, mutant["file"]))
    for old, new in mutant["changes"]:
        if text.count(old) != 1:
            sys.exit(f"mutant '{name}': its old text stands {text.count(old)} times in {mutant['file']}, not once; "
                     f"the source has changed: "
                     f"bring tests/mutants/mutants.txt up to date. The old text begins:\n{old.splitlines()[0]}")
        text = text.replace(old, new)
    if mutant["within"] != mutant["file"]:  # a header that is included from its own folder is found there first
        write(os.path.join(out, name, os.path.basename(mutant["within"])),
              read(os.path.join(source_dir, mutant["within"])))
    write(os.path.join(out, name, os.path.basename(mutant["file"])), f'#line 1 "{mutant["file"]} ({name})"\n' + text)


def explore(program, piece, first, last):
    """The first seed that finds something and what it says, or None."""
    done = subprocess.run([program, piece, "--seeds", f"{first}..{last}"], stdout=subprocess.PIPE,
                          stderr=subprocess.DEVNULL, text=True)
    if done.returncode == 0:
        return None
    found = re.search(r"seed (\d+): (.*)", done.stdout)
    return (int(found.group(1)), found.group(2)) if found else (first,
                                                                f"code {done.returncode}: {done.stdout.strip()[:200]}")


def check_one(mutant, bin_dir, original, last):
    program = os.path.join(bin_dir, "mutant-" + mutant["name"])
    recorded = int(mutant["seed"])
    sound = explore(original, mutant["piece"], recorded, recorded)
    if sound is not None:
        return False, f"the sound program fails seed {recorded} of '{mutant['piece']}' as well: {sound[1]}"
    caught = explore(program, mutant["piece"], recorded, recorded)
    if caught is not None:
        return True, f"seed {caught[0]}: {caught[1]}"
    caught = explore(program, mutant["piece"], 1, last)
    if caught is None:
        return False, f"'{mutant['piece']}' has not caught it in seeds 1..{last}"
    sound = explore(original, mutant["piece"], caught[0], caught[0])
    if sound is not None:
        return False, f"the sound program fails seed {caught[0]} of '{mutant['piece']}' as well: {sound[1]}"
    return True, f"seed {caught[0]} (the recorded one, {recorded}, no longer does; write it down): {caught[1]}"


def check(mutants, bin_dir, original, last, names):
    chosen = [m for m in mutants if not names or m["name"] in names]
    failed = 0
    with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
        for mutant, (well, text) in zip(chosen, pool.map(lambda m: check_one(m, bin_dir, original, last), chosen)):
            failed += not well
            print(f"{'caught' if well else 'NOT CAUGHT':10} {mutant['name']:28} {mutant['piece']:20} {text[:200]}",
                  flush=True)
    print(f"{len(chosen) - failed} of {len(chosen)} mutants are caught")
    return failed > 0


def main():
    command, mutants = sys.argv[1], parse(sys.argv[2])
    if command == "list":
        print("\n".join(f"{m['name']};{m['within']};{m['file']}" for m in mutants))
    elif command == "make":
        for mutant in mutants:
            make(mutant, *sys.argv[3:5])
    else:
        rest, last = sys.argv[5:], 200
        if rest[:1] == ["--last"]:
            last, rest = int(rest[1]), rest[2:]
        sys.exit(check(mutants, sys.argv[3], sys.argv[4], last, rest))


main()
