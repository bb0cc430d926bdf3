"""What every panel has, as Grafana's JSON.

A panel cannot be made without a unit, a description and something to say while it is empty.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

DATASOURCE = {"type": "prometheus", "uid": "${datasource}"}

Json = dict[str, Any]


@dataclass(frozen=True)
class Query:
    """One expression and how its series are called."""

    expr: str
    legend: str = ""
    instant: bool = False
    heatmap: bool = False
    right_axis_unit: str = ""
    """Draw it against an axis of its own, at the right, in this unit."""

    def to_json(self, letter: str) -> Json:
        """A target."""
        target: Json = {
            "refId": letter,
            "datasource": DATASOURCE,
            "expr": self.expr,
            "legendFormat": self.legend or "__auto",
            "editorMode": "code",
            "range": not self.instant,
            "instant": self.instant,
        }
        if self.heatmap:
            target["format"] = "heatmap"
        elif self.instant and not self.legend:
            target["format"] = "table"
        return target


@dataclass(frozen=True)
class Panel:
    """What all panels have."""

    title: str
    description: str
    unit: str
    queries: tuple[Query, ...]
    empty: str = "no traffic yet"
    width: int = 8
    height: int = 8
    decimals: int | None = None
    low: float | None = None
    high: float | None = None
    steps: tuple[tuple[float | None, str], ...] = ((None, "green"),)
    """Colours from a value upward."""

    kind = "timeseries"

    def options(self) -> Json:
        """The panel type's own options."""
        return {
            "legend": {
                "displayMode": "table",
                "placement": "right" if self.width > 12 else "bottom",
                "showLegend": True,
                "calcs": ["lastNotNull", "max"],
            },
            "tooltip": {"mode": "multi", "sort": "desc"},
        }

    def custom(self) -> Json:
        """How a series is drawn."""
        return {
            "drawStyle": "line",
            "lineWidth": 2,
            "fillOpacity": 8,
            "showPoints": "never",
            "spanNulls": False,
        }

    def overrides(self) -> list[Json]:
        """Queries that go to the right axis."""
        return [
            {
                "matcher": {"id": "byFrameRefID", "options": chr(ord("A") + i)},
                "properties": [
                    {"id": "unit", "value": query.right_axis_unit},
                    {"id": "custom.axisPlacement", "value": "right"},
                    {"id": "custom.fillOpacity", "value": 0},
                    {"id": "custom.lineStyle", "value": {"fill": "dash", "dash": [6, 6]}},
                    {"id": "custom.stacking", "value": {"mode": "none", "group": "B"}},
                    {"id": "min", "value": 0},
                    {"id": "max"},
                ],
            }
            for i, query in enumerate(self.queries)
            if query.right_axis_unit
        ]

    def transformations(self) -> list[Json]:
        """What is done to the series before they are drawn."""
        return []

    def to_json(self, number: int, x: int, y: int) -> Json:
        """A panel at its place."""
        defaults: Json = {
            "unit": self.unit,
            "noValue": self.empty,
            "custom": self.custom(),
            "color": {"mode": "palette-classic" if self.kind == "timeseries" else "thresholds"},
            "thresholds": {
                "mode": "absolute",
                "steps": [{"value": value, "color": color} for value, color in self.steps],
            },
        }
        for name, value in (("decimals", self.decimals), ("min", self.low), ("max", self.high)):
            if value is not None:
                defaults[name] = value
        return {
            "id": number,
            "type": self.kind,
            "title": self.title,
            "description": self.description,
            "datasource": DATASOURCE,
            "gridPos": {"x": x, "y": y, "w": self.width, "h": self.height},
            "fieldConfig": {"defaults": defaults, "overrides": self.overrides()},
            "options": self.options(),
            "targets": [q.to_json(chr(ord("A") + i)) for i, q in enumerate(self.queries)],
            "transformations": self.transformations(),
        }
