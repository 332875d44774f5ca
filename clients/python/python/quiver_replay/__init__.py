"""Write to, sample from and inspect a Quiver replay shard, with numpy arrays.

A `Client` connects to one shard. It configures the shard (`Client.create`), and creates writers and samplers:

    client = Client("127.0.0.1:7701", shape=(84, 84))
    client.create([Table("transitions", capacity=100_000)], actions=6, stack=4)
    with client.writer() as writer:
        writer.write(frames, actions, rewards, terminated=True, priorities=td_errors)
    sampler = client.sampler(32)
    for batch in sampler:
        sampler.update(batch, learn(batch))

Errors: `ValueError` for invalid arguments, `ConnectionError` for an unreachable shard, `TimeoutError` if a call takes
longer than its timeout, `Refused` if the shard permanently refuses a request. A wait of more than ten seconds is logged
by the logger "quiver_replay".
"""

from ._core import Refused
from .batch import Batch
from .client import Client, Table
from .sampler import Sampler
from .writer import Writer

__all__ = ["Batch", "Client", "Refused", "Sampler", "Table", "Writer"]
