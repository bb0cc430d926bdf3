"""Recording and alert rules: they parse, they are tested, they are explained."""

import re
import subprocess
from pathlib import Path

import promql_parser
import pytest

from tests.docker.expressions import DOCKER, RULES, panel_expressions, rules

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
RUNBOOKS = ROOT / "docs" / "alerts.md"
UNIT_TESTS = sorted((HERE / "rules").glob("*_test.yml"))

ALERTS = [rule for rule in rules() if "alert" in rule]
RECORDED = {rule["record"] for rule in rules() if "record" in rule}


def selectors(expr: str) -> set[str]:
    """The metrics that an expression reads."""
    found: set[str] = set()

    def visit(node: object) -> bool:
        if isinstance(node, promql_parser.MatrixSelector):
            node = node.vector_selector
        if isinstance(node, promql_parser.VectorSelector):
            found.add(node.name)
        return True

    promql_parser.walk(promql_parser.parse(expr), visit)
    return found


def documented() -> set[str]:
    """Metrics that docs/metrics.md lists, as Prometheus stores them."""
    page = (ROOT / "docs" / "metrics.md").read_text()
    found: set[str] = set()
    for name, kind in re.findall(r"^\| `(\w+)` \| (\w+) \|", page, re.MULTILINE):
        if kind == "histogram":
            found |= {f"{name}_bucket", f"{name}_sum", f"{name}_count"}
        else:
            found.add(name)
    assert len(found) > 30
    _, _, workers = page.partition("exist there: ")  # with several workers only
    return found | set(re.findall(r"`(san_\w+)`", workers.partition("\n\n")[0]))


FOREIGN = {"up", "ALERTS"} | {
    f"process_{name}"
    for name in ("cpu_seconds_total", "resident_memory_bytes", "start_time_seconds")
}
EXPRESSIONS = [(r.get("alert") or r["record"], r["expr"]) for r in rules()] + panel_expressions()


@pytest.mark.parametrize(("name", "expr"), EXPRESSIONS)
def test_only_metrics_that_exist_are_read(name, expr):
    assert selectors(expr) <= documented() | RECORDED | FOREIGN


def test_every_recorded_series_is_unit_tested():
    tested = "".join(path.read_text() for path in UNIT_TESTS)
    assert [name for name in RECORDED if name not in tested] == []


@pytest.mark.parametrize("alert", ALERTS, ids=lambda alert: alert["alert"])
def test_an_alert_says_how_bad_it_is_and_what_to_do(alert):
    assert alert["labels"]["severity"] in {"page", "ticket"}
    assert set(alert["annotations"]) == {"summary", "description", "runbook_url"}
    page, _, anchor = alert["annotations"]["runbook_url"].partition("#")
    assert page == "{{ $externalLabels.runbooks }}"
    headings = re.findall(r"^#+ (.*)$", RUNBOOKS.read_text(), re.MULTILINE)
    assert anchor in {re.sub(r"[^\w -]", "", h).replace(" ", "-").lower() for h in headings}


@pytest.mark.parametrize("alert", ALERTS, ids=lambda alert: alert["alert"])
def test_an_alert_has_a_unit_test(alert):
    assert alert["alert"] in "".join(path.read_text() for path in UNIT_TESTS)


@pytest.mark.promtool
def test_promtool_accepts_the_configuration_and_the_rules():
    config = DOCKER / "prometheus" / "prometheus.yml"
    _promtool("check", "config", config)
    _promtool("check", "rules", *RULES)


@pytest.mark.promtool
@pytest.mark.parametrize("path", UNIT_TESTS, ids=lambda path: path.stem)
def test_rules_do_what_they_say(path):
    _promtool("test", "rules", path)


def _promtool(*arguments: object) -> None:
    command = ["promtool", *map(str, arguments)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
