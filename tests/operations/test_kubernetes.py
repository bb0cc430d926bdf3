"""The Kubernetes manifests: valid by the published schemas, and consistent with each other."""

import re
import subprocess
import sys
from pathlib import Path

import kubernetes_validate
import promql_parser
import pytest
import yaml

from service.settings import Settings
from tests.docker.expressions import rules

FOLDER = Path(__file__).parents[2] / "deploy" / "kubernetes"
BASE = FOLDER / "base"
OPERATOR = {"ServiceMonitor", "PrometheusRule"}


def read(path: Path) -> dict:
    (document,) = yaml.safe_load_all(path.read_text())
    return document


KUSTOMIZATION = read(BASE / "kustomization.yaml")
RESOURCES = {path: read(BASE / path) for path in KUSTOMIZATION["resources"]}
BY_KIND = {resource["kind"]: resource for resource in RESOURCES.values()}
POD = BY_KIND["Deployment"]["spec"]["template"]
CONTAINER = POD["spec"]["containers"][0]
ENVIRONMENT = {entry["name"]: entry.get("value") for entry in CONTAINER["env"]}
OTHERS = {
    f"{folder}/{path.name}/{document['kind']}/{document['metadata']['name']}": document
    for folder in ("adapter", "envoy", "kept-measurements", "own-bundle", "gpu")
    for path in sorted((FOLDER / folder).glob("*.yaml"))
    for document in yaml.safe_load_all(path.read_text())
    if document.get("kind") not in (None, "Kustomization", "Component")
}
PATCHES = ("own-bundle", "kept-measurements", "gpu")


def test_every_manifest_is_applied():
    there = {path.name for path in BASE.glob("*.yaml")} - {"kustomization.yaml"}
    assert there == set(RESOURCES)


@pytest.mark.parametrize("name", RESOURCES)
@pytest.mark.parametrize("version", ["1.30", "1.34"])
def test_the_schema_of_kubernetes_accepts_it(name, version):
    resource = RESOURCES[name]
    if resource["kind"] in OPERATOR:
        assert resource["apiVersion"] == "monitoring.coreos.com/v1"
    else:
        kubernetes_validate.validate(resource, version, strict=True)


@pytest.mark.parametrize("name", OTHERS)
def test_the_schema_accepts_what_is_beside_the_base(name):
    resource = OTHERS[name]
    if resource["kind"] == "APIService":
        assert resource["apiVersion"] == "apiregistration.k8s.io/v1"  # no schema to be had
    elif name.split("/")[0] in PATCHES and resource["kind"] == "Deployment":
        patched = merged(BY_KIND["Deployment"], resource)
        kubernetes_validate.validate(patched, "1.34", strict=True)
    else:
        kubernetes_validate.validate(resource, "1.34", strict=True)


def merged(base, patch):
    """A strategic merge, as far as these patches need one: lists of named things by name."""
    if isinstance(base, dict) and isinstance(patch, dict):
        found = {key: value for key, value in base.items() if patch.get(key, value) is not None}
        for key, value in patch.items():
            if value is not None:
                found[key] = merged(base[key], value) if base.get(key) is not None else value
        return found
    if isinstance(base, list) and isinstance(patch, list) and patch and "name" in patch[0]:
        named = {entry["name"]: entry for entry in base}
        for entry in patch:
            name = entry["name"]
            named[name] = merged(named[name], entry) if name in named else entry
        return list(named.values())
    return patch


@pytest.mark.parametrize("folder", PATCHES)
def test_an_overlay_patches_what_there_is(folder):
    kustomization = yaml.safe_load((FOLDER / folder / "kustomization.yaml").read_text())
    for patch in kustomization["patches"]:
        resource = read(FOLDER / folder / patch["path"])
        assert resource["metadata"]["name"] == BY_KIND[resource["kind"]]["metadata"]["name"]


def test_a_bundle_of_ones_own_is_where_the_service_looks_for_it():
    pod = read(FOLDER / "own-bundle" / "deployment.yaml")["spec"]["template"]["spec"]
    (copied,), (container,) = pod["initContainers"], pod["containers"]
    environment = {entry["name"]: entry.get("value") for entry in container["env"]}
    assert copied["command"][-1] == environment["SAN_BUNDLE"]
    assert copied["securityContext"] == container.get("securityContext", copied["securityContext"])


def test_the_gpu_overlay_has_an_image_of_its_own():
    (image,) = yaml.safe_load((FOLDER / "gpu" / "kustomization.yaml").read_text())["images"]
    assert image["newTag"].endswith("-cuda")


