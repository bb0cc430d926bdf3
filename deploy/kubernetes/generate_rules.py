"""Write base/prometheusrule.yaml: the rules of docker/prometheus for the Prometheus operator."""

import sys
from pathlib import Path
from typing import Any

import yaml

HERE = Path(__file__).parent
RULES = HERE.parents[1] / "docker" / "prometheus" / "rules"
TARGET = HERE / "base" / "prometheusrule.yaml"
HEAD = (
    "# Written by deploy/kubernetes/generate_rules.py from docker/prometheus/rules; edit those.\n"
)


def resource() -> dict[str, Any]:
    """The PrometheusRule."""
    groups = [
        group
        for path in sorted(RULES.glob("*.yml"), reverse=True)
        for group in yaml.safe_load(path.read_text())["groups"]
    ]
    return {
        "apiVersion": "monitoring.coreos.com/v1",
        "kind": "PrometheusRule",
        "metadata": {"name": "san-serve"},
        "spec": {"groups": groups},
    }


def text() -> str:
    """The file."""
    return HEAD + yaml.safe_dump(resource(), sort_keys=False, width=100)


if __name__ == "__main__":
    if "--check" in sys.argv[1:]:
        sys.exit(TARGET.read_text() != text())
    TARGET.write_text(text())
