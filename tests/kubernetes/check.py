#!/usr/bin/env python3
"""Checks deploy/kubernetes: renders the base and every overlay with kustomize, validates each object against the schemas of
the Kubernetes API, and checks properties that no schema covers.

Needs `kustomize` or `kubectl` on the path. The schemas are those of PyPI's kubernetes-validate (requirements.txt), which
has none for the operator's ServiceMonitor: its relevant fields are checked here."""

import shutil
import subprocess
import sys
from pathlib import Path

import kubernetes_validate
import yaml

FOLDER = Path(__file__).resolve().parents[2] / "deploy" / "kubernetes"
# The oldest and the newest supported version.
VERSIONS = ["1.29", "1.34"]
WITHOUT_SCHEMA = {"ServiceMonitor"}
PODS = {"StatefulSet", "Deployment", "Job"}


def rendered(folder):
    program = ["kustomize", "build"] if shutil.which("kustomize") else ["kubectl", "kustomize"]
    done = subprocess.run([*program, str(folder)], text=True, capture_output=True)
    assert done.returncode == 0, f"{folder} can't be rendered: {done.stderr}"
    return list(yaml.safe_load_all(done.stdout))


def fits_the_schemas(objects):
    for item in objects:
        if item["kind"] not in WITHOUT_SCHEMA:
            for version in VERSIONS:
                kubernetes_validate.validate(item, version, strict=True)


def of_kind(objects, kind):
    return {item["metadata"]["name"]: item for item in objects if item["kind"] == kind}


def containers(objects):
    for item in objects:
        if item["kind"] in PODS:
            pod = item["spec"]["template"]["spec"]
            for container in pod["containers"]:
                yield item["metadata"]["name"], pod, container


def everything_is_locked_down(objects):
    for name, pod, container in containers(objects):
        security = container["securityContext"]
        assert pod["securityContext"]["runAsNonRoot"] and pod["securityContext"]["runAsUser"], f"{name} may be root"
        assert security["readOnlyRootFilesystem"] and not security["allowPrivilegeEscalation"], name
        assert security["capabilities"] == {"drop": ["ALL"]}, name
        assert pod["automountServiceAccountToken"] is False, name
        assert "memory" in container["resources"]["limits"] and "cpu" in container["resources"]["requests"], name
    assert any(policy["spec"].get("ingress") is None for policy in of_kind(objects, "NetworkPolicy").values())


def every_container_has_its_secrets(objects):
    """Each container has the secrets of its role only, from a Secret made by `quiver certs` and kubectl."""
    wanted = {role: f"quiver-{role}" for role in ["replay", "learner", "actor", "evaluator"]}
    for name, pod, container in containers(objects):
        mounted = [volume["secret"]["secretName"] for volume in pod["volumes"] if "secret" in volume]
        assert mounted == [wanted[name]], f"{name} has {mounted}"
        words = " ".join(container["args"])
        assert "--secrets" in words and "--insecure" not in words, f"{name}: {words}"


def everything_is_named(objects):
    assert {item["metadata"].get("namespace", "quiver") for item in objects} == {"quiver"}
    labels = [item["spec"]["template"]["metadata"]["labels"] for item in objects if item["kind"] in PODS]
    for kind in ["Service", "PodDisruptionBudget", "NetworkPolicy"]:
        for name, item in of_kind(objects, kind).items():
            selector = item["spec"].get("selector") or item["spec"]["podSelector"]
            wanted = selector.get("matchLabels", selector if kind == "Service" else {})
            assert any(wanted.items() <= pod.items() for pod in labels), f"{kind} {name} selects no pod"


def the_learner_knows_all_shards(objects):
    [learner] = [container for name, _, container in containers(objects) if name == "learner"]
    [shards] = [variable["value"] for variable in learner["env"] if variable["name"] == "SHARDS"]
    replicas = of_kind(objects, "StatefulSet")["replay"]["spec"]["replicas"]
    assert shards.split() == [f"--shard=replay-{number}.replay:7701" for number in range(replicas)], shards


def all_are_monitored(objects):
    [monitor] = of_kind(objects, "ServiceMonitor").values()
    [endpoint] = monitor["spec"]["endpoints"]
    wanted = monitor["spec"]["selector"]["matchLabels"].items()
    services = of_kind(objects, "Service").values()
    watched = {
        service["metadata"]["labels"][monitor["spec"]["jobLabel"]]
        for service in services
        if wanted <= service["metadata"]["labels"].items()
        and any(port["name"] == endpoint["port"] for port in service["spec"]["ports"])
    }
    assert watched == {"replay", "learner", "actor", "evaluator"}, watched


def check(folder):
    objects = rendered(folder)
    for claim in [fits_the_schemas, everything_is_locked_down, every_container_has_its_secrets, everything_is_named, the_learner_knows_all_shards, all_are_monitored]:
        claim(objects)
    print(f"{folder.relative_to(FOLDER)}: {len(objects)} objects are valid")
    return objects


def main():
    base = check(FOLDER / "base")
    assert "actor" in of_kind(base, "HorizontalPodAutoscaler")
    gpu = check(FOLDER / "overlays" / "gpu")
    [learner] = [container for name, _, container in containers(gpu) if name == "learner"]
    assert learner["resources"]["limits"]["nvidia.com/gpu"] == "1" and learner["image"] == "quiver-learner:cuda", learner
    small = check(FOLDER / "overlays" / "small")
    assert not of_kind(small, "HorizontalPodAutoscaler")
    assert of_kind(small, "Deployment")["actor"]["spec"]["replicas"] == 2


if __name__ == "__main__":
    sys.exit(main())
