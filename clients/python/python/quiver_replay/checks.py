"""Validates and converts arguments. Every error names the argument."""

from __future__ import annotations

import operator
from typing import Any, Optional

import numpy as np
import numpy.typing as npt


def count(what: str, value: Any, least: int, most: int = 2**63 - 1) -> int:
    """An integer within a range."""
    try:
        number = operator.index(value)
    except TypeError:
        raise ValueError(f"{what} must be a whole number, not {value!r}") from None
    if not least <= number <= most:
        raise ValueError(f"{what} is {number}, must be {least} to {most}")
    return number


def optional_count(what: str, value: Any, least: int, most: int = 2**63 - 1) -> Optional[int]:
    return None if value is None else count(what, value, least, most)


def column(what: str, values: npt.ArrayLike, dtype: npt.DTypeLike) -> npt.NDArray[Any]:
    """A one-dimensional array: one number per item or step."""
    array = np.asarray(values)
    if array.ndim != 1:
        raise ValueError(f"{what} must have one dimension, not shape {array.shape}")
    if array.size and array.dtype.kind not in "biuf":
        raise ValueError(f"{what} must be numbers, not {array.dtype}")
    made = np.ascontiguousarray(array, dtype)
    if made.dtype.kind == "i" and array.dtype.kind == "f" and not (made == array).all():
        raise ValueError(f"{what} must be whole numbers")
    return made


def keys(values: npt.ArrayLike) -> npt.NDArray[np.uint64]:
    """Keys in the format of `Batch.keys`: one row of three numbers per item."""
    array = np.asarray(values)
    if array.size == 0:
        return np.empty((0, 3), np.uint64)
    if array.ndim != 2 or array.shape[1] != 3 or array.dtype != np.uint64:
        raise ValueError(f"keys must be (items, 3) of uint64, as in batch.keys, not {array.shape} of {array.dtype}")
    return np.ascontiguousarray(array)
