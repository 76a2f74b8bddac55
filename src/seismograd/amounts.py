"""Bytes, times and numbers as people write them. Standard library only."""

from __future__ import annotations

import math


def size(amount: float) -> str:
    """`1.5 GB` for 1,610,612,736; 1 kB is 1,024 bytes."""
    for unit in ("bytes", "kB", "MB", "GB"):
        if abs(amount) < 1024:
            return f"{amount:.0f} {unit}" if unit == "bytes" or abs(amount) >= 100 else f"{amount:.3g} {unit}"
        amount /= 1024
    return f"{amount:,.3g} TB" if abs(amount) < 100 else f"{amount:,.0f} TB"


def duration(seconds: float) -> str:
    """`27.5 ms` for 0.0275, `4 min 10 s` for 250, `3 h 5 min` for 11,100."""
    if not math.isfinite(seconds):
        return "?"
    if abs(seconds) < 1:
        for factor, unit in ((1e3, "ms"), (1e6, "µs"), (1e9, "ns")):
            if abs(seconds) * factor >= 1 or unit == "ns":
                return f"{seconds * factor:.3g} {unit}" if seconds else "0 s"
    if abs(seconds) < 59.95:
        return f"{seconds:.3g} s"
    whole = round(seconds)
    for size_, unit, below, smaller in ((86400, "d", 3600, "h"), (3600, "h", 60, "min"), (60, "min", 1, "s")):
        if whole >= size_:
            rest = whole % size_ // below
            return f"{whole // size_:,} {unit} {rest} {smaller}" if rest else f"{whole // size_:,} {unit}"
    return f"{whole} s"


def number(value: float, digits: int = 3) -> str:
    """`0.749`, `1.2e-5`, `146,508`, `NaN`: as many digits as a person reads."""
    if math.isnan(value):
        return "NaN"
    if math.isinf(value):
        return "Inf" if value > 0 else "-Inf"
    if value == int(value) and abs(value) < 1e7:
        return f"{int(value):,}"
    if 1e-3 <= abs(value) < 1e6:
        return f"{value:,.{digits}g}" if abs(value) < 10**digits else f"{value:,.0f}"
    mantissa, exponent = f"{value:.{digits - 1}e}".split("e")
    return f"{mantissa.rstrip('0').rstrip('.') if '.' in mantissa else mantissa}e{int(exponent)}"
