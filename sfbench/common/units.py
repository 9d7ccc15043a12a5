"""Numbers to text for people: the only place that does it.

No text shows more digits than the number's interval justifies: the last digit is that of the first
digit of the half-width, and at least two digits stand. Without an interval three digits are shown.
What is not known at all is no figure: ``is_known`` decides that for every text.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from sfbench.common.schema import Interval, Share

MISSING = "–"
"""Stands if nothing was measured."""
DIGITS = 3
"""Without an interval."""
MAX_DIGITS = 4
"""Even if the interval is narrower."""

UNKNOWN = "?"
"""Stands if a ratio is known too badly to be a figure."""
UNKNOWN_HALF = 0.20
"""A ratio of the step, or of efficiency, known no better than this is no figure."""
USELESS_SPAN = 1.0
"""From so far apart on, the ends of an efficiency say nothing either."""
SAID_HALF = 0.05
"""Less well known than this, in parts of the step or of a rate, a half-width is said beside it."""
LOPSIDED = 1.25
"""An interval whose longer side is this many times the shorter is given by its ends."""

_SECONDS = ((1.0, "s"), (1e-3, "ms"), (1e-6, "us"))
_BYTES = ((2**40, "TiB"), (2**30, "GiB"), (2**20, "MiB"), (2**10, "KiB"), (1, "B"))


def half_width(interval: Interval | Share | None) -> float | None:
    """The longer side of an interval; None if it has none."""
    if interval is None or interval.value is None:
        return None
    if interval.low is None or interval.high is None:
        return None
    return max(interval.high - interval.value, interval.value - interval.low)


def is_known(ratio: Interval | Share | None) -> bool:
    """Whether a ratio of the step, or efficiency points, may be told as a figure.

    Without an interval nothing is known of it, whatever its value.
    """
    half = half_width(ratio)
    return half is not None and half <= UNKNOWN_HALF


def share(ratio: Interval | Share | None) -> str:
    """``12%``; ``12% ±7`` if that matters; ``?`` if it is not known."""
    if ratio is None or ratio.value is None:
        return MISSING
    half = half_width(ratio)
    if half is None or not is_known(ratio):
        return UNKNOWN
    return (
        f"{percent(ratio.value)} ±{100 * half:.0f}" if half >= SAID_HALF else percent(ratio.value)
    )


def rate(value: float | None, half: float | None = None) -> str:
    """``2560``: samples per second, the unit not said."""
    return MISSING if value is None else _rounded(value, half)


def rate_interval(interval: Interval | None) -> str:
    """``2560 ±30``; ``610 to 1650`` if it is lopsided; ``2560 ±?`` without an interval."""
    if interval is None:
        return MISSING
    return _with_half(interval, 1.0)


def rate_cell(interval: Interval | None) -> str:
    """``2560``; with its half-width if that is more than a few percent."""
    half = half_width(interval)
    if interval is not None and half is not None and half < SAID_HALF * interval.value:
        return rate(interval.value, half)
    return rate_interval(interval)


def seconds(value: float | None, half: float | None = None) -> str:
    """``38.8 ms``."""
    if value is None:
        return MISSING
    scale, unit = _scale(value)
    return f"{_rounded(value / scale, None if half is None else half / scale)} {unit}"


def seconds_interval(interval: Interval | Share | None) -> str:
    """``50.0 ±0.3 ms``; ``50.0 ±? ms`` without an interval."""
    if interval is None or interval.value is None:
        return MISSING
    scale, unit = _scale(interval.value)
    return f"{_with_half(interval, scale)} {unit}"


def seconds_cell(interval: Interval | None) -> str:
    """``50.0 ms``; with its half-width if that is more than a few percent."""
    half = half_width(interval)
    if interval is not None and half is not None and half < SAID_HALF * interval.value:
        return seconds(interval.value, half)
    return seconds_interval(interval)


def duration(value_s: float) -> str:
    """``4 s``, ``1 min 48 s``, ``2 h 5 min``: how long something took."""
    whole = round(value_s)
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} min {whole % 60} s"
    return f"{whole // 3600} h {whole % 3600 // 60} min"


def percent(ratio: float | None, half: float | None = None) -> str:
    """``78%``; one decimal at most, and only if the interval is that narrow."""
    if ratio is None:
        return MISSING
    return f"{_fixed(100 * ratio, _percent_decimals(half))}%"


def percent_interval(interval: Interval | Share | None) -> str:
    """``78% ±1``; ``50% to 120%`` if it is lopsided or no figure; ``78% ±?`` without an interval.

    ``?`` if even its ends say nothing.
    """
    if interval is None or interval.value is None:
        return MISSING
    half = half_width(interval)
    text = percent(interval.value, half)
    if half is None:
        return f"{text} ±{UNKNOWN}"
    if (interval.high or 0.0) - (interval.low or 0.0) >= USELESS_SPAN:
        return UNKNOWN
    if _lopsided(interval) or not is_known(interval):
        return f"{percent(interval.low, half)} to {percent(interval.high, half)}"
    return text if not half else f"{text} ±{_half_text(100 * half, _percent_decimals(half))}"


def points(ratio: float, half: float | None = None) -> str:
    """``12``: efficiency points, the unit not said."""
    return _fixed(100 * ratio, _percent_decimals(half))


def points_interval(interval: Interval) -> str:
    """``12 (±2)``: efficiency points; ``3 to 57`` or ``?`` if they are not known well."""
    half = half_width(interval)
    if not is_known(interval):
        low, high = interval.low, interval.high
        some = low is not None and high is not None and low > 0
        return f"{points(low or 0.0)} to {points(high or 0.0)}" if some else UNKNOWN
    text = points(interval.value, half)
    return text if not half else f"{text} (±{_half_text(100 * half, _percent_decimals(half))})"


def change(interval: Interval) -> str:
    """``+12% ±2``: a ratio to a baseline as what changed; ``-20% to +140%`` if lopsided."""
    half = half_width(interval)
    if half is None:
        return f"{expected_change(interval.value)} ±{UNKNOWN}"
    decimals = _percent_decimals(half)
    if _lopsided(interval) and interval.low is not None and interval.high is not None:
        return f"{_changed(interval.low, decimals)} to {_changed(interval.high, decimals)}"
    return _changed(interval.value, decimals) + (
        f" ±{_half_text(100 * half, decimals)}" if half else ""
    )


def expected_change(ratio: float) -> str:
    """``+12%``: what is reckoned, not measured."""
    return _changed(ratio, 0)


def bytes_(value: float) -> str:
    """``97.5 MiB``."""
    for scale, unit in _BYTES:
        if value >= scale:
            return f"{_rounded(value / scale, None)} {unit}" if scale > 1 else f"{value:.0f} B"
    return "0 B"


def count(value: float) -> str:
    """``1,200``: a number of things; ``2.5`` if it is a mean."""
    if float(value).is_integer():
        return f"{int(value):,}" if abs(value) >= 10_000 else str(int(value))
    return f"{value:.{DIGITS}g}"


def things(number: float, word: str) -> str:
    """``1 core``, ``2 launches``, ``12,000 steps``: so many of what a word names."""
    ending = "" if number == 1 else "es" if word.endswith("ch") else "s"
    return f"{count(number)} {word}{ending}"


def listed(words: Sequence[object]) -> str:
    """``2``, ``2 and 4``, ``2, 4 and 8``."""
    texts = [str(word) for word in words]
    return " and ".join(filter(None, (", ".join(texts[:-1]), *texts[-1:])))


def counts(numbers: Sequence[int], word: str) -> str:
    """``1 device``, ``2, 4 and 8 devices``."""
    return f"{listed(numbers)} {word}{'' if list(numbers) == [1] else 's'}"


def _scale(value_s: float) -> tuple[float, str]:
    for scale, unit in _SECONDS:
        if abs(value_s) >= scale:
            return scale, unit
    return _SECONDS[-1] if value_s else _SECONDS[0]


def _percent_decimals(half: float | None) -> int:
    return 1 if half and 100 * half < 0.5 else 0


def _changed(ratio: float, decimals: int) -> str:
    text = f"{_fixed(100 * (ratio - 1), decimals)}%"
    return text if text.startswith("-") else f"+{text}"


def _lopsided(interval: Interval | Share) -> bool:
    """Whether a half-width would tell a lie: one side is much longer, and that matters."""
    half = half_width(interval)
    if half is None or interval.value is None or interval.low is None or interval.high is None:
        return False
    sides = sorted((interval.high - interval.value, interval.value - interval.low))
    return half > 2 * SAID_HALF * abs(interval.value) and sides[1] > LOPSIDED * sides[0]


def _with_half(interval: Interval | Share, scale: float) -> str:
    value, half = interval.value or 0.0, half_width(interval)
    if half is None:
        return f"{_rounded(value / scale, None)} ±{UNKNOWN}"
    decimals = _decimals(value / scale, half / scale)
    if _lopsided(interval) and interval.low is not None and interval.high is not None:
        low, high = interval.low / scale, interval.high / scale
        return f"{_fixed(low, decimals)} to {_fixed(high, decimals)}"
    return f"{_fixed(value / scale, decimals)} ±{_half_text(half / scale, decimals)}"


def _rounded(value: float, half: float | None) -> str:
    return _fixed(value, _decimals(value, half))


def _decimals(value: float, half: float | None) -> int:
    """Decimals to show; negative: tens, hundreds."""
    size = 0 if value == 0 else math.floor(math.log10(abs(value)))
    if half is None:
        return max(DIGITS - 1 - size, 0) if value else 0
    narrowest = MAX_DIGITS - 1 - size
    if half == 0:
        return max(narrowest, 0)
    if value == 0:
        return min(-math.floor(math.log10(half)), max(narrowest, 0))
    # Two digits stand even if the interval is wider than the value: fewer are another value.
    return max(min(-math.floor(math.log10(half)), max(narrowest, 0)), 1 - size)


def _half_text(half: float, decimals: int) -> str:
    """A half-width is never rounded to nothing."""
    return _fixed(max(half, 10.0**-decimals), decimals)


def _fixed(value: float, decimals: int) -> str:
    value = round(value, decimals) + 0.0  # no -0
    thousands = "," if abs(value) >= 10_000 else ""
    return f"{value:{thousands}.{max(decimals, 0)}f}"
