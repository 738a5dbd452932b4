"""Shortens the start and the end of a test's processes. Python runs this file where this folder is in PYTHONPATH.

PyTorch's optimizers import torch._dynamo only where something else has. They ask it not to be traced
(torch/_compile.py, torch/optim/optimizer.py). To a process that has not imported it, and so compiles nothing, the
answer makes no difference, but the import takes as long as all the rest of PyTorch.

And the garbage collector does not look at what the import of PyTorch has made: not while it is imported, nor later, nor
at the process's end, where that would take a third of an import's time. What a script makes after it is collected.
"""

import functools
import gc
import importlib.abc
import importlib.machinery
import sys


def _unless_needed(decorate):
    """The decorator, whose wrapper is passed over until torch._dynamo has been imported."""

    def decorator(fn=None, *args, **kwargs):
        if fn is None:
            return functools.partial(decorator, *args, **kwargs)
        decorated = decorate(fn, *args, **kwargs)

        @functools.wraps(fn)
        def inner(*args, **kwargs):
            return (decorated if "torch._dynamo" in sys.modules else fn)(*args, **kwargs)

        return inner

    return decorator


def _unless_needed_for_step(decorate):
    """The same of an optimizer's step(), where the wrapper also sets whether gradients are recorded."""

    def decorator(step):
        decorated = decorate(step)

        @functools.wraps(step)
        def inner(self, *args, **kwargs):
            if "torch._dynamo" in sys.modules:
                return decorated(self, *args, **kwargs)
            with sys.modules["torch"].set_grad_enabled(self.defaults["differentiable"]):
                return step(self, *args, **kwargs)

        return inner

    return decorator


_DECORATORS = {
    "torch._compile": ("_disable_dynamo", _unless_needed),
    "torch.optim.optimizer": ("_use_grad_for_differentiable", _unless_needed_for_step),
}


class _Loader(importlib.abc.Loader):
    def __init__(self, loader, name, change):
        self._loader, self._name, self._change = loader, name, change

    def create_module(self, spec):
        return self._loader.create_module(spec)

    def exec_module(self, module):
        self._loader.exec_module(module)
        if hasattr(module, self._name):  # another PyTorch may have none: its processes start as they do elsewhere
            setattr(module, self._name, self._change(getattr(module, self._name)))


def _uncollected(execute):
    """exec_module of a loader: what it makes, and what there was before, is the garbage collector's no more."""

    def inner(module):
        enabled = gc.isenabled()
        gc.disable()
        try:
            execute(module)
            gc.freeze()
        finally:
            if enabled:
                gc.enable()

    return inner


class _Finder(importlib.abc.MetaPathFinder):
    def find_spec(self, fullname, path, target=None):
        if fullname != "torch" and fullname not in _DECORATORS:
            return None
        spec = importlib.machinery.PathFinder.find_spec(fullname, path, target)
        if spec is not None and fullname == "torch":
            spec.loader.exec_module = _uncollected(spec.loader.exec_module)
        elif spec is not None:
            spec.loader = _Loader(spec.loader, *_DECORATORS[fullname])
        return spec


sys.meta_path.insert(0, _Finder())
