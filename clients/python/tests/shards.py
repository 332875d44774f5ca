"""Real shards for tests."""

from __future__ import annotations

import os
import pathlib
import subprocess
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parents[3]
SERVER = os.environ.get("QUIVER_REPLAY_SERVER", str(ROOT / "target/release/quiver-replay-server"))


class Shard:
    """A shard process that listens on a socket in its own directory."""

    def __init__(self, *flags: str) -> None:
        self._directory = tempfile.TemporaryDirectory(prefix="quiver-python-")
        self.directory = pathlib.Path(self._directory.name)
        self.address = f"unix:{self.directory}/s"
        self._flags = flags
        self.start()

    def start(self) -> None:
        log = open(self.directory / "log", "ab")
        arguments = [SERVER, "--listen", self.address, "--exit-with-parent", *self._flags]
        self._process = subprocess.Popen(arguments, stdin=subprocess.PIPE, stdout=log, stderr=log)
        log.close()

    def kill(self) -> None:
        """Kills the process, like a crash."""
        self._process.kill()
        self._process.wait()
        assert self._process.stdin is not None
        self._process.stdin.close()

    def close(self) -> None:
        self.kill()
        self._directory.cleanup()

    def __enter__(self) -> Shard:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def until(what: str, condition: object) -> None:
    """Waits, with a bound that only a hang reaches."""
    assert callable(condition)
    for _ in range(6000):
        if condition():
            return
        time.sleep(0.01)
    raise AssertionError(f"gave up waiting: {what}")
