"""Measures dm-reverb as a replay service and prints one JSON object; README.md explains its keys.

The server and each group of writers are separate processes; the sampler is this process. All of them
run this file. A step is one frame with its action and reward; each step makes one item over the last five
frames, with its own priority.
"""

from __future__ import annotations

import argparse
import contextlib
import ctypes
import itertools
import json
import os
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any, TypeVar

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
os.environ.setdefault("CUDA_VISIBLE_DEVICES", "")

import numpy as np
import reverb
import tensorflow as tf

from common import log, lowest, summary

SIDE = 84
FRAMES = 5
MIXED = "mixed"
SEGMENT = 500
WARM_UP = 128
FIRST_ITEMS = WARM_UP - FRAMES + 1
BLOCK = 16
PENDING = 2_000
MAX_SIZE = 10_000_000
ALPHA = 0.6
BATCHES = (32, 512)
LATENCY_BATCH = 32
FINALISTS = 3
SMALL_CHUNK = 20
PR_SET_PDEATHSIG = 1
TICKS = os.sysconf("SC_CLK_TCK")

Step = dict[str, Any]
Json = dict[str, Any]
Way = TypeVar("Way")
Times = Callable[[int, str, float], list[float]]


@dataclass(frozen=True)
class Writing:
    """A way to write: the kind of reverb writer and its chunks.

    `trajectory` is `TrajectoryWriter`; a chunk of None is its auto-tuned chunker, which makes chunks of at
    most `keep` steps. `sequence` is the older `Writer`, with or without delta encoding; its items hold all
    columns of all five steps. `structured` is `StructuredWriter`. It takes no priority with an item: a
    configuration has either a constant or `td_error`, which reverb computes as w * max|x| + (1 - w) * mean|x|
    of a column x over the steps of the item. With a column that holds the priority and of which the item has
    only the last step, that is exactly one priority per item, so it does qualify, at the cost of that column.
    Its chunks can't be set.
    """

    kind: str
    chunk: int | None = None
    keep: int = FRAMES
    delta: bool = False

    @property
    def name(self) -> str:
        """A short name for the report."""
        if self.kind == "structured":
            return self.kind
        chunk = f"auto{self.keep}" if self.chunk is None else str(self.chunk)
        return f"{self.kind}-{chunk}{'-delta' if self.delta else ''}"


WRITINGS = [
    Writing("trajectory"),
    Writing("trajectory", keep=50),
    *(Writing("trajectory", chunk=n, keep=n) for n in (5, 10, 20, 50, 100)),
    *(Writing("sequence", chunk=n, keep=n, delta=d) for n in (5, 10, 20, 50, 100) for d in (False, True)),
    Writing("structured"),
]
# Not measured with long chunks: a sample transfers whole chunks.
SAMPLED = ("trajectory-auto5", "trajectory-5", "trajectory-10", "sequence-5", "structured")
QUICK = (
    "trajectory-auto5", "trajectory-10", "trajectory-20", "sequence-20", "sequence-100-delta", "structured")
KINDS = ("trajectory", "sequence", "structured")


@dataclass(frozen=True)
class Crew:
    """The number of writers: processes, and threads in each."""

    processes: int
    threads: int

    @property
    def name(self) -> str:
        """A short name for the report."""
        return f"{self.processes} process(es) of {self.threads} thread(s)"


CREWS = {1: [Crew(1, 1)], 4: [Crew(4, 1), Crew(2, 2), Crew(1, 4)]}


@dataclass(frozen=True)
class Reading:
    """A way to sample through `TrajectoryDataset` and to send priorities back."""

    workers: int
    in_flight: int
    prefetch: int
    tf_update: bool

    @property
    def name(self) -> str:
        """A short name for the report."""
        update = "TFClient.update_priorities" if self.tf_update else "Client.mutate_priorities"
        return f"workers={self.workers} in_flight={self.in_flight} prefetch={self.prefetch} {update}"


# The server's process.


