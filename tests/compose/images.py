"""Builds the images that the compose file names, without a registry.

The base image is a minimal Debian with the name that the Dockerfile uses. Quiver's image is built by the Dockerfile itself,
from compiled programs. Prometheus is Debian's; Grafana is replaced by a placeholder that does nothing."""

import os
import re
import shutil

import tools
from shell import ROOT, WORK, run, say

BASE = "debian:bookworm-slim"

PROMETHEUS = f"""
FROM {BASE}
RUN install -d -o nobody -g nogroup /prometheus
COPY usr/bin/prometheus /bin/
USER nobody
WORKDIR /prometheus
ENTRYPOINT ["/bin/prometheus"]
"""

# The placeholder does not handle signals.
GRAFANA = f"""
FROM {BASE}
STOPSIGNAL SIGKILL
ENTRYPOINT ["sleep", "infinity"]
"""


def without_digests():
    """Names the images of the compose file by tag only, in this process and its children: only a registry has digests."""
    text = (ROOT / "deploy/compose.yaml").read_text()
    for variable, image in re.findall(r"\$\{([A-Z]+_IMAGE):-([^}]+)\}", text):
        os.environ[variable] = image.split("@")[0]


def exists(name):
    return run("docker", "image", "inspect", name, check=False, quiet=True).returncode == 0


def build(name, dockerfile, context, *flags):
    """Builds an image without network: all its inputs are local."""
    run("docker", "build", "--network=none", *flags, "-t", name, "-f", dockerfile, context)
    size = int(run("docker", "image", "inspect", "-f", "{{.Size}}", name))
    say(f"made {name}, {size / 1e6:.0f} MB")


def from_text(name, text, context):
    if not exists(name):
        dockerfile = WORK / "Dockerfile"
        dockerfile.write_text(text)
        build(name, dockerfile, context)


def all_of(names):
    """Builds each image that the compose file names."""
    if not exists(BASE):
        run("docker", "import", tools.base(), BASE)
    empty = WORK / "empty"
    empty.mkdir(exist_ok=True)
    for name in names:
        if name.startswith("prom/prometheus:"):
            from_text(name, PROMETHEUS, tools.prometheus())
        elif name.startswith("grafana/"):
            from_text(name, GRAFANA, empty)
        else:
            context = WORK / "context"
            build(name, ROOT / "deploy/Dockerfile", context, "--target", "runtime", "--build-arg", "BINARIES=prebuilt",
                  "--build-arg", f"DEBIAN_IMAGE={BASE}")
            shutil.rmtree(context)
    # The build cache is three times as large as the images.
    run("docker", "builder", "prune", "--all", "--force")
