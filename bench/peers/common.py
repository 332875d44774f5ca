"""Shared code of the peer benchmarks: summaries of rounds and progress messages."""

from __future__ import annotations

import statistics
import sys
from collections.abc import Sequence


def summary(rates: Sequence[float]) -> dict[str, float]:
    """The best and the median of the rates of several rounds."""
    return {"best": max(rates), "median": statistics.median(rates)}


def lowest(times: Sequence[float]) -> dict[str, float]:
    """The best (lowest) and the median of times."""
    return {"best": min(times), "median": statistics.median(times)}


def log(message: str) -> None:
    """Reports progress on the standard error output, which leaves the standard output to the result."""
    print(message, file=sys.stderr, flush=True)