def signature(kind: str) -> dict[str, tf.TensorSpec]:
    """The shape of an item as a kind of writer makes it."""
    scalars = FRAMES if kind == "sequence" else 1
    spec = {
        "frame": tf.TensorSpec([FRAMES, SIDE, SIDE], tf.uint8),
        "action": tf.TensorSpec([scalars], tf.int32),
        "reward": tf.TensorSpec([scalars], tf.float32),
    }
    if kind == "structured":
        spec["priority"] = tf.TensorSpec([1], tf.float32)
    return spec


def serve() -> None:
    """Runs a server with empty tables, prints its port and serves until standard input closes."""
    tables = [
        reverb.Table(
            name=kind,
            sampler=reverb.selectors.Prioritized(ALPHA),
            remover=reverb.selectors.Fifo(),
            max_size=MAX_SIZE,
            rate_limiter=reverb.rate_limiters.MinSize(1),
            signature=signature(kind),
        )
        for kind in KINDS
    ]
    server = reverb.Server(tables=tables)
    print(json.dumps({"port": server.port}), flush=True)
    sys.stdin.read()
    server.stop()


# A writer's process.


def load(frames: Path, game: str) -> np.ndarray:
    """The frames of one game."""
    return np.fromfile(frames / f"{game}.raw", np.uint8).reshape(-1, SIDE, SIDE)


def play(frames: Path, games: Sequence[str], offset: int) -> Iterator[Step]:
    """An endless stream of steps: a segment of each game in turn, beginning with the game number `offset`.

    All steps are prepared in advance, so that a writer spends its time in reverb.
    """
    rng = np.random.default_rng(offset)
    rotated = [games[(offset + i) % len(games)] for i in range(len(games))]
    columns = [load(frames, game) for game in rotated]
    segments = min(len(column) for column in columns) // SEGMENT
    steps: list[Step] = []
    for segment in range(segments):
        for column in columns:
            for frame in column[segment * SEGMENT:(segment + 1) * SEGMENT]:
                steps.append({
                    "frame": frame,
                    "action": np.int32(rng.integers(18)),
                    "reward": np.float32(rng.integers(-1, 2)),
                    "priority": np.float32(rng.uniform(0.01, 1.0)),
                })
    return itertools.cycle(steps)


@dataclass
class Writer:
    """A writer of any kind: write a step with its item, wait for all items, wait until few are in flight."""

    step: Callable[[Step], None]
    flush: Callable[[], None]
    wait_until: Callable[[int], None]


def open_trajectory(client: reverb.Client, table: str, writing: Writing) -> Writer:
    """A `TrajectoryWriter`; the first four steps make no item."""
    writer = client.trajectory_writer(num_keep_alive_refs=writing.keep, validate_items=False)
    for column in signature("trajectory") if writing.chunk else ():
        writer.configure((column,), num_keep_alive_refs=writing.keep, max_chunk_length=writing.chunk)

    def step(data: Step) -> None:
        writer.append({"frame": data["frame"], "action": data["action"], "reward": data["reward"]})
        if writer.episode_steps < FRAMES:
            return
        history = writer.history
        writer.create_item(table, float(data["priority"]), {
            "frame": history["frame"][-FRAMES:],
            "action": history["action"][-1:],
            "reward": history["reward"][-1:],
        })

    return Writer(step, writer.flush, lambda pending: writer.flush(block_until_num_items=pending))


def open_sequence(client: reverb.Client, table: str, writing: Writing) -> Writer:
    """The older `Writer`, which limits the items in flight by itself.

    Its buffer is longer than an item: with one of just five steps, the items after a flush in the middle of a
    chunk point outside of their chunks and can't be sampled.
    """
    assert writing.chunk is not None
    writer = client.writer(
        max_sequence_length=max(2 * FRAMES, writing.chunk),
        chunk_length=writing.chunk,
        delta_encoded=writing.delta,
        max_in_flight_items=PENDING,
    )
    written = 0

    def step(data: Step) -> None:
        nonlocal written
        writer.append({"frame": data["frame"], "action": data["action"], "reward": data["reward"]})
        written += 1
        if written >= FRAMES:
            writer.create_item(table, FRAMES, float(data["priority"]))

    return Writer(step, writer.flush, lambda pending: None)


