"""Shared code of the peer benchmarks: summaries of rounds, progress messages, and turns with quiver-bench."""

from __future__ import annotations

import json
import statistics
import sys
import time
from collections.abc import Callable, Sequence
from typing import Any


def summary(rates: Sequence[float]) -> dict[str, float]:
    """The best and the median of the rates of several rounds."""
    return {"best": max(rates), "median": statistics.median(rates)}


def lowest(times: Sequence[float]) -> dict[str, float]:
    """The best (lowest) and the median of times."""
    return {"best": min(times), "median": statistics.median(times)}


def log(message: str) -> None:
    """Reports progress on the standard error output, which leaves the standard output to the result."""
    print(message, file=sys.stderr, flush=True)


def serve(handle: Callable[[dict[str, Any]], dict[str, Any]]) -> None:
    """Answers requests until standard input ends: a line of JSON each, and a line of JSON back.

    quiver-bench runs its own side between two requests, so the two sides take turns and never run at the same time.
    """
    for line in sys.stdin:
        print(json.dumps(handle(json.loads(line))), flush=True)


class Stopwatch:
    """Wall time and CPU time of this process, all threads together, since its construction."""

    def __init__(self) -> None:
        self.wall, self.cpu = time.perf_counter(), time.process_time()

    def elapsed(self) -> float:
        """Seconds of wall time."""
        return time.perf_counter() - self.wall

    def spent(self) -> dict[str, float]:
        """Both, as an answer to quiver-bench."""
        return {"wall": self.elapsed(), "cpu": time.process_time() - self.cpu}
