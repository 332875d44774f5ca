#!/usr/bin/env python3
"""The compose cluster, for real: started, watched, scaled, hit, cut off, stopped, resumed, finished.

Needs root, built programs (`make build`) and Debian's packages; brings its own Docker engine and images. What happens is
told line by line, and the first claim that does not hold ends it with the logs. See CONTRIBUTING.md."""

import argparse
import json
import re
import tempfile
import time
from pathlib import Path

import tools
from cluster import DEPLOY, Cluster, kill, metrics, state
from engine import Engine
from images import all_of
from monitoring import Prometheus
from shell import run, say, until

PORTS = {"PROMETHEUS_PORT": "19090", "GRAFANA_PORT": "13000", "PAGE_PORT": "19180"}
# A small network and a small replay on real Pong, with evaluations of short games: everything happens often.
QUICK = (
    "--lanes 2 --min-size 1000 --random-steps 500 --capacity 20000 --replay-bytes 64MiB --time-limit-frames 2000 "
    "--evaluate-every-frames 8000 --evaluate-episodes 1 --evaluate-final-episodes 2 --baselines=false "
    "--checkpoint-every-frames 8000 --publish-every-updates 10"
)
RUN = "pong-ver-seed0"
# So many frames are left when the run is resumed for its end, beyond those that Prometheus saw before it was stopped.
LAST_FRAMES = 40_000
CUT_SECONDS = 20
# What shards may still take in when the learner has counted enough: a few chunks of each lane.
FRAMES_ALLOWED_AHEAD = 4_000


def settings(frames):
    return {"GAME": "pong", "PRESET": "quick", "SETTINGS": f"--frames {frames} {QUICK}", **PORTS}


def the_files_are_valid():
    """In both versions of compose, with and without the override."""
    for files in [["compose.yaml"], ["compose.yaml", "compose.gpu.yaml"]]:
        flags = [word for file in files for word in ("-f", file)]
        for program in [["docker", "compose"], ["docker-compose"]]:
            run(*program, *flags, "config", "-q", cwd=DEPLOY)
    shown = json.loads(run("docker", "compose", "config", "--format", "json", cwd=DEPLOY))["services"]
    for name, service in shown.items():
        for port in service.get("ports", []):
            assert port["host_ip"] == "127.0.0.1", f"{name} is published to everyone"
    say("compose v1 and v2 accept the files; everything is published on loopback only")
    return sorted({service["image"] for service in shown.values()})


def it_starts_and_trains(cluster, prometheus):
    cluster.up(replay=2, actor=4)
    until("two shards answer", lambda: prometheus.counts("learner_shards_reachable", 2))
    until("four actors and an evaluator are in the run", lambda: prometheus.value('learner_members{role="actor"}') == 4
          and prometheus.value('learner_members{role="evaluator"}') == 1)
    prometheus.training_goes_on()
    prometheus.advances("evaluations", "sum(actor_evaluations_total)", 1)
    names = sorted(cluster.shards())
    assert len(names) == 2, names
    return names


def it_can_be_told(cluster, prometheus):
    """By the command that is in the image; no port of the learner or of a shard is published."""
    cluster.admin("adjust", "learner:7700", "--samples-per-insert", "4")
    prometheus.training_goes_on()


def it_can_be_scaled(cluster, prometheus):
    for actors in [8, 2]:
        cluster.up(replay=2, actor=actors)
        until(f"there are {actors} actors", lambda: prometheus.value('learner_members{role="actor"}') == actors)
        prometheus.training_goes_on()


def a_shard_is_killed(cluster, prometheus, names):
    before = cluster.shards()
    kill(cluster.running("replay")[0])
    until("both shards answer", lambda: prometheus.counts("learner_shards_reachable", 2))
    prometheus.training_goes_on()
    after = cluster.shards()
    assert sorted(after) == names, "the same shards"
    for name in names:
        assert after[name]["incarnation"] == before[name]["incarnation"], f"{name} lost something"
        assert after[name]["chunks"] >= before[name]["chunks"], f"{name} forgot chunks"


def an_actor_is_killed(cluster, prometheus):
    kill(cluster.running("actor")[0])
    until("both actors are back", lambda: prometheus.value('learner_members{role="actor"}') == 2)
    prometheus.training_goes_on()


def the_learner_is_killed(cluster, prometheus):
    checkpoints = "learner_checkpoints_total"
    until("a checkpoint was written", lambda: prometheus.counts(checkpoints, 1))
    kill(cluster.running("learner")[0])
    until("it goes on from a checkpoint", lambda: "going on from" in cluster.logs("learner"))
    until("its members are back", lambda: prometheus.value('learner_members{role="actor"}') == 2)
    prometheus.training_goes_on()