def open_structured(client: reverb.Client, table: str, writing: Writing) -> Writer:
    """A `StructuredWriter`, which creates items by itself from five steps on."""
    structure = {"frame": None, "action": None, "reward": None, "priority": None}
    reference = reverb.structured_writer.create_reference_step(structure)
    pattern = {
        "frame": reference["frame"][-FRAMES:],
        "action": reference["action"][-1:],
        "reward": reference["reward"][-1:],
        "priority": reference["priority"][-1:],
    }
    priority = reverb.structured_writer.td_error(1.0, structure, lambda step: step["priority"])
    config = reverb.structured_writer.create_config(pattern, table, priority=priority)
    writer = client.structured_writer([config])
    return Writer(writer.append, writer.flush, lambda pending: writer.flush(block_until_num_items=pending))


OPEN = {"trajectory": open_trajectory, "sequence": open_sequence, "structured": open_structured}


class WriterThread:
    """One of the writers of a process: a stream of steps and its destination."""

    def __init__(self, order: Json, number: int) -> None:
        writing = Writing(**order["writing"])
        client = reverb.Client(f"localhost:{order['port']}")
        self.writer = OPEN[writing.kind](client, order["table"], writing)
        self.steps = play(Path(order["frames"]), order["games"], order["offset"] + number)
        self.pump(count=WARM_UP)
        self.items = 0

    def pump(self, count: int | None = None, seconds: float | None = None) -> None:
        """Writes for a number of steps or seconds, then waits until the server has confirmed each item."""
        self.items = 0
        end = time.monotonic() + seconds if seconds is not None else None
        while (end is None or time.monotonic() < end) and (count is None or self.items < count):
            for data in itertools.islice(self.steps, BLOCK):
                self.writer.step(data)
            self.items += BLOCK
            if self.items % PENDING < BLOCK:
                self.writer.wait_until(PENDING)
        self.writer.flush()


def write() -> None:
    """Executes commands, one line of JSON each: the table and the way to write, then the duration, repeatedly."""
    threads: list[WriterThread] = []
    for line in sys.stdin:
        order = json.loads(line)
        if "table" in order:
            threads = [WriterThread(order, number) for number in range(order["threads"])]
            reply = {"ready": True}
        else:
            with ThreadPoolExecutor(len(threads)) as pool:
                list(pool.map(lambda thread: thread.pump(**order), threads))
            reply = {"items": sum(t.items for t in threads)}
        print(json.dumps(reply), flush=True)


# The process that measures.


class Child:
    """This file in another process, which ends when its input closes or when this process kills it."""

    def __init__(self, role: str) -> None:
        self.errors = tempfile.TemporaryFile(mode="w+")
        self.role = role
        self.process = subprocess.Popen(
            [sys.executable, __file__, role, str(os.getpid())],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self.errors, text=True)

    def tell(self, order: Json) -> None:
        """Sends a command without waiting for the reply."""
        assert self.process.stdin is not None
        self.process.stdin.write(json.dumps(order) + "\n")
        self.process.stdin.flush()

    def hear(self) -> Json:
        """Waits for the next reply."""
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        if not line:
            self.errors.seek(0)
            raise RuntimeError(f"the {self.role} process ended:\n{self.errors.read()[-3000:]}")
        return json.loads(line)

    def close(self) -> None:
        """Ends the process."""
        self.process.kill()
        self.process.wait()
        self.errors.close()


