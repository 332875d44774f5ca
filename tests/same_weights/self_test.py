"""Tests of the check itself: names are translated, and a difference of one bit or one score is found."""

import json
import struct
import tempfile
from dataclasses import replace
from pathlib import Path

from outcome import FILES, WEIGHTS, Outcome, Tensor, first_difference, read_outcome
from renames import Dialect, dialect_of, git

OLD = Dialect([
    {"--strategy": "--sampler", "--strategy=reaper": "--sampler=reliable", "--new": "", "train": "learn"},
    {"--sampler": "--draws", "final": "last", "scores": "returns", "hidden.bias": "middle.bias", "--capacity": "--size"},
])  # fmt: skip
SETTINGS = {"frames": 9, "batch_size": 4, "samples_per_insert": 4.0, "min_size": 8, "target_period_updates": 250}


def flags_are_translated_through_every_rename(_root: Path, _folder: Path) -> None:
    flags = ["--strategy=ver", "--strategy=reaper", "--new=1", "--new", "--seed=1", "--baselines"]
    assert OLD.flags(flags) == ["--draws=ver", "--draws=reliable", "--seed=1", "--baselines"]
    assert (OLD.word("train"), OLD.word("pong")) == ("learn", "pong")
    assert (OLD.key("capacity"), OLD.key("min_size")) == ("size", "min_size")
    assert Dialect().flags(flags) == flags


def a_rename_applies_to_commits_before_it(root: Path, _folder: Path) -> None:
    new, parent = git(root, "rev-list", "-2", "--first-parent", "HEAD").stdout.split()
    subject = git(root, "log", "-1", "--format=%s", new).stdout.strip()
    # An earlier commit may have the same subject, such as that of a regenerated page.
    is_unique = git(root, "log", "--format=%s", new).stdout.splitlines().count(subject) == 1
    for key in (new, subject) if is_unique else (new,):
        assert dialect_of(parent, root, {key: {"a": "b"}}).word("a") == "b"
        assert dialect_of(new, root, {key: {"a": "b"}}).word("a") == "a"


def write_run(run: Path, dialect: Dialect) -> None:
    """Writes a run's directory in the given dialect; its tensors are sorted by name, as safetensors sorts them."""
    checkpoint = run / "checkpoints" / dialect.word("final")
    checkpoint.mkdir(parents=True)
    settings = {**SETTINGS, "capacity": 100}
    (run / "config.toml").write_text("".join(f"{dialect.key(key)} = {value}\n" for key, value in settings.items()))
    rows = [{"frames": frames, "updates": 600, dialect.word("scores"): [1.5, 2.0]} for frames in (0, 5, 9)]
    (run / "evaluations.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    (run / "episodes.jsonl").write_text('{"frames":3,"score":1.0}\n{"frames":7,"score":2.0}\n')
    bias, weight = ({"dtype": "F32", "shape": [2], "data_offsets": at} for at in ([0, 8], [8, 16]))
    header = json.dumps({dialect.word("hidden.bias"): bias, "hidden.weight": weight}).encode()
    for file in FILES:
        (checkpoint / file).write_bytes(struct.pack("<Q", len(header)) + header + struct.pack("<4f", 1, 2, 3, 4))


def runs_of_two_dialects_match(_root: Path, folder: Path) -> None:
    write_run(folder / "old", OLD)
    write_run(folder / "new", Dialect())
    old, new = read_outcome(folder / "old", OLD), read_outcome(folder / "new", Dialect())
    assert list(new.tensors[WEIGHTS]) == ["hidden.weight", "hidden.bias"], "parameter order"
    assert first_difference(old, new) is None and old.weights_hash() == new.weights_hash()
    assert new.shortfalls() == [] and (new.transitions, new.target_copies, new.evaluations) == (607, 2, 1)


def one_bit_or_one_score_is_found(_root: Path, folder: Path) -> None:
    write_run(folder / "run", Dialect())
    before = read_outcome(folder / "run", Dialect())
    for file in FILES:
        path = folder / "run/checkpoints/final" / file
        content = path.read_bytes()
        path.write_bytes(content[:-1] + bytes([content[-1] ^ 0x80]))
        changed = first_difference(before, read_outcome(folder / "run", Dialect()))
        assert changed == f"{file}: hidden.weight[1]: 4.0 and -4.0", changed
        path.write_bytes(content)
    pair = "episode_scores[1] as (frames, score): (7, 2.0) and"
    for change, expected in (
        (replace(before, episode_scores=[(3, 1.0), (7, 2.5)]), f"{pair} (7, 2.5)"),
        (replace(before, episode_scores=[(3, 1.0)]), f"{pair} None"),
        (replace(before, tensors={**before.tensors, WEIGHTS: {}}), "weights.safetensors holds tensors"),
    ):
        assert (first_difference(before, change) or "").startswith(expected), first_difference(before, change)


def a_run_that_proves_too_little_is_refused(_root: Path, _folder: Path) -> None:
    tensors = {file: {"step": Tensor("I64", (), bytes(8))} for file in FILES}
    assert len(Outcome(8, 9, 499, 1, 100, 100, 0, tensors, [], []).shortfalls()) == 6


TESTS = (
    flags_are_translated_through_every_rename,
    a_rename_applies_to_commits_before_it,
    runs_of_two_dialects_match,
    one_bit_or_one_score_is_found,
    a_run_that_proves_too_little_is_refused,
)


def run(root: Path) -> int:
    """Runs every test and returns the exit code; a failed assertion ends it with a traceback."""
    for test in TESTS:
        with tempfile.TemporaryDirectory() as folder:
            test(root, Path(folder))
        print(f"ok  {test.__name__}")
    print(f"{len(TESTS)} passed, 0 failed")
    return 0
