"""Reads the results of a finished run from its directory, and finds the first difference between two of them."""

import hashlib
import json
import struct
import tomllib
from dataclasses import dataclass
from itertools import zip_longest
from pathlib import Path
from typing import Any

from renames import Dialect

# Parameters bottom up; files of 0.1.0 sort them by name. See crates/agents/src/architecture.rs, and adam.rs for the
# optimizer.
LAYERS = ("conv0", "conv1", "conv2", "hidden0", "hidden", "advantage", "value_hidden", "value")
TENSORS = [f"{layer}.{part}" for layer in LAYERS for part in ("weight", "bias")] + ["first", "second", "step"]
WEIGHTS = "weights.safetensors"
FILES = (WEIGHTS, "target.safetensors", "optimiser.safetensors")
FORMATS = {"F32": "<f", "F64": "<d", "I64": "<q"}

UPDATES_MIN = 500
COPIES_MIN = 2

Pair = tuple[int, float]


class RunError(Exception):
    """A run failed or its directory lacks something."""


@dataclass(frozen=True)
class Tensor:
    dtype: str
    shape: tuple[int, ...]
    data: bytes


@dataclass(frozen=True)
class Outcome:
    frames: int
    frames_wanted: int
    updates: int
    target_copies: int
    transitions: int
    capacity: int
    evaluations: int
    """Evaluations during training: not those before the first and after the last frame."""
    tensors: dict[str, dict[str, Tensor]]
    """By file, then by today's name, in parameter order."""
    evaluation_scores: list[Pair]
    episode_scores: list[Pair]

    def weights_hash(self) -> str:
        joined = b"".join(tensor.data for tensor in self.tensors[WEIGHTS].values())
        return hashlib.sha256(joined).hexdigest()[:12]

    def shortfalls(self) -> list[str]:
        """Why the run is too short to prove anything."""
        claims = {
            f"ended at frame {self.frames} of {self.frames_wanted}": self.frames >= self.frames_wanted,
            f"{self.updates} updates are fewer than {UPDATES_MIN}": self.updates >= UPDATES_MIN,
            f"{self.target_copies} target copies are fewer than {COPIES_MIN}": self.target_copies >= COPIES_MIN,
            f"{self.transitions} transitions fit into capacity {self.capacity}": self.transitions > self.capacity,
            "no evaluation during training": self.evaluations >= 1,
            "no training episode ended": len(self.episode_scores) >= 1,
        }
        return [shortfall for shortfall, holds in claims.items() if not holds]


def read_outcome(run: Path, dialect: Dialect) -> Outcome:
    """Reads the directory of a finished run whose names are those of `dialect`."""
    try:
        config = tomllib.loads((run / dialect.word("config.toml")).read_text())
        settings = {key: config[dialect.key(key)] for key in
                    ("frames", "batch_size", "samples_per_insert", "min_size", "capacity", "target_period_updates")}
        evaluations = _records(run, "evaluations.jsonl", ("frames", "updates", "scores"), dialect)
        episodes = _records(run, "episodes.jsonl", ("frames", "score"), dialect)
        checkpoint = _last_checkpoint(run / dialect.word("checkpoints"), dialect)
        tensors = {file: _in_order(read_safetensors(checkpoint / dialect.word(file)), dialect) for file in FILES}
        frames, updates = evaluations[-1]["frames"], evaluations[-1]["updates"]
    except (OSError, KeyError, IndexError, ValueError, struct.error) as error:
        raise RunError(f"can't read the run in {run.name}: {error!r}") from error
    return Outcome(
        frames=frames,
        frames_wanted=settings["frames"],
        updates=updates,
        target_copies=updates // settings["target_period_updates"],
        transitions=_transitions(updates, settings),
        capacity=settings["capacity"],
        evaluations=sum(0 < evaluation["frames"] < frames for evaluation in evaluations),
        tensors=tensors,
        evaluation_scores=[(each["frames"], score) for each in evaluations for score in each["scores"]],
        episode_scores=[(each["frames"], each["score"]) for each in episodes],
    )


def _transitions(updates: int, settings: dict[str, Any]) -> int:
    """The least number of inserts after which the rate limiter (crates/coordinator/src/rate.rs) allows so many updates."""
    batch, ratio = settings["batch_size"], settings["samples_per_insert"]
    slack = (ratio + batch) / 2
    return int(settings["min_size"] + max(0.0, updates * batch - slack) / ratio)


def _records(run: Path, file: str, fields: tuple[str, ...], dialect: Dialect) -> list[dict[str, Any]]:
    lines = (run / dialect.word(file)).read_text().splitlines()
    return [{field: row[dialect.word(field)] for field in fields} for row in map(json.loads, lines)]


def numbered_checkpoints(folder: Path) -> list[int]:
    """Frames of the numbered checkpoints that are complete, oldest first."""
    return sorted(int(path.name) for path in folder.glob("*") if path.name.isdecimal())


def _last_checkpoint(folder: Path, dialect: Dialect) -> Path:
    final = folder / dialect.word("final")
    return final if final.is_dir() else folder / str(numbered_checkpoints(folder)[-1])


def read_safetensors(path: Path) -> dict[str, Tensor]:
    """Parses a file: the header's length in 8 bytes, the header as JSON, then the tensors' bytes."""
    content = path.read_bytes()
    start = 8 + struct.unpack_from("<Q", content)[0]
    header = json.loads(content[8:start])
    header.pop("__metadata__", None)

    def tensor(entry: dict[str, Any]) -> Tensor:
        first, last = entry["data_offsets"]
        return Tensor(entry["dtype"], tuple(entry["shape"]), content[start + first : start + last])

    return {name: tensor(entry) for name, entry in header.items()}


def _in_order(tensors: dict[str, Tensor], dialect: Dialect) -> dict[str, Tensor]:
    """The same tensors under today's names in parameter order; unknown ones follow."""
    todays = {dialect.word(name): name for name in TENSORS}
    named = {todays.get(name, name): tensor for name, tensor in tensors.items()}
    rank = {name: index for index, name in enumerate(TENSORS)}
    return {name: named[name] for name in sorted(named, key=lambda name: (rank.get(name, len(rank)), name))}


def first_difference(left: Outcome, right: Outcome) -> str | None:
    """Describes the first difference between two runs, or returns None if they match."""
    if left.updates != right.updates:
        return f"updates: {left.updates} and {right.updates}"
    for what in ("evaluation_scores", "episode_scores"):
        for index, (one, other) in enumerate(zip_longest(getattr(left, what), getattr(right, what))):
            if one != other:
                return f"{what}[{index}] as (frames, score): {one} and {other}"
    for file in FILES:
        ours, theirs = left.tensors[file], right.tensors[file]
        if list(ours) != list(theirs):
            return f"{file} holds tensors {list(ours)} and {list(theirs)}"
        for name in ours:
            if difference := _tensor_difference(ours[name], theirs[name]):
                return f"{file}: {name}{difference}"
    return None


def _tensor_difference(left: Tensor, right: Tensor) -> str | None:
    if left == right:
        return None
    if (left.dtype, left.shape) != (right.dtype, right.shape):
        return f" is {left.dtype}{list(left.shape)} and {right.dtype}{list(right.shape)}"
    number = FORMATS.get(left.dtype, "<B")
    size = struct.calcsize(number)
    differing = (at for at, (one, other) in enumerate(zip(left.data, right.data)) if one != other)
    index = next(differing) // size
    one, other = (struct.unpack_from(number, tensor.data, index * size)[0] for tensor in (left, right))
    return f"[{index}]: {one!r} and {other!r}"
