#!/usr/bin/env python3
"""Measures the overhead of containers: frames and updates per second of a cluster inside compose, and of the same processes
outside.

Both run the programs, settings and commands of deploy/compose.yaml, two shards, a learner, two actors and an evaluator,
each time a new run from the beginning. They alternate. Outside, every process has a loopback address instead of
a container. Rates per wall time are meaningful on an idle machine only, so the load is printed with them. Rates per CPU time
of Quiver's processes exclude the system's own work for containers."""

import argparse
import json
import os
import re
import shutil
import statistics
import subprocess
import time
from pathlib import Path

import isolation
import tools
from cluster import DEPLOY, TRAINING, Cluster, exported, metrics
from engine import Engine
from images import all_of
from run import the_files_are_valid
from shell import WORK, run, say, until

REPLICAS = {"replay": 2, "learner": 1, "evaluator": 1, "actor": 2}
# Both sides run at full speed: no process waits for a clock or for a disk.
SETTINGS = "--lanes 4 --min-size 2000 --random-steps 1000 --baselines=false --evaluate-every-frames 50000 --evaluate-episodes 1"
# Updates after which the rates are stable.
UPDATES_BEFORE = 500


class Inside:
    """A cluster in docker compose."""

    def __init__(self, variables):
        self.cluster = Cluster("quiver-throughput", variables)

    def __enter__(self):
        scale = [word for service, count in REPLICAS.items() for word in ("--scale", f"{service}={count}")]
        self.cluster.compose("up", "--detach", "--no-build", *scale, *TRAINING)
        self.learner = self.cluster.running("learner")[0]
        return self

    def metrics(self):
        return metrics(self.learner)

    def __exit__(self, *_):
        self.cluster.compose("down", "--volumes")


class Outside:
    """Processes of this machine, started by the commands of the compose file. Names resolve to loopback addresses."""

    def __init__(self, variables, services, environment, hosts):
        self.services, self.hosts, self.folder = services, hosts, WORK / "outside"
        self.environment = {**os.environ, **variables, **environment}

    def __enter__(self):
        shutil.rmtree(self.folder, ignore_errors=True)
        self.processes = []
        run("quiver", "certs", "--out", self.folder / "secrets", env=self.environment)
        # In the order of their dependencies.
        for service in TRAINING:
            for address in self.hosts[service]:
                self.start(service, address)
            if service == "replay":
                until("the shards answer", lambda: all(exported(address) for address in self.hosts[service]))
        return self

    def start(self, service, address):
        here = self.folder / address
        (here / "tmp").mkdir(parents=True)
        for volume in ["replay", "runs"]:
            (self.folder / "data" / volume).mkdir(parents=True, exist_ok=True)
        places = {"0.0.0.0": address, "/data/": f"{self.folder}/data/", "/tmp/": f"{here}/tmp/", "/secrets/": f"{self.folder}/secrets/"}
        inside = re.compile("|".join(map(re.escape, places)))
        words = [inside.sub(lambda found: places[found[0]], word) for word in self.services[service]["command"]]
        environment = {**self.environment, **self.services[service].get("environment", {})}
        with open(here / "log", "w") as log:
            process = subprocess.Popen(words, env=environment, cwd=self.folder, stdout=log, stderr=log)
        self.processes.append(process)

    def metrics(self):
        ended = [process.args for process in self.processes if process.poll() is not None]
        assert not ended, f"exited: {ended}; its log is below {self.folder}"
        return exported(self.hosts["learner"][0])

    def __exit__(self, failure, *_):
        for process in reversed(self.processes):
            process.terminate()
        for process in self.processes:
            process.wait(120)
        if not failure:
            shutil.rmtree(self.folder)


def measured(side, seconds):
    """Frames per second, updates per second, frames per second of CPU time."""
    with side:
        until("training is stable", lambda: side.metrics().get("quiver_learner_updates_total", 0) >= UPDATES_BEFORE, 600)
        before = counters(side)
        time.sleep(seconds)
        wall, cpu, frames, updates = (now - then for now, then in zip(counters(side), before))
    return [frames / wall, updates / wall, frames / cpu]


def counters(side):
    found = side.metrics()
    return time.monotonic(), cpu_seconds(), found["quiver_learner_frames"], found["quiver_learner_updates_total"]


def cpu_seconds():
    """CPU time of all Quiver programs in this process namespace."""
    ticks = 0
    for file in Path("/proc").glob("[0-9]*/stat"):
        try:
            name, values = file.read_text().split("(", 1)[1].rsplit(")", 1)
        except OSError:
            continue
        if name.startswith("quiver-"):
            ticks += sum(int(value) for value in values.split()[11:13])
    return ticks / os.sysconf("SC_CLK_TCK")


def name_hosts():
    """Assigns each process an address and maps the names to them, in this mount namespace only."""
    hosts = {
        service: [f"127.0.{number}.{replica + 1}" for replica in range(REPLICAS[service])]
        for number, service in enumerate(TRAINING, start=1)
    }
    file = WORK / "hosts"
    lines = [f"{address} {service}" for service, addresses in hosts.items() for address in addresses]
    file.write_text("\n".join(["127.0.0.1 localhost", *lines, ""]))
    run("mount", "--bind", file, "/etc/hosts")
    return hosts


def outside(variables):
    """Uses the programs of the image, with the image's environment."""
    shown = run("docker", "compose", "--env-file", "/dev/null", "config", "--format", "json", env=variables, cwd=DEPLOY)
    services = json.loads(shown)["services"]
    pairs = json.loads(run("docker", "image", "inspect", services["learner"]["image"]))[0]["Config"]["Env"]
    environment = dict(pair.replace("/opt/quiver", str(tools.programs())).split("=", 1) for pair in pairs)
    return Outside(variables, services, environment, name_hosts())


def compared(given):
    variables = {"GAME": given.game, "PRESET": given.preset, "SETTINGS": SETTINGS}
    sides = {"outside": outside(variables), "inside": Inside({**variables, "PAGE_PORT": "19180"})}
    found = {name: [] for name in sides}
    for _ in range(given.rounds):
        for name, side in sides.items():
            load = os.getloadavg()[0]
            found[name].append(measured(side, given.seconds))
            frames, updates, of_cpu = found[name][-1]
            say(f"{name}: {frames:.0f} frames/s, {updates:.1f} updates/s, {of_cpu:.0f} frames/CPU-s (load before {load:.1f})")
    return found


def main():
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("--game", default="pong")
    arguments.add_argument("--preset", default="quick")
    arguments.add_argument("--rounds", type=int, default=3, help="measurements of each side")
    arguments.add_argument("--seconds", type=float, default=60.0, help="length of each measurement, after warm-up")
    arguments.add_argument("--least", type=float, default=0.95, help="minimum ratio of inside to outside; exit code 1 below it")
    given = arguments.parse_args()
    if not isolation.inside():
        say(f"load {os.getloadavg()[0]:.2f} on {os.cpu_count()} cores")
        isolation.alone()
        tools.prepare()
    isolation.enter()
    with Engine():
        all_of(the_files_are_valid())
        found = compared(given)
    ratios = []
    for index, what in enumerate(["frames/s", "updates/s", "frames/CPU-s"]):
        inside, outside = (statistics.median(each[index] for each in found[name]) for name in ["inside", "outside"])
        ratios.append(inside / outside)
        say(f"{what}, medians: inside {inside:.1f}, outside {outside:.1f}, ratio {inside / outside:.3f}")
    raise SystemExit(0 if ratios[0] >= given.least else 1)


if __name__ == "__main__":
    main()
