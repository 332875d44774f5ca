"""Sampled items as arrays."""

from __future__ import annotations

import copy
from typing import Any

import numpy as np
import numpy.typing as npt

from . import checks


class Batch:
    """Up to `size` items, each of 1 to `length` steps. The arrays are allocated once and reused.

    Every array has one row per item. Arrays of per-step values have `length` columns; columns after an item's last step
    are 0, and frames there repeat its last frame.
    """

    def __init__(self, size: int, length: int, stack: int, shape: tuple[int, ...], dtype: npt.DTypeLike) -> None:
        self.size = checks.count("size", size, 1)
        self.length = checks.count("length", length, 1, 255)
        self.stack = stack
        self.count = 0
        self._frames: npt.NDArray[Any] = np.zeros((size, stack + length, *shape), dtype)
        self._actions = np.zeros((size, length), np.int64)
        self._rewards = np.zeros((size, length), np.float32)
        self._log_probabilities = np.zeros((size, length), np.float32)
        self._life_lost = np.zeros((size, length), np.bool_)
        self._terminated = np.zeros(size, np.bool_)
        self._truncated = np.zeros(size, np.bool_)
        self._lengths = np.zeros(size, np.int64)
        self._keys = np.zeros((size, 3), np.uint64)
        self._probabilities = np.zeros(size, np.float64)
        self._priorities = np.zeros(size, np.float64)
        self._times_sampled = np.zeros(size, np.uint32)
        self._ages = np.zeros(size, np.uint64)

    @property
    def _bytes(self) -> npt.NDArray[np.uint8]:
        return self._frames.reshape(self.size, -1).view(np.uint8)

    def copy(self) -> Batch:
        """A copy with its own arrays."""
        return copy.deepcopy(self)

    def __len__(self) -> int:
        return self.count

    def __repr__(self) -> str:
        return f"Batch of {self.count} items, frames {self.frames.shape} {self._frames.dtype}"

    @property
    def frames(self) -> npt.NDArray[Any]:
        """The frames of the state, then the frame after each step: (items, stack + length, *shape)."""
        return self._frames[: self.count]

    @property
    def states(self) -> npt.NDArray[Any]:
        """The states before the first step: (items, stack, *shape), a view of `frames`."""
        return self._frames[: self.count, : self.stack]

    @property
    def next_states(self) -> npt.NDArray[Any]:
        """The states after the last step: (items, stack, *shape), a view of `frames` if all items have `length` steps."""
        lengths = self.lengths
        if self.length == 1 or bool((lengths == self.length).all()):
            return self._frames[: self.count, self.length : self.length + self.stack]
        rows = np.arange(self.count)[:, None]
        found: npt.NDArray[Any] = self._frames[rows, lengths[:, None] + np.arange(self.stack)]
        return found

    @property
    def actions(self) -> npt.NDArray[np.int64]:
        """(items, length)."""
        return self._actions[: self.count]

    @property
    def rewards(self) -> npt.NDArray[np.float32]:
        """The rewards as written: (items, length)."""
        return self._rewards[: self.count]

    @property
    def log_probabilities(self) -> npt.NDArray[np.float32]:
        """Log-probabilities of the actions under the policy that chose them: (items, length)."""
        return self._log_probabilities[: self.count]

    @property
    def life_lost(self) -> npt.NDArray[np.bool_]:
        """(items, length)."""
        return self._life_lost[: self.count]

    @property
    def terminated(self) -> npt.NDArray[np.bool_]:
        """Whether the episode terminated with the last step, so there is no state to bootstrap from. (items,)."""
        return self._terminated[: self.count]

    @property
    def truncated(self) -> npt.NDArray[np.bool_]:
        """Whether the episode was truncated after the last step. (items,)."""
        return self._truncated[: self.count]

    @property
    def lengths(self) -> npt.NDArray[np.int64]:
        """Number of steps of each item: `length`, or fewer at the end of an episode. (items,)."""
        return self._lengths[: self.count]

    @property
    def keys(self) -> npt.NDArray[np.uint64]:
        """Keys of the items: (items, 3). Copy them to update priorities later."""
        return self._keys[: self.count]

    @property
    def probabilities(self) -> npt.NDArray[np.float64]:
        """Probability that one draw from the table returns this item, for importance weights. (items,)."""
        return self._probabilities[: self.count]

    @property
    def priorities(self) -> npt.NDArray[np.float64]:
        """The current priorities. (items,)."""
        return self._priorities[: self.count]

    @property
    def times_sampled(self) -> npt.NDArray[np.uint32]:
        """How often each item has been sampled, this time included. (items,)."""
        return self._times_sampled[: self.count]

    @property
    def ages(self) -> npt.NDArray[np.uint64]:
        """Number of items inserted after this one. (items,)."""
        return self._ages[: self.count]
