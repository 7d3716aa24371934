from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import TypeAdapter, ValidationError

from parc.compiler.spec.units import Gigabits, Gigabytes, Percent, Seconds, Tokens

KINDS: dict[str, Any] = {
    "percent": Percent,
    "seconds": Seconds,
    "tokens": Tokens,
    "gigabytes": Gigabytes,
    "gigabits": Gigabits,
}


def parse(kind: str, value: Any) -> float:
    return TypeAdapter(KINDS[kind]).validate_python(value)


@pytest.mark.parametrize(
    ("kind", "written", "meant"),
    [
        ("percent", "8%", 0.08),
        ("percent", "29 %", 0.29),
        ("percent", 0.08, 0.08),
        ("percent", 0, 0.0),
        ("seconds", "300ms", 0.3),
        ("seconds", "2s", 2.0),
        ("seconds", "5m", 300.0),
        ("seconds", "1h", 3600.0),
        ("seconds", "1.5us", 1.5e-6),
        ("seconds", 90, 90.0),
        ("tokens", "16M", 16_000_000),
        ("tokens", "16Mi", 16_777_216),
        ("tokens", "4k", 4000),
        ("tokens", "1.5B", 1_500_000_000),
        ("tokens", 16e6, 16_000_000),
        ("gigabytes", "80 GB", 80.0),
        ("gigabytes", "80GiB", 85.89934592),
        ("gigabytes", "81559MiB", 85.520809984),
        ("gigabytes", 80, 80.0),
        ("gigabits", "400Gb/s", 400.0),
        ("gigabits", "1.6 Tbps", 1600.0),
        ("gigabits", 400.0, 400.0),
    ],
)
def test_a_number_with_a_unit_is_exact(kind, written, meant):
    value = parse(kind, written)
    assert value == meant
    assert type(value) is type(meant)


@pytest.mark.parametrize(
    ("kind", "written"),
    [
        ("percent", "8"),
        ("percent", 1),
        ("percent", -0.1),
        ("percent", "100%"),
        ("percent", True),
        ("seconds", "2 parsecs"),
        ("seconds", 0),
        ("seconds", "1e3s"),
        ("seconds", None),
        ("seconds", "s"),
        ("tokens", "0.0001k"),
        ("tokens", "-4k"),
        ("tokens", 10**400),
        ("tokens", "9" * 5000 + "M"),
        ("tokens", [4]),
        ("gigabytes", "80"),
        ("gigabytes", "80 Gb"),
        ("gigabits", "400 GB/s"),
        ("gigabits", float("inf")),
        ("gigabits", float("nan")),
    ],
)
def test_a_number_with_a_wrong_unit_is_rejected(kind, written):
    with pytest.raises(ValidationError) as caught:
        parse(kind, written)
    assert [error["type"] for error in caught.value.errors()] == ["quantity"]


@given(kind=st.sampled_from(sorted(KINDS)), value=st.text() | st.floats() | st.integers())
def test_any_value_is_in_range_or_rejected(kind, value):
    try:
        number = parse(kind, value)
    except ValidationError:
        return
    assert 0 <= number <= 1e12


@given(percent=st.decimals(min_value=0, max_value=95, places=3))
def test_a_percentage_is_divided_by_one_hundred(percent):
    assert parse("percent", f"{percent}%") == float(percent / 100)
