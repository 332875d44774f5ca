#!/usr/bin/env python3
"""Tests a real compose cluster: start, watch, scale, kill, disconnect, stop, resume, finish.

Needs root, built programs (`make build`) and Debian's packages; starts its own Docker engine and builds its own images. It
prints each step, and the first claim that fails ends the test with the logs. See CONTRIBUTING.md."""

import argparse
import json
import re
import tempfile
import time
from pathlib import Path

import isolation
import pictures
import tools
from cluster import DEPLOY, Cluster, inspect, kill, metrics, state
from engine import Engine
from images import all_of, without_digests
from monitoring import Prometheus
from shell import TARGET, run, say, until

PORTS = {"PROMETHEUS_PORT": "19090", "GRAFANA_PORT": "13000", "PAGE_PORT": "19180"}
# A small network and a small replay on real Pong, with evaluations of short games, so that every event happens often.
QUICK = (
    "--lanes 2 --min-size 1000 --random-steps 500 --capacity 20000 --replay-bytes 64MiB --time-limit-frames 2000 "
    "--evaluate-every-frames 8000 --evaluate-episodes 1 --evaluate-final-episodes 2 --baselines=false "
    "--checkpoint-every-frames 8000 --publish-every-updates 10"
)
RUN = "pong-ver-seed0"
# Frames to play after the last resume, beyond those just before the stop.
LAST_FRAMES = 30_000
CUT_SECONDS = 20
# Frames that shards may still store after the learner has counted enough: a few chunks of each lane.
FRAMES_ALLOWED_AHEAD = 4_000


def settings(frames):
    return {"GAME": "pong", "PRESET": "quick", "SETTINGS": f"--frames {frames} {QUICK}", **PORTS}


def the_files_are_valid():
    """Both versions of compose accept the files, with and without the override."""
    without_digests()
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


def members(actors):
    return {'quiver_learner_members{role="actor"}': actors, 'quiver_learner_members{role="evaluator"}': 1, "quiver_learner_shards_reachable": 2}


def it_starts_and_trains(cluster, prometheus):
    cluster.up(replay=2, actor=4)
    prometheus.until_shows("two shards answer, four actors and an evaluator are in the run", members(4))
    prometheus.training_advances()
    prometheus.advance("evaluations", {"quiver_actor_evaluations_total": 1})
    names = sorted(cluster.shards())
    assert len(names) == 2, names
    return names


def strangers_are_refused(cluster, prometheus):
    """Clients in the network without secrets, or with incomplete ones."""
    def refused(*words):
        done = cluster.compose("run", "--rm", "--no-TTY", "--entrypoint", "env", "admin", *words, check=False)
        assert done.returncode, f"{words} was accepted: {done.stdout}"
        return done.stderr

    inspect = ["quiver", "inspect", "replay:7701"]
    message = refused("-u", "QUIVER_SECRETS", *inspect)
    assert "add --secrets" in message, message
    message = refused("sh", "-c", "cp /secrets/admin/ca.pem /tmp && quiver inspect replay:7701 --secrets /tmp")
    assert "no token or client certificate" in message, message
    prometheus.until_shows("they are counted", {'quiver_rpc_requests_refused_total{job="replay"}': 1})


def it_can_be_adjusted(cluster, prometheus):
    """With the command in the image; no gRPC port of the learner or of a shard is published."""
    cluster.admin("adjust", "learner:7700", "--samples-per-insert", "4")
    prometheus.until_shows("the target has changed", {"quiver_learner_samples_per_insert_target": 4})
    prometheus.training_advances()


def it_can_be_scaled(cluster, prometheus):
    for actors in [8, 2]:
        cluster.up(replay=2, actor=actors)
        prometheus.until_shows(f"there are {actors} actors", members(actors))
        prometheus.training_advances()


def a_shard_is_killed(cluster, prometheus, names):
    before = cluster.shards()
    kill(cluster.running("replay")[0])
    prometheus.until_shows("both shards answer", members(2))
    prometheus.training_advances()
    after = cluster.shards()
    assert sorted(after) == names, "the same shards"
    for name in names:
        assert after[name]["incarnation"] == before[name]["incarnation"], f"{name} lost data"
        assert after[name]["chunks"] >= before[name]["chunks"], f"{name} lost chunks"


