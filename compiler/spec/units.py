"""Numbers with units in a spec: ``8%``, ``300ms``, ``16M`` tokens, ``80 GB``."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import field
from decimal import Decimal
from typing import Annotated, Any

from pydantic import GetCoreSchemaHandler, GetJsonSchemaHandler
from pydantic_core import PydanticCustomError, core_schema

from parc.compiler.ir.frozen import frozen

_WORDS = re.compile(r"([0-9]{1,30}(?:\.[0-9]{1,30})?) ?([A-Za-z%/]+)")

_SPELLINGS = {
    **{"thousand": "k", "million": "M", "billion": "B", "trillion": "T"},
    **{"millisecond": "ms", "msec": "ms", "second": "s", "sec": "s", "minute": "min"},
    **{"hour": "h", "hr": "h", "day": "d", "week": "w", "year": "y", "yr": "y"},
    **{"watt": "W", "kilowatt": "kW", "percent": "%", "pct": "%"},
}
"""Other spelling of a unit, in the singular and in lower case -> unit of a spec."""


def _spelled_alike(unit: str, other: str) -> bool:
    """Return True if two units differ only in capitals that do not matter: GB is not Gb."""
    bits = len(unit) > 1 and unit.count("B") != other.count("B")
    return unit.lower() == other.lower() and not bits


@frozen(slots=False)
class Quantity:
    """Kind of quantity, such as a time: a number in the base unit, or text with a unit.

    As metadata of an Annotated type, a Quantity makes pydantic reject bools, and quoted numbers
    without a unit. The pydantic error has the type ``quantity``.
    """

    what: str
    """Name of the quantity with its article, for messages: ``a time``."""
    base: str
    """Unit of a number without a unit: ``seconds``; empty for a fraction."""
    factors: Mapping[str, str] = field(hash=False)
    """Unit -> factor that converts it to the base unit. Factors are exact decimal numbers as
    text."""
    examples: tuple[str, ...]
    low: int
    """Lower bound; the bound itself is valid unless ``above`` is True."""
    high: float
    """Largest valid value."""
    above: bool = True
    whole: bool = False
    """True if the value in the base unit must be an integer."""

    @property
    def expected(self) -> str:
        """Description of the valid values of this quantity, for messages."""
        number = "a whole number" if self.whole else "a number"
        bare = f"{number} of {self.base}" if self.base else "a fraction such as 0.08"
        return f"{self.what}, like {' or '.join(self.examples)}, or {bare}"

    def parse(self, value: Any) -> float:
        """Return the quantity ``value`` converted to its base unit.

        The result is an int if ``whole`` is True, and otherwise a float.
        """
        if isinstance(value, bool) or not isinstance(value, int | float | str):
            raise self._quantity_error(f"is not {self.what}")
        if isinstance(value, str):
            number = self._parse_with_unit(value)
        elif value != value or abs(value) > self.high:  # NaN, or hundreds of digits
            raise self._quantity_error(
                f"is not between {self.low} and {self.high:g} {self.base}".rstrip()
            )
        else:
            number = Decimal(str(value))
        return self._check_range(number)

    def _parse_with_unit(self, text: str) -> Decimal:
        match = _WORDS.fullmatch(text.strip())
        if match is None:
            raise self._quantity_error("is not a number followed by a unit")
        number, unit = match.groups()
        if unit not in self.factors:
            raise self._quantity_error(f"has an unknown unit {unit[:20]!r}")
        # Decimal arithmetic is exact, so 16.1M tokens is recognized as a whole number.
        return Decimal(number) * Decimal(self.factors[unit])

    def respell(self, value: Any) -> str:
        """Return ``value`` with the unit as a spec spells it: ``15.6T`` for ``15.6 trillion``.

        The result is empty if the unit is unknown, or if its meaning depends on capital letters.
        """
        text = str(value).strip()
        found = _WORDS.fullmatch(text.removesuffix(self.base).rstrip() if self.base else text)
        if not isinstance(value, str) or found is None:
            return ""
        number, unit = found.groups()
        word = unit.lower()
        wanted = _SPELLINGS.get(word) or _SPELLINGS.get(word.removesuffix("s")) or unit
        same = [one for one in self.factors if _spelled_alike(one, wanted)]
        exact = [one for one in same if one == wanted] or same
        return f"{number}{exact[0]}" if len({self.factors[one] for one in exact}) == 1 else ""

    def _check_range(self, number: Decimal) -> float:
        if number > Decimal(str(self.high)):
            raise self._quantity_error(f"is above the maximum, {self._format_bound(self.high)}")
        if number < self.low or (self.above and number == self.low):
            raise self._quantity_error(
                f"is not {'above' if self.above else 'at least'} {self._format_bound(self.low)}"
            )
        if not self.whole:
            return float(number)
        if number != number.to_integral_value():
            raise self._quantity_error(f"is not a whole number of {self.base}")
        return int(number)

    def _format_bound(self, bound: float) -> str:
        """Return a bound in the unit that users write."""
        if "%" in self.factors and bound:
            return f"{100 * bound:g} %"
        return f"{bound:g} {self.base}".rstrip() if bound else "0"

    def _quantity_error(self, reason: str) -> PydanticCustomError:
        return PydanticCustomError("quantity", "{reason}", {"reason": reason})

    def __get_pydantic_core_schema__(
        self, source: Any, handler: GetCoreSchemaHandler
    ) -> core_schema.CoreSchema:
        """Return a pydantic schema that validates a value by calling ``parse``."""
        # A plain validator replaces pydantic's own checks, so that all errors come from ``parse``.
        return core_schema.no_info_plain_validator_function(self.parse)

    def __get_pydantic_json_schema__(
        self, schema: core_schema.CoreSchema, handler: GetJsonSchemaHandler
    ) -> dict[str, Any]:
        """Return the JSON Schema of the quantity: a number in range, or text with a unit."""
        units = "|".join(re.escape(unit) for unit in self.factors)
        bound = "exclusiveMinimum" if self.above else "minimum"
        number = {"type": "integer" if self.whole else "number", bound: self.low}
        return {
            "anyOf": [
                {**number, "maximum": self.high},
                {"type": "string", "pattern": rf"^\s*[0-9]+(\.[0-9]+)? ?({units})\s*$"},
            ],
            "examples": list(self.examples),
        }


_SHARE = Quantity("a percentage", "", {"%": "0.01"}, ("95%",), low=0, high=1)
_PERCENT = Quantity("a percentage", "", {"%": "0.01"}, ("8%",), low=0, high=0.95, above=False)
_SECONDS = Quantity(
    "a time",
    "seconds",
    {"ns": "1e-9", "us": "1e-6", "ms": "1e-3", "s": "1", "m": "60", "min": "60", "h": "3600"},
    ("300ms", "2s", "5m", "1h"),
    low=0,
    high=1e8,
)
_DURATION = Quantity(
    "a duration",
    "seconds",
    {"s": "1", "m": "60", "min": "60", "h": "3600", "d": "86400", "w": "604800", "y": "31557600"},
    ("10min", "36h", "30d", "6y"),
    low=0,
    high=1e12,
)
_POWER = Quantity(
    "a power", "watts", {"W": "1", "kW": "1e3"}, ("700 W", "10.2 kW"), low=0, high=1e6
)
_TOKENS = Quantity(
    "a number of tokens",
    "tokens",
    {
        **{"k": "1e3", "K": "1e3", "M": "1e6", "B": "1e9", "G": "1e9", "T": "1e12"},
        **{"Ki": "1024", "Mi": "1048576", "Gi": "1073741824"},
    },
    ("16M", "16Mi", "512k"),
    low=0,
    high=10**15,
    whole=True,
)
_GIGABYTES = Quantity(
    "a size",
    "GB",
    {
        **{"MB": "1e-3", "GB": "1", "TB": "1e3"},
        **{"MiB": "0.001048576", "GiB": "1.073741824", "TiB": "1099.511627776"},
    },
    ("80 GB", "80GiB"),
    low=0,
    high=1e6,
)
_GIGABITS = Quantity(
    "a speed",
    "gigabits per second",
    {"Mb/s": "1e-3", "Mbps": "1e-3", "Gb/s": "1", "Gbps": "1", "Tb/s": "1e3", "Tbps": "1e3"},
    ("400 Gb/s", "400Gbps"),
    low=0,
    high=1e6,
)

Share = Annotated[float, _SHARE]
"""Fraction above 0 and up to 1, written as a number or in percent."""
Percent = Annotated[float, _PERCENT]
"""Fraction from 0 to 0.95, written as a percentage or as a number."""
Seconds = Annotated[float, _SECONDS]
"""Seconds, above 0."""
Duration = Annotated[float, _DURATION]
"""Seconds, above 0, for times of up to many years."""
Watts = Annotated[float, _POWER]
"""Watts, above 0."""
Tokens = Annotated[int, _TOKENS]
"""Tokens; M is 10^6 and Mi is 2^20."""
Gigabytes = Annotated[float, _GIGABYTES]
"""Decimal gigabytes."""
Gigabits = Annotated[float, _GIGABITS]
"""Gigabits per second, one direction."""
