"""Batch after batch."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Optional, Union

import numpy as np
import numpy.typing as npt

from . import _core, checks
from .batch import Batch


class Sampler:
    """An endless iterator over batches of one table. Made by `Client.sampler`; one thread uses it at a time.

    A shard that goes away is tried again, and the log says so; what it had drawn is drawn anew.
    """

    def __init__(
        self,
        core: _core.Sampler,
        batch_size: int,
        length: int,
        buffers: int,
        shape: tuple[int, ...],
        dtype: npt.DTypeLike,
    ) -> None:
        self._core = core
        self._batch = (batch_size, length, core.stack, shape, dtype)
        self._ring = [self.new_batch() for _ in range(checks.count("buffers", buffers, 1))]
        self._turn = 0

    def __iter__(self) -> Iterator[Batch]:
        return self

    def __next__(self) -> Batch:
        batch = self._ring[self._turn]
        self._turn = (self._turn + 1) % len(self._ring)
        return self.sample(batch)

    def new_batch(self) -> Batch:
        """Arrays for one batch, to be filled by `sample`."""
        return Batch(*self._batch)

    def sample(self, out: Optional[Batch] = None, timeout: Optional[float] = None) -> Batch:
        """The next batch, into `out` if it is given, else into new arrays.

        It waits until there are items, at most `timeout` seconds. It is smaller than asked for only if the table uses its
        items up and has fewer.
        """
        batch = self.new_batch() if out is None else out
        batch.count = 0
        batch.count = self._core.sample(batch, timeout)
        return batch

    def update(self, items: Union[Batch, npt.ArrayLike], priorities: npt.ArrayLike) -> None:
        """Gives items new priorities: a batch, or keys of batches. They travel with the next request for a batch.

        Items that are gone are passed over (see `stale_updates`); updates to a shard that is away are lost.
        """
        keys = items.keys if isinstance(items, Batch) else checks.keys(items)
        self._core.update(keys, checks.column("priorities", priorities, np.float64))

    @property
    def stale_updates(self) -> int:
        """Updates so far whose items were gone."""
        return self._core.stale

    def close(self) -> None:
        """Sends the last updates and ends the stream."""
        self._core.close(True)

    def __enter__(self) -> Sampler:
        return self

    def __exit__(self, kind: object, *_: object) -> None:
        # Whoever leaves by an error does not wait for a shard as well.
        self._core.close(kind is None)
