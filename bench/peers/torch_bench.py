"""Benchmarks an update of soft DQN in PyTorch on the CPU: as people write it, and as fast as we could make it.

An update is one forward pass of the target network without gradient, temperature * logsumexp, one forward pass of the online
network, Huber loss, its gradient, and fused Adam, on batches that are ready. No priorities, no clamp, no copy of the target
network. Pixels are bytes and are scaled within the update.

It serves quiver-bench: each line on standard input is a JSON object with `network`, `batch`, `variant`, `threads` and
`seconds`. It runs updates for that long and answers with JSON: `calls`, and `wall` and `cpu` in seconds.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from common import Stopwatch, log, serve
from torch_nets import CHANNELS, SIDE, network

ACTIONS = 6
TEMPERATURE = 0.05
LEARNING_RATE = 1e-4

# Batches that are learned from in turn, as on Quiver's side.
BATCHES = 8

# Side of a block of pixels that becomes channels.
BLOCK = 4


@dataclass(frozen=True)
class Variant:
    """A way to write the update."""

    bf16: bool = False
    channels_last: bool = False
    space_to_depth: bool = False
    # Batches whose target values are computed in one forward pass. Exact while the target network does not change.
    targets_at_once: int = 1
    compiled: bool = False


VARIANTS = {
    "written": Variant(),
    "written-bf16": Variant(bf16=True),
    "best": Variant(bf16=True, channels_last=True, space_to_depth=True, targets_at_once=4),
    "compiled": Variant(compiled=True),
    "compiled-best": Variant(bf16=True, channels_last=True, space_to_depth=True, targets_at_once=4, compiled=True),
}


class Update:
    """One variant of the update for one network and batch size. A call makes `calls` updates."""

    def __init__(self, name: str, batch: int, variant: Variant) -> None:
        torch.manual_seed(0)
        self.variant, self.batch, self.calls = variant, batch, variant.targets_at_once
        shape = (CHANNELS * BLOCK**2, SIDE // BLOCK, SIDE // BLOCK) if variant.space_to_depth else (CHANNELS, SIDE, SIDE)
        self.layout = torch.channels_last if variant.channels_last else torch.contiguous_format

        def make() -> torch.nn.Module:
            return network(name, ACTIONS, variant.space_to_depth).to(memory_format=self.layout)

        self.online, self.target = make(), make()
        self.adam = torch.optim.Adam(self.online.parameters(), lr=LEARNING_RATE, fused=True)

        def pictures(count: int) -> Tensor:
            # Frames arrive rearranged: a replay could store them so.
            return torch.randint(256, (count, *shape), dtype=torch.uint8).contiguous(memory_format=self.layout)

        self.batches = [
            (pictures(batch), torch.randint(ACTIONS, (batch,)), torch.randn(batch), torch.full((batch,), 0.99))
            for _ in range(BATCHES)
        ]
        self.next_states = [pictures(batch * self.calls) for _ in range(BATCHES // self.calls)]
        self.turn = 0
        self.value: Callable[[Tensor], Tensor] = self.next_value
        self.loss: Callable[..., Tensor] = self.huber_loss
        if variant.compiled:
            # One graph for exactly this shape; it fails where it would otherwise run without being compiled.
            self.value = torch.compile(self.next_value, fullgraph=True, dynamic=False)
            self.loss = torch.compile(self.huber_loss, fullgraph=True, dynamic=False)

    def autocast(self) -> contextlib.AbstractContextManager[Any]:
        return torch.autocast("cpu", dtype=torch.bfloat16) if self.variant.bf16 else contextlib.nullcontext()

    def pixels(self, states: Tensor) -> Tensor:
        return states.to(torch.bfloat16 if self.variant.bf16 else torch.float32) / 255

    def next_value(self, next_states: Tensor) -> Tensor:
        """The soft value of the next states."""
        with self.autocast():
            q = self.target(self.pixels(next_states)).float()
        return TEMPERATURE * torch.logsumexp(q / TEMPERATURE, 1)

    def huber_loss(self, states: Tensor, actions: Tensor, targets: Tensor) -> Tensor:
        with self.autocast():
            q = self.online(self.pixels(states)).float()
        return F.huber_loss(q.gather(1, actions[:, None]).squeeze(1), targets)

    def __call__(self) -> None:
        with torch.no_grad():
            values = self.value(self.next_states[self.turn // self.calls]).split(self.batch)
        for value in values:
            states, actions, rewards, discounts = self.batches[self.turn]
            self.turn = (self.turn + 1) % BATCHES
            loss = self.loss(states, actions, rewards + discounts * value)
            self.adam.zero_grad(set_to_none=True)
            loss.backward()
            self.adam.step()


class Updates:
    """The updates of one network and batch size, made when they are first asked for."""

    def __init__(self) -> None:
        self.what: tuple[str, int] | None = None
        self.made: dict[tuple[str, int], Update] = {}

    def get(self, name: str, batch: int, variant: str, threads: int) -> Update:
        torch.set_num_threads(threads)
        if self.what != (name, batch):
            self.what = (name, batch)
            if any(update.variant.compiled for update in self.made.values()):
                # The number of graphs of a function is limited.
                torch.compiler.reset()
            self.made.clear()
        if (variant, threads) not in self.made:
            update = self.made[variant, threads] = Update(name, batch, VARIANTS[variant])
            watch = Stopwatch()
            update()
            if update.variant.compiled:
                log(f"torch.compile of {variant}, {name}, {batch}, {threads} threads: {watch.elapsed():.0f} s")
        return self.made[variant, threads]

    def slice(self, request: dict[str, Any]) -> dict[str, Any]:
        update = self.get(request["network"], request["batch"], request["variant"], request["threads"])
        calls, watch = 0, Stopwatch()
        while watch.elapsed() < request["seconds"]:
            update()
            calls += update.calls
        return {"calls": calls, **watch.spent()}


if __name__ == "__main__":
    serve(Updates().slice)
