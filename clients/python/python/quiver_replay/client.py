"""The client of one shard."""

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
    """A view of a shard's steps with its own items: which transitions are kept and how they are sampled."""

    name: str
    #: Maximum number of items.
    capacity: int
    #: "proportional" to (priority + constant)^exponent, "uniform", "fifo" or "lifo".
    sampler: str = "proportional"
    #: Which item is evicted from a full table: "fifo", "lifo" or "lowest-priority".
    remover: str = "fifo"
    #: Remove an item after it was sampled this many times; 0 means never.
    max_times_sampled: int = 0
    priority_exponent: float = 0.6
    priority_constant: float = 1e-6
    #: Priority of items written without one, until the table has a largest priority.
    first_priority: float = 1.0

    def __post_init__(self) -> None:
        checks.count("capacity", self.capacity, 1)
        checks.count("max_times_sampled", self.max_times_sampled, 0, 2**32 - 1)


class Client:
    """A replay shard: `quiver-replay-server --listen ADDRESS`.

    `address` is host:port or unix:/path. `shape` and `dtype` describe one frame: the observation of one step. Calls to
    an unreachable shard are retried for `timeout` seconds, because it may be starting. A shard that runs with --secrets
    requires authentication: set `secrets` to the folder `client` that `quiver certs` created, or set QUIVER_SECRETS.
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
            raise ValueError(f"frames cannot have the shape {self.shape} and the dtype {self.dtype}")
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
        max_length: int = 255,
    ) -> None:
        """Configures the shard: `actions` discrete actions, states of `stack` frames, 1 to 4 tables.

        A shard that is already configured must have the same configuration, except capacity and priority_exponent,
        which this call changes. `bytes_max` bounds the compressed frames and records of all tables; the oldest are
        reclaimed first. `codec` is the compression of frames: "delta" for frames that change little from one to the
        next, "zstd" or "none". `run` names the run; a shard serves one run, and the default is the run that it already
        serves. `inserts_max` is the number of inserts after which writers block; without it they never do (see
        `allow`). `max_length` is the most steps that an item may have, at most 255; a smaller one bounds the work that a
        writer can cause more tightly.

        A restarted shard accepts no inserts until it has an allowance. This client restores it, until the client is
        closed, or deleted together with all its writers and samplers. Only one process should do this for a shard.
        """
        checks.count("frame_bytes", self.frame_bytes, 1, 4 << 20)
        store = {
            "bytes_max": checks.count("bytes_max", bytes_max, 1),
            "stack": checks.count("stack", stack, 1, 255),
            "frame_bytes": self.frame_bytes,
            "codec": codec,
            "actions": checks.count("actions", actions, 1, 65535),
            "max_length": checks.count("max_length", max_length, 1, 255),
            "tables": [asdict(table) for table in tables],
        }
        self._core.create(store, run, checks.optional_count("inserts_max", inserts_max, 0))

    def allow(self, inserts_max: Optional[int]) -> None:
        """Sets the total number of inserts after which writers block; None for no limit."""
        self._core.allow(checks.optional_count("inserts_max", inserts_max, 0))

    def writer(
        self, actor: int = 0, lane: int = 0, *, incarnation: Optional[int] = None, chunk_steps: int = 64
    ) -> Writer:
        """Creates a writer for one environment: one `lane` per environment of a process, one `actor` per process.

        If two processes write as the same actor, the newer incarnation replaces the older one, which raises `Refused`.
        `incarnation` defaults to the time of this process's first writer. Steps are sent in chunks of `chunk_steps`.
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
        """Creates a sampler that prefetches the next `prefetch` batches.

        The default is 8, but 0 for a table with `max_times_sampled`, because unused prefetched batches would remove
        items. `length` is the maximum number of steps per item. The first batch waits until the table has `min_size`
        items. Batches are written in turn into `buffers` sets of arrays: a batch stays valid until `buffers` more were
        sampled.
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
        """Updates priorities at once. Returns how many items were updated and how many no longer exist."""
        return self._core.update_priorities(
            table, checks.keys(keys), checks.column("priorities", priorities, np.float64)
        )

    def configure(
        self, table: Optional[str] = None, *, capacity: Optional[int] = None, priority_exponent: Optional[float] = None
    ) -> None:
        """Changes a table while it is in use."""
        self._core.configure(table, checks.optional_count("capacity", capacity, 1), priority_exponent)

    def inspect(self, table: Optional[str] = None, top: int = 5) -> dict[str, Any]:
        """The shard's contents and blocked callers: one object of `quiver inspect --json`."""
        inspection: dict[str, Any] = json.loads(self._core.inspect(table, checks.count("top", top, 0, 1000)))
        return inspection

    def snapshot(self, path: Union[str, "os.PathLike[str]"]) -> int:
        """Saves the shard's contents while it serves, for `quiver-replay-server --restore`. Returns the bytes written."""
        return self._core.snapshot(os.fspath(path))

    def close(self) -> None:
        """Stops keeping the shard configured. Existing writers and samplers continue to work."""
        self._core.close()

    def __enter__(self) -> Client:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"Client({self.address!r}, shape={self.shape}, dtype={self.dtype.name!r})"
