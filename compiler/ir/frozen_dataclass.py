"""Frozen dataclasses whose methods are generated when they are first used.

``dataclasses.dataclass`` compiles six methods for each class, about 0.5 ms, even if a command never
uses the class. With several hundred classes this is a third of the start-up time of a command.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from inspect import Signature

_MISSING = dataclasses.MISSING


class _Factory:
    """Default of the parameters of fields with a ``default_factory``."""

    def __repr__(self) -> str:
        return "<factory>"


_FACTORY = _Factory()


class _LazySignature:
    """Class attribute from which ``inspect`` reads the parameters of the class."""

    def __get__(self, instance: object, owner: type) -> Signature:
        """Return the signature of ``owner``."""
        from inspect import signature

        found = signature(_generate_init(owner))
        return found.replace(parameters=[*found.parameters.values()][1:])  # without self


def _frozen_dataclass(cls: type, slots: bool, kw_only: bool) -> type:
    """Return ``cls`` as a frozen dataclass; see ``dataclasses.dataclass``."""
    own = set(cls.__dict__)
    decorator = dataclasses.dataclass(
        init=False, repr=False, eq=False, slots=slots, kw_only=kw_only
    )
    # A class that is not frozen, as it is here, cannot inherit from a frozen one.
    parents: list[Any] = [vars(base).get("__dataclass_params__") for base in cls.__mro__[1:]]
    frozen = [one for one in parents if one is not None and one.frozen]
    for one in frozen:
        one.frozen = False
    made: Any = decorator(cls)
    for one in (*frozen, made.__dataclass_params__):
        one.frozen = True
    methods: dict[str, object] = {
        name: _method_on_first_use(made, name, generate) for name, generate in _GENERATORS.items()
    }
    if slots:
        methods |= {"__getstate__": _state_of, "__setstate__": _restore_state}
    methods |= {"__setattr__": _raise_on_assignment, "__delattr__": _raise_on_deletion}
    for name, method in methods.items():
        if name not in own:
            setattr(made, name, method)
    made.__signature__ = _LazySignature()
    found: type = made
    return found


def _method_on_first_use(
    owner: type, name: str, generate: Callable[[type], Callable[..., Any]]
) -> Callable[..., Any]:
    """Return a method that replaces itself by ``generate(owner)`` when it is called."""

    def method(self: object, *args: Any, **values: Any) -> Any:
        made = generate(owner)
        setattr(owner, name, made)
        return made(self, *args, **values)

    method.__name__, method.__qualname__ = name, f"{owner.__qualname__}.{name}"
    return method


def _compile_method(owner: type, head: str, body: list[str], names: dict[str, Any]) -> Any:
    """Return the function ``head`` with the lines ``body``, which may use ``names``."""
    scope: dict[str, Any] = {}
    lines = "\n".join(f"  {line}" for line in body or ["pass"])
    exec(f"def {head}:\n{lines}", names, scope)
    ((name, made),) = scope.items()
    made.__qualname__ = f"{owner.__qualname__}.{name}"
    return made


def _generate_init(owner: type) -> Any:
    """Return ``__init__``, which sets all fields."""
    names: dict[str, Any] = {"_set": object.__setattr__, "_factory": _FACTORY}
    positional, body = ["self"], []
    keywords: list[str] = []
    for field in dataclasses.fields(owner):
        name, default = field.name, ""
        value = name
        if field.default is not _MISSING:
            names[f"_default_{name}"] = field.default
            default = f"=_default_{name}"
        elif field.default_factory is not _MISSING:
            names[f"_factory_{name}"] = field.default_factory
            default = "=_factory"
            value = f"_factory_{name}() if {name} is _factory else {name}"
        (keywords if field.kw_only else positional).append(name + default)
        body.append(f"_set(self, {name!r}, {value})")
    if hasattr(owner, "__post_init__"):
        body.append("self.__post_init__()")
    parameters = ", ".join([*positional, *(["*", *keywords] if keywords else [])])
    made = _compile_method(owner, f"__init__({parameters})", body, names)
    types = {one.name: one.type for one in dataclasses.fields(owner)}
    made.__annotations__ = {**types, "return": None}
    return made


def _values(fields: Iterable[dataclasses.Field[Any]], instance: str) -> str:
    """Return the text of a tuple of the values of ``fields`` of the variable ``instance``."""
    return "(" + "".join(f"{instance}.{one.name}," for one in fields) + ")"


def _generate_eq(owner: type) -> Any:
    """Return ``__eq__``, which compares the fields of two instances of the same class."""
    compared = [one for one in dataclasses.fields(owner) if one.compare]
    body = [
        "if other.__class__ is not self.__class__: return NotImplemented",
        f"return {_values(compared, 'self')} == {_values(compared, 'other')}",
    ]
    return _compile_method(owner, "__eq__(self, other)", body, {})


def _generate_hash(owner: type) -> Any:
    """Return ``__hash__``, the hash of the values of all compared fields without ``hash=False``."""
    fields = dataclasses.fields(owner)
    hashed = [one for one in fields if (one.compare if one.hash is None else one.hash)]
    return _compile_method(owner, "__hash__(self)", [f"return hash({_values(hashed, 'self')})"], {})


def _generate_repr(owner: type) -> Any:
    """Return ``__repr__``, which writes the fields as arguments of the class."""
    from reprlib import recursive_repr

    names = [one.name for one in dataclasses.fields(owner) if one.repr]
    text = ", ".join(f"{name}={{self.{name}!r}}" for name in names)
    body = [f"return self.__class__.__qualname__ + f'({text})'"]
    return recursive_repr()(_compile_method(owner, "__repr__(self)", body, {}))


_GENERATORS = {
    "__init__": _generate_init,
    "__eq__": _generate_eq,
    "__hash__": _generate_hash,
    "__repr__": _generate_repr,
}


def _raise_on_assignment(self: object, name: str, value: object) -> None:
    """Raise the error of frozen dataclasses."""
    raise dataclasses.FrozenInstanceError(f"cannot assign to field {name!r}")


def _raise_on_deletion(self: object, name: str) -> None:
    """Raise the error of frozen dataclasses."""
    raise dataclasses.FrozenInstanceError(f"cannot delete field {name!r}")


def _state_of(self: Any) -> list[object]:
    """Return the values of all fields, for pickle and copy."""
    return [getattr(self, one.name) for one in dataclasses.fields(self)]


def _restore_state(self: Any, state: list[object]) -> None:
    """Set all fields to the values of ``_state_of``."""
    for one, value in zip(dataclasses.fields(self), state, strict=True):
        object.__setattr__(self, one.name, value)


if TYPE_CHECKING:
    from dataclasses import dataclass as dataclass
else:

    def dataclass(cls=None, /, *, frozen=False, slots=False, kw_only=False, **options):
        """Return ``cls`` as a dataclass, or a decorator, like ``dataclasses.dataclass``.

        Classes that are not frozen, or that have other options, get all methods at once.
        """
        if cls is not None or not frozen or options:
            options |= {"frozen": frozen, "slots": slots, "kw_only": kw_only}
            return dataclasses.dataclass(cls, **options)
        return lambda cls: _frozen_dataclass(cls, slots, kw_only)
