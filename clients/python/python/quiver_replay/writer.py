"""The steps of one environment."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from typing import Any, Optional, Union

import numpy as np
import numpy.typing as npt

from . import _core, checks


class Writer:
    """Writes the steps of one environment, and the items they complete. Made by `Client.writer`; one thread uses it.

    Whole episodes go with `write`. Step by step it is `append` for each frame that was acted on, `end` for the last frame
    of an episode, and `item` wherever a transition is complete. A shard that goes away is tried again for ever; what it
    had not acknowledged is sent again and stored once. What takes a `timeout` waits so many seconds at most for a shard
    that has too much under way, and for ever without it.
    """

    def __init__(self, core: _core.Writer, shape: tuple[int, ...], dtype: np.dtype[Any]) -> None:
        self._core = core
        self._shape = shape
        self._dtype = dtype

    def append(
        self,
        frame: npt.ArrayLike,
        action: int,
        reward: float,
        *,
        log_probability: float = 0.0,
        terminated: bool = False,
        truncated: bool = False,
        life_lost: bool = False,
        timeout: Optional[float] = None,
    ) -> None:
        """One step: what was seen, what was done on it, and what came of it."""
        action = checks.count("action", action, 0)
        row = self._bytes(frame, 0)
        self._core.append(row, action, reward, log_probability, terminated, truncated, life_lost, timeout)

    def end(self, frame: npt.ArrayLike, timeout: Optional[float] = None) -> None:
        """The last frame of an episode, on which nothing was done. The next step begins another episode."""
        self._core.end(self._bytes(frame, 0), timeout)

    def item(self, length: int = 1, priority: Optional[float] = None, table: Optional[str] = None) -> None:
        """A transition to the last frame, from the state `length` steps before it.

        Without a `priority` it gets the largest that the table has seen. The items of a writer are made in the order of
        their first steps, whatever table they go to.
        """
        self._core.item(checks.count("length", length, 0), priority, table)

    def write(
        self,
        frames: npt.ArrayLike,
        actions: npt.ArrayLike,
        rewards: npt.ArrayLike,
        *,
        terminated: bool,
        priorities: Optional[npt.ArrayLike] = None,
        log_probabilities: Optional[npt.ArrayLike] = None,
        length: int = 1,
        table: Union[str, Sequence[str], None] = None,
        timeout: Optional[float] = None,
    ) -> None:
        """A whole episode: one frame more than actions and rewards. If it is not `terminated`, it was cut short.

        It makes one item for each step, of `length` steps or as many as are left, with its own of `priorities`, in the
        first table or in those that are named. If it is interrupted, nothing or a part of the episode is stored.
        """
        tables = [table] if isinstance(table, str) else list(table or [])
        self._core.write(
            self._bytes(frames, 1),
            checks.column("actions", actions, np.int64),
            checks.column("rewards", rewards, np.float32),
            None if log_probabilities is None else checks.column("log_probabilities", log_probabilities, np.float32),
            None if priorities is None else checks.column("priorities", priorities, np.float64),
            terminated,
            checks.count("length", length, 1, 255),
            tables,
            timeout,
        )

    def abandon(self) -> None:
        """Drops the episode under way, and whatever else was not sent yet. The next step begins another episode."""
        self._core.abandon()

    def flush(self, timeout: Optional[float] = None) -> None:
        """Sends what there is and waits until the shard has acknowledged all of it."""
        self._core.flush(timeout)

    @property
    def waiting_for(self) -> Optional[str]:
        """What keeps the shard from taking more, if anything does."""
        return self._core.waiting_for

    def close(self, timeout: Optional[float] = None) -> None:
        """`flush`, and the end."""
        self._core.close(timeout)

    def __del__(self) -> None:
        core = getattr(self, "_core", None)
        if core is not None and core.unsent:
            warnings.warn(f"a writer was not closed: {core.unsent} steps were not sent", ResourceWarning, stacklevel=2)

    def __enter__(self) -> Writer:
        return self

    def __exit__(self, kind: object, *_: object) -> None:
        # Whoever leaves by an error does not wait for a shard as well.
        if kind is None:
            self.close()

    def _bytes(self, frames: npt.ArrayLike, before: int) -> npt.NDArray[np.uint8]:
        array = np.asarray(frames)
        if array.dtype != self._dtype or array.shape[before:] != self._shape or array.ndim != before + len(self._shape):
            each = "frames" if before else "a frame"
            raise ValueError(f"{each} must be {self._shape} of {self._dtype}, not {array.shape} of {array.dtype}")
        whole = np.ascontiguousarray(array)
        rows = array.shape[:before]
        return whole.reshape(*rows, -1).view(np.uint8)
