"""One shard, by its address."""

from __future__ import annotations

import json
import math
import os
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any, Optional, Union

import numpy as np
import numpy.typing as npt

from . import _core, checks
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

    def __post_init__(self) -> None:
        checks.count("capacity", self.capacity, 1)
        checks.count("max_times_sampled", self.max_times_sampled, 0, 2**32 - 1)


class Client:
    """A replay shard: `quiver-replay-server --listen ADDRESS`.

    `address` is host:port or unix:/path. `shape` and `dtype` are those of one frame: what was seen at one step. A
    shard that can't be reached is tried again for `timeout` seconds: it may be starting. A shard that is started with
    --secrets asks who calls: `secrets` is the folder `client` that `quiver certs` made, or the variable QUIVER_SECRETS.
    """

    def __init__(
        self,
        address: str,
        shape: Sequence[int],
        dtype: npt.DTypeLike = np.uint8,
        *,
        timeout: float = 30.0,
        secrets: Union[str, os.PathLike[str], None] = None,
    ) -> None:
        self.shape = tuple(checks.count("shape", size, 1) for size in shape)
        self.dtype = np.dtype(dtype)
        self.frame_bytes = math.prod(self.shape) * self.dtype.itemsize
        if self.dtype.hasobject or self.frame_bytes == 0:
            raise ValueError(f"a frame can't be made of {self.dtype}")
        if not timeout > 0:
            raise ValueError(f"timeout is {timeout}, must be above 0")
        folder = secrets if secrets is not None else os.environ.get("QUIVER_SECRETS")
        self._core = _core.Client(address, timeout, None if folder is None else os.fspath(folder))

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
        `bytes_max` is for packed frames and records of all tables; the oldest go first. `codec` is how frames are packed:
        "delta" for what changes little from frame to frame, "zstd" or "none". `run` names what the shard is for: a shard
        serves one run, and this one by default. `inserts_max` is how many items it takes in before writers wait; without
        it they never do (see `allow`).

        A shard that is started anew takes no inserts until it is told how many. This client sees to that, until it is
        closed or gone with all its writers and samplers. One process should do it for a shard.
        """
        checks.count("frame_bytes", self.frame_bytes, 1, 4 << 20)
        store = {
            "bytes_max": checks.count("bytes_max", bytes_max, 1),
            "stack": checks.count("stack", stack, 1, 255),
            "frame_bytes": self.frame_bytes,
            "codec": codec,
            "actions": checks.count("actions", actions, 1, 65535),
            "tables": [asdict(table) for table in tables],
        }
        self._core.create(store, run, checks.optional_count("inserts_max", inserts_max, 0))

    def allow(self, inserts_max: Optional[int]) -> None:
        """Lets the shard take in so many items in total before writers wait; None for any number."""
        self._core.allow(checks.optional_count("inserts_max", inserts_max, 0))

    def writer(
        self, actor: int = 0, lane: int = 0, *, incarnation: Optional[int] = None, chunk_steps: int = 64
    ) -> Writer:
        """Writes one environment's steps. Environments of one process differ in `lane`, processes in `actor`.

        If two processes write as one actor, the newer ends the older, which raises `Refused`. `incarnation` says which is
        newer; by default it is the time of this process's first writer. Steps travel in chunks of `chunk_steps`.
        """
        core = self._core.writer(
            checks.count("actor", actor, 0, 2**32 - 1),
            checks.count("lane", lane, 0, 2**32 - 1),
            checks.optional_count("incarnation", incarnation, 1),
            checks.count("chunk_steps", chunk_steps, 1, 1024),
            self.frame_bytes,
        )
        return Writer(core, self.shape, self.dtype)

    def sampler(
        self,
        batch_size: int,
        table: Optional[str] = None,
        *,
        length: int = 1,
        min_size: int = 1,
        prefetch: Optional[int] = None,
        buffers: int = 2,
        stratified: bool = True,
        seed: Optional[int] = None,
    ) -> Sampler:
        """Draws batches, with the next `prefetch` of them on their way already.

        By default these are 8, but none from a table with `max_times_sampled`, whose items would be used up by a batch that
        nobody takes. `length` is the most steps that an item has. The first batch waits until the table has `min_size`
        items. Batches are filled in turn into `buffers` sets of arrays: one stays as it is until so many more were drawn.
        """
        if seed is None:
            seed = int.from_bytes(os.urandom(7), "little")
        core = self._core.sampler(
            table,
            checks.count("batch_size", batch_size, 1, 16384),
            checks.count("length", length, 1, 255),
            checks.count("min_size", min_size, 0),
            checks.optional_count("prefetch", prefetch, 0, 64),
            stratified,
            checks.count("seed", seed, 0),
            self.frame_bytes,
        )
        return Sampler(core, batch_size, length, buffers, self.shape, self.dtype)

    def update_priorities(
        self, keys: npt.ArrayLike, priorities: npt.ArrayLike, table: Optional[str] = None
    ) -> tuple[int, int]:
        """Gives items new priorities now. How many were changed, and how many are no longer there."""
        return self._core.update_priorities(
            table, checks.keys(keys), checks.column("priorities", priorities, np.float64)
        )

    def configure(
        self, table: Optional[str] = None, *, capacity: Optional[int] = None, priority_exponent: Optional[float] = None
    ) -> None:
        """Changes a table while it is used."""
        self._core.configure(table, checks.optional_count("capacity", capacity, 1), priority_exponent)

    def inspect(self, table: Optional[str] = None, top: int = 5) -> dict[str, Any]:
        """What is in the shard, and who waits for what: one object of `quiver inspect --json`."""
        seen: dict[str, Any] = json.loads(self._core.inspect(table, checks.count("top", top, 0, 1000)))
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
