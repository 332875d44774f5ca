"""A client in a second language that uses only the .proto files.

It configures a shard, inserts a chunk, samples it back byte for byte, changes a priority and checks the effect,
and makes the calls of an operator.
`replay-server/tests/python.rs` runs it against the real binary:

    python3 client.py <folder of the .proto files> <address: unix:/path or host:port> [<folder of secrets: client>]
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
# Bits of a step's flags.
TERMINATED, FINAL, STARTS_EPISODE, KEY_FRAME = 1, 8, 16, 32


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
    """CRC-32C (Castagnoli), bit by bit: slow, but obviously correct."""
    crc = 0xFFFFFFFF
    for byte in data:
        crc ^= byte
        for _ in range(8):
            crc = (crc >> 1) ^ (0x82F63B78 if crc & 1 else 0)
    return crc ^ 0xFFFFFFFF


def frame(step: int) -> bytes:
    return bytes((step * 50 + at * at) % 256 for at in range(FRAME_BYTES))


def connect(address: str, secrets: str) -> grpc.Channel:
    """Connects in plaintext, or with TLS and a token to a shard that runs with --secrets."""
    if not secrets:
        # For a Unix socket grpcio sends its path as the authority. That is not a host, so the server's HTTP/2 refuses it.
        return grpc.insecure_channel(address, options=[("grpc.default_authority", "localhost")])
    folder = pathlib.Path(secrets)
    tls = grpc.ssl_channel_credentials((folder / "ca.pem").read_bytes())
    token = grpc.access_token_call_credentials((folder / "token").read_text().strip())
    return grpc.secure_channel(address, grpc.composite_channel_credentials(tls, token))


def main(protos: str, address: str, into: str, secrets: str) -> None:
    assert crc32c(b"123456789") == 0xE3069283, "the known check value"
    pb, services = generate(protos, into)
    channel = connect(address, secrets)
    shard = services.ReplayStub(channel)
    caller = pb.Caller(protocol=5, run=RUN)

    info = shard.Info(pb.InfoRequest(), timeout=SECONDS, wait_for_ready=True)
    assert info.protocol == 5 and info.run == "" and not info.HasField("store"), info
    incarnation = info.shard.incarnation

    table = pb.Table(
        name="replay", capacity=100, sampler="proportional", remover="fifo", priority_exponent=1.0,
        priority_constant=0.0, first_priority=1.0,
    )
    store = pb.Store(
        bytes_max=1 << 20, stack=2, frame_bytes=FRAME_BYTES, codec="none", actions=3, tables=[table]
    )
    allowance = pb.Allowance(shard_incarnation=incarnation, inserts=10)
    granted = shard.Grant(
        pb.GrantRequest(caller=caller, learner_incarnation=1, store=store, allowance=allowance), timeout=SECONDS
    )
    assert granted.shard.allowance == 10, granted

    # An episode of three steps and its final observation; an item for each step.
    frames = [frame(number) for number in range(4)]
    steps = pb.Steps(
        actions=[0, 1, 2, 0], rewards=[0.0, 0.5, 1.0, 0.0], log_probabilities=[-1.5, -1.5, -1.5, 0.0],
        flags=bytes([KEY_FRAME | STARTS_EPISODE, KEY_FRAME, KEY_FRAME | TERMINATED, KEY_FRAME | FINAL]),
        weights_incarnations=[1, 1, 1, 0], weights_numbers=[5, 5, 5, 0],
    )
    chunk = pb.Chunk(
        lane=pb.LaneKey(actor=2, incarnation=11, lane=0), sequence=0, first_step=0, steps=steps,
        frame_bytes=[len(packed) for packed in frames], frames=b"".join(frames),
        frames_crc32c=crc32c(b"".join(frames)),
        # -1 requests the largest priority so far.
        item_firsts=[0, 1, 2], item_lengths=bytes([1, 1, 1]), item_priorities=[1.0, 3.0, -1.0],
    )
    # Without a learner, the shard issues the ticket that proves actor and incarnation.
    ticket = shard.IssueTicket(pb.IssueTicketRequest(caller=caller, actor=2, incarnation=11), timeout=SECONDS).ticket
    hello = pb.InsertHello(
        caller=caller, actor=2, incarnation=11, codec="none", frame_bytes=FRAME_BYTES, stack=2, ticket=ticket
    )
    requests = [pb.InsertRequest(hello=hello), pb.InsertRequest(chunk=chunk), pb.InsertRequest(chunk=chunk)]
    replies = [reply.stored for reply in shard.Insert(iter(requests), timeout=SECONDS)]
    assert [(reply.sequence, reply.items, reply.duplicate) for reply in replies] == [(0, 3, False), (0, 0, True)]

    # Priorities are 1, 3 and, the largest so far, 3: the mass is 7.
    request = pb.SampleRequest(caller=caller, learner_incarnation=1, points=[0.0, 0.5, 0.99])
    (sampled,) = shard.Sample(iter([request]), timeout=SECONDS)
    batch = sampled.batch
    assert list(batch.first_steps) == [0, 1, 2] and list(batch.lengths) == [1, 1, 1], batch
    # The state's two frames, where they exist, and the next one.
    drawn = [number for first in range(3) for number in range(max(0, first - 1), first + 2)]
    assert batch.frames == b"".join(frames[number] for number in drawn), batch
    assert list(batch.frame_counts) == [2, 3, 3] and list(batch.leads) == [0, 0, 0], batch
    assert list(batch.frame_bytes) == [FRAME_BYTES] * 8 and batch.key_frames == bytes([1] * 8), batch
    assert list(batch.steps.actions) == [0, 1, 2] and list(batch.steps.rewards) == [0.0, 0.5, 1.0], batch
    assert batch.steps.flags == bytes([0, 0, TERMINATED]), batch
    assert list(batch.steps.log_probabilities) == [-1.5] * 3 and list(batch.steps.weights_numbers) == [5] * 3, batch
    assert list(batch.actors) == [2] * 3 and list(batch.actor_incarnations) == [11] * 3, batch
    assert list(batch.lanes) == [0] * 3 and batch.shard_incarnation == incarnation, batch
    assert list(batch.times_sampled) == [1] * 3 and list(batch.ages_inserts) == [2, 1, 0], batch
    assert list(batch.probabilities) == [1 / 7, 3 / 7, 3 / 7] and list(batch.priorities) == [1.0, 3.0, 3.0], batch

    # New priorities, one of them for an item that does not exist, in a separate call and with a sample request.
    slot, generation = batch.slots[0], batch.generations[0]
    updates = pb.Updates(
        shard_incarnation=incarnation, slots=[slot, 50], generations=[generation, 50], priorities=[96.0, 1.0]
    )
    updated = shard.UpdatePriorities(
        pb.UpdatePrioritiesRequest(caller=caller, learner_incarnation=1, updates=updates), timeout=SECONDS
    )
    assert (updated.applied, updated.stale, updated.removed) == (1, 1, 0), updated
    updates.priorities[0] = 90.0
    request = pb.SampleRequest(caller=caller, learner_incarnation=1, points=[0.9], updates=updates)
    (sampled,) = shard.Sample(iter([request]), timeout=SECONDS)
    batch = sampled.batch
    assert (sampled.applied, sampled.stale) == (1, 1), sampled
    assert (batch.first_steps[0], batch.priorities[0], batch.probabilities[0]) == (0, 90.0, 90 / 96), batch

    info = shard.Info(pb.InfoRequest(), timeout=SECONDS)
    # Not set in the grant: the most that there is.
    store.max_length = 255
    assert info.run == RUN and info.store == store and not info.durable and not info.blocked_callers, info
    table_status, counters = info.shard.tables[0], info.shard.counters
    assert (table_status.items, table_status.mass, table_status.largest_priority) == (3, 96.0, 96.0), info
    assert (table_status.samples, table_status.updates, table_status.stale_updates) == (4, 2, 2), info
    assert (counters.inserts, counters.agent_steps, counters.duplicate_chunks) == (3, 3, 1), info

    # Calls of an operator.
    inspected = shard.Inspect(pb.InspectRequest(top=2), timeout=SECONDS)
    assert list(inspected.top.first_steps) == [0, 1] and inspected.top.frames == b"", inspected
    assert sum(inspected.priorities.counts) == 3, inspected
    key = pb.ItemKey(shard_incarnation=incarnation, slot=slot, generation=generation)
    item = shard.GetItem(pb.GetItemRequest(key=key), timeout=SECONDS)
    assert item.batch.frames == frames[0] + frames[1] and item.store == store, item
    configured = shard.Configure(pb.ConfigureRequest(table="replay", priority_exponent=0.0), timeout=SECONDS)
    assert configured.store.tables[0].priority_exponent == 0.0, configured
    snapshot = b"".join(reply.piece for reply in shard.Snapshot(pb.SnapshotRequest(), timeout=SECONDS))
    assert snapshot.startswith(b"quivsnap"), snapshot[:100]

    # Invalid calls are refused with a precise status.
    try:
        stranger = pb.Caller(protocol=2, run=RUN)
        shard.Grant(pb.GrantRequest(caller=stranger, learner_incarnation=1, store=store), timeout=SECONDS)
        raise AssertionError("another protocol was not refused")
    except grpc.RpcError as error:
        assert error.code() == grpc.StatusCode.FAILED_PRECONDITION, error
        assert "protocol 5, the caller 2" in error.details(), error
    channel.close()
    print("all is well")


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as generated:
        main(sys.argv[1], sys.argv[2], generated, sys.argv[3] if len(sys.argv) > 3 else "")
