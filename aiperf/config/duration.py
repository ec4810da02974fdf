"""Durations in the way people write them: 90s, 5m, 1h30m, 12h, 1d."""

import re

from aiperf.untrusted.text import shown

LONGEST_S = 3_600_000.0
"""Longest duration of a setting: 1000 hours."""

MOST_CHARACTERS = 40

_UNITS_S = {"d": 86400, "h": 3600, "m": 60, "s": 1}
_PART = re.compile(r"(\d+(?:\.\d+)?)([dhms])")


def parse_duration(text: str | float, longest_s: float = LONGEST_S) -> float:
    """Seconds from a number of seconds or from text such as "1h30m", at most `longest_s`.

    Raises ValueError with what is allowed.
    """
    if isinstance(text, bool) or not isinstance(text, str | int | float):
        raise ValueError(f"{shown(text)} is not a duration; use 90s, 5m, 1h30m or 12h")
    if isinstance(text, int | float):
        return _checked(min(text, 1e300), text, longest_s)
    if len(text) > MOST_CHARACTERS or not text.isascii():
        raise ValueError(f"{shown(text)} is not a duration; use 90s, 5m, 1h30m or 12h")
    stripped = text.strip().lower()
    if re.fullmatch(r"\d+(\.\d+)?", stripped):
        return _checked(float(stripped), text, longest_s)
    parts = _PART.findall(stripped)
    if not parts or "".join(number + unit for number, unit in parts) != stripped:
        raise ValueError(f"{shown(text)} is not a duration; use 90s, 5m, 1h30m or 12h")
    return _checked(sum(float(number) * _UNITS_S[unit] for number, unit in parts), text, longest_s)


def _checked(seconds: float, found: str | float, longest_s: float) -> float:
    if not 0 < seconds <= longest_s:
        raise ValueError(f"{shown(found)} is not a duration above 0 seconds and at most {longest_s / 3600:.0f}h")
    return float(seconds)


def parse_pause(text: str | float) -> float:
    """Seconds as `parse_duration` reads them, or 0 for none at all."""
    return 0.0 if text in (0, "0", "0s") and not isinstance(text, bool) else parse_duration(text)


def exact_duration(seconds: float) -> str | float:
    """The shortest text that `parse_duration` reads as exactly this: 12h, 1h30m; or the number."""
    left, parts = int(seconds), []
    if left != seconds or not left:
        return seconds
    for unit, size in _UNITS_S.items():
        if left // size and unit != "d":
            parts.append(f"{left // size}{unit}")
            left %= size
    return "".join(parts)


def format_duration(seconds: float) -> str:
    """Compact text for people, the same in messages, tables and pages: 45 s, 5m00s, 1h30m."""
    whole = max(0, round(seconds))
    if 0 < seconds < 9.95:
        return f"{round(seconds, 1):g} s"
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60}m{whole % 60:02d}s"
    return f"{whole // 3600}h{whole % 3600 // 60:02d}m"