def an_actor_is_killed(cluster, prometheus):
    kill(cluster.running("actor")[0])
    prometheus.until_shows("both actors are in the run", members(2))
    prometheus.training_advances()


def the_learner_is_killed(cluster, prometheus):
    until("a checkpoint was written", lambda: prometheus.value("quiver_learner_checkpoints_total"))
    kill(cluster.running("learner")[0])
    until("it resumes from a checkpoint", lambda: "resumed from a checkpoint" in cluster.logs("learner"))
    prometheus.until_shows("its members are back", members(2))
    prometheus.training_advances()


def an_actor_is_cut_off(cluster, prometheus):
    actor = cluster.running("actor")[-1]
    chunks = lambda: metrics(actor).get("quiver_actor_chunks_total", 0.0)
    before, restarts = chunks(), inspect(actor)["RestartCount"]
    say(f"disconnecting an actor for {CUT_SECONDS} s")
    cluster.cut_off(actor)
    cut = time.monotonic()
    prometheus.advance("frames, without it,", {"quiver_learner_frames": 400})
    time.sleep(max(0.0, CUT_SECONDS - (time.monotonic() - cut)))
    cluster.connect(actor, "actor")
    played = until("it can be reached again", chunks)
    assert played >= before and inspect(actor)["RestartCount"] == restarts, "it is the same process"
    until("shards store its chunks again", lambda: chunks() > played + 4)
    prometheus.until_shows("both actors are in the run", members(2))


def every_panel_has_data(prometheus):
    """Every panel of every dashboard, including those of rare events."""
    shown = run(TARGET / "release/quiver-dashboards", "check", prometheus.base, "--timeout", "240", "--window", "1m")
    say(shown.strip())


def alerts_fire_and_end(cluster, prometheus):
    """Tests the alerts that can be triggered in minutes; promtool tests all of them."""
    def firing():
        return {series["metric"]["alertname"] for series in prometheus.results('ALERTS{alertstate="firing"}')}

    until("ActorCountDropped fires: there were eight", lambda: "ActorCountDropped" in firing())
    for service, expected in [("replay", {"ShardLost"}), ("learner", {"LearnerLost", "NoChunksStored"})]:
        container, words = cluster.running(service)[0], " and ".join(sorted(expected))
        run("docker", "stop", "--time", "60", container)
        until(f"without {inspect(container)['Name'][1:]}: {words}", lambda: expected <= firing(), 480)
        run("docker", "start", container)
        until("it is back, and they resolve", lambda: not expected & firing())
        prometheus.until_shows("all members answer", members(2))
        prometheus.training_advances()


def pictures_are_taken(cluster, prometheus, folder):
    """Takes the pictures when curves are long enough, with as many actors as at first."""
    cluster.up(replay=2, actor=4)
    prometheus.until_shows("there are 4 actors", members(4))
    until("curves are long enough", lambda: prometheus.query(f"quiver_learner_frames offset {pictures.SPAN_SECONDS}s"), 600)
    pictures.take(folder, prometheus.base, f"http://127.0.0.1:{PORTS['PAGE_PORT']}/")


def it_is_stopped(cluster):
    """Stops all containers at once. Returns the frames so far."""
    frames = int(metrics(cluster.running("learner")[0])["quiver_learner_frames"])
    cluster.compose("stop", "replay", "learner", "evaluator", "actor")
    assert cluster.has_ended_well(), "all exit 0"
    say(f"stopped at {frames} frames")
    return frames


def it_ends(cluster):
    """Resumes the run as `make cluster` does, with a budget that is soon reached."""
    run(DEPLOY / "cluster", "--no-build", "--scale", "actor=2", env=cluster.variables)
    say("the learner has exited 0")
    until("all exit 0", cluster.has_ended_well)
    log = cluster.logs("learner")
    resumed, ended = frames_in(log, "resumed from a checkpoint"), frames_in(log, "run finished")
    say(f"trained from {resumed} to {ended} frames")
    assert ended >= resumed + 1_000, "it trained before it ended"
    stays = [state(container)["Running"] for name in ["prometheus", "grafana"] for container in cluster.containers(name)]
    assert stays == [True, True], "monitoring keeps running"


