"""Runs scripts one after the other in one process, as a program that trains more than once does.

usage: in_turn.py FOLDER

The last line that it prints is a JSON object: of each script the lines that it has printed. A refusal (RuntimeError,
ValueError) is its last one, and the next script is run.
"""

import contextlib
import io
import json
import pathlib
import sys
import traceback

said = {}
for script in sorted(pathlib.Path(sys.argv[1]).glob("*.py")):
    out = io.StringIO()
    try:
        with contextlib.redirect_stdout(out):
            exec(compile(script.read_text(), str(script), "exec"), {"__name__": "__main__"})
    except (RuntimeError, ValueError) as error:
        print(f"---- {script.name}", traceback.format_exc(), sep="\n", file=sys.stderr)
        print(type(error).__name__, *str(error).split(), file=out)
    said[script.stem] = out.getvalue().splitlines()
print(json.dumps(said))
