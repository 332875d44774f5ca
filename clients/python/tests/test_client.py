"""The package against real shards: everything written comes back exactly once, whatever happens in between."""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import pathlib
import signal
import threading
import time
import unittest
from collections.abc import Iterator

import numpy as np

from quiver_replay import Batch, Client, Refused, Table
from shards import Shard, until

SHAPE = (6, 5)
STACK = 4
ACTIONS = 7


def episode(seed: int, steps: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Frames that resemble one another, as a game's do; each begins with its number."""
    rng = np.random.default_rng(seed)
    frames = np.tile(rng.integers(0, 255, SHAPE, dtype=np.uint8), (steps + 1, 1, 1))
    frames[:, 0, 0] = np.arange(steps + 1)
    frames[:, 1, :] = rng.integers(0, 255, (steps + 1, SHAPE[1]), dtype=np.uint8)
    return frames, rng.integers(0, ACTIONS, steps), rng.normal(size=steps).astype(np.float32)


def stacked(frames: np.ndarray, at: int) -> np.ndarray:
    """The state at a frame: the last STACK of them, the first repeated."""
    return frames[np.maximum(np.arange(at - STACK + 1, at + 1), 0)]


def client_of(shard: Shard, **options: object) -> Client:
    client = Client(shard.address, SHAPE)
    tables = options.pop("tables", [Table("all", 1000)])
    client.create(tables, actions=ACTIONS, stack=STACK, bytes_max=64 << 20, **options)  # type: ignore[arg-type]
    return client


@contextlib.contextmanager
def served(**options: object) -> Iterator[tuple[Shard, Client]]:
    """A shard, and a client that has created its tables."""
    with Shard() as shard:
        yield shard, client_of(shard, **options)


def write_episode(client: Client, steps: int, **options: object) -> None:
    with client.writer() as writer:
        writer.write(*episode(0, steps), terminated=True, **options)  # type: ignore[arg-type]


def write_as(address: str, actor: int) -> None:
    with Client(address, SHAPE).writer(actor) as writer:
        writer.write(*episode(actor, 25), terminated=True)


class Writing(unittest.TestCase):
    def test_what_is_written_comes_back(self) -> None:
        for codec in ["delta", "zstd", "none"]:
            for length in [1, 3]:
                with self.subTest(codec=codec, length=length), Shard() as shard:
                    self.round_trip(client_of(shard, codec=codec), length)

    def round_trip(self, client: Client, length: int) -> None:
        episodes = [episode(seed, steps) for seed, steps in enumerate([1, 2, 40, 90])]
        log_probabilities = [np.linspace(-2, -1, len(actions)) for _, actions, _ in episodes]
        with client.writer(chunk_steps=16) as writer:
            for number, (frames, actions, rewards) in enumerate(episodes):
                writer.write(
                    frames,
                    actions,
                    rewards,
                    terminated=number % 2 == 0,
                    # The priority identifies the item.
                    priorities=1.0 + 1000 * number + np.arange(len(actions)),
                    log_probabilities=log_probabilities[number],
                    length=length,
                )
        seen = set()
        with client.sampler(64, length=length, min_size=133) as sampler:
            while len(seen) < 133:
                batch = next(sampler)
                self.assertEqual(batch.states.shape, (64, STACK, *SHAPE))
                states, next_states = batch.states, batch.next_states
                for row in range(len(batch)):
                    number, first = divmod(int(batch.priorities[row]) - 1, 1000)
                    frames, actions, rewards = episodes[number]
                    last = min(first + length, len(actions))
                    self.assertEqual(batch.lengths[row], last - first)
                    np.testing.assert_array_equal(states[row], stacked(frames, first))
                    np.testing.assert_array_equal(next_states[row], stacked(frames, last))
                    padded = np.zeros(length)
                    padded[: last - first] = actions[first:last]
                    np.testing.assert_array_equal(batch.actions[row], padded)
                    padded[: last - first] = rewards[first:last]
                    np.testing.assert_array_equal(batch.rewards[row], padded.astype(np.float32))
                    padded[: last - first] = log_probabilities[number][first:last]
                    np.testing.assert_array_equal(batch.log_probabilities[row], padded.astype(np.float32))
                    ended = last == len(actions)
                    self.assertEqual(batch.terminated[row], ended and number % 2 == 0)
                    self.assertEqual(batch.truncated[row], ended and number % 2 == 1)
                    seen.add((number, first))
                    # Zero priorities let all items appear soon.
                sampler.update(batch, np.where(batch.times_sampled > 1, 0.0, batch.priorities))
                if len(seen) < 133:
                    sampler.update(batch.keys, batch.priorities)

    def test_step_by_step_is_the_same_as_whole(self) -> None:
        frames, actions, rewards = episode(3, 30)
        drawn = []
        for whole in [True, False]:
            with served() as (_, client):
                with client.writer() as writer:
                    if whole:
                        writer.write(frames, actions, rewards, terminated=True)
                    else:
                        for step in range(30):
                            writer.append(frames[step], actions[step], rewards[step], terminated=step == 29)
                            if step > 0:
                                writer.item()
                        writer.end(frames[30])
                        writer.item()
                batch = client.sampler(30, seed=1).sample()
                drawn.append(batch)
        for column in ["frames", "actions", "rewards", "terminated", "truncated", "lengths", "priorities", "probabilities"]:
            np.testing.assert_array_equal(getattr(drawn[0], column), getattr(drawn[1], column), column)

    def test_other_kinds_of_frames(self) -> None:
        with Shard() as shard:
            client = Client(shard.address, (4,), np.float32)
            client.create([Table("t", 100, sampler="fifo", max_times_sampled=1)], actions=2, bytes_max=64 << 20)
            states = np.random.default_rng(0).normal(size=(11, 4)).astype(np.float32)
            with client.writer() as writer:
                # Not contiguous, and backwards.
                writer.write(states[::-1], np.ones(10), np.zeros(10), terminated=False)
            batch = client.sampler(10).sample()
            np.testing.assert_array_equal(np.sort(batch.states[:, 0], axis=0), np.sort(states[1:], axis=0))
            self.assertTrue(batch.actions.all() and batch.truncated.sum() >= 1)

    def test_nonsense_is_refused_before_it_is_stored(self) -> None:
        with served() as (_, client):
            frames, actions, rewards = episode(0, 5)
            with client.writer() as writer:
                nonsense = [
                    (lambda: writer.append(frames, 0, 0.0), "a frame must be"),
                    (lambda: writer.append(frames[0].astype(np.int64), 0, 0.0), "a frame must be"),
                    (lambda: writer.append(frames[0], ACTIONS, 0.0), "action 7: must be 0 to 6"),
                    (lambda: writer.append(frames[0], -1, 0.0), "action is -1"),
                    (lambda: writer.append(frames[0], 0, float("nan")), "must be finite"),
                    (lambda: writer.end(frames[0]), "no step has ended the episode"),
                    (lambda: writer.item(), "before flush"),
                    (lambda: writer.write(frames[:5], actions, rewards, terminated=True), "5 frames for 5 actions"),
                    (lambda: writer.write(frames, actions, rewards[:4], terminated=True), "4 rewards"),
                    (lambda: writer.write(frames[:1], [], [], terminated=True), "1 step or more"),
                    (lambda: writer.write(frames, actions, rewards, terminated=True, priorities=-rewards**2), "priority"),
                    (lambda: writer.write(frames, actions, rewards, terminated=True, length=0), "length is 0"),
                    (lambda: writer.write(frames, actions, rewards, terminated=True, table="x"), "no table"),
                    (lambda: writer.write(frames, actions + 0.5, rewards, terminated=True), "actions must be whole numbers"),
                    (lambda: writer.write(frames, actions, rewards[:, None], terminated=True), "rewards must have one dim"),
                    (lambda: writer.write(frames, ["1"] * 5, rewards, terminated=True), "actions must be numbers"),
                ]
                for call, words in nonsense:
                    with self.assertRaisesRegex(ValueError, words):
                        call()
                writer.append(frames[0], 0, 0.0)
                with self.assertRaisesRegex(ValueError, "length is 1, but there are 0 steps"):
                    writer.item()
                with self.assertRaisesRegex(ValueError, "an episode is open"):
                    writer.write(frames, actions, rewards, terminated=True)
                writer.append(frames[1], 0, 0.0, terminated=True)
                writer.item(priority=5.0)
                with self.assertRaisesRegex(ValueError, r"last frame to end\(\)"):
                    writer.append(frames[2], 0, 0.0)
                writer.end(frames[2])
                writer.item()
                with self.assertRaisesRegex(ValueError, "order of their first steps"):
                    writer.item(2)
            self.assertEqual(client.inspect()["items"], 2)
            with self.assertRaisesRegex(ValueError, "closed"):
                writer.append(frames[0], 0, 0.0)

    def test_an_abandoned_episode_makes_way_for_the_next(self) -> None:
        with served() as (_, client):
            frames, actions, rewards = episode(0, 9)
            with client.writer(chunk_steps=4) as writer:
                for step in range(6):
                    writer.append(frames[step], actions[step], rewards[step])
                writer.abandon()
                writer.write(frames, actions, rewards, terminated=True)
            self.assertEqual(client.inspect()["items"], 9)
            batch = client.sampler(50).sample()
            self.assertTrue((batch.frames[:, STACK - 1, 0, 0] < 9).all())

    def test_the_newer_writer_of_an_actor_ends_the_older(self) -> None:
        with served() as (_, client):
            with self.assertRaisesRegex(ValueError, "already has a writer in this process"):
                both = client.writer(9), client.writer(9)
                del both
            old, new = client.writer(3, incarnation=1), client.writer(3, incarnation=2)
            whole = episode(0, 9)
            new.write(*whole, terminated=True)
            new.flush()
            with self.assertRaises(Refused):
                old.write(*whole, terminated=True)
                old.flush()
            new.close()

    def test_processes_that_know_only_the_address_write_as_actors_of_their_own(self) -> None:
        with served() as (shard, client):
            context = multiprocessing.get_context("spawn")
            writers = [context.Process(target=write_as, args=(shard.address, actor)) for actor in (1, 2)]
            for writer in writers:
                writer.start()
            for writer in writers:
                writer.join(60)
                self.assertEqual(writer.exitcode, 0)
            self.assertEqual(client.inspect()["items"], 2 * 25)

    def test_a_writer_of_another_process_outlives_a_shard_that_restarts_empty(self) -> None:
        with served() as (shard, client):
            with Client(shard.address, SHAPE).writer(5) as writer:
                writer.write(*episode(0, 10), terminated=True)
                writer.flush()
                shard.kill()
                shard.start()
                # The client that called create() configures it again, with another key.
                writer.write(*episode(1, 60), terminated=True)
                writer.flush(timeout=60)
            self.assertGreaterEqual(client.inspect()["items"], 40)

    def test_lanes_of_one_process_write_side_by_side_and_one_after_the_other(self) -> None:
        with served() as (_, client):
            with client.writer(lane=0) as first, client.writer(lane=1) as second:
                for _ in range(3):
                    for writer in [first, second]:
                        writer.write(*episode(0, 10), terminated=True)
                        writer.flush()
            # A lane continues where it ended, also in the middle of an episode.
            for _ in range(3):
                with client.writer(lane=1) as writer:
                    writer.write(*episode(0, 10), terminated=True)
                    writer.append(episode(0, 1)[0][0], 0, 0.0)
            self.assertEqual(client.inspect()["items"], 90)

    def test_one_episode_for_two_tables(self) -> None:
        with served(tables=[Table("a", 500), Table("b", 500, sampler="uniform"), Table("c", 9)]) as (_, client):
            with client.writer(chunk_steps=7) as writer:
                writer.write(*episode(0, 60), terminated=True, length=3, table=["a", "b"])
            self.assertEqual([client.inspect(table)["items"] for table in "abc"], [60, 60, 0])
            drawn = [client.sampler(20, table, length=3).sample() for table in "ab"]
            self.assertEqual([len(batch) for batch in drawn], [20, 20])

    def test_an_interrupted_episode_harms_no_other(self) -> None:
        with served(inserts_max=10) as (_, client):
            writer = client.writer(chunk_steps=8)
            whole = episode(0, 10)
            written = 0
            with self.assertRaises(TimeoutError):
                for _ in range(100):
                    writer.write(*whole, terminated=True, timeout=0.2)
                    written += 10
            self.assertGreater(written, 0)
            client.allow(None)
            writer.write(*whole, terminated=True)
            writer.close()
            items = client.inspect()["items"]
            self.assertTrue(written + 10 <= items < written + 20, (written, items))

    def test_writers_wait_for_an_allowance_and_report_it(self) -> None:
        with served(inserts_max=20) as (_, client):
            writer = client.writer(chunk_steps=8)
            for _ in range(3):
                writer.write(*episode(0, 10), terminated=True)
            with self.assertRaisesRegex(TimeoutError, "waited .* s for the shard"):
                writer.flush(timeout=0.3)
            with self.assertRaisesRegex(TimeoutError, r"waited 1\.[5-9] s .*insert allowance \(limit 20\)"):
                writer.flush(timeout=1.5)
            self.assertIn("allowance", str(writer.waiting_for))
            waiting = client.inspect()["waiting"]
            self.assertEqual([one["who"] for one in waiting], ["actor 0"])
            client.allow(None)
            writer.close()
            self.assertEqual(client.inspect()["items"], 30)


class Sampling(unittest.TestCase):
    def test_priorities_decide(self) -> None:
        with served(tables=[Table("t", 1000, priority_exponent=1.0, priority_constant=0.0)]) as (_, client):
            write_episode(client, 10, priorities=np.arange(10.0))
            with client.sampler(900, prefetch=0) as sampler:
                batch = next(sampler)
                # In strata, each gets its share to within one at each end.
                counts = np.bincount(batch.priorities.astype(int), minlength=10)
                np.testing.assert_allclose(counts, np.arange(10) * 20, atol=2)
                np.testing.assert_allclose(batch.probabilities, batch.priorities / 45)
                only = batch.keys[batch.priorities == 3][:1]
                sampler.update(batch, np.zeros(900))
                sampler.update(only, [7.0])
                batch = next(sampler)
                self.assertTrue((batch.priorities == 7).all() and (batch.probabilities == 1).all())
            self.assertEqual(client.update_priorities(only, [8.0]), (1, 0))
            self.assertEqual(client.update_priorities([], []), (0, 0))
            # Keys of another incarnation of the shard, before or after its own.
            other = only.copy()
            other[0, 0] ^= 1
            for mixed in [[only, other], [other, only]]:
                self.assertEqual(client.update_priorities(np.concatenate(mixed), [8.0, 8.0]), (1, 1))
            gone = only.copy()
            gone[0, 2] += 1000
            self.assertEqual(client.update_priorities(gone, [8.0]), (0, 1))
            with client.sampler(8) as sampler:
                sampler.update(np.concatenate([only, gone, other]), [8.0, 8.0, 8.0])
                sampler.update(only, [9.0])
            self.assertEqual((sampler.stale_updates, client.inspect()["largest_priority"]), (2, 9.0))
            for call in [lambda: sampler.update(only, [1.0]), lambda: next(sampler)]:
                with self.assertRaisesRegex(ValueError, "closed"):
                    call()
            for wrong in [[-1.0], [float("nan")], [1.0, 2.0], [[1.0]]]:
                with self.assertRaises(ValueError):
                    client.update_priorities(only, wrong)

    def test_the_last_updates_arrive_before_close_returns(self) -> None:
        with served() as (_, client):
            write_episode(client, 10)
            with client.sampler(10) as sampler:
                for _ in range(3):
                    batch = next(sampler)
                    sampler.update(batch, np.full(10, 2.0))
                    sampler.update(batch, np.full(10, 3.0))
            self.assertEqual(client.inspect()["updates"], 60)

    def test_any_number_of_updates_between_batches(self) -> None:
        with served() as (_, client):
            write_episode(client, 250)
            with client.sampler(1000) as sampler:
                batch = sampler.sample()
                for _ in range(300):
                    sampler.update(batch, np.ones(1000))
                self.assertEqual(len(sampler.sample(timeout=60)), 1000)
            self.assertEqual(client.inspect()["updates"], 300_000)

    def test_an_error_within_is_not_hidden(self) -> None:
        with served() as (shard, client):
            write_episode(client, 10)
            with self.assertRaises(KeyError), client.sampler(4) as sampler:
                next(sampler)
                shard.kill()
                raise KeyError("mine")
            shard.start()

    def test_tables_are_views_of_the_same_frames(self) -> None:
        tables = [Table("all", 100), Table("once", 100, sampler="fifo", max_times_sampled=1)]
        with served(tables=tables) as (_, client):
            frames, actions, rewards = episode(0, 10)
            with client.writer() as writer:
                for step in range(10):
                    writer.append(frames[step], actions[step], rewards[step], truncated=step == 9)
                    if step > 0:
                        writer.item()
                        writer.item(table="once")
                writer.end(frames[10])
            with client.sampler(6, "once", prefetch=0) as once:
                self.assertEqual([len(next(once)), len(next(once))], [6, 3])
                with self.assertRaisesRegex(TimeoutError, "items in the shard"):
                    once.sample(timeout=0.2)
            self.assertEqual(len(client.sampler(20).sample()), 20)
            self.assertEqual(client.inspect("once")["items"], 0)
            with self.assertRaisesRegex(ValueError, "no table"):
                client.inspect("other")
            with self.assertRaisesRegex(ValueError, "no table"):
                client.sampler(6, "other")

    def test_batches_are_filled_in_turn(self) -> None:
        with served() as (_, client):
            write_episode(client, 50)
            with client.sampler(8, buffers=3) as sampler:
                first, second, third, fourth = (next(sampler) for _ in range(4))
                self.assertTrue(fourth is first and first is not second and second is not third)
                mine = sampler.new_batch()
                self.assertTrue(sampler.sample(mine) is mine and len(mine) == 8)
                kept = mine.copy()
                sampler.sample(kept)
                self.assertEqual(kept.states[0, -1, 0, 0] + 1, kept.next_states[0, -1, 0, 0])
            with self.assertRaisesRegex(ValueError, "another sampler"):
                client.sampler(9).sample(Batch(8, 1, STACK, SHAPE, np.uint8))
            with self.assertRaisesRegex(ValueError, "length=2"):
                with client.writer(1) as writer:
                    writer.write(*episode(1, 100), terminated=True, length=2, priorities=np.full(100, 1e9))
                client.sampler(8).sample()

    def test_the_first_batch_waits_for_enough_items(self) -> None:
        with served() as (_, client):
            sampler = client.sampler(8, min_size=30)
            writer = client.writer()
            writer.write(*episode(0, 20), terminated=True)
            writer.flush()
            with self.assertRaisesRegex(TimeoutError, "30 items in the shard .*, which has 20"):
                sampler.sample(timeout=0.3)
            drawn = []
            thread = threading.Thread(target=lambda: drawn.append(sampler.sample()))
            thread.start()
            writer.write(*episode(1, 20), terminated=True)
            writer.close()
            thread.join(60)
            self.assertEqual([len(batch) for batch in drawn], [8])
            with self.assertRaisesRegex(ValueError, "min_size"):
                client.sampler(8, min_size=1001)


class Trouble(unittest.TestCase):
    def test_a_killed_shard_keeps_all_that_was_acknowledged_once(self) -> None:
        with Shard() as shard:
            # The same address, but with a data directory.
            shard.kill()
            shard._flags = ("--data-dir", str(shard.directory / "data"))
            shard.start()
            client = client_of(shard, tables=[Table("t", 100_000, sampler="uniform")])
            sampler, written = client.sampler(64), 0
            with client.writer(chunk_steps=8) as writer:
                for round in range(6):
                    for number in range(20):
                        writer.write(*episode(number, 25), terminated=True)
                        written += 25
                    batch = sampler.sample()
                    sampler.update(batch, np.ones(64))
                    shard.kill()
                    shard.start()
            seen = client.inspect()
            self.assertEqual((seen["items"], seen["inserts"], seen["agent_steps"]), (written, written, written))
            self.assertEqual(len(sampler.sample()), 64)

    def test_a_shard_that_restarted_empty_is_configured_again(self) -> None:
        with served() as (shard, client):
            with client.writer() as writer:
                writer.write(*episode(0, 10), terminated=True)
                writer.flush()
                sampler = client.sampler(8)
                next(sampler)
                shard.kill()
                shard.start()
                until("it is configured", lambda: client.inspect()["table"] == "all")
                # Its contents are lost, also the frames that the lane's next steps refer to.
                writer.write(*episode(0, 60), terminated=True)
            self.assertGreaterEqual(client.inspect()["items"], 40)
            self.assertEqual(len(sampler.sample()), 8)

    def test_an_unreachable_shard_and_invalid_arguments_are_errors(self) -> None:
        nowhere = Client("unix:/nonexistent/socket", SHAPE, timeout=0.5)
        with self.assertRaises(ConnectionError):
            nowhere.inspect()
        for address in ["", "nonsense", "host:port"]:
            with self.assertRaises(ValueError):
                Client(address, SHAPE)
        for shape in [(0, 4), (-2, -15), (2.5,)]:
            with self.assertRaisesRegex(ValueError, "shape"):
                Client("127.0.0.1:1", shape)  # type: ignore[arg-type]
        with self.assertRaisesRegex(ValueError, "frame_bytes"):
            Client("127.0.0.1:1", (4000, 4000)).create([Table("t", 1)], actions=1)
        for nonsense in [{"capacity": -1}, {"capacity": 1e6}, {"max_times_sampled": -1}]:
            with self.assertRaisesRegex(ValueError, next(iter(nonsense))):
                Table(**{"name": "t", "capacity": 1, **nonsense})  # type: ignore[arg-type]
        with self.assertRaises(ValueError):
            Client("127.0.0.1:1", (4,), object)

    def test_a_shard_keeps_its_configuration(self) -> None:
        with Shard() as shard:
            with self.assertRaisesRegex(ValueError, r"call create\(\) first"):
                Client(shard.address, SHAPE).writer()
            client = client_of(shard)
            with self.assertRaisesRegex(ValueError, "30 bytes|frames of this client's shape"):
                Client(shard.address, (84, 84)).sampler(32)
            for change in [{"codec": "none"}, {"run": "another"}]:
                with self.assertRaises(Refused):
                    client_of(shard, **change)
            for nonsense in [{"codec": "gzip"}, {"tables": []}, {"tables": [Table("t", 10, sampler="dice")]}]:
                with self.assertRaises(ValueError):
                    client_of(shard, **nonsense)
            client.configure(capacity=2000, priority_exponent=0.5)
            seen = client.inspect()
            self.assertEqual((seen["capacity"], seen["priority_exponent"]), (2000, 0.5))
            # The change persists, and a shard that restarted empty gets it again.
            time.sleep(1.5)
            self.assertEqual(client.inspect()["capacity"], 2000)
            shard.kill()
            shard.start()
            until("it is configured", lambda: client.inspect()["capacity"] == 2000)

    def test_an_interrupt_ends_a_wait(self) -> None:
        def interrupt(*_: object) -> None:
            raise KeyboardInterrupt

        with Shard() as shard:
            sampler = client_of(shard).sampler(8)
            before = signal.signal(signal.SIGALRM, interrupt)
            signal.setitimer(signal.ITIMER_REAL, 0.2)
            try:
                with self.assertRaises(KeyboardInterrupt):
                    sampler.sample()
            finally:
                signal.signal(signal.SIGALRM, before)

    def test_a_forked_process_gets_an_error_that_says_what_to_do(self) -> None:
        with served() as (_, client):
            pipe, end = multiprocessing.Pipe()
            child = os.fork()
            if child == 0:
                try:
                    client.inspect()
                    end.send("no error")
                except RuntimeError as error:
                    end.send(str(error))
                finally:
                    os._exit(0)
            os.waitpid(child, 0)
            self.assertIn("spawn", pipe.recv())

    def test_a_snapshot_begins_another_shard(self) -> None:
        with served() as (shard, client):
            write_episode(client, 60)
            file = shard.directory / "snapshot"
            self.assertEqual(client.snapshot(file), file.stat().st_size)
            with self.assertRaises(OSError):
                client.snapshot(shard.directory / "no" / "such" / "folder")
            data = shard.directory / "elsewhere"
            with Shard("--data-dir", str(data), "--restore", str(file)) as other:
                until("it serves", lambda: pathlib.Path(other.address.removeprefix("unix:")).exists())
                self.assertEqual(Client(other.address, SHAPE).inspect()["items"], 60)


class Readme(unittest.TestCase):
    def test_the_ten_lines_run(self) -> None:
        text = (pathlib.Path(__file__).parents[1] / "README.md").read_text()
        (code,) = [block.split("```")[0] for block in text.split("```python\n")[1:]]
        with Shard() as shard:
            self.assertIn("127.0.0.1:7701", code)
            exec(compile(code.replace("127.0.0.1:7701", shard.address), "README.md", "exec"), {})


if __name__ == "__main__":
    unittest.main()
