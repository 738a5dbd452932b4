"""Lists methods, codecs and families of graphs, from the tables of the library."""

import ctypes
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from . import _abi
from ._library import library as _c
from ._library import table

_TYPES = {_abi.TUTTI_INT: "int", _abi.TUTTI_REAL: "real", _abi.TUTTI_BOOL: "bool", _abi.TUTTI_CHOICE: "choice",
          _abi.TUTTI_TEXT: "text", _abi.TUTTI_SPEC: "spec"}
# Names of the trait bits of a method (method.h), by bit.
_TRAITS = ("replicas-equal", "owns-update", "fault-tolerant", "async", "takes-codec", "non-gradient-update",
           "sparse-rows", "sharded-optimizer", "through-servers", "parameter-servers", "recomputes", "ddp-equivalent",
           "fail-stop", "ddp-equivalent-alone", "sharded-parameters", "pipeline-schedule", "profiles-units",
           "unsynchronized-steps", "never-skips", "asks-for-values",
           "logical-shares", "whole-steps", "states-of-shares")

_AXES = ("topology", "synchrony", "codec", "schedule", "placement", "update")


@dataclass(frozen=True, slots=True)
class Option:
    """An option of a spec."""

    name: str
    type: str  # "int", "real", "bool", "choice", "text" or "spec"
    default: int | float | bool | str
    least: int | float | None  # inclusive; None: not a number
    most: int | float | None  # inclusive; None: not a number
    choices: tuple[str, ...]  # of a choice, else empty
    help: str
    when: str  # condition under which it has an effect ("momentum>0"); "": always


@dataclass(frozen=True, slots=True)
class ConditionalDefault:
    """A default that a method sets for an option of the run, under a condition.

    when: conditions on the method's options ("algorithm=qadam"), joined by "&". A condition on the option itself
    ("optimizer=adam") applies to the value that the user has given; `value` then adds options to it.
    """

    option: str
    value: str
    when: str


@dataclass(frozen=True, slots=True)
class Method:
    """A published method."""

    name: str
    title: str
    authors: str
    year: int
    family: str
    axes: dict[str, str]
    options: tuple[Option, ...]
    defaults: dict[str, str]  # defaults that it sets for options of the run
    conditional_defaults: tuple[ConditionalDefault, ...]  # those that apply under a condition
    traits: frozenset[str]
    constraints: tuple[str, ...]

    @property
    def paper(self) -> str:
        """Authors and year; the method's page in docs/methods has the whole reference."""
        return f"{self.authors}, {self.year}"


@dataclass(frozen=True, slots=True)
class Codec:
    """An encoding of gradients. form: "summed", "message" or "wrapper" (around another codec)."""

    name: str
    help: str
    paper: str
    form: str
    options: tuple[Option, ...]


@dataclass(frozen=True, slots=True)
class Family:
    """A family of graphs that gossip methods may average over."""

    name: str
    help: str
    options: tuple[Option, ...]


def _option(o: _abi.tutti_option) -> Option:
    text = (o.text or b"").decode()
    choices = tuple(text.split("|")) if o.type == _abi.TUTTI_CHOICE else ()
    number = {_abi.TUTTI_INT: int, _abi.TUTTI_REAL: float}.get(o.type)
    default: int | float | bool | str = text
    if number:
        default = number(o.initial)
    elif o.type == _abi.TUTTI_BOOL:
        default = o.initial != 0
    elif choices:
        default = choices[int(o.initial)]
    return Option(o.name.decode(), _TYPES[o.type], default, number(o.min) if number else None,
                  number(o.max) if number else None, choices, o.help.decode(), (o.when or b"").decode())


def _options(at: Any) -> tuple[Option, ...]:
    """Returns the options of a table that ends with zeros; none for NULL."""
    found: list[Option] = []
    while at and at[len(found)].name:
        found.append(_option(at[len(found)]))
    return tuple(found)


def _defaults(at: Any) -> Iterator[ConditionalDefault]:
    k = 0
    while at and at[k].option:
        yield ConditionalDefault(at[k].option.decode(), at[k].value.decode(), (at[k].when or b"").decode())
        k += 1


def _texts(at: Any) -> Iterator[str]:
    k = 0
    while at and at[k]:
        yield at[k].decode()
        k += 1


def _method(m: _abi.tutti_method_ops) -> Method:
    defaults = tuple(_defaults(m.defaults))
    return Method(
        name=m.name.decode(), title=m.title.decode(), authors=m.authors.decode(), year=m.year,
        family=m.family.decode(), axes={axis: (getattr(m.axes, axis) or b"").decode() for axis in _AXES},
        options=_options(m.options), defaults={d.option: d.value for d in defaults if not d.when},
        conditional_defaults=tuple(d for d in defaults if d.when),
        traits=frozenset(t for k, t in enumerate(_TRAITS) if m.traits >> k & 1),
        constraints=tuple(_texts(m.constraints)))


def methods() -> tuple[Method, ...]:
    """Returns all training methods, ordered by family."""
    return tuple(map(_method, table("tutti_methods")))


def method(name: str) -> Method:
    """Returns the method of this name. ValueError: there is none; the text suggests similar names."""
    known = methods()
    for m in known:
        if m.name == name:
            return m
    near = ctypes.create_string_buffer(128)
    names = (ctypes.c_char_p * len(known))(*(m.name.encode() for m in known))
    _c.tutti_suggest(name.encode(), names, len(known), near, len(near))
    raise ValueError(f"there is no method '{name}'{near.value.decode()}")


def codecs() -> tuple[Codec, ...]:
    """Returns all codecs."""
    found: list[Codec] = []
    about = _abi.tutti_codec_about()
    while _c.tutti_codec_listed(len(found), about):
        found.append(Codec(about.name.decode(), about.help.decode(), about.paper.decode(), about.form.decode(),
                           _options(about.options)))
    return tuple(found)


def topologies() -> tuple[Family, ...]:
    """Returns all families of graphs; tutti.topology() makes a graph of n members."""
    found: list[Family] = []
    name, text, options = ctypes.c_char_p(), ctypes.c_char_p(), ctypes.POINTER(_abi.tutti_option)()
    while _c.tutti_graph_family(len(found), name, text, options):
        found.append(Family((name.value or b"").decode(), (text.value or b"").decode(), _options(options)))
    return tuple(found)
