"""What the test needs of others: an engine, compose in both versions, buildx, kustomize. All are Debian packages.

An older Debian has compose v1 only, so v2 and its companions are unpacked from the packages of a later one, beside the
system and without installing them."""

import os
import shutil

from shell import WORK, run, say

PACKAGES = {"dockerd": "docker.io", "debootstrap": "debootstrap", "iptables": "iptables", "docker-compose": "docker-compose"}
LATER_DEBIAN = "trixie"
LATER_PACKAGES = ["docker-compose", "docker-buildx", "kustomize"]


def install():
    """Installs what is missing on this machine; needs root, as the engine itself does."""
    if os.geteuid() != 0:
        raise SystemExit("this test starts a Docker engine of its own and needs root: sudo make test-compose")
    missing = sorted({package for program, package in PACKAGES.items() if not shutil.which(program)})
    if missing:
        say(f"installing {', '.join(missing)}")
        run("apt-get", "update", "-qq")
        noninteractive = {"DEBIAN_FRONTEND": "noninteractive"}
        run("apt-get", "-o", "DPkg::Lock::Timeout=600", "install", "-y", "--no-install-recommends", *missing, env=noninteractive)


def mirror():
    """Where this machine gets Debian's packages."""
    asked = run("apt-get", "indextargets", "--format", "$(REPO_URI)", "Created-By: Packages", "Codename: bookworm")
    if not asked.strip():
        raise SystemExit("apt knows no source of bookworm: add one to its sources, then try again")
    return asked.split("\n")[0]


def unpacked():
    """The folder with the later Debian's programs."""
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
    (folder / "done").touch()
    return folder


def plugins(config):
    """Puts compose v2 and buildx where the Docker command line looks for them."""
    target = config / "cli-plugins"
    target.mkdir(parents=True, exist_ok=True)
    for plugin in (unpacked() / "usr/libexec/docker/cli-plugins").iterdir():
        shutil.copy2(plugin, target)
