"""Decorator ``frozen``: a frozen dataclass whose methods are compiled when they are used.

The decorator of the standard library compiles six methods per class on import, which would take a
quarter of the CPU time of ``parc check``. A command creates objects of half of the imported types,
more than a few of every fifth, compares or hashes objects of a sixth, and prints none.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import MISSING, FrozenInstanceError, dataclass, field, fields
from functools import partial
from types import MemberDescriptorType
from typing import Any, TypeVar, dataclass_transform, overload

T = TypeVar("T")

OBJECTS_WITHOUT_COMPILE = 8
"""Number of objects of a class that are created before its ``__init__`` is compiled, which takes
longer than so many calls of a method without compile."""

_objects = Counter[type]()


@overload
def frozen(cls: type[T], /) -> type[T]: ...


@overload
def frozen(*, slots: bool = True, kw_only: bool = False) -> Callable[[type[T]], type[T]]: ...


@dataclass_transform(frozen_default=True, field_specifiers=(field,))
def frozen(cls: type | None = None, /, *, slots: bool = True, kw_only: bool = False) -> Any:
    """Return ``cls`` as a dataclass that behaves like one with ``frozen=True, slots=True``.

    The functions of the module ``dataclasses`` accept the class and its objects. A subclass with
    fields of its own needs this decorator too.
    """
    if cls is None:
        return partial(frozen, slots=slots, kw_only=kw_only)
    own = vars(cls).keys()
    made: type = dataclass(cls, init=False, repr=False, eq=False, slots=slots, kw_only=kw_only)
    methods = METHODS | METHODS_WITH_SLOTS if slots else METHODS
    for name in methods.keys() - own:
        setattr(made, name, methods[name])
    return made


def _first_init(self: Any, /, *args: Any, **kwargs: Any) -> None:
    cls = type(self)
    _objects[cls] += 1
    few = _objects[cls] <= OBJECTS_WITHOUT_COMPILE
    values = _values_by_name(cls, args, kwargs) if few else None
    if values is None:  # the compiled method also raises the errors of wrong arguments
        cls.__init__ = _compile_init(cls)
        cls.__init__(self, *args, **kwargs)
    else:
        for name, value in values.items():
            object.__setattr__(self, name, value)


def _values_by_name(
    cls: type, args: tuple[Any, ...], kwargs: Mapping[str, Any]
) -> dict[str, Any] | None:
    """Return field -> value for the arguments of a constructor; None if an argument is wrong."""
    known = fields(cls)
    places = [one.name for one in known if not one.kw_only]
    if len(args) > len(places) or not kwargs.keys().isdisjoint(places[: len(args)]):
        return None
    values = {**dict(zip(places, args, strict=False)), **kwargs}
    for one in known:
        if one.name not in values and one.default is not MISSING:
            values[one.name] = one.default
        elif one.name not in values and one.default_factory is not MISSING:
            values[one.name] = one.default_factory()
    return values if values.keys() == {one.name for one in known} else None


def _first_eq(self: Any, other: object, /) -> Any:
    cls = type(self)
    compared = [one.name for one in fields(cls) if one.compare]
    body = (
        "if other.__class__ is not self.__class__: return NotImplemented",
        f"return {_values_of('self', compared)} == {_values_of('other', compared)}",
    )
    cls.__eq__ = _compile("__eq__", ("self", "other"), body, {})
    return cls.__eq__(self, other)


def _first_hash(self: Any, /) -> Any:
    cls = type(self)
    hashed = [one.name for one in fields(cls) if (one.compare if one.hash is None else one.hash)]
    body = (f"return hash({_values_of('self', hashed)})",)
    cls.__hash__ = _compile("__hash__", ("self",), body, {})
    return cls.__hash__(self)


def _repr(self: Any, /) -> str:
    shown = (f"{one.name}={getattr(self, one.name)!r}" for one in fields(self) if one.repr)
    return f"{type(self).__qualname__}({', '.join(shown)})"


def _setattr(self: Any, name: str, value: object, /) -> None:
    raise FrozenInstanceError(f"cannot assign to field {name!r}")


def _delattr(self: Any, name: str, /) -> None:
    raise FrozenInstanceError(f"cannot delete field {name!r}")


def _getstate(self: Any, /) -> list[Any]:
    return [getattr(self, one.name) for one in fields(self)]


def _setstate(self: Any, state: list[Any], /) -> None:
    for one, value in zip(fields(self), state, strict=True):
        object.__setattr__(self, one.name, value)


METHODS = {
    # The first three replace themselves by a compiled method.
    "__init__": _first_init,
    "__eq__": _first_eq,
    "__hash__": _first_hash,
    "__repr__": _repr,
    "__setattr__": _setattr,
    "__delattr__": _delattr,
}
METHODS_WITH_SLOTS = {"__getstate__": _getstate, "__setstate__": _setstate}
"""Methods for ``pickle`` and ``copy``, which otherwise assign to the slots of an object."""


def _compile_init(cls: type) -> Callable[..., None]:
    """Return the method ``__init__`` of ``cls``."""
    parameters, body = ["self"], []
    values: dict[str, object] = {"_set": object.__setattr__, "_MISSING": MISSING}
    # As in the module dataclasses: fields that are given by name come last.
    for one in sorted(fields(cls), key=lambda one: bool(one.kw_only)):
        name = value = one.name
        if one.kw_only and "*" not in parameters:
            parameters.append("*")
        if one.default is not MISSING:
            values[f"_default_{name}"] = one.default
            parameters.append(f"{name}=_default_{name}")
        elif one.default_factory is not MISSING:
            values[f"_make_{name}"] = one.default_factory
            parameters.append(f"{name}=_MISSING")
            value = f"_make_{name}() if {name} is _MISSING else {name}"
        else:
            parameters.append(name)
        slot = getattr(cls, name, None)
        if isinstance(slot, MemberDescriptorType):  # a third faster than object.__setattr__
            values[f"_set_{name}"] = slot.__set__
            body.append(f"_set_{name}(self, {value})")
        else:
            body.append(f"_set(self, {name!r}, {value})")
    return _compile("__init__", parameters, body, values)


def _values_of(name: str, members: Iterable[str]) -> str:
    """Return the expression of the tuple of ``members`` of the object ``name``."""
    return f"({''.join(f'{name}.{one}, ' for one in members)})"


def _compile(
    name: str, parameters: Iterable[str], body: Iterable[str], values: Mapping[str, object]
) -> Callable[..., Any]:
    """Return the function ``name``, whose body may use the names in ``values``."""
    scope = dict(values)
    exec("\n ".join((f"def {name}({', '.join(parameters)}):", *body)), scope)
    method: Callable[..., Any] = scope[name]  # type: ignore[assignment]
    return method
