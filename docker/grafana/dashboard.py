"""Panels laid out in rows, as Grafana's JSON for a whole dashboard."""

from __future__ import annotations

from dataclasses import dataclass

from panel import DATASOURCE, Json, Panel

COLUMNS = 24


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
