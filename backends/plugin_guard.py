"""Guard around the objects of plugins: exceptions and invalid values become ``PluginError``.

Built-in backends have no guard, because tests check them, and the search calls them often. The
guard of a plugin is the only place that checks its results, so that the compiler can rely on the
types and ranges that the protocols state.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import fields, is_dataclass, replace
from functools import cache
from types import MappingProxyType
from typing import Any, get_origin, get_type_hints

from parc.backends.plugin_error import PluginError, PluginOwner
from parc.backends.plugin_members import NOT_NEGATIVE, Check, stage_rule
from parc.backends.value_types import find_type_defect
from parc.compiler.diagnostics.codes import code_info
from parc.compiler.ir import Layout, Problem, ServingLayout
from parc.compiler.ir.engine_constants import (
    EngineConstants,
    UndeclaredConstantsError,
    find_range_defect,
)
from parc.compiler.ir.finding import Finding
from parc.compiler.ir.rule import Rule, readable_fields

_Members = dict[str, tuple[bool, Any]]
"""Name of a member -> (True for a method, type of its result or of its value)."""


@cache
def members_of(*protocols: Any) -> _Members:
    """Return the public members of ``protocols`` with the types that they must have."""
    found: _Members = {}
    for protocol in protocols:
        found |= {name: (False, hint) for name, hint in get_type_hints(protocol).items()}
        parents = (one for one in protocol.__mro__ if getattr(one, "_is_protocol", False))
        members = [item for parent in parents for item in vars(parent).items()]
        # The most specific protocol comes first in the MRO, so it is added last.
        for name, value in reversed(members):
            if callable(value) and not name.startswith("_"):
                found[name] = (True, get_type_hints(value).get("return", Any))
    return found


class Guard:
    """Base class of guards; the guard of a plugin has the members of ``target``."""

    def __init__(self, target: object, owner: PluginOwner, checks: Mapping[str, Check]) -> None:
        """Store the object of the plugin ``owner``, and checks of the values of its members."""
        self._target, self._owner, self._checks = target, owner, checks

    def __getattr__(self, name: str) -> Any:
        """Return a member that no protocol contains; AttributeError for private names."""
        if name.startswith("_"):  # also those of copies, which have no target yet
            raise AttributeError(name)
        return getattr(self._target, name)


RAISE = object()
OF_ALL_TEXTS: dict[str, Any] = {".confirms": False, ".settings.read": MappingProxyType({})}
"""End of the name of a function that gets files of all programs -> result that means that a file
does not belong to the plugin."""
_guards: dict[tuple[int, tuple[Any, ...]], Guard] = {}
"""(id of an object, its protocols) -> its guard, which keeps the object alive. Guards are compared
by identity, so that an object has only one."""


def guarded(
    target: object, owner: PluginOwner, protocols: Iterable[Any], checks: Mapping[str, Check]
) -> Any:
    """Return the guard of ``target``, which has the members of ``protocols`` that it defines.

    ``isinstance`` tests of optional protocols have the same results as for ``target``. ``checks``
    are conditions on the values of members beyond their types.
    """
    protocols = tuple(protocols)
    key = id(target), protocols
    if key not in _guards:
        known = members_of(*protocols)
        members = {
            name: _guarded_method(name, hint) if method else _guarded_value(name, hint)
            for name, (method, hint) in known.items()
            if hasattr(target, name)
        }
        _guards[key] = type("GuardedPlugin", (Guard,), members)(target, owner, checks)
    return _guards[key]


def guard_callables(value: Any, owner: PluginOwner, label: str) -> Any:
    """Return ``value`` of a plugin with guards around its functions.

    Dataclasses and mappings are searched for functions. Functions in ``OF_ALL_TEXTS`` get the
    files of other programs too, so that they return their default after an exception.
    """
    if isinstance(value, Mapping):
        return {key: guard_callables(one, owner, f"{label}[{key!r}]") for key, one in value.items()}
    if is_dataclass(value) and not isinstance(value, type):
        named = {one.name: getattr(value, one.name) for one in fields(value)}
        found = {
            name: guard_callables(one, owner, f"{label}.{name}") for name, one in named.items()
        }
        return replace(value, **{name: one for name, one in found.items() if one != named[name]})
    if not callable(value):
        return value
    default = next((one for name, one in OF_ALL_TEXTS.items() if label.endswith(name)), RAISE)

    def call(*args: Any) -> Any:
        try:
            return call_plugin(owner, f"{label}()", lambda: value(*args))
        except PluginError:
            if default is RAISE:
                raise
            return default

    return call


def call_plugin(owner: PluginOwner, member: str, call: Callable[[], Any]) -> Any:
    """Return the result of ``call``, which runs code of a plugin; a generator becomes a tuple.

    Raises:
        PluginError: the code raised an exception that is not one of PARC's own, or exits.
    """
    try:
        result = call()
        return tuple(result) if isinstance(result, Iterator) else result
    except (Exception, SystemExit) as error:
        # Exceptions of the compiler are a message of this code to its caller, such as that of a
        # verifier that cannot read a file.
        if isinstance(error, PluginError) or type(error).__module__.startswith("parc.compiler."):
            raise
        raise owner.raised(member, error) from error


def _guarded_method(name: str, hint: Any) -> Callable[..., Any]:
    """Return the method ``name`` of a guard, whose result must have the type ``hint``."""
    listed = get_origin(hint) is tuple

    def method(self: Guard, /, *args: Any, **kwargs: Any) -> Any:
        target, owner = self._target, self._owner
        result = call_plugin(owner, f"{name}()", lambda: getattr(target, name)(*args, **kwargs))
        if listed and isinstance(result, list):
            result = tuple(result)
        defect = _find_defect(self, name, (hint, "returned"), result, args)
        if defect:
            raise owner.invalid(f"{name}()", defect)
        if name not in ("rules", "launcher_rules"):
            return result
        rules = tuple(_guarded_rule(rule, owner) for rule in result)
        problem = args[0] if args else None
        if isinstance(problem, Problem) and problem.model.experts is not None:
            rules += (stage_rule(self.device_meshes),)
        return rules

    return method


def _guarded_value(name: str, hint: Any) -> property:
    """Return the attribute ``name`` of a guard, whose value must have the type ``hint``."""

    def read(self: Guard) -> Any:
        value = call_plugin(self._owner, name, lambda: getattr(self._target, name))
        defect = _find_defect(self, name, (hint, "is"), value)
        if defect:
            raise self._owner.invalid(name, defect)
        return value

    return property(read)


def _find_defect(
    guard: Guard, name: str, needed: tuple[Any, str], value: Any, args: tuple[Any, ...] = ()
) -> str:
    """Return the defect of a member's value, or of its result for ``args``; empty if it is valid.

    ``needed`` is (type, verb of the defect). Constants of an engine may have another type, which
    the caller reports.

    Raises:
        UndeclaredConstantsError: constants of an engine are outside of their ranges (V32).
    """
    hint, verb = needed
    if name == "constants":
        wrong = isinstance(value, EngineConstants) and find_type_defect(value, hint, verb)
        if defect := wrong or find_range_defect(value):
            raise UndeclaredConstantsError(defect)
        return ""
    defect = find_type_defect(value, hint, verb, 0.0 if name in NOT_NEGATIVE else None)
    if defect or name not in guard._checks:
        return defect
    check, target = guard._checks[name], guard._target
    return str(call_plugin(guard._owner, name, lambda: check(target, args, value)))


def _guarded_rule(rule: Any, owner: PluginOwner) -> Any:
    label = f"rule {rule.code} on {', '.join(rule.fields)}"
    call_plugin(owner, label, lambda: code_info(rule.code))
    trains = isinstance(rule, Rule)
    reads = call_plugin(owner, label, lambda: readable_fields(rule.reads) if trains else rule.reads)
    view = _declared_fields(Layout if trains else ServingLayout, reads)

    def broken(problem: Any, layout: Any) -> bool:
        def evaluate() -> Any:
            try:
                return rule.broken(problem, view(layout))
            except _UndeclaredRead as error:
                defect = f"reads layout.{error}, which its field reads does not list"
                raise owner.invalid(label, defect) from None

        return bool(call_plugin(owner, label, evaluate))

    def explain(problem: Any, layout: Any) -> Finding:
        found = call_plugin(owner, label, lambda: rule.explain(problem, layout))
        defect = find_type_defect(found, Finding, "returned")
        if defect:
            raise owner.invalid(f"explain() of {label}", defect)
        return found  # type: ignore[no-any-return]

    return replace(rule, broken=broken, explain=explain)


class _UndeclaredRead(Exception):
    """Raised if a rule reads a field of a layout that its field ``reads`` does not list."""


class _Undeclared:
    """Field of a layout that has a default, for layouts without a value of the field."""

    def __init__(self, name: str) -> None:
        self._name = name

    def __get__(self, instance: object, owner: type) -> Any:
        raise _UndeclaredRead(self._name)


@cache
def _view_class(kind: Any) -> type[Any]:
    """Return a subclass of the layout class ``kind`` whose missing fields cannot be read."""
    names = frozenset(one.name for one in fields(kind))

    def read_missing(self: object, name: str) -> Any:
        raise _UndeclaredRead(name) if name in names else AttributeError(name)

    members: dict[str, Any] = {"__getattr__": read_missing, "__slots__": ("__dict__",)}
    if hasattr(kind, "__dict__") and "__slots__" not in vars(kind):
        # Defaults are attributes of such a class, and would replace a missing value.
        del members["__slots__"]
        members |= {name: _Undeclared(name) for name in names if name in vars(kind)}
    return type(f"Partial{kind.__name__}", (kind,), members)


def _declared_fields(kind: Any, reads: tuple[str, ...]) -> Callable[[Any], Any]:
    """Return a function: layout -> the layout with only the fields ``reads``.

    The search evaluates a rule once per combination of these fields, so that a rule that reads
    other fields would accept layouts that it should reject.
    """
    view = _view_class(kind)

    def restrict(layout: Any) -> Any:
        # Layouts of parc lint have unknown fields, and are of another class.
        if type(layout) is not kind:
            return layout
        found = object.__new__(view)
        for name in reads:
            object.__setattr__(found, name, getattr(layout, name))
        return found

    return restrict
