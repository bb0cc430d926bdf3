"""The kinds of panel: lines, areas, one number, a heatmap, a table."""

from __future__ import annotations

from dataclasses import dataclass, field

from panel import Json, Panel


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
