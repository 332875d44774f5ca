"""The cluster from the user's side: docker compose on deploy/compose.yaml, and operations on single containers."""

import json
import os
import signal
import urllib.request

from shell import ROOT, run, until

DEPLOY = ROOT / "deploy"
TRAINING = ["replay", "learner", "evaluator", "actor"]


class Cluster:
    """One compose project with these variables."""

    def __init__(self, project, variables):
        self.variables = {"COMPOSE_PROJECT_NAME": project, **variables}
        self.network = f"{project}_cluster"

    def compose(self, *words, check=True):
        # The developer's own .env must not affect the test.
        return run("docker", "compose", "--env-file", "/dev/null", *words, env=self.variables, cwd=DEPLOY, check=check)

    def up(self, **replicas):
        scale = [word for service, count in replicas.items() for word in ("--scale", f"{service}={count}")]
        self.compose("up", "--detach", "--no-build", *scale)

    def containers(self, service):
        """Ids, including those of exited containers."""
        return self.compose("ps", "--all", "--quiet", service).split()

    def running(self, service):
        """Ids, in the order of their names."""
        found = sorted((inspect(container) for container in self.containers(service)), key=lambda each: each["Name"])
        return [each["Id"] for each in found if each["State"]["Running"]]

    def shards(self):
        """The status that each shard reports, by shard id."""
        hosts = [inspect(container)["Name"][1:] for container in self.running("replay")]
        reports = [json.loads(self.admin("inspect", f"{host}:7701", "--json"))[0] for host in hosts]
        return {report["id"]: report for report in reports}

    def admin(self, *words):
        """Runs a command as an operator does."""
        return self.compose("run", "--rm", "--no-TTY", "admin", *words)

    def logs(self, service):
        done = self.compose("logs", "--no-color", service, check=False)
        return done.stdout

    def has_ended_well(self):
        """Whether every container of the training has exited, and each with 0."""
        ends = [state(container) for service in TRAINING for container in self.containers(service)]
        failed = [end["ExitCode"] for end in ends if end["Status"] == "exited" and end["ExitCode"]]
        if failed:
            raise AssertionError(f"exit codes {failed}")
        return all(end["Status"] == "exited" for end in ends)

    def cut_off(self, container):
        run("docker", "network", "disconnect", self.network, container)

    def connect(self, container, service):
        run("docker", "network", "connect", "--alias", service, self.network, container)


def inspect(container):
    return json.loads(run("docker", "inspect", container))[0]


def state(container):
    return inspect(container)["State"]


def kill(container):
    """Sends SIGKILL to its process, like a crash or the OOM killer. After `docker kill` Docker would treat the container as
    stopped by the user and not restart it."""
    before = inspect(container)
    os.kill(before["State"]["Pid"], signal.SIGKILL)

    def is_back():
        now = inspect(container)
        return now["RestartCount"] > before["RestartCount"] and now["State"]["Running"]

    until(f"{before['Name'][1:]} is restarted", is_back)


def metrics(container):
    """The metrics of a container; empty if it cannot be reached."""
    networks = inspect(container)["NetworkSettings"]["Networks"].values()
    addresses = [network["IPAddress"] for network in networks if network["IPAddress"]]
    return exported(addresses[0]) if addresses else {}


def exported(host):
    """Values by name with labels; empty if there is no answer."""
    try:
        with urllib.request.urlopen(f"http://{host}:9100/metrics", timeout=10) as page:
            lines = page.read().decode().splitlines()
    except OSError:
        return {}
    pairs = (line.rsplit(" ", 1) for line in lines if line and not line.startswith("#"))
    return {name: float(value) for name, value in pairs}
