#!/usr/bin/env python3
"""Proves that a refactoring changes no behaviour: `make same-weights BASE=<commit>`.

The check builds BASE in its own worktree, trains BASE's build and today's build in lockstep with the same settings,
and compares weights, target network, optimizer and scores bit for bit. Names that changed since BASE go into renames.py."""

import argparse
import fcntl
import os
import shutil
import subprocess
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path

import self_test
from outcome import Outcome, RunError, first_difference, numbered_checkpoints, read_outcome
from renames import Dialect, contains, dialect_of, git

ROOT = Path(__file__).resolve().parents[2]
WORK = ROOT / "target/same-weights"
WORKTREE, TARGET, RUNS, LOG = WORK / "base", WORK / "build", WORK / "runs", WORK / "build.log"
PACKAGES = ("quiver", "quiver-lockstep")
RUN_SECONDS_MAX = 1_800
STARTED = time.monotonic()

# Short enough that all cases take minutes, and long enough for `Outcome.shortfalls`.
CARTPOLE = {
    "frames": 3_000, "min_size": 500, "random_steps": 500, "capacity": 1_000, "target_period_updates": 200,
    "evaluate_every_frames": 1_000, "evaluate_episodes": 5, "evaluate_final_episodes": 10, "checkpoint_every_frames": 1_500,
    # The preset's own value changed after version 0.1.
    "epsilon_decay_steps": 250_000,
}  # fmt: skip
# An update takes 4 transitions, a transition 4 frames; the time limit makes episodes and evaluations end soon.
ATARI = {
    "frames": 11_200, "min_size": 400, "random_steps": 400, "capacity": 1_000, "target_period_updates": 200,
    "evaluate_every_frames": 4_000, "evaluate_episodes": 2, "evaluate_final_episodes": 2, "time_limit_frames": 1_000,
    "checkpoint_every_frames": 8_000,
    # Preset paper-atari's own values changed after version 0.1.
    "frame_maximum": "gray", "initial_priority": "computed", "importance_anneal_updates": 0,
}  # fmt: skip

# What preset authors-atari changes, with an importance exponent that reaches its final value.
AUTHORS = {"rho": "old-unit-temperature", "initial_priority": "largest", "first_priority": 0.1, "priority_exponent": 0.6,
           "importance_exponent": 0.4, "importance_anneal_updates": 1_000}  # fmt: skip


@dataclass(frozen=True)
class Case:
    name: str
    game: str
    preset: str
    settings: dict[str, object] = field(default_factory=dict)
    is_killed: bool = False
    """Kill the run after its first checkpoint, resume it, and also compare it with a run that was not killed."""
    since: str = ""
    """Subject of the commit that last changed what this case learns; it is left out if BASE is older."""

    def flags(self) -> list[str]:
        always = {"preset": self.preset, "lockstep": "true", "device": "cpu", "torch_threads": 1, "baselines": "false"}
        settings = {**always, **(CARTPOLE if self.game == "cartpole" else ATARI), **self.settings}
        return [f"--{key.replace('_', '-')}={value}" for key, value in settings.items()]


CASES = [
    *(Case(f"cartpole-{name}", "cartpole", "cartpole", {"strategy": name}) for name in ("uniform", "per", "ver", "reaper")),
    Case("cartpole-dqn-per", "cartpole", "cartpole", {"algorithm": "dqn", "strategy": "per"}),
    Case("cartpole-dqn-dueling", "cartpole", "cartpole", {"algorithm": "dqn", "strategy": "per", "dueling": "true"},
         since="Give dueling's streams their own hidden layers"),
    Case("cartpole-ver-authors", "cartpole", "cartpole", {"strategy": "ver", **AUTHORS}),
    # At the checkpoint of frame 1,500 the replay has evicted transitions and the target network has been copied.
    Case("cartpole-killed", "cartpole", "cartpole", {"strategy": "ver", "frames": 4_000}, is_killed=True),
    *(Case(f"{game}-{preset}", game, preset) for game in ("pong", "breakout") for preset in ("quick", "paper-atari")),
]


@dataclass(frozen=True)
class Build:
    name: str
    binaries: Path
    dialect: Dialect
    extra_flags: tuple[str, ...] = ()


@dataclass(frozen=True)
class Row:
    """A line of the table: two runs and the result of their comparison."""

    name: str
    seconds: float
    problem: str | None
    left: Outcome | None = None
    right: Outcome | None = None

    def cells(self) -> list[str]:
        left, right = self.left, self.right
        result, seconds = "FAILED" if self.problem else "same", f"{self.seconds:.0f}"
        if left is None or right is None:
            return [self.name, *["-"] * 6, result, seconds]
        counts = [right.updates, right.target_copies, f"{right.transitions} > {right.capacity}", right.evaluations]
        return [self.name, *map(str, counts), left.weights_hash(), right.weights_hash(), result, seconds]


def report(text: str) -> None:
    print(f"[{time.monotonic() - STARTED:6.1f} s] {text}", flush=True)


