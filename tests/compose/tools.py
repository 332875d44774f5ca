"""Tools that the test needs: an engine, compose in both versions, buildx, kustomize, Prometheus, and a minimal Debian for
images. All come from Debian packages.

An older Debian has compose v1 only, so v2 and its plugins are unpacked from the packages of a later release, without
installing them."""

import os
import shutil
from concurrent.futures import ThreadPoolExecutor

from shell import ROOT, WORK, run, say

PACKAGES = {
    "dockerd": "docker.io", "docker-compose": "docker-compose", "iptables": "iptables", "ip": "iproute2",
    "mmdebstrap": "mmdebstrap",
}
LATER_DEBIAN = "trixie"
LATER_PACKAGES = ["docker-compose", "docker-buildx", "kustomize"]


def prepare():
    """Runs in parallel everything that needs the network or needs no engine."""
    if os.geteuid() != 0:
        raise SystemExit("this test starts its own Docker engine and needs root: sudo make test-compose")
    install(PACKAGES)
    with ThreadPoolExecutor() as pool:
        for work in [pool.submit(work) for work in (base, unpacked, prometheus, programs)]:
            work.result()


def install(packages):
    """Installs the packages that are missing on this machine."""
    missing = sorted({package for program, package in packages.items() if not shutil.which(program)})
    if missing:
        say(f"installing {', '.join(missing)}")
        run("apt-get", "update", "-qq")
        noninteractive = {"DEBIAN_FRONTEND": "noninteractive"}
        run("apt-get", "-o", "DPkg::Lock::Timeout=600", "install", "-y", "--no-install-recommends", *missing, env=noninteractive)


def mirror():
    """The URL of this machine's Debian mirror."""
    def query():
        return run("apt-get", "indextargets", "--format", "$(REPO_URI)", "Created-By: Packages", "Codename: bookworm")

    asked = query()
    if not asked.strip():
        # A new image has no package lists.
        run("apt-get", "update", "-qq")
        asked = query()
    if not asked.strip():
        raise SystemExit("apt has no source for bookworm: add one to its sources, then try again")
    return asked.split("\n")[0]


def base():
    """A minimal Debian as a tar file: like the image debian:bookworm-slim, but without its size reductions."""
    made = WORK / "base.tar"
    if not made.exists():
        say("making a minimal Debian")
        part, folder = WORK / "base.part.tar", WORK / "base"
        folder.mkdir(exist_ok=True)
        # In memory, because dpkg syncs every file. The mount disappears with the command.
        script = 'mount -t tmpfs none "$0" && TMPDIR="$0" exec mmdebstrap --quiet --variant=minbase bookworm "$@"'
        run("unshare", "--mount", "sh", "-c", script, folder, part, mirror())
        folder.rmdir()
        part.rename(made)
        say("made a minimal Debian")
    return made


def prometheus():
    """The folder with Prometheus, which is a single executable."""
    folder = WORK / "prometheus"
    if not (folder / "done").exists():
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        if run("apt-get", "download", "-qq", "prometheus", cwd=folder, check=False, quiet=True).returncode:
            run("apt-get", "update", "-qq")
            run("apt-get", "download", "-qq", "prometheus", cwd=folder)
        package = next(folder.glob("*.deb"))
        run("dpkg-deb", "-x", package, folder)
        package.unlink()
        (folder / "done").touch()
    return folder


def programs():
    """The folder with Quiver's programs, from target/release and .deps."""
    folder = WORK / "context"
    run(ROOT / "deploy/collect", folder, ROOT / ".deps/libtorch")
    return folder


def unpacked():
    """The folder with the programs of the later Debian."""
    folder = WORK / "tools"
    if (folder / "done").exists():
        return folder
    say(f"fetching {', '.join(LATER_PACKAGES)} of {LATER_DEBIAN}")
    shutil.rmtree(folder, ignore_errors=True)
    for part in ["sources", "lists/partial", "cache/archives/partial", "packages"]:
        (folder / part).mkdir(parents=True)
    keys = "/usr/share/keyrings/debian-archive-keyring.gpg"
    (folder / "sources/later.list").write_text(f"deb [signed-by={keys}] {mirror()} {LATER_DEBIAN} main\n")
    (folder / "apt.conf").write_text(
        f'Dir::Etc::SourceList "/dev/null";\nDir::Etc::SourceParts "{folder}/sources";\n'
        f'Dir::State::Lists "{folder}/lists";\nDir::Cache "{folder}/cache";\nAPT::Sandbox::User "root";\n'
    )
    later = {"APT_CONFIG": str(folder / "apt.conf")}
    run("apt-get", "update", "-qq", env=later)
    run("apt-get", "download", *LATER_PACKAGES, env=later, cwd=folder / "packages")
    for package in sorted((folder / "packages").glob("*.deb")):
        run("dpkg-deb", "-x", package, folder)
    for part in ["packages", "lists", "cache"]:
        shutil.rmtree(folder / part)
    (folder / "done").touch()
    return folder


def plugins(config):
    """Puts compose v2 and buildx where the Docker command line looks for them."""
    config.mkdir(parents=True)
    (config / "cli-plugins").symlink_to(unpacked() / "usr/libexec/docker/cli-plugins")
