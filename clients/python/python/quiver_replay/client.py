"""One shard, by its address."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any, Optional, Union

import numpy as np
import numpy.typing as npt

from . import _core
from .sampler import Sampler
from .writer import Writer


@dataclass(frozen=True)
class Table:
    """One view of a shard's frames: which transitions are kept, and how they are drawn."""

    name: str
    #: Items kept.
    capacity: int
    #: "proportional" to (priority + constant)^exponent, "uniform", "fifo" or "lifo".
    sampler: str = "proportional"
    #: Which item makes room: "fifo", "lifo" or "lowest-priority".
    remover: str = "fifo"
    #: An item drawn so often goes; 0 keeps it.
    max_times_sampled: int = 0
    priority_exponent: float = 0.6
    priority_constant: float = 1e-6
    #: The priority of items that come without one, until there is a largest.
    first_priority: float = 1.0


class Client:
    """A replay shard: `quiver-replay-server --listen ADDRESS`.

    `address` is host:port or unix:/path. `shape` and `dtype` are those of one frame: what was seen at one step. A
    shard that can't be reached is tried again for `timeout` seconds: it may be starting.
    """

    def __init__(
        self, address: str, shape: Sequence[int], dtype: npt.DTypeLike = np.uint8, *, timeout: float = 30.0
    ) -> None:
        self.shape = tuple(int(size) for size in shape)
        self.dtype = np.dtype(dtype)
        if self.dtype.hasobject:
            raise ValueError(f"a frame can't be made of {self.dtype}")
        self.frame_bytes = int(np.prod(self.shape, dtype=np.int64)) * self.dtype.itemsize
        if self.frame_bytes == 0:
            raise ValueError(f"a frame of shape {self.shape} is empty")
        self._core = _core.Client(address, timeout)

    @property
    def address(self) -> str:
        return self._core.address

    def create(
        self,
        tables: Sequence[Table],
        *,
        actions: int,
        stack: int = 1,
        bytes_max: int = 1 << 30,
        codec: str = "delta",
        run: Optional[str] = None,
        inserts_max: Optional[int] = None,
    ) -> None:
        """Tells the shard what it holds: `actions` discrete actions, states of `stack` frames, 1 to 4 tables.

        A shard that was told before must have been told the same, but for capacity and priority_exponent, which change.
        This client goes on telling it until it is closed, so that a shard that was started anew takes inserts again.
        `bytes_max` is for packed frames and records of all tables; the oldest go first. `inserts_max` is how many items
        the shard takes in before writers wait; without it they never do (see `allow`).
        """
        store = {
            "bytes_max": bytes_max,
            "stack": stack,
            "frame_bytes": self.frame_bytes,
            "codec": codec,
            "actions": actions,
            "tables": [asdict(table) for table in tables],
        }
        self._core.create(store, run, inserts_max)

    def allow(self, inserts_max: Optional[int]) -> None:
        """Lets the shard take in so many items in total before writers wait; None for any number."""
        self._core.allow(inserts_max)

    def writer(
        self, actor: int = 0, lane: int = 0, *, incarnation: Optional[int] = None, chunk_steps: int = 64
    ) -> Writer:
        """Writes one environment's steps. Environments that write at a time differ in `actor` or `lane`.

        `incarnation` grows with every start of that actor (the clock, if it is not given): a newer one ends an older.
        Steps travel in chunks of `chunk_steps`.
        """
        core = self._core.writer(actor, lane, incarnation, chunk_steps, self.frame_bytes)
        return Writer(core, self.shape, self.dtype)

    def sampler(
        self,
        batch_size: int,
        table: Optional[str] = None,
        *,
        length: int = 1,
        min_size: int = 1,
        prefetch: int = 8,
        buffers: int = 2,
        stratified: bool = True,
        seed: Optional[int] = None,
    ) -> Sampler:
        """Draws batches, with the next `prefetch` of them on their way already.

        `length` is the most steps that an item has. The first batch waits until the table has `min_size` items. Batches
        are filled in turn into `buffers` sets of arrays: one stays as it is until so many more were drawn.
        """
        if seed is None:
            seed = int.from_bytes(os.urandom(8), "little")
        core = self._core.sampler(table, batch_size, length, min_size, prefetch, stratified, seed, self.frame_bytes)
        return Sampler(core, batch_size, length, buffers, self.shape, self.dtype)

    def update_priorities(
        self, keys: npt.NDArray[np.uint64], priorities: npt.ArrayLike, table: Optional[str] = None
    ) -> tuple[int, int]:
        """Gives items new priorities now. How many were changed, and how many are no longer there."""
        values = np.ascontiguousarray(priorities, np.float64)
        return self._core.update_priorities(table, np.ascontiguousarray(keys, np.uint64), values)

    def configure(
        self, table: Optional[str] = None, *, capacity: Optional[int] = None, priority_exponent: Optional[float] = None
    ) -> None:
        """Changes a table while it is used."""
        self._core.configure(table, capacity, priority_exponent)

    def inspect(self, table: Optional[str] = None, top: int = 5) -> dict[str, Any]:
        """What is in the shard, and who waits for what: one object of `quiver inspect --json`."""
        seen: dict[str, Any] = json.loads(self._core.inspect(table, top))
        return seen

    def snapshot(self, path: Union[str, "os.PathLike[str]"]) -> int:
        """Saves the shard's contents while it serves, for `quiver-replay-server --restore`. How many bytes they are."""
        return self._core.snapshot(os.fspath(path))

    def close(self) -> None:
        """Stops telling the shard what it holds. Writers and samplers go on."""
        self._core.close()

    def __enter__(self) -> Client:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"Client({self.address!r}, shape={self.shape}, dtype={self.dtype.name!r})"
