"""The Kubernetes manifests: valid by the published schemas, and consistent with each other."""

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
ENVIRONMENT = {entry["name"]: entry["value"] for entry in CONTAINER["env"]}


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
    gpu = read(FOLDER / "gpu" / "deployment.yaml")
    more = gpu["spec"]["template"]["spec"]["containers"][0]["env"]
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
    for rule in read(FOLDER / "adapter-rules.yaml")["rules"]["custom"]:
        query = rule["metricsQuery"].replace("<<.GroupBy>>", "pod")
        query = query.replace("<<.LabelMatchers>>", 'namespace="x"')
        promql_parser.parse(query.replace("<<.Series>>", rule["name"]["as"]))
        offered[rule["name"]["as"]] = rule
    wanted = {
        metric[metric["type"].lower()]["metric"]["name"]
        for metric in BY_KIND["HorizontalPodAutoscaler"]["spec"]["metrics"]
    }
    assert wanted == set(offered)