def test_a_gpu_gets_cores_enough_to_decode_for_it():
    pod = read(FOLDER / "gpu" / "deployment.yaml")["spec"]["template"]["spec"]
    limits = pod["containers"][0]["resources"]["limits"]
    assert int(limits["cpu"]) >= 16
    assert limits["memory"] == "16Gi"


def test_the_plan_in_the_docs_fits_the_autoscaler():
    page = (FOLDER.parents[1] / "docs" / "operations.md").read_text()
    (pods,) = re.findall(r"about (\d+) pods of 4 cores", page)
    assert int(pods) <= BY_KIND["HorizontalPodAutoscaler"]["spec"]["maxReplicas"]


def test_a_wrong_manifest_would_be_refused():
    wrong = {**BY_KIND["Service"], "spec": {"ports": [{"port": "eighty"}]}}
    with pytest.raises(kubernetes_validate.ValidationError):
        kubernetes_validate.validate(wrong, "1.34", strict=True)


def test_selectors_find_the_pods():
    labels = POD["metadata"]["labels"].items()
    for selector in (
        BY_KIND["Deployment"]["spec"]["selector"]["matchLabels"],
        BY_KIND["Service"]["spec"]["selector"],
        BY_KIND["PodDisruptionBudget"]["spec"]["selector"]["matchLabels"],
        BY_KIND["NetworkPolicy"]["spec"]["podSelector"]["matchLabels"],
    ):
        assert selector.items() <= labels
    monitored = BY_KIND["ServiceMonitor"]["spec"]["selector"]["matchLabels"]
    assert monitored.items() <= BY_KIND["Service"]["metadata"]["labels"].items()
    # The operator takes the name of the service for `job`, which the alerts look for.
    assert BY_KIND["Service"]["metadata"]["name"] == "san-serve"


def test_probes_fit_a_service_that_is_ready_when_it_was_measured():
    assert CONTAINER["readinessProbe"]["httpGet"]["path"] == "/readyz"
    for probe in ("startupProbe", "livenessProbe"):
        assert CONTAINER[probe]["httpGet"]["path"] == "/healthz"


def test_there_is_time_to_drain():
    grace = float(ENVIRONMENT["SAN_DRAIN_GRACE_S"]) + float(ENVIRONMENT["SAN_DRAIN_TIMEOUT_S"])
    assert POD["spec"]["terminationGracePeriodSeconds"] > grace
    # Readiness is seen to be false, and the endpoints forgotten, before the pod stops serving.
    probe = CONTAINER["readinessProbe"]
    assert (
        float(ENVIRONMENT["SAN_DRAIN_GRACE_S"])
        > probe["periodSeconds"] * (probe["failureThreshold"])
    )


def test_settings_in_the_environment_exist():
    more = []
    for folder in ("gpu", "own-bundle"):
        patch = read(FOLDER / folder / "deployment.yaml")
        more += patch["spec"]["template"]["spec"]["containers"][0]["env"]
    for name in [*ENVIRONMENT, *(entry["name"] for entry in more)]:
        assert name.removeprefix("SAN_").lower() in Settings.model_fields


def test_the_pod_is_confined():
    context = CONTAINER["securityContext"]
    assert context["readOnlyRootFilesystem"]
    assert not context["allowPrivilegeEscalation"]
    assert context["capabilities"]["drop"] == ["ALL"]
    assert POD["spec"]["securityContext"]["runAsNonRoot"]
    assert CONTAINER["resources"]["requests"] == CONTAINER["resources"]["limits"]


def test_the_rules_are_those_of_the_compose_stack():
    done = subprocess.run([sys.executable, FOLDER / "generate_rules.py", "--check"], check=False)
    assert done.returncode == 0, "Run `python deploy/kubernetes/generate_rules.py`."
    groups = BY_KIND["PrometheusRule"]["spec"]["groups"]
    assert sum(len(group["rules"]) for group in groups) == len(rules())


def test_the_autoscaler_reads_what_the_adapter_offers():
    offered = {}
    for rule in read(FOLDER / "adapter" / "rules.yaml")["rules"]:
        query = rule["metricsQuery"].replace("<<.GroupBy>>", "pod")
        query = query.replace("<<.LabelMatchers>>", 'namespace="x"')
        promql_parser.parse(query.replace("<<.Series>>", rule["name"]["as"]))
        offered[rule["name"]["as"]] = rule
    wanted = {
        metric[metric["type"].lower()]["metric"]["name"]
        for metric in BY_KIND["HorizontalPodAutoscaler"]["spec"]["metrics"]
    }
    assert wanted == set(offered)
