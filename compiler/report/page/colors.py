"""Colours that people with any kind of colour vision tell apart, on white and on black."""

from __future__ import annotations

RAMP = ("#3b528b", "#2c728e", "#21918c", "#28ae80", "#5ec962", "#addc30", "#f0d92a")
"""Viridis (van der Walt and Smith 2015) without its darkest part: lightness grows with the step,
so that the order shows without hue."""
MOST_SHADES = 64
"""Classes of a ramp; nobody tells more apart."""


def ramp(count: int) -> list[str]:
    """``count`` colours from dark to light; more than 64 share."""
    shades = min(count, MOST_SHADES)
    if shades == 1:
        return [RAMP[1]] * count
    return [_between(index * shades // count / (shades - 1)) for index in range(count)]


def _between(share: float) -> str:
    """The colour at ``share`` of the ramp, 0 to 1."""
    place = min(share, 1.0) * (len(RAMP) - 1)
    index = min(int(place), len(RAMP) - 2)
    low, high = _channels(RAMP[index]), _channels(RAMP[index + 1])
    mixed = (round(a + (b - a) * (place - index)) for a, b in zip(low, high, strict=True))
    return "#" + "".join(f"{channel:02x}" for channel in mixed)


def _channels(color: str) -> tuple[int, ...]:
    return tuple(int(color[at : at + 2], 16) for at in (1, 3, 5))