def frames_in(log, words):
    """The frames field of the last log line with this message."""
    return int(re.findall(rf"{words} frames=(\d+)", log)[-1])


def it_leaves_results(cluster):
    """Results are in the volume: they can be copied or used in place."""
    with tempfile.TemporaryDirectory() as folder:
        cluster.compose("cp", f"learner:/data/runs/{RUN}", folder)
        taken = Path(folder, RUN)
        lines = (taken / "evaluations.jsonl").read_text().splitlines()
        assert len(lines) >= 2 and (taken / "checkpoints/final/weights.safetensors").is_file(), lines
    shown = cluster.admin("evaluate", f"/data/runs/{RUN}", "--episodes", "1", "--json")
    assert "mean" in shown, shown
    say(f"{len(lines)} evaluations were recorded, and the agent plays")


def all_is_accounted_for(cluster, prometheus, names):
    """Shards keep their totals across kills and stops. A missing acknowledged chunk would leave a gap in its lane, which the
    shard counts as lost."""
    of_actors = prometheus.counted('quiver_actor_chunks_total{job="actor"}')
    acknowledged = sum(of_actors)
    lost = sum(prometheus.counted('quiver_replay_chunks_total{result="lost"}'))
    damaged = sum(prometheus.counted("quiver_replay_damaged_total"))
    counted = frames_in(cluster.logs("learner"), "run finished")
    cluster.compose("up", "--wait", "--no-build", "--scale", "replay=2", "replay")
    shards = cluster.shards()
    assert sorted(shards) == names
    chunks = sum(shard["chunks"] for shard in shards.values())
    frames = 4 * sum(shard["agent_steps"] for shard in shards.values())
    say(f"{chunks} chunks stored, at least {acknowledged:.0f} acknowledged to {len(of_actors)} actors, {lost:.0f} lost")
    say(f"{frames} frames stored, {counted} counted")
    assert lost == 0 and damaged == 0, f"lost {lost}, damaged {damaged}"
    assert 0 < acknowledged <= chunks, f"acknowledged to each actor: {of_actors}"
    assert counted <= frames <= counted + FRAMES_ALLOWED_AHEAD


def story(cluster, prometheus, screenshots):
    names = it_starts_and_trains(cluster, prometheus)
    strangers_are_refused(cluster, prometheus)
    it_can_be_adjusted(cluster, prometheus)
    it_can_be_scaled(cluster, prometheus)
    a_shard_is_killed(cluster, prometheus, names)
    an_actor_is_killed(cluster, prometheus)
    the_learner_is_killed(cluster, prometheus)
    an_actor_is_cut_off(cluster, prometheus)
    every_panel_has_data(prometheus)
    alerts_fire_and_end(cluster, prometheus)
    if screenshots:
        pictures_are_taken(cluster, prometheus, screenshots)
    frames = it_is_stopped(cluster)
    cluster.variables.update(settings(frames + LAST_FRAMES))
    it_ends(cluster)
    it_leaves_results(cluster)
    all_is_accounted_for(cluster, prometheus, names)


def main():
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("--keep", action="store_true", help="keep the volumes for inspection")
    arguments.add_argument("--screenshots", metavar="DIR", type=Path, help="take pictures of all pages, with Chromium")
    given = arguments.parse_args()
    if not isolation.inside():
        isolation.alone()
        tools.prepare()
        if given.screenshots:
            tools.install({"chromium": "chromium"})
    isolation.enter()
    with Engine(given.keep):
        all_of(the_files_are_valid())
        cluster = Cluster("quiver-test", settings("40M"))
        try:
            story(cluster, Prometheus(PORTS["PROMETHEUS_PORT"]), given.screenshots)
            say("all claims hold")
        except BaseException:
            for service in ["replay", "learner", "evaluator", "actor", "prometheus"]:
                print(f"--- {service}\n" + "\n".join(cluster.logs(service).splitlines()[-40:]), flush=True)
            raise
        finally:
            cluster.compose("down", *([] if given.keep else ["--volumes"]), check=False)
            say("the cluster is down")


if __name__ == "__main__":
    main()
