"""Every expression of every dashboard and rule, ready to be asked."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import promql_parser
import yaml

DOCKER = Path(__file__).parents[2] / "docker"
DASHBOARDS = sorted((DOCKER / "grafana" / "dashboards").glob("*.json"))
RULES = sorted((DOCKER / "prometheus" / "rules").glob("*.yml"))

_COMPARISONS = {"==", "!=", ">", "<", ">=", "<="}


def filled_in(expr: str, *, interval: str = "30s", job: str = "san-serve") -> str:
    """An expression with Grafana's variables replaced."""
    for variable in ("$namespace", "$instance"):
        expr = expr.replace(variable, ".*")
    return expr.replace("$__rate_interval", interval).replace("$job", job)


def panels(dashboard: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """Everything but the headings."""
    return (panel for panel in dashboard["panels"] if panel["type"] != "row")


def panel_expressions() -> list[tuple[str, str]]:
    """(dashboard / panel / query, expression)."""
    found = []
    for path in DASHBOARDS:
        dashboard = json.loads(path.read_text())
        for panel in panels(dashboard):
            for target in panel["targets"]:
                name = f"{path.stem} / {panel['title']} / {target['refId']}"
                found.append((name, filled_in(target["expr"])))
        for annotation in dashboard["annotations"]["list"]:
            name = f"{path.stem} / {annotation['name']}"
            found.append((name, filled_in(annotation["expr"])))
    return found


def rules() -> list[dict[str, Any]]:
    """Every rule of every group."""
    return [
        rule
        for path in RULES
        for group in yaml.safe_load(path.read_text())["groups"]
        for rule in group["rules"]
    ]


def _is_condition(node: Any) -> bool:
    if isinstance(node, promql_parser.ParenExpr):
        return _is_condition(node.expr)
    if isinstance(node, promql_parser.Call):
        return bool(node.func.name == "absent")
    if not isinstance(node, promql_parser.BinaryExpr):
        return False
    return str(node.op) in _COMPARISONS or _is_condition(node.lhs) or _is_condition(node.rhs)


def _measured(node: Any) -> Iterator[str]:
    """The parts of a condition that should have a value whether or not it holds."""
    if isinstance(node, promql_parser.NumberLiteral):
        return
    if not _is_condition(node):
        yield str(node)
    elif isinstance(node, promql_parser.ParenExpr):
        yield from _measured(node.expr)
    elif isinstance(node, promql_parser.Call):
        yield from _measured(node.args[0])
    else:
        yield from _measured(node.lhs)
        yield from _measured(node.rhs)


def rule_expressions() -> list[tuple[str, str]]:
    """(name, expression): of recording rules as they stand, of alerts what they compare."""
    found = []
    for rule in rules():
        if "record" in rule:
            found += [(rule["record"], rule["record"]), (f"{rule['record']} =", rule["expr"])]
        else:
            parts = dict.fromkeys(_measured(promql_parser.parse(rule["expr"])))
            found += [(rule["alert"], part) for part in parts]
    return found