def check_out(base: str) -> str:
    """Checks out BASE in the worktree and returns its hash."""
    found = git(ROOT, "rev-parse", "--verify", "--quiet", f"{base}^{{commit}}", allowed=(0, 1, 128))
    commit = found.stdout.strip()
    if found.returncode:
        raise SystemExit(f"error: unknown commit '{base}': give BASE a commit of this repository, such as HEAD~1")
    # Without its .git file the directory would belong to the main checkout, which must not be switched to BASE.
    if not (WORKTREE / ".git").is_file():
        shutil.rmtree(WORKTREE, ignore_errors=True)
        git(ROOT, "worktree", "add", "--force", "--detach", str(WORKTREE), commit)
    git(WORKTREE, "checkout", "--force", "--detach", commit)
    return commit


def comparable(cases: list[Case], commit: str) -> list[Case]:
    """The cases that learn the same in BASE; reports the others."""
    older = [case for case in cases if case.since and not contains(commit, case.since, ROOT)]
    for case in older:
        report(f"leaving out {case.name}: BASE is older than '{case.since}'")
    if len(older) == len(cases):
        raise SystemExit("error: no case is left: give BASE a newer commit, or --only another case")
    return [case for case in cases if case not in older]


def build(commit: str, dialect: Dialect) -> Path:
    """Builds the worktree and returns the directory of its binaries."""
    deps = {"LIBTORCH": ROOT / ".deps/libtorch/torch", "QUIVER_ALE_SOURCE": ROOT / ".deps/ale"}
    env = {**os.environ, "CARGO_TARGET_DIR": str(TARGET), **{name: str(path) for name, path in deps.items()}}
    packages = [word for package in PACKAGES for word in ("-p", dialect.word(package))]
    report(f"building BASE {commit[:10]} (4 to 8 minutes the first time), log in {LOG.relative_to(ROOT)}")
    with LOG.open("wb") as log:
        command = ["cargo", "build", "--release", "--locked", *packages]
        cargo = subprocess.Popen(command, cwd=WORKTREE, env=env, stdin=subprocess.DEVNULL, stdout=log, stderr=log)
        while (code := wait(cargo, 30)) is None:
            report(f"building BASE: {tail(LOG, 1)}")
    if code:
        raise SystemExit(f"error: BASE does not build:\n{tail(LOG, 20)}")
    return TARGET / "release"


def wait(process: subprocess.Popen[bytes], seconds: float) -> int | None:
    try:
        return process.wait(seconds)
    except subprocess.TimeoutExpired:
        return None


def tail(path: Path, lines: int) -> str:
    return "\n".join(path.read_text(errors="replace").splitlines()[-lines:]).strip()


def check_binaries(build: Build) -> None:
    for package in PACKAGES:
        if not (build.binaries / build.dialect.word(package)).is_file():
            raise SystemExit(f"error: no {package} in {build.binaries}: run `make build`")


def quiver(build: Build, words: list[str], log: Path) -> subprocess.Popen[bytes]:
    """Starts `quiver`; the process becomes `quiver-lockstep`, so its id stays the same."""
    # Settings from the caller's environment would change the run.
    env = {name: value for name, value in os.environ.items() if not name.startswith("QUIVER_") or name == "QUIVER_ROMS"}
    env |= {"OMP_NUM_THREADS": "1", "OMP_WAIT_POLICY": "passive"}
    program = str(build.binaries / build.dialect.word("quiver"))
    with log.open("ab") as out:
        return subprocess.Popen([program, *words], env=env, cwd=WORK, stdin=subprocess.DEVNULL, stdout=out, stderr=out)


def start(build: Build, case: Case, run: Path) -> subprocess.Popen[bytes]:
    dialect = build.dialect
    flags = dialect.flags([f"--run-dir={run}", *case.flags(), *build.extra_flags])
    return quiver(build, [dialect.word("train"), dialect.word(case.game), *flags], run.with_suffix(".log"))


def finish(process: subprocess.Popen[bytes], build: Build, run: Path) -> Outcome:
    """Waits for the end of a run and reads its files."""
    code = wait(process, RUN_SECONDS_MAX)
    if code is None:
        process.kill()
        raise RunError(f"{run.name} did not end within {RUN_SECONDS_MAX} s")
    if code:
        raise RunError(f"{run.name} ended with code {code}:\n{tail(run.with_suffix('.log'), 10)}")
    return read_outcome(run, build.dialect)


def train(build: Build, case: Case, run: Path) -> Outcome:
    return finish(start(build, case, run), build, run)


