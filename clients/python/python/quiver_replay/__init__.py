"""Write to, sample from and look into a Quiver replay shard, with numpy arrays.

A `Client` names one shard. It says what the shard holds (`Client.create`), and makes writers and samplers:

    client = Client("127.0.0.1:7777", shape=(84, 84))
    client.create([Table("transitions", capacity=100_000)], actions=6, stack=4)
    with client.writer() as writer:
        writer.write(frames, actions, rewards, terminated=True, priorities=td_errors)
    sampler = client.sampler(32)
    for batch in sampler:
        sampler.update(batch, learn(batch))

Errors: `ValueError` for what can never be right, `ConnectionError` for a shard that can't be reached, `TimeoutError` for
one that takes longer than you allowed, `Refused` for what the shard does not do. Whoever waits longer than ten seconds
says so in the log of the name "quiver_replay".
"""

from ._core import Refused
from .batch import Batch
from .client import Client, Table
from .sampler import Sampler
from .writer import Writer

__all__ = ["Batch", "Client", "Refused", "Sampler", "Table", "Writer"]
