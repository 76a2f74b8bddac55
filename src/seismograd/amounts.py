"""Bytes as people write them. Standard library only."""

from __future__ import annotations


def size(amount: float) -> str:
    """`1.5 GB` for 1,610,612,736; 1 kB is 1,024 bytes."""
    for unit in ("bytes", "kB", "MB", "GB"):
        if abs(amount) < 1024:
            return f"{amount:.0f} {unit}" if unit == "bytes" or abs(amount) >= 100 else f"{amount:.3g} {unit}"
        amount /= 1024
    return f"{amount:,.3g} TB" if abs(amount) < 100 else f"{amount:,.0f} TB"
