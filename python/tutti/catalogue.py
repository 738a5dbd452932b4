"""What there is to choose from, read from the library's own tables: methods, codecs, families of graphs."""

import ctypes
from collections.abc import Iterator
from dataclasses import dataclass

from . import _abi
from ._library import library as _c
from ._library import table

_TYPES = {_abi.TUTTI_INT: "int", _abi.TUTTI_REAL: "real", _abi.TUTTI_BOOL: "bool", _abi.TUTTI_CHOICE: "choice",
          _abi.TUTTI_TEXT: "text", _abi.TUTTI_SPEC: "spec"}
# Facts of a method (method.h), in the words of its pages.
_TRAITS = ("replicas-equal", "owns-update", "fault-tolerant", "async", "takes-codec", "non-gradient-update",
           "sparse-rows", "sharded-optimizer", "through-servers", "parameter-servers", "recomputes", "ddp-equivalent",
           "fail-stop", "ddp-equivalent-alone", "sharded-parameters", "pipeline-schedule", "profiles-units",
           "unsynchronized-steps", "never-skips")

_AXES = ("topology", "synchrony", "codec", "schedule", "placement", "update")


@dataclass(frozen=True, slots=True)
class Option:
    """An option of a spec. least and most are inclusive, of numbers only; choices of a choice only.

    when: in which case it has an effect ("momentum>0"); "": always.
    """

    name: str
    type: str
    default: int | float | bool | str
    least: int | float | None
    most: int | float | None
    choices: tuple[str, ...]
    help: str
    when: str


@dataclass(frozen=True, slots=True)
class ConditionalDefault:
    """A default of one of the run's own options under a method.

    when: conditions on the method's options ("algorithm=qadam"), joined by "&". One on the option itself
    ("optimizer=adam") is about what is given: value then says what is not given of it.
    """

    option: str
    value: str
    when: str


@dataclass(frozen=True, slots=True)
class Method:
    """A published method. defaults: of the run's own options, where it has others than the run. conditional_defaults:
    those that hold under a condition."""

    name: str
    title: str
    authors: str
    year: int
    family: str
    axes: dict[str, str]
    options: tuple[Option, ...]
    defaults: dict[str, str]
    conditional_defaults: tuple[ConditionalDefault, ...]
    traits: frozenset[str]
    constraints: tuple[str, ...]

    @property
    def paper(self) -> str:
        """Whose and when; docs/methods has a page a method, with the whole reference."""
        return f"{self.authors}, {self.year}"


@dataclass(frozen=True, slots=True)
class Codec:
    """What gradients may travel as. form: "summed", "message" or "wrapper" (round another codec)."""

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


def _options(at) -> tuple[Option, ...]:
    """Of a table that ends with zeros, or of none."""
    found: list[Option] = []
    while at and at[len(found)].name:
        found.append(_option(at[len(found)]))
    return tuple(found)


def _defaults(at) -> Iterator[ConditionalDefault]:
    k = 0
    while at and at[k].option:
        yield ConditionalDefault(at[k].option.decode(), at[k].value.decode(), (at[k].when or b"").decode())
        k += 1


def _texts(at) -> Iterator[str]:
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
    """All training methods, those of a family together."""
    return tuple(map(_method, table("tutti_methods")))


def method(name: str) -> Method:
    """The method of this name; ValueError with near names where there is none."""
    known = methods()
    for m in known:
        if m.name == name:
            return m
    near = ctypes.create_string_buffer(128)
    names = (ctypes.c_char_p * len(known))(*(m.name.encode() for m in known))
    _c.tutti_suggest(name.encode(), names, len(known), near, len(near))
    raise ValueError(f"there is no method '{name}'{near.value.decode()}")


def codecs() -> tuple[Codec, ...]:
    """All codecs."""
    found: list[Codec] = []
    about = _abi.tutti_codec_about()
    while _c.tutti_codec_listed(len(found), about):
        found.append(Codec(about.name.decode(), about.help.decode(), about.paper.decode(), about.form.decode(),
                           _options(about.options)))
    return tuple(found)


def topologies() -> tuple[Family, ...]:
    """All families of graphs; tutti.topology() makes one of n members."""
    found: list[Family] = []
    name, text, options = ctypes.c_char_p(), ctypes.c_char_p(), ctypes.POINTER(_abi.tutti_option)()
    while _c.tutti_graph_family(len(found), name, text, options):
        found.append(Family((name.value or b"").decode(), (text.value or b"").decode(), _options(options)))
    return tuple(found)
