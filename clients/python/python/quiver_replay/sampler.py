"""Samples batches from one table."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Optional, Union

import numpy as np
import numpy.typing as npt

from . import _core, checks
from .batch import Batch


class Sampler:
    """An endless iterator over batches of one table, created by `Client.sampler`. Use it from one thread at a time.

    If the shard goes away, the sampler logs that, retries, and samples prefetched batches again.
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
        """Allocates the arrays of one batch, for `sample(out)`."""
        return Batch(*self._batch)

    def sample(self, out: Optional[Batch] = None, timeout: Optional[float] = None) -> Batch:
        """Returns the next batch, in the arrays of `out` if given, else in new arrays.

        Waits until the table has items, at most `timeout` seconds. The batch has fewer items than requested only if the
        table has `max_times_sampled` and too few items left.
        """
        batch = self.new_batch() if out is None else out
        batch.count = 0
        batch.count = self._core.sample(batch, timeout)
        return batch

    def update(self, items: Union[Batch, npt.ArrayLike], priorities: npt.ArrayLike) -> None:
        """Queues new priorities for a batch or for keys of batches. They are sent with the next request for a batch.

        Items that no longer exist are skipped (see `stale_updates`). Updates for an unreachable shard are lost.
        """
        keys = items.keys if isinstance(items, Batch) else checks.keys(items)
        self._core.update(keys, checks.column("priorities", priorities, np.float64))

    @property
    def stale_updates(self) -> int:
        """Number of updates so far whose items no longer exist."""
        return self._core.stale

    def close(self) -> None:
        """Sends the last updates and closes the stream."""
        self._core.close(True)

    def __enter__(self) -> Sampler:
        return self

    def __exit__(self, kind: object, *_: object) -> None:
        # After an exception, do not wait for the shard in addition.
        self._core.close(kind is None)
