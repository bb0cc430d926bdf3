"""Panels and dashboards as Grafana's JSON.

A panel cannot be made without a unit, a description and something to say while it is empty.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

DATASOURCE = {"type": "prometheus", "uid": "${datasource}"}
COLUMNS = 24

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


class Lines(Panel):
    """Lines over time."""


class Stacked(Panel):
    """Areas on top of each other."""

    def custom(self) -> Json:
        """Filled and stacked."""
        stacking = {"mode": "normal", "group": "A"}
        return {**super().custom(), "fillOpacity": 60, "lineWidth": 1, "stacking": stacking}


class Shares(Panel):
    """Areas that fill up to the whole."""

    def custom(self) -> Json:
        """Filled and stacked to one hundred per cent."""
        stacking = {"mode": "percent", "group": "A"}
        return {**super().custom(), "fillOpacity": 60, "lineWidth": 1, "stacking": stacking}


@dataclass(frozen=True)
class Stat(Panel):
    """One number."""

    width: int = 4
    height: int = 4

    kind = "stat"

    def options(self) -> Json:
        """The last value, large."""
        return {
            "colorMode": "value",
            "graphMode": "area",
            "justifyMode": "auto",
            "orientation": "auto",
            "textMode": "auto",
            "wideLayout": True,
            "showPercentChange": False,
            "percentChangeColorMode": "standard",
            "reduceOptions": {"calcs": ["lastNotNull"], "fields": "", "values": False},
        }

    def custom(self) -> Json:
        """Nothing of its own."""
        return {}


class Heatmap(Panel):
    """How many values fell into which bucket, over time."""

    kind = "heatmap"

    def options(self) -> Json:
        """Buckets as Prometheus has them."""
        return {
            "calculate": False,
            "cellGap": 1,
            "cellValues": {"unit": "short"},
            "color": {
                "mode": "scheme",
                "scheme": "Oranges",
                "scale": "exponential",
                "exponent": 0.5,
                "steps": 64,
                "fill": "dark-orange",
                "reverse": False,
            },
            "exemplars": {"color": "rgba(255,0,255,0.7)"},
            "filterValues": {"le": 1e-9},
            "legend": {"show": True},
            "rowsFrame": {"layout": "auto"},
            "showValue": "never",
            "tooltip": {"mode": "single", "yHistogram": False, "showColorScale": False},
            "yAxis": {"axisPlacement": "left", "reverse": False, "unit": self.unit},
        }

    def custom(self) -> Json:
        """Nothing of its own."""
        return {"hideFrom": {"legend": False, "tooltip": False, "viz": False}}


@dataclass(frozen=True)
class Table(Panel):
    """The last values in rows; `columns` names those to show, in order."""

    columns: dict[str, tuple[str, str]] = field(default_factory=dict)
    """Field name -> (heading, unit)."""
    sort_by: str = ""

    kind = "table"

    def options(self) -> Json:
        """Plain."""
        by = [{"displayName": self.sort_by, "desc": False}] if self.sort_by else []
        return {"cellHeight": "sm", "frameIndex": 0, "showHeader": True, "sortBy": by}

    def custom(self) -> Json:
        """Cells without colour."""
        return {"align": "auto", "cellOptions": {"type": "auto"}, "inspect": False}

    def overrides(self) -> list[Json]:
        """A unit per column."""
        return [
            {
                "matcher": {"id": "byName", "options": heading},
                "properties": [{"id": "unit", "value": unit}],
            }
            for heading, unit in self.columns.values()
        ]

    def transformations(self) -> list[Json]:
        """One row per set of labels; only the named columns."""
        names = list(self.columns)
        return [
            {"id": "merge", "options": {}},
            {"id": "filterFieldsByName", "options": {"include": {"names": names}}},
            {
                "id": "organize",
                "options": {
                    "excludeByName": {},
                    "indexByName": {name: i for i, name in enumerate(names)},
                    "renameByName": {name: heading for name, (heading, _) in self.columns.items()},
                },
            },
        ]


@dataclass(frozen=True)
class Dashboard:
    """Rows of panels under headings."""

    uid: str
    title: str
    description: str
    rows: tuple[tuple[str, tuple[Panel, ...]], ...]

    def to_json(self) -> Json:
        """The whole dashboard, as a file for provisioning."""
        panels: list[Json] = []
        y = 0
        for heading, members in self.rows:
            place = {"x": 0, "y": y, "w": COLUMNS, "h": 1}
            panels.append(
                {
                    "id": len(panels) + 1,
                    "type": "row",
                    "title": heading,
                    "collapsed": False,
                    "gridPos": place,
                    "panels": [],
                }
            )
            x, y, tallest = 0, y + 1, 0
            for panel in members:
                if x + panel.width > COLUMNS:
                    x, y, tallest = 0, y + tallest, 0
                panels.append(panel.to_json(len(panels) + 1, x, y))
                x, tallest = x + panel.width, max(tallest, panel.height)
            y += tallest
        return {
            "uid": self.uid,
            "title": self.title,
            "description": self.description,
            "tags": ["san-serve"],
            "schemaVersion": 41,
            "version": 1,
            "editable": False,
            "graphTooltip": 1,
            "refresh": "5s",
            "time": {"from": "now-15m", "to": "now"},
            "timezone": "browser",
            "fiscalYearStartMonth": 0,
            "links": [
                {
                    "title": "san-serve",
                    "type": "dashboards",
                    "tags": ["san-serve"],
                    "asDropdown": False,
                    "icon": "external link",
                    "includeVars": True,
                    "keepTime": True,
                    "targetBlank": False,
                    "tooltip": "",
                    "url": "",
                }
            ],
            "annotations": {"list": []},
            "templating": {"list": [_datasource_variable(), _job_variable()]},
            "panels": panels,
        }


def _datasource_variable() -> Json:
    return {
        "name": "datasource",
        "type": "datasource",
        "label": "data source",
        "query": "prometheus",
        "current": {"text": "Prometheus", "value": "prometheus"},
        "hide": 0,
        "includeAll": False,
        "multi": False,
        "refresh": 1,
        "regex": "",
        "options": [],
        "skipUrlSync": False,
    }


def _job_variable() -> Json:
    return {
        "name": "job",
        "type": "query",
        "label": "job",
        "datasource": DATASOURCE,
        "query": {"query": "label_values(san_ready, job)", "refId": "job"},
        "current": {"text": "san-serve", "value": "san-serve"},
        "hide": 0,
        "includeAll": False,
        "multi": False,
        "refresh": 2,
        "regex": "",
        "sort": 1,
        "options": [],
        "skipUrlSync": False,
    }
