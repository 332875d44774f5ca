"""Writes the steps of one environment."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from typing import Any, Optional, Union

import numpy as np
import numpy.typing as npt

from . import _core, checks


class Writer:
    """Writes the steps of one environment and the items that they complete. Created by `Client.writer`; for one thread.

    `write` writes a whole episode. Step by step, call `append` for each frame in which an action was taken, `end` for
    the last frame of an episode, and `item` whenever a transition is complete. The writer retries an unreachable shard
    forever and sends unacknowledged chunks again, which are stored once. Methods block while too many chunks are in
    flight; with `timeout` they raise `TimeoutError` after that many seconds.
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
        """Adds one step: the frame, the action taken in it, and the result of the action."""
        action = checks.count("action", action, 0)
        row = self._bytes(frame, 0)
        self._core.append(row, action, reward, log_probability, terminated, truncated, life_lost, timeout)

    def end(self, frame: npt.ArrayLike, timeout: Optional[float] = None) -> None:
        """Adds the last frame of an episode, in which no action was taken. The next step begins another episode."""
        self._core.end(self._bytes(frame, 0), timeout)

    def item(self, length: int = 1, priority: Optional[float] = None, table: Optional[str] = None) -> None:
        """Adds an item: the transition to the last frame from the state `length` steps before it.

        Without a `priority` it gets the largest priority that the table has seen. Add the items of a writer in the
        order of their first steps, over all tables.
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
        """Writes a whole episode: one more frame than actions and rewards. If it is not `terminated`, it is truncated.

        Adds one item per step to the first table or to the named tables. An item has `length` steps, or fewer at the
        end, and the step's entry of `priorities`. If the call is interrupted, nothing or a part of the episode is
        stored.
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
        """Drops the open episode and all other unsent steps. The next step begins another episode."""
        self._core.abandon()

    def flush(self, timeout: Optional[float] = None) -> None:
        """Sends all steps and waits until the shard has acknowledged them."""
        self._core.flush(timeout)

    @property
    def waiting_for(self) -> Optional[str]:
        """What the writer is blocked on; None if it is not blocked."""
        return self._core.waiting_for

    def close(self, timeout: Optional[float] = None) -> None:
        """Flushes and closes the writer."""
        self._core.close(timeout)

    def __del__(self) -> None:
        core = getattr(self, "_core", None)
        if core is not None and core.unsent:
            warnings.warn(f"a writer was not closed: {core.unsent} steps are lost", ResourceWarning, stacklevel=2)

    def __enter__(self) -> Writer:
        return self

    def __exit__(self, kind: object, *_: object) -> None:
        # After an exception, do not wait for the shard in addition.
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
