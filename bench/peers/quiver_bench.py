"""Benchmarks Quiver's Python client as a learner in Python uses it: batches into preallocated arrays, priorities back after each.

It samples from a running, filled shard, and prints JSON: transitions per second for each batch size.
"""

from __future__ import annotations

import argparse
import json
import time

import numpy as np
from quiver_replay import Client

from common import log, summary

# Shape of the shard's frames.
SHAPE = (84, 84)


def rate(client: Client, batch_size: int, seconds: float, rng: np.random.Generator) -> float:
    """Transitions per second of wall time."""
    with client.sampler(batch_size) as sampler:
        next(sampler)
        count, start = 0, time.perf_counter()
        while (elapsed := time.perf_counter() - start) < seconds:
            batch = next(sampler)
            sampler.update(batch, rng.random(len(batch)))
            count += len(batch)
        return count / elapsed


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--address", required=True, help="of the shard: unix:/path or host:port")
    parser.add_argument("--seconds", type=float, default=1.0, help="length of one measurement")
    parser.add_argument("--rounds", type=int, default=3)
    arguments = parser.parse_args()
    client = Client(arguments.address, SHAPE)
    rng = np.random.default_rng(0)
    rates = {}
    for batch_size in (32, 512):
        log(f"quiver in Python: batches of {batch_size}")
        stretches = [rate(client, batch_size, arguments.seconds, rng) for _ in range(arguments.rounds)]
        rates[str(batch_size)] = {"transitions_per_s": summary(stretches)}
    print(json.dumps({"sample": rates}))


if __name__ == "__main__":
    main()