def an_actor_is_cut_off(cluster, prometheus):
    actor = cluster.running("actor")[-1]
    say(f"cutting an actor off for {CUT_SECONDS} s")
    cluster.cut_off(actor)
    cut = time.monotonic()
    prometheus.advances("frames, without it,", "learner_frames", 400)
    time.sleep(max(0.0, CUT_SECONDS - (time.monotonic() - cut)))
    cluster.connect(actor, "actor")
    played = metrics(actor)["actor_chunks_total"]
    until("what it plays is taken in again", lambda: metrics(actor)["actor_chunks_total"] > played + 4)
    assert state(actor)["Running"]


def it_is_stopped(cluster, prometheus):
    """Everything at once, as at night. Gives the frames so far."""
    frames = int(prometheus.value("learner_frames"))
    cluster.compose("stop", "replay", "learner", "evaluator", "actor")
    assert cluster.has_ended_well(), "stopped in order"
    say(f"stopped at {frames} frames")
    return frames


def it_ends(cluster):
    """Resumed, by what `make cluster` does, with a budget that is soon reached."""
    run(DEPLOY / "cluster", "--no-build", "--scale", "actor=2", env=cluster.variables)
    say("the learner has exited 0")
    until("all exit 0", cluster.has_ended_well)
    log = cluster.logs("learner")
    resumed, ended = frames_in(log, r"going on from \S+"), frames_in(log, "finished")
    say(f"trained from {resumed} to {ended} frames")
    assert ended >= resumed + 1_000, "it went on before it ended"
    stays = [state(container)["Running"] for name in ["prometheus", "grafana"] for container in cluster.containers(name)]
    assert stays == [True, True], "those who watch stay"


def frames_in(log, words):
    """Of the last line that says this."""
    return int(re.findall(rf"{words} frames=(\d+)", log)[-1])


def it_leaves_results(cluster):
    """In the volume, to be taken out or used where they are."""
    with tempfile.TemporaryDirectory() as folder:
        cluster.compose("cp", f"learner:/data/runs/{RUN}", folder)
        taken = Path(folder, RUN)
        lines = (taken / "evaluations.jsonl").read_text().splitlines()
        assert len(lines) >= 2 and (taken / "checkpoints/final/weights.safetensors").is_file(), lines
    shown = cluster.admin("evaluate", f"/data/runs/{RUN}", "--episodes", "1", "--json")
    assert "mean" in shown, shown
    say(f"{len(lines)} evaluations were recorded, and the agent plays")


def all_is_accounted_for(cluster, prometheus, names):
    """Shards keep their totals over kills and stops. A chunk that was acknowledged and is not there would leave a gap in
    its lane, which the shard counts as lost."""
    acknowledged = sum(prometheus.query("sum by (instance) (max_over_time(actor_chunks_total[1h]))"))
    lost = sum(prometheus.query('max_over_time(replay_chunks_total{result="lost"}[1h])'))
    damaged = sum(prometheus.query("max_over_time(replay_damaged_total[1h])"))
    counted = frames_in(cluster.logs("learner"), "finished")
    cluster.compose("up", "--wait", "--no-build", "--scale", "replay=2", "replay")
    shards = cluster.shards()
    assert sorted(shards) == names
    chunks = sum(shard["chunks"] for shard in shards.values())
    frames = 4 * sum(shard["agent_steps"] for shard in shards.values())
    say(f"{chunks} chunks stored, at least {acknowledged:.0f} acknowledged, {lost:.0f} lost")
    say(f"{frames} frames stored, {counted} counted")
    assert lost == 0 and damaged == 0
    assert 0 < acknowledged <= chunks
    assert counted <= frames <= counted + FRAMES_ALLOWED_AHEAD


def story(cluster, prometheus):
    names = it_starts_and_trains(cluster, prometheus)
    it_can_be_told(cluster, prometheus)
    it_can_be_scaled(cluster, prometheus)
    a_shard_is_killed(cluster, prometheus, names)
    an_actor_is_killed(cluster, prometheus)
    the_learner_is_killed(cluster, prometheus)
    an_actor_is_cut_off(cluster, prometheus)
    frames = it_is_stopped(cluster, prometheus)
    cluster.variables.update(settings(frames + LAST_FRAMES))
    it_ends(cluster)
    it_leaves_results(cluster)
    all_is_accounted_for(cluster, prometheus, names)


def main():
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("--keep", action="store_true", help="leave the volumes for a look")
    keep = arguments.parse_args().keep
    tools.install()
    with Engine():
        all_of(the_files_are_valid())
        cluster = Cluster("quiver-test", settings("40M"))
        cluster.compose("down", "--volumes", check=False)
        try:
            story(cluster, Prometheus(PORTS["PROMETHEUS_PORT"]))
            say("all of it holds")
        except BaseException:
            for service in ["replay", "learner", "evaluator", "actor", "prometheus"]:
                print(f"--- {service}\n" + "\n".join(cluster.logs(service).splitlines()[-40:]), flush=True)
            raise
        finally:
            cluster.compose("down", *([] if keep else ["--volumes"]), check=False)


if __name__ == "__main__":
    main()
