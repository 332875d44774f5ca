"""Writes to and samples from a shard with authentication: works with the secrets of a client, is refused with others.

`replay-server/tests/python.rs` runs it: python3 secured.py <address> <folder that quiver certs created>"""

import sys

import numpy as np
from quiver_replay import Client, Refused, Table


def main(address: str, secrets: str) -> None:
    for stranger in ["actor", "admin"]:
        try:
            Client(address, shape=(8, 8), secrets=f"{secrets}/{stranger}").create([Table("t", capacity=100)], actions=2)
        except Refused as refused:
            assert "may not call" in str(refused), refused
        else:
            raise AssertionError(f"{stranger} may not do this")
    client = Client(address, shape=(8, 8), secrets=f"{secrets}/client")
    client.create([Table("t", capacity=100)], actions=2)
    frames = np.arange(21 * 64, dtype=np.uint8).reshape(21, 8, 8)
    with client.writer() as writer:
        writer.write(frames, np.zeros(20, int), np.ones(20), terminated=True, priorities=np.ones(20))
    with client.sampler(8) as sampler:
        batch = next(iter(sampler))
        sampler.update(batch, np.full(len(batch), 2.0))
    assert len(batch) == 8 and client.inspect()["items"] == 20, client.inspect()
    print("all is well")


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2])