def train_with_kill(build: Build, case: Case, run: Path) -> Outcome:
    """Trains with a SIGKILL after the first checkpoint, then resumes."""
    process = start(build, case, run)
    checkpoints = run / build.dialect.word("checkpoints")
    while process.poll() is None and not numbered_checkpoints(checkpoints):
        time.sleep(0.005)
    process.kill()
    process.wait()
    frames = int(str(case.settings.get("frames", CARTPOLE["frames"])))
    written = numbered_checkpoints(checkpoints)
    if not written or written[-1] > frames / 2:
        raise RunError(f"{run.name} was not killed in its first half: checkpoints {written} of {frames} frames")
    flags = build.dialect.flags([f"--resume={run}"])
    return finish(quiver(build, [build.dialect.word("train"), *flags], run.with_suffix(".log")), build, run)


def compare(name: str, seconds: float, runs: dict[str, Outcome]) -> Row:
    """Compares two runs, given by their labels."""
    left, right = runs.values()
    problems = [f"{label} proves too little: {what}" for label, run in runs.items() for what in run.shortfalls()]
    if difference := first_difference(left, right):
        problems.insert(0, f"first difference ({' and '.join(runs)}): {difference}")
    return Row(name, seconds, "; ".join(problems) or None, left, right)


def run_case(case: Case, base: Build, today: Build) -> list[Row]:
    """Trains both builds side by side and compares them."""
    folder = RUNS / case.name
    folder.mkdir(parents=True)
    run = train_with_kill if case.is_killed else train
    begun = time.monotonic()
    try:
        with ThreadPoolExecutor(2) as pool:
            left, right = pool.map(lambda build: run(build, case, folder / build.name), (base, today))
        rows = [compare(case.name, time.monotonic() - begun, {"BASE": left, "today": right})]
        if case.is_killed:
            begun = time.monotonic()
            whole = train(today, case, folder / "uninterrupted")
            runs = {"uninterrupted": whole, "killed": right}
            rows.append(compare(f"{case.name}-or-not", time.monotonic() - begun, runs))
        return rows
    except RunError as error:
        return [Row(case.name, time.monotonic() - begun, str(error))]


def run_cases(cases: list[Case], base: Build, today: Build, keep: bool) -> list[Row]:
    rows: list[Row] = []
    for number, case in enumerate(cases, 1):
        report(f"{number}/{len(cases)} {case.name}: training BASE's and today's build")
        finished = run_case(case, base, today)
        for row in finished:
            report(f"    {row.name}: {'FAILED: ' + row.problem if row.problem else 'same'}")
        if any(row.problem for row in finished):
            report(f"    its runs are in {(RUNS / case.name).relative_to(ROOT)}")
        elif not keep:
            shutil.rmtree(RUNS / case.name)
        rows += finished
    return rows


def print_table(rows: list[Row]) -> None:
    titles = ["case", "updates", "target copies", "transitions", "evaluations", "BASE", "today", "result", "seconds"]
    table = [titles, *(row.cells() for row in rows)]
    widths = [max(map(len, column)) for column in zip(*table)]
    for cells in table:
        print("  ".join(cell.ljust(width) for cell, width in zip(cells, widths)).rstrip())
    if any(row.name.endswith("-or-not") for row in rows):
        print("-or-not: today's build without the kill (under BASE) and with it (under today)")


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--base", metavar="COMMIT", help="the commit to compare with")
    parser.add_argument("--only", metavar="SUBSTRING", default="", help="run only the cases whose name contains this")
    parser.add_argument("--keep", action="store_true", help="keep the run directories, not only those of failed cases")
    parser.add_argument("--today", metavar="DIR", type=Path, default=ROOT / "target/release", help="today's binaries")
    parser.add_argument("--self-test", action="store_true", help="test the check itself; nothing is built or trained")
    # Shows that the check can fail: --today-flag=--seed=1 gives today's runs another seed.
    parser.add_argument("--today-flag", action="append", default=[], help=argparse.SUPPRESS)
    options = parser.parse_args()
    if not options.self_test and not options.base:
        parser.error("--base is missing: give the commit to compare with, such as BASE=HEAD~1")
    return options


def main() -> int:
    options = arguments()
    if options.self_test:
        return self_test.run(ROOT)
    cases = [case for case in CASES if options.only in case.name]
    if not cases:
        raise SystemExit(f"error: no case contains '{options.only}'; the cases are {', '.join(case.name for case in CASES)}")
    today = Build("today", options.today.resolve(), Dialect(), tuple(options.today_flag))
    check_binaries(today)
    WORK.mkdir(parents=True, exist_ok=True)
    with (WORK / "lock").open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise SystemExit("error: another same-weights check is in progress: wait for its end") from None
        commit = check_out(options.base)
        cases = comparable(cases, commit)
        dialect = dialect_of(commit, ROOT)
        base = Build("base", build(commit, dialect), dialect)
        check_binaries(base)
        shutil.rmtree(RUNS, ignore_errors=True)
        rows = run_cases(cases, base, today, options.keep)
    print_table(rows)
    failed = sum(row.problem is not None for row in rows)
    print(f"{len(rows) - failed} passed, {failed} failed")
    return 1 if failed else 0


if __name__ == "__main__":
    raise SystemExit(main())
