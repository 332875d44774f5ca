"""The images that the compose file names, made here: no registry is asked.

The base image is a minimal Debian of the name that the Dockerfile has. Our own image is built by the Dockerfile itself,
from programs that are compiled already. Prometheus is Debian's; for Grafana something stands in that does nothing."""

import shutil
import subprocess

import tools
from shell import ROOT, WORK, run, say

BASE = "debian:bookworm-slim"

PROMETHEUS = f"""
FROM {BASE}
RUN apt-get update -qq && apt-get install -y --no-install-recommends prometheus && rm -rf /var/lib/apt/lists/*
RUN install -d -o nobody -g nogroup /prometheus
USER nobody
WORKDIR /prometheus
ENTRYPOINT ["/bin/prometheus"]
"""

GRAFANA = f"""
FROM {BASE}
ENTRYPOINT ["sleep", "infinity"]
"""


def exists(name):
    return run("docker", "image", "inspect", name, check=False, quiet=True).returncode == 0


def base():
    if exists(BASE):
        return
    root = WORK / "base"
    if not (root / "done").exists():
        say("making a minimal Debian")
        shutil.rmtree(root, ignore_errors=True)
        run("debootstrap", "--variant=minbase", "bookworm", root, tools.mirror())
        (root / "done").touch()
    leave_out = ["--exclude=./done", "--exclude=./var/cache/apt/archives/*", "--exclude=./proc/*", "--exclude=./sys/*"]
    tar = subprocess.Popen(["tar", "-C", str(root), *leave_out, "-c", "."], stdout=subprocess.PIPE)
    subprocess.run(["docker", "import", "-", BASE], stdin=tar.stdout, check=True, stdout=subprocess.DEVNULL)
    if tar.wait():
        raise SystemExit("tar failed on the minimal Debian")


def from_text(name, text):
    if exists(name):
        return
    say(f"making {name}")
    folder = WORK / "empty"
    folder.mkdir(exist_ok=True)
    (folder / "Dockerfile").write_text(text)
    run("docker", "build", "--network=host", "-t", name, folder)


def quiver(name):
    """Ours, from target/release and .deps by the Dockerfile that everyone uses."""
    context = WORK / "context"
    run(ROOT / "deploy/collect", context, ROOT / ".deps/libtorch")
    dockerfile = ROOT / "deploy/Dockerfile"
    flags = ["-f", dockerfile, "--target", "runtime", "--build-arg", "BINARIES=prebuilt", "-t", name]
    run("docker", "build", "--network=host", *flags, context)
    size = int(run("docker", "image", "inspect", "-f", "{{.Size}}", name))
    say(f"made {name}, {size / 1e6:.0f} MB")


def all_of(names):
    """Makes each image that the compose file names."""
    base()
    for name in names:
        if name.startswith("prom/prometheus:"):
            from_text(name, PROMETHEUS)
        elif name.startswith("grafana/"):
            from_text(name, GRAFANA)
        else:
            quiver(name)