class Server:
    """A server process and its resource use."""

    def __init__(self, child: Child) -> None:
        self.child = child
        self.port: int = child.hear()["port"]
        self.client = reverb.Client(f"localhost:{self.port}")

    def cpu_seconds(self) -> float:
        """The CPU time of the server so far, in user code and in the system."""
        fields = Path(f"/proc/{self.child.process.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / TICKS

    def resident_bytes(self) -> int:
        """Resident memory of the server."""
        status = Path(f"/proc/{self.child.process.pid}/status").read_text()
        return int(status.partition("VmRSS:")[2].split()[0]) * 1024

    def await_quiet(self, table: str) -> None:
        """Waits until no more items arrive: some are still in flight after a writer reports its end."""
        seen = -1
        while (stored := self.client.server_info()[table].rate_limiter_info.insert_stats.completed) != seen:
            seen = stored
            time.sleep(0.5)

    def await_items(self, table: str, items: int) -> None:
        """Waits until a table holds all written items: `Writer.flush` does not wait."""
        end = time.monotonic() + 30
        while (held := self.client.server_info()[table].current_size) != items:
            if held > items or time.monotonic() > end:
                raise RuntimeError(f"{table} holds {held} items, but {items} were written")


def winner(tried: dict[Way, float], again: Callable[[Way], Iterable[float]]) -> Way:
    """Measures the most promising ways again and returns the one with the best median."""
    finalists = sorted(tried, key=lambda way: tried[way], reverse=True)[:FINALISTS]
    return max(finalists, key=lambda way: statistics.median(again(way)))


class Bench:
    """A server, four writer processes, and the measurements with them."""

    def __init__(self, args: argparse.Namespace, stack: contextlib.ExitStack) -> None:
        self.args = args
        self.stack = stack
        self.server = self.start_server()
        self.writers = [self.start("write") for _ in range(4)]

    def start(self, role: str) -> Child:
        """Starts a process that always ends with the benchmark."""
        child = Child(role)
        self.stack.callback(child.close)
        return child

    def start_server(self) -> Server:
        """Starts a server and waits until it is ready."""
        return Server(self.start("serve"))

    def prepare(self, server: Server, table: str, writing: Writing, crew: Crew, game: str) -> list[Child]:
        """Opens the writers on an empty table and lets them write their first steps."""
        group = self.writers[:crew.processes]
        for index, writer in enumerate(group):
            writer.tell({
                "port": server.port, "table": table, "writing": vars(writing), "threads": crew.threads,
                "frames": str(self.args.frames), "games": self.args.games if game == MIXED else [game],
                "offset": index * crew.threads,
            })
        for writer in group:
            writer.hear()
        return group

    def insert_once(self, writing: Writing, crew: Crew, game: str, seconds: float) -> tuple[float, float]:
        """Items per second of wall time and per CPU second of the server, in one measurement."""
        server, table = self.server, writing.kind
        group = self.prepare(server, table, writing, crew, game)
        before = crew.processes * crew.threads * FIRST_ITEMS
        server.await_items(table, before)
        cpu, start = server.cpu_seconds(), time.monotonic()
        for writer in group:
            writer.tell({"seconds": seconds})
        items = sum(writer.hear()["items"] for writer in group)
        server.await_items(table, before + items)
        wall = time.monotonic() - start
        cpu = max(server.cpu_seconds() - cpu, 1 / TICKS)
        server.client.reset(table)
        return items / wall, items / cpu

    def insert(self) -> Json:
        """Finds the fastest way to write with one and with four writers, then measures it for each game."""
        result: Json = {}
        for count, crews in CREWS.items():
            tried = {
                (writing, crew): self.insert_once(writing, crew, MIXED, self.args.tune_seconds)[0]
                for writing, crew in itertools.product(self.args.writings, crews)
            }
            writing, crew = winner(tried, lambda way: [
                self.insert_once(*way, MIXED, self.args.tune_seconds)[0] for _ in range(self.args.rounds)])
            log(f"insert, {count} writer(s): {writing.name}, {crew.name}")
            result[str(count)] = {
                "config": writing.name,
                "writers": crew.name,
                "games": {game: self.insert_game(writing, crew, game) for game in [*self.args.games, MIXED]},
                "tried": {f"{w.name}, {c.name}": rate for (w, c), rate in tried.items()},
            }
        return result

    def insert_game(self, writing: Writing, crew: Crew, game: str) -> Json:
        """All rounds of one game."""
        rounds = [self.insert_once(writing, crew, game, self.args.seconds) for _ in range(self.args.rounds)]
        rates = {
            "items_per_s": summary([rate for rate, _ in rounds]),
            "items_per_server_cpu_s": summary([rate for _, rate in rounds]),
        }
        log(f"  {game}: {rates['items_per_s']['best']:.0f} items/s")
        return rates

    def resident(self, insert: Json) -> Json:
        """Bytes per transition of each game, for the smallest and for the fastest way to write."""
        long = [writing for writing in self.args.writings if (writing.chunk or 0) >= SMALL_CHUNK]
        tried = {writing: self.growth(writing, MIXED) for writing in long}
        smallest = min(tried, key=lambda writing: tried[writing])
        fastest = next(writing for writing in WRITINGS if writing.name == insert["1"]["config"])
        return {
            "smallest": self.resident_games(smallest),
            "insert_winner": self.resident_games(fastest),
            "tried": {writing.name: size for writing, size in tried.items()},
        }

    def resident_games(self, writing: Writing) -> Json:
        """Bytes per transition of each game for one way to write, the median of all rounds."""
        sizes = {
            game: statistics.median(self.growth(writing, game) for _ in range(self.args.resident_rounds))
            for game in [*self.args.games, MIXED]
        }
        log(f"resident, {writing.name}: {sizes[MIXED]:.0f} bytes per item")
        return {"config": writing.name, "bytes_per_item": sizes}

    def growth(self, writing: Writing, game: str) -> float:
        """Growth in bytes per item of a new server; a server with freed memory would grow less."""
        server, table = self.start_server(), writing.kind
        writer, = self.prepare(server, table, writing, Crew(1, 1), game)
        sizes, held = [], FIRST_ITEMS
        for count in self.args.resident_items:
            writer.tell({"count": count})
            items = writer.hear()["items"]
            held += items
            server.await_items(table, held)
            time.sleep(0.2)
            sizes.append(server.resident_bytes())
        server.child.close()
        return (sizes[1] - sizes[0]) / items

    def fill(self, writing: Writing, table: str) -> None:
        """Fills an empty table with items of all games."""
        writer, = self.prepare(self.server, table, writing, Crew(1, 1), MIXED)
        writer.tell({"count": self.args.fill_items})
        self.server.await_items(table, FIRST_ITEMS + writer.hear()["items"])

    def sample_rounds(self, writing: Writing, batch: int, reading: Reading) -> tuple[list[float], float]:
        """Transitions per second of each round, and how many cores the server used, with a new table."""
        table = writing.kind
        self.fill(writing, table)
        cpu, start = self.server.cpu_seconds(), time.monotonic()
        rates = sample_rates(self.server.port, table, batch, reading, self.args.seconds, self.args.rounds)
        cores = (self.server.cpu_seconds() - cpu) / (time.monotonic() - start)
        self.server.client.reset(table)
        return rates, cores

    def sample_trials(self) -> dict[int, dict[tuple[Writing, Reading], float]]:
        """A short measurement of every way to sample, for each batch size."""
        tried: dict[int, dict[tuple[Writing, Reading], float]] = {batch: {} for batch in BATCHES}
        for writing in self.args.writings:
            if writing.name not in SAMPLED:
                continue
            table = writing.kind
            self.fill(writing, table)
            for batch in BATCHES:
                for reading in readings(batch):
                    rates = sample_rates(self.server.port, table, batch, reading, self.args.tune_seconds, 1)
                    tried[batch][writing, reading] = rates[0]
            self.server.client.reset(table)
        return tried

    def sample(self) -> Json:
        """Finds the fastest way to sample and measures it, for each batch size."""
        result: Json = {}
        for batch, tried in self.sample_trials().items():
            writing, reading = winner(tried, lambda way: self.sample_rounds(way[0], batch, way[1])[0])
            rates, cores = self.sample_rounds(writing, batch, reading)
            result[str(batch)] = {
                "written_by": writing.name,
                "config": reading.name,
                "transitions_per_s": summary(rates),
                "server_cores": cores,
                "tried": {f"{w.name}, {r.name}": rate for (w, r), rate in tried.items()},
            }
            log(f"sample {batch}: {max(rates):.0f} transitions/s, {writing.name}, {reading.name}")
        return result

    def latency(self, insert: Json, sample: Json) -> Json:
        """The latency of one batch while four writers insert, for the way with the lowest p99, in every round."""
        names = {insert["4"]["config"], *(found["written_by"] for found in sample.values())}
        crew = next(crew for crew in CREWS[4] if crew.name == insert["4"]["writers"])
        ways = {
            f"{way}, written by {writing.name}": (writing, times)
            for writing in WRITINGS if writing.name in names
            for way, times in LATENCY_WAYS.items()
        }
        tried: Json = {name: self.latency_of(writing, crew, times) for name, (writing, times) in ways.items()}
        best = min(tried, key=lambda way: tried[way]["p99_ms"])
        writing, times = ways[best]
        rounds = [tried[best], *(self.latency_of(writing, crew, times) for _ in range(self.args.rounds - 1))]
        log(f"latency: {best}, {rounds}")
        figures = {key: lowest([found[key] for found in rounds]) for key in ("p50_ms", "p99_ms")}
        return {"config": best, "writers": crew.name, **tried[best], **figures, "tried": tried}

    def latency_of(self, writing: Writing, crew: Crew, times: Times) -> Json:
        """p50 and p99 of one way to sample during inserts."""
        table = writing.kind
        self.fill(writing, table)
        group = self.prepare(self.server, table, writing, crew, MIXED)
        seconds = 5 * self.args.seconds
        for writer in group:
            writer.tell({"seconds": seconds + 1.0})
        taken = times(self.server.port, table, seconds)
        items = sum(writer.hear()["items"] for writer in group)
        self.server.await_quiet(table)
        self.server.client.reset(table)
        p50, p99 = np.percentile(taken, [50, 99]) * 1000
        return {"p50_ms": float(p50), "p99_ms": float(p99), "batches": len(taken),
                "inserted_items_per_s": items / (seconds + 1.0)}


def readings(batch: int) -> list[Reading]:
    """The ways to sample that are measured for one batch size."""
    return [
        *(Reading(workers, in_flight * batch, 2, True) for workers in (1, 2) for in_flight in (1, 3)),
        Reading(2, 3 * batch, 8, True),
        Reading(2, 3 * batch, 2, False),
    ]


def sample_rates(
    port: int, table: str, batch: int, reading: Reading, seconds: float, rounds: int
) -> list[float]:
    """Transitions per second of each round: batches as arrays, with new priorities for all their keys."""
    address = f"localhost:{port}"
    dataset = reverb.TrajectoryDataset.from_table_signature(
        address, table, max_in_flight_samples_per_worker=reading.in_flight,
        num_workers_per_iterator=reading.workers)
    batches = dataset.batch(batch, drop_remainder=True).prefetch(reading.prefetch).as_numpy_iterator()
    client, tf_client = reverb.Client(address), reverb.TFClient(address)
    rng = np.random.default_rng(0)

    def one() -> None:
        sample = next(batches)
        assert sample.data["frame"].shape == (batch, FRAMES, SIDE, SIDE)
        priorities = rng.uniform(0.01, 1.0, batch)
        if reading.tf_update:
            tf_client.update_priorities(table, sample.info.key, priorities)
        else:
            client.mutate_priorities(table, dict(zip(sample.info.key.tolist(), priorities.tolist())))

    run_for(one, max(0.3, seconds / 3))
    return [batch * run_for(one, seconds) for _ in range(rounds)]


def run_for(action: Callable[[], None], seconds: float) -> float:
    """Repeats an action for at least `seconds` and returns its rate per second."""
    start, done = time.monotonic(), 0
    while (now := time.monotonic()) < start + seconds or done < 3:
        action()
        done += 1
    return done / (now - start)


def timed(action: Callable[[], Any], seconds: float) -> list[float]:
    """Repeats an action for `seconds`, after a warm-up, and returns the time of each."""
    for _ in range(5):
        action()
    taken = []
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        start = time.perf_counter()
        action()
        taken.append(time.perf_counter() - start)
    return taken


def client_times(port: int, table: str, seconds: float) -> list[float]:
    """Times of batches through `Client.sample`, which requests exactly this batch; arrays are stacked."""
    client = reverb.Client(f"localhost:{port}")

    def one() -> None:
        samples = client.sample(table, LATENCY_BATCH, emit_timesteps=False, unpack_as_table_signature=True)
        frames = np.stack([sample.data["frame"] for sample in samples])
        assert frames.shape == (LATENCY_BATCH, FRAMES, SIDE, SIDE)

    return timed(one, seconds)


def dataset_times(in_flight: int) -> Times:
    """Times of batches through a dataset that prepares no batch, but prefetches a number of samples."""

    def times(port: int, table: str, seconds: float) -> list[float]:
        dataset = reverb.TrajectoryDataset.from_table_signature(
            f"localhost:{port}", table,
            max_in_flight_samples_per_worker=in_flight, num_workers_per_iterator=1)
        batches = dataset.batch(LATENCY_BATCH, drop_remainder=True).as_numpy_iterator()
        return timed(lambda: next(batches), seconds)

    return times


LATENCY_WAYS: dict[str, Times] = {
    "Client.sample": client_times,
    "TrajectoryDataset with 1 in flight": dataset_times(1),
    "TrajectoryDataset with a batch in flight": dataset_times(LATENCY_BATCH),
}


def measure(args: argparse.Namespace) -> Json:
    """All figures."""
    with contextlib.ExitStack() as stack:
        bench = Bench(args, stack)
        insert = bench.insert()
        sample = bench.sample()
        return {
            "peer": f"dm-reverb {version('dm-reverb')}",
            "games": args.games,
            "seconds": args.seconds,
            "rounds": args.rounds,
            "insert": insert,
            "sample": sample,
            "sample_latency": bench.latency(insert, sample),
            "resident": bench.resident(insert),
        }


def arguments() -> argparse.Namespace:
    """Parses and validates the options."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--frames", type=Path, required=True, help="directory with <game>.raw")
    parser.add_argument("--games", default="pong,breakout,qbert,seaquest", help="comma-separated names")
    parser.add_argument("--seconds", type=float, default=2.0, help="length of a round")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--quick", action="store_true", help="few ways, short measurements")
    args = parser.parse_args()
    args.games = args.games.split(",")
    for game in args.games:
        if not (args.frames / f"{game}.raw").is_file():
            parser.error(f"{args.frames / game}.raw is not there")
    args.seconds = min(args.seconds, 0.5) if args.quick else args.seconds
    args.writings = [w for w in WRITINGS if not args.quick or w.name in QUICK]
    args.tune_seconds = args.seconds / 2
    args.resident_items = (2_000, 6_000) if args.quick else (5_000, 25_000)
    args.resident_rounds = 1 if args.quick else args.rounds
    args.fill_items = 5_000 if args.quick else 20_000
    return args


def end_with_parent(parent: int) -> None:
    """Makes the kernel kill this process when the benchmark ends, and exits if it has already ended."""
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:
        sys.exit("the benchmark has ended")


def main() -> None:
    """Runs the role of the first argument: serve, write, or measure (the default)."""
    roles = {"serve": serve, "write": write}
    role = sys.argv[1] if len(sys.argv) > 1 else ""
    if role in roles:
        end_with_parent(int(sys.argv[2]))
        roles[role]()
    else:
        signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
        json.dump(measure(arguments()), sys.stdout, indent=1)
        print()


if __name__ == "__main__":
    main()
