"""Runs commands of other programs, captures their output, and names them when they fail."""

import os
import subprocess
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
TARGET = Path(os.environ.get("CARGO_TARGET_DIR") or ROOT / "target")
# Kept between runs: downloads and the base image. The engine's data is deleted.
WORK = TARGET / "compose"
STARTED = float(os.environ.setdefault("TEST_STARTED", str(time.monotonic())))


def say(text):
    print(f"[{time.monotonic() - STARTED:6.1f} s] {text}", flush=True)


def run(*command, env=None, cwd=ROOT, check=True, quiet=False):
    """Runs a command to its end and returns its standard output."""
    words = [str(word) for word in command]
    done = subprocess.run(words, env={**os.environ, **(env or {})}, cwd=cwd, text=True, capture_output=True)
    if check and done.returncode:
        raise SystemExit(f"failed with {done.returncode}: {' '.join(words)}\n{done.stdout[-4000:]}\n{done.stderr[-4000:]}")
    if not check and done.returncode and not quiet:
        say(f"{' '.join(words)} exited {done.returncode}: {done.stderr.strip()[-400:]}")
    return done.stdout if check else done


def until(what, answer, patience=240.0):
    """Waits until `answer()` is truthy, and returns it. `what` is the claim that failed on a timeout."""
    begun = time.monotonic()
    while True:
        found = answer()
        if found:
            say(f"{what} (after {time.monotonic() - begun:.0f} s)")
            return found
        if time.monotonic() - begun > patience:
            raise AssertionError(f"timed out after {patience:.0f} s: {what}")
        time.sleep(1)
