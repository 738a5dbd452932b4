"""Makes the start of a test's processes take 40 % of its time.

PyTorch's optimizers import torch._dynamo only where something else has. They ask it not to be traced
(torch/_compile.py, torch/optim/optimizer.py). To a process that has not imported it, and so compiles nothing, the
answer makes no difference, but the import takes as long as all the rest of PyTorch. Of that rest a quarter are modules
that PyTorch imports for those who compile, export or trace: they are imported when something of them is asked for.
Python runs this file in each process that has this folder in PYTHONPATH.
"""

import functools
import importlib.abc
import importlib.machinery
import sys
import types


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


def _with_shapes(mode):
    """The class, whose instances compute shapes by what torch._meta_registrations registers."""
    begin = mode.__init__

    @functools.wraps(begin)
    def init(self, *args, **kwargs):
        _now("torch._meta_registrations")
        begin(self, *args, **kwargs)

    mode.__init__ = init
    return mode


_DECORATORS = {
    "torch._compile": ("_disable_dynamo", _unless_needed),
    "torch._subclasses.fake_tensor": ("FakeTensorMode", _with_shapes),
    "torch.optim.optimizer": ("_use_grad_for_differentiable", _unless_needed_for_step),
}


_LATER = ("torch._meta_registrations", "torch.export")


class _Later(types.ModuleType):
    """A module whose source runs when something of it is asked for."""

    def __getattr__(self, name):
        if name.startswith("__") or type(self) is not _Later:
            raise AttributeError(f"module {self.__name__!r} has no attribute {name!r}")
        _now(self.__name__)
        return getattr(self, name)


def _now(name):
    module = sys.modules.get(name)
    if type(module) is _Later:
        module.__class__ = types.ModuleType
        module.__spec__.loader.source.exec_module(module)


class _LaterLoader(importlib.abc.Loader):
    def __init__(self, source):
        self.source = source

    def exec_module(self, module):
        module.__class__ = _Later


class _Loader(importlib.abc.Loader):
    def __init__(self, loader, name, change):
        self._loader, self._name, self._change = loader, name, change

    def create_module(self, spec):
        return self._loader.create_module(spec)

    def exec_module(self, module):
        self._loader.exec_module(module)
        if hasattr(module, self._name):  # another PyTorch may have none: its processes start as they do elsewhere
            setattr(module, self._name, self._change(getattr(module, self._name)))


class _Finder(importlib.abc.MetaPathFinder):
    def find_spec(self, fullname, path, target=None):
        _now(fullname.rpartition(".")[0])  # a package before what is in it
        if fullname not in _DECORATORS and fullname not in _LATER:
            return None
        spec = importlib.machinery.PathFinder.find_spec(fullname, path, target)
        if spec is not None:
            late = fullname in _LATER
            spec.loader = _LaterLoader(spec.loader) if late else _Loader(spec.loader, *_DECORATORS[fullname])
        return spec


sys.meta_path.insert(0, _Finder())
