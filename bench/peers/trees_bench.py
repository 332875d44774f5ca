"""Measures prioritized sampling of cpprb and torchrl on one thread and prints one JSON object; see README.md.

Every structure has a million small items with random priorities. A call of `sample` or `update` handles one batch.
"""

from __future__ import annotations

import argparse
import json
import logging
import os
import sys
import time
from collections.abc import Callable
from importlib.metadata import version
from typing import Any

os.environ["OMP_NUM_THREADS"] = "1"
os.environ["MKL_NUM_THREADS"] = "1"

import numpy as np
import torch
from cpprb import PrioritizedReplayBuffer
from tensordict import TensorDict
from torchrl._torchrl import MinSegmentTreeFp32, SumSegmentTreeFp32
from torchrl.data import LazyTensorStorage, TensorDictPrioritizedReplayBuffer
from torchrl.data.replay_buffers.samplers import PrioritizedSampler

from common import log, summary

ITEMS = 1_000_000
ALPHA = 0.6
BETA = 0.4
SAMPLE_SIZES = (32, 512)
UPDATE_SIZE = 512
# Updates repeat only after every item was updated once, as in Quiver's benchmark.
BATCHES = ITEMS // UPDATE_SIZE

Calls = dict[str, Callable[[int], Any]]


class Batches:
    """Indices and priorities for updates, prepared in advance, as arrays and as tensors."""

    def __init__(self, rng: np.random.Generator) -> None:
        self.indices = rng.integers(0, ITEMS, (BATCHES, UPDATE_SIZE))
        self.priorities = rng.uniform(0.01, 1.0, (BATCHES, UPDATE_SIZE)).astype(np.float32)

    def arrays(self, number: int) -> tuple[np.ndarray, np.ndarray]:
        """One batch as arrays."""
        return self.indices[number], self.priorities[number]

    def tensors(self, number: int) -> tuple[torch.Tensor, torch.Tensor]:
        """One batch as tensors, which share the arrays' memory."""
        return torch.from_numpy(self.indices[number]), torch.from_numpy(self.priorities[number])


def with_sizes(sample: Callable[[int], Any], update: Callable[[int], Any]) -> Calls:
    """The measured calls, by name; each takes the number of the call."""
    calls: Calls = {f"sample({size})": lambda _, size=size: sample(size) for size in SAMPLE_SIZES}
    calls[f"update({UPDATE_SIZE})"] = lambda number: update(number % BATCHES)
    return calls


def cpprb_calls(priorities: np.ndarray, batches: Batches) -> Calls:
    """cpprb's buffer: a sample has the items, their indices and their weights."""
    buffer = PrioritizedReplayBuffer(ITEMS, {"obs": {"shape": 1}}, alpha=ALPHA)
    buffer.add(obs=np.zeros((ITEMS, 1), np.float32), priorities=priorities)
    return with_sizes(
        lambda size: buffer.sample(size, beta=BETA),
        lambda number: buffer.update_priorities(*batches.arrays(number)))


def torchrl_buffer_calls(priorities: np.ndarray, batches: Batches) -> Calls:
    """torchrl's buffer: a sample has the items, their indices and their weights."""
    buffer = TensorDictPrioritizedReplayBuffer(
        alpha=ALPHA, beta=BETA, storage=LazyTensorStorage(ITEMS))
    buffer.extend(TensorDict({"obs": torch.zeros(ITEMS, 1)}, [ITEMS]))
    buffer.update_priority(torch.arange(ITEMS), torch.from_numpy(priorities))
    return with_sizes(
        buffer.sample,
        lambda number: buffer.update_priority(*batches.tensors(number)))


def torchrl_sampler_calls(priorities: np.ndarray, batches: Batches) -> Calls:
    """torchrl's sampler without the buffer: a sample has indices and weights, but no items."""
    storage = LazyTensorStorage(ITEMS)
    storage.set(range(ITEMS), TensorDict({"obs": torch.zeros(ITEMS, 1)}, [ITEMS]))
    sampler = PrioritizedSampler(ITEMS, alpha=ALPHA, beta=BETA)
    sampler.update_priority(torch.arange(ITEMS), torch.from_numpy(priorities))
    return with_sizes(
        lambda size: sampler.sample(storage, size),
        lambda number: sampler.update_priority(*batches.tensors(number)))


def torchrl_tree_calls(priorities: np.ndarray, batches: Batches) -> Calls:
    """torchrl's native trees alone, with arrays, which are faster there than tensors.

    A sample has indices and priorities, but no weights; an update sets both trees, as weights need the
    minimum, and gets priorities that are already raised to alpha.
    """
    total, least = SumSegmentTreeFp32(ITEMS), MinSegmentTreeFp32(ITEMS)
    total[np.arange(ITEMS)] = priorities
    least[np.arange(ITEMS)] = priorities
    rng = np.random.default_rng(0)

    def sample(size: int) -> tuple[np.ndarray, np.ndarray]:
        mass = rng.random(size, np.float32) * total.query(0, ITEMS)
        indices = total.scan_lower_bound(mass)
        return indices, total[indices]

    def update(number: int) -> None:
        indices, values = batches.arrays(number)
        total[indices] = values
        least[indices] = values

    return with_sizes(sample, update)


PEERS: dict[str, Callable[[np.ndarray, Batches], Calls]] = {
    "cpprb.PrioritizedReplayBuffer": cpprb_calls,
    "torchrl.TensorDictPrioritizedReplayBuffer": torchrl_buffer_calls,
    "torchrl.PrioritizedSampler": torchrl_sampler_calls,
    "torchrl.SumSegmentTreeFp32": torchrl_tree_calls,
}


def calls_per_cpu_second(call: Callable[[int], Any], seconds: float) -> float:
    """Calls per second of CPU time of this process."""
    start = time.process_time()
    done = 0
    while (now := time.process_time()) < start + seconds:
        for _ in range(8):
            call(done)
            done += 1
    return done / (now - start)


def measure(seconds: float, rounds: int) -> dict[str, dict[str, dict[str, float]]]:
    """The best and the median rate of each call of each peer."""
    rng = np.random.default_rng(0)
    priorities = rng.uniform(0.01, 1.0, ITEMS).astype(np.float32)
    batches = Batches(rng)
    result: dict[str, dict[str, dict[str, float]]] = {}
    for name, build in PEERS.items():
        calls = build(priorities, batches)
        result[name] = {}
        for label, call in calls.items():
            calls_per_cpu_second(call, seconds / 5)
            result[name][label] = summary([calls_per_cpu_second(call, seconds) for _ in range(rounds)])
            log(f"{name} {label}: {result[name][label]['best']:.0f} calls/s")
    return result


def main() -> None:
    """Parses the options, measures and prints."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=1.0, help="CPU seconds of a round")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--quick", action="store_true", help="short rounds")
    args = parser.parse_args()
    seconds = min(args.seconds, 0.2) if args.quick else args.seconds
    torch.set_num_threads(1)
    logging.getLogger("torchrl").setLevel(logging.ERROR)  # it writes to the standard output
    json.dump({
        "peers": {name: version(name) for name in ("cpprb", "torchrl", "torch")},
        "items": ITEMS,
        "seconds": seconds,
        "rounds": args.rounds,
        "calls_per_cpu_s": measure(seconds, args.rounds),
    }, sys.stdout, indent=1)
    print()


if __name__ == "__main__":
    main()
