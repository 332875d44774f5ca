"""A client in a second language: it knows a shard from our .proto files alone.

It tells the shard what to hold, inserts a chunk, draws it back byte for byte, changes a priority and sees the effect.
`replay-server/tests/python.rs` runs it against the real binary:

    python3 client.py <folder of the .proto files> <address: unix:/path or host:port>
"""

import pathlib
import sys
import tempfile

import grpc
import grpc_tools
from grpc_tools import protoc

RUN = "a run of Python's"
FRAME_BYTES = 100
SECONDS = 60


def generate(protos: str, into: str):
    """Compiles the .proto files and imports the result."""
    files = sorted(str(path.relative_to(protos)) for path in pathlib.Path(protos).rglob("*.proto"))
    well_known = str(pathlib.Path(grpc_tools.__file__).parent / "_proto")
    arguments = ["protoc", f"-I{protos}", f"-I{well_known}", f"--python_out={into}", f"--grpc_python_out={into}"]
    assert protoc.main(arguments + files) == 0, "protoc failed"
    sys.path.insert(0, into)
    from quiver.v1 import replay_pb2, replay_pb2_grpc

    return replay_pb2, replay_pb2_grpc


def crc32c(data: bytes) -> int:
    """CRC-32C (Castagnoli), bit by bit: slow, and plainly right."""
    crc = 0xFFFFFFFF
    for byte in data:
        crc ^= byte
        for _ in range(8):
            crc = (crc >> 1) ^ (0x82F63B78 if crc & 1 else 0)
    return crc ^ 0xFFFFFFFF


def frame(step: int) -> bytes:
    return bytes((step * 50 + at * at) % 256 for at in range(FRAME_BYTES))


def main(protos: str, address: str, into: str) -> None:
    assert crc32c(b"123456789") == 0xE3069283, "the known check value"
    pb, services = generate(protos, into)
    # For a Unix socket grpcio names its path as the authority, which is no host, so the server's HTTP/2 refuses it.
    channel = grpc.insecure_channel(address, options=[("grpc.default_authority", "localhost")])
    shard = services.ReplayStub(channel)
    caller = pb.Caller(protocol=1, run=RUN)

    info = shard.Info(pb.InfoRequest(), timeout=SECONDS, wait_for_ready=True)
    assert info.protocol == 1 and info.run == "" and not info.HasField("table"), info
    incarnation = info.shard.incarnation

    table = pb.Table(
        capacity=100, bytes_max=1 << 20, stack=2, frame_bytes=FRAME_BYTES, codec="none", actions=3,
        priority_exponent=1.0, priority_constant=0.0, first_priority=1.0,
    )
    allowance = pb.Allowance(shard_incarnation=incarnation, inserts=10)
    granted = shard.Grant(
        pb.GrantRequest(caller=caller, learner_incarnation=1, table=table, allowance=allowance), timeout=SECONDS
    )
    assert granted.shard.inserts_allowed == 10, granted

    # An episode of three steps and its final observation; an item for each step.
    weights = pb.WeightsVersion(incarnation=1, number=5)
    def taken(number: int):
        return pb.Taken(
            action=number, reward=number / 2, terminated=number == 2, log_probability=-1.5, weights=weights
        )
    steps = [
        pb.Step(
            frame=frame(number), frame_crc32c=crc32c(frame(number)), starts_episode=number == 0,
            taken=taken(number) if number < 3 else None,
        )
        for number in range(4)
    ]
    items = [pb.NewItem(first=0, length=1, of=1.0), pb.NewItem(first=1, length=1, of=3.0),
             pb.NewItem(first=2, length=1, largest=True)]
    lane = pb.LaneKey(actor=2, incarnation=11, lane=0)
    hello = pb.InsertHello(
        caller=caller, actor=2, incarnation=11, codec="none", frame_bytes=FRAME_BYTES, stack=2
    )
    chunk = pb.Chunk(lane=lane, sequence=0, first_step=0, steps=steps, items=items)
    requests = [pb.InsertRequest(hello=hello), pb.InsertRequest(chunk=chunk), pb.InsertRequest(chunk=chunk)]
    replies = [reply.stored for reply in shard.Insert(iter(requests), timeout=SECONDS)]
    assert [(reply.sequence, reply.items, reply.duplicate) for reply in replies] == [(0, 3, False), (0, 0, True)]

    # Priorities are 1, 3 and, the largest so far, 3: the mass is 7.
    request = pb.SampleRequest(caller=caller, learner_incarnation=1, points=[0.0, 0.5, 0.99])
    (sampled,) = shard.Sample(iter([request]), timeout=SECONDS)
    assert [item.first_step for item in sampled.items] == [0, 1, 2], sampled
    for number, item in enumerate(sampled.items):
        # The state's two frames, where they exist, and the next one.
        assert list(item.frames) == [frame(step) for step in range(max(0, number - 1), number + 2)], item
        assert list(item.steps) == [taken(number)], item
        assert item.lane == lane and item.key.shard_incarnation == incarnation, item
        assert item.times_sampled == 1 and item.age_inserts == 2 - number, item
    assert [item.probability for item in sampled.items] == [1 / 7, 3 / 7, 3 / 7], sampled

    updates = [
        pb.PriorityUpdate(key=sampled.items[0].key, priority=96.0),
        pb.PriorityUpdate(key=pb.ItemKey(shard_incarnation=incarnation, slot=50, generation=50), priority=1.0),
    ]
    updated = shard.UpdatePriorities(
        pb.UpdatePrioritiesRequest(caller=caller, learner_incarnation=1, updates=updates), timeout=SECONDS
    )
    assert (updated.applied, updated.stale, updated.removed) == (1, 1, 0), updated

    request = pb.SampleRequest(caller=caller, learner_incarnation=1, points=[0.9])
    (sampled,) = shard.Sample(iter([request]), timeout=SECONDS)
    (item,) = sampled.items
    assert (item.first_step, item.priority, item.probability) == (0, 96.0, 96 / 102), item

    info = shard.Info(pb.InfoRequest(), timeout=SECONDS)
    assert info.run == RUN and info.table == table, info
    standing, counters = info.shard, info.shard.counters
    assert (standing.items, standing.mass, standing.largest_priority) == (3, 102.0, 96.0), info
    assert (counters.inserts, counters.actions, counters.duplicate_chunks, counters.samples) == (3, 3, 1, 4), info

    # What is wrong is refused with a status that says so.
    try:
        stranger = pb.Caller(protocol=2, run=RUN)
        shard.Grant(pb.GrantRequest(caller=stranger, learner_incarnation=1, table=table), timeout=SECONDS)
        raise AssertionError("another protocol was not refused")
    except grpc.RpcError as error:
        assert error.code() == grpc.StatusCode.FAILED_PRECONDITION, error
        assert "protocol 1, the caller 2" in error.details(), error
    channel.close()
    print("all is well")


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as generated:
        main(sys.argv[1], sys.argv[2], generated)
