"""Names that differ between today's build and BASE.

The rest of the check uses today's names only. A `Dialect` translates them for BASE."""

import os
import subprocess
from collections.abc import Iterable
from pathlib import Path

# Each entry belongs to one commit and maps today's name to the older name, newest commit first. The key is the commit's
# hash or, because a commit can't contain its own hash, its subject. An entry applies if BASE's history lacks the commit.
#
#   "Name the replay's sampler after what it does": {
#       "--strategy": "--sampler",                   a flag, and with it the key of config.toml
#       "--strategy=reaper": "--sampler=reliable",   one value of a flag (the longer match wins)
#       "--new-flag": "",                            BASE has no such flag: leave it out
#       "train": "learn",                            a subcommand, game, preset, package or binary
#       "final": "last",                             a file or directory of a run
#       "scores": "returns",                         a field of a .jsonl file
#       "advantage.weight": "head.weight",           a tensor
#   },
RENAMES: dict[str, dict[str, str]] = {
    "Take the maximum of two frames before gray": {"--frame-maximum": ""},
}


class Dialect:
    """The names of one build."""

    def __init__(self, renames: Iterable[dict[str, str]] = ()) -> None:
        self.renames = list(renames)

    def word(self, name: str) -> str:
        """Translates a name that is not a flag."""
        for renames in self.renames:
            name = renames.get(name, name)
        return name

    def flags(self, flags: Iterable[str]) -> list[str]:
        """Translates flags of the form --name or --name=value."""
        return [flag for flag in map(self._flag, flags) if flag]

    def key(self, setting: str) -> str:
        """Translates a key of config.toml; it follows its flag."""
        flag = self._flag("--" + setting.replace("_", "-"))
        return flag.removeprefix("--").replace("-", "_")

    def _flag(self, flag: str) -> str:
        for renames in self.renames:
            name, equals, value = flag.partition("=")
            shorter = renames.get(name, name)
            flag = renames.get(flag, shorter and shorter + equals + value)
        return flag


def dialect_of(commit: str, root: Path, renames: dict[str, dict[str, str]] | None = None) -> Dialect:
    """The dialect of the build of `commit`."""
    table = RENAMES if renames is None else renames
    return Dialect(names for key, names in table.items() if not contains(commit, key, root))


def contains(commit: str, key: str, root: Path) -> bool:
    """Whether the history of `commit` has the commit `key`, a hash or a subject."""
    if " " in key:
        return key in git(root, "log", "--format=%s", commit).stdout.splitlines()
    return git(root, "merge-base", "--is-ancestor", key, commit, allowed=(0, 1)).returncode == 0


def git(folder: Path, *words: str, allowed: tuple[int, ...] = (0,)) -> subprocess.CompletedProcess[str]:
    """Runs git in `folder`. Other exit codes than the `allowed` ones end the check."""
    # Inside a hook GIT_DIR names a repository and would override `folder`.
    env = {name: value for name, value in os.environ.items() if not name.startswith("GIT_")}
    done = subprocess.run(["git", "-C", str(folder), *words], env=env, text=True, capture_output=True)
    if done.returncode not in allowed:
        raise SystemExit(f"error: git {' '.join(words)}: {done.stderr.strip()}")
    return done
