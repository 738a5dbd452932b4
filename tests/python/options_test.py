"""Messages of the library name the command's options; for callers from Python they name arguments."""

import re

import pytest

import tutti
from tutti.errors import in_python


@pytest.mark.parametrize("said, here", [
    ("write --optimizer 'sgd(lr=0.1)', without momentum, instead of 'sgd', and the momentum as --method "
     "'dgc(momentum=0.9)'",
     "write torch.optim.SGD(lr=0.1), without momentum, instead of 'sgd', and the momentum as method="
     "'dgc(momentum=0.9)'"),
    ("held out of training, and there are none; give --validation N, say 1000 (engine_options.evaluate)",
     "held out of training, and there are none; give validation=f, which gives the mean loss of some"),
    ("give --servers 2, or omit it", "give servers=2, or omit it"),
    ("no rank only serves; give --servers N, for example one", "no rank only serves; give servers=N, for example one"),
    ("but 2 ranks only serve (--servers); leave", "but 2 ranks only serve (servers); leave"),
    ("or give --transport tcp", "or give transport='tcp'"),
    ("leave it to the run's --optimizer", "leave it to the run's optimizer"),
    ("raise the limit of memory (docker run --memory)", "raise the limit of memory (docker run --memory)"),
    ("start the workers with the launcher (tutti train -n 2 --transport tcp)",
     "start the workers with the launcher (tutti train -n 2 --transport tcp)"),
    ("file that `tutti plan stages --schedule` wrote: plan it with --model",
     "file that `tutti plan stages --schedule` wrote: plan it with model"),
])  # fmt: skip
def test_messages_name_python_arguments_for_command_options(said, here):
    assert in_python(said) == here


def refused(method):
    import torch

    import tutti.torch

    model = torch.nn.Linear(2, 2)
    try:
        tutti.torch.prepare(model, torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9, nesterov=True), method)
    except ValueError as e:
        return str(e)
    return ""


@pytest.mark.torch
def test_method_errors_in_python_mention_no_command_options():
    pytest.importorskip("torch")
    import forked

    told = [forked.ranks(1, refused, m.name)[0].get("value", "") for m in tutti.methods()]
    assert sum(map(bool, told)) > 5 and not [t for t in told if re.search(r"(?<!\w)--[a-z]", t)], told
