"""Benchmarks a plain DQN in PyTorch on an Atari game: one process that plays, stores, samples and learns in turn.

As people write it: ALE's own gray screen, the maximum of the last two of four frames, resized by OpenCV to 84x84, a ring of
frames in numpy, uniform samples, epsilon-greedy actions, and an update on 32 transitions for every 4 steps, which is 8 samples
per insert. f32, contiguous, fused Adam, Huber loss, a target network. It writes no log, no checkpoint and no evaluation.

It serves quiver-bench: each line on standard input is a JSON object with `seconds` and `threads`. It plays and learns for that
long on so many threads and answers with JSON: `frames`, `updates`, and `wall` and `cpu` in seconds.
"""

from __future__ import annotations

import argparse
import copy
from typing import Any

import cv2
import numpy as np
import torch
import torch.nn.functional as F
from ale_py import ALEInterface, LoggerMode, roms

from common import Stopwatch, log, serve
from torch_nets import CHANNELS, SIDE, network

FRAME_SKIP = 4
STEPS_PER_UPDATE = 4
BATCH = 32
DISCOUNT = 0.99
LEARNING_RATE = 1e-4
EPSILON = 0.05
TARGET_PERIOD_UPDATES = 2_000


class Game:
    """An Atari game as DQN plays it."""

    def __init__(self, name: str) -> None:
        ALEInterface.setLoggerMode(LoggerMode.Error)
        self.ale = ALEInterface()
        self.ale.setInt("random_seed", 0)
        self.ale.setFloat("repeat_action_probability", 0.25)
        self.ale.loadROM(roms.get_rom_path(name))
        self.actions = self.ale.getMinimalActionSet()
        self.screens = [np.empty(self.ale.getScreenDims(), np.uint8) for _ in range(2)]
        self.frames = 0

    def reset(self) -> np.ndarray:
        self.ale.reset_game()
        self.ale.getScreenGrayscale(self.screens[0])
        return self.resized(self.screens[0])

    def step(self, action: int) -> tuple[np.ndarray, float, bool]:
        reward, done = 0.0, False
        for frame in range(FRAME_SKIP):
            reward += self.ale.act(self.actions[action])
            self.frames += 1
            if frame >= FRAME_SKIP - 2:
                self.ale.getScreenGrayscale(self.screens[frame - FRAME_SKIP + 2])
            if done := self.ale.game_over():
                break
        return self.resized(np.maximum(*self.screens)), reward, done

    @staticmethod
    def resized(screen: np.ndarray) -> np.ndarray:
        return cv2.resize(screen, (SIDE, SIDE), interpolation=cv2.INTER_AREA)


class Ring:
    """The newest steps, each with the one frame that it begins with."""

    def __init__(self, capacity: int, rng: np.random.Generator) -> None:
        self.frames = np.empty((capacity, SIDE, SIDE), np.uint8)
        self.actions = np.empty(capacity, np.int64)
        self.rewards = np.empty(capacity, np.float32)
        self.done = np.empty(capacity, np.float32)
        # Number of the step with which the episode of each step began: no state has frames of two episodes.
        self.first = np.empty(capacity, np.int64)
        self.capacity, self.rng, self.steps, self.episode = capacity, rng, 0, 0

    def state(self, frame: np.ndarray) -> np.ndarray:
        """The newest frames, `frame` the last of them. Before the episode's first frame that one is repeated."""
        older = np.maximum(np.arange(self.steps - CHANNELS + 1, self.steps), self.episode)
        older = [frame if step == self.steps else self.frames[step % self.capacity] for step in older]
        return np.stack([*older, frame])

    def add(self, frame: np.ndarray, action: int, reward: float, done: bool) -> None:
        slot = self.steps % self.capacity
        self.frames[slot], self.actions[slot], self.rewards[slot] = frame, action, reward
        self.done[slot], self.first[slot] = done, self.episode
        self.steps += 1
        if done:
            self.episode = self.steps

    def states(self, steps: np.ndarray, first: np.ndarray) -> torch.Tensor:
        frames = np.maximum(steps[:, None] + np.arange(1 - CHANNELS, 1), first[:, None])
        return torch.from_numpy(self.frames[frames % self.capacity])

    def sample(self) -> tuple[torch.Tensor, ...]:
        oldest = max(0, self.steps - self.capacity) + CHANNELS
        steps = self.rng.integers(oldest, self.steps - 1, BATCH)
        slots = steps % self.capacity
        first = self.first[slots]
        return (
            self.states(steps, first),
            torch.from_numpy(self.actions[slots]),
            torch.from_numpy(self.rewards[slots]),
            # The next state of an episode's last step is another episode's and is multiplied by 0.
            self.states(steps + 1, first),
            torch.from_numpy(self.done[slots]),
        )


class Dqn:
    """Plays and learns."""

    def __init__(self, game: str, name: str, capacity: int) -> None:
        torch.manual_seed(0)
        self.rng = np.random.default_rng(0)
        self.game, self.ring = Game(game), Ring(capacity, self.rng)
        self.online = network(name, len(self.game.actions))
        self.target = copy.deepcopy(self.online)
        self.adam = torch.optim.Adam(self.online.parameters(), lr=LEARNING_RATE, fused=True)
        self.frame = self.game.reset()
        self.updates = 0

    def act(self) -> int:
        if self.rng.random() < EPSILON:
            return int(self.rng.integers(len(self.game.actions)))
        with torch.no_grad():
            state = torch.from_numpy(self.ring.state(self.frame)).unsqueeze(0)
            return int(self.online(state.float() / 255).argmax())

    def step(self, action: int) -> None:
        frame, reward, done = self.game.step(action)
        self.ring.add(self.frame, action, float(np.sign(reward)), done)
        self.frame = self.game.reset() if done else frame

    def learn(self) -> None:
        states, actions, rewards, next_states, done = self.ring.sample()
        with torch.no_grad():
            value = self.target(next_states.float() / 255).amax(1)
            targets = rewards + DISCOUNT * (1 - done) * value
        q = self.online(states.float() / 255).gather(1, actions[:, None]).squeeze(1)
        loss = F.huber_loss(q, targets)
        self.adam.zero_grad(set_to_none=True)
        loss.backward()
        self.adam.step()
        self.updates += 1
        if self.updates % TARGET_PERIOD_UPDATES == 0:
            self.target.load_state_dict(self.online.state_dict())

    def slice(self, request: dict[str, Any]) -> dict[str, Any]:
        torch.set_num_threads(request["threads"])
        frames, updates, watch = self.game.frames, self.updates, Stopwatch()
        while watch.elapsed() < request["seconds"]:
            for _ in range(STEPS_PER_UPDATE):
                self.step(self.act())
            self.learn()
        return {"frames": self.game.frames - frames, "updates": self.updates - updates, **watch.spent()}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--game", default="breakout")
    parser.add_argument("--network", choices=("nature", "small"), default="nature")
    parser.add_argument("--capacity", type=int, default=100_000, help="steps in the ring")
    parser.add_argument("--random-steps", type=int, default=5_000, help="played at random before the first update")
    arguments = parser.parse_args()
    # Its threads would compete with those of PyTorch, for pictures this small.
    cv2.setNumThreads(1)
    dqn = Dqn(arguments.game, arguments.network, arguments.capacity)
    for _ in range(arguments.random_steps):
        dqn.step(int(dqn.rng.integers(len(dqn.game.actions))))
    log(f"plain DQN, {arguments.game}, {arguments.network}: {dqn.ring.steps} steps played at random")
    serve(dqn.slice)


if __name__ == "__main__":
    main()
