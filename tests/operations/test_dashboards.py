"""Grafana's dashboards: complete, and laid out without overlaps."""

import json

import promql_parser
import pytest
import yaml

from tests.docker.expressions import DASHBOARDS, DOCKER, panels

UNITS = {"s", "reqps", "ops", "percentunit", "none", "decbytes", "short"}
BOARDS = {path.stem: json.loads(path.read_text()) for path in DASHBOARDS}
PANELS = [
    pytest.param(panel, id=f"{name}/{panel['title']}")
    for name, board in BOARDS.items()
    for panel in panels(board)
]


@pytest.mark.parametrize("panel", PANELS)
def test_a_panel_has_unit_description_and_something_to_say_when_empty(panel):
    defaults = panel["fieldConfig"]["defaults"]
    assert defaults["unit"] in UNITS
    assert defaults["noValue"]
    assert panel["description"].endswith(".")
    if panel["type"] == "timeseries" and defaults["unit"] == "percentunit":
        # Nothing above 100 % may be cut off unseen.
        assert "max" not in defaults
    assert panel["title"]
    assert panel["targets"]
    for target in panel["targets"]:
        assert (
            target["datasource"]
            == panel["datasource"]
            == {
                "type": "prometheus",
                "uid": "${datasource}",
            }
        )


@pytest.mark.parametrize("board", BOARDS.values(), ids=BOARDS)
def test_ids_are_unique_and_panels_do_not_overlap(board):
    everything = board["panels"]
    assert len({panel["id"] for panel in everything}) == len(everything)
    titles = [panel["title"] for panel in panels(board)]
    assert len(set(titles)) == len(titles)
    taken: set[tuple[int, int]] = set()
    for panel in everything:
        place = panel["gridPos"]
        assert place["x"] + place["w"] <= 24
        cells = {
            (x, y)
            for x in range(place["x"], place["x"] + place["w"])
            for y in range(place["y"], place["y"] + place["h"])
        }
        assert not taken & cells, panel["title"]
        taken |= cells


def test_a_broken_expression_would_be_seen():
    with pytest.raises(ValueError, match="unclosed left parenthesis"):
        promql_parser.parse("sum(rate(san_requests_total[5m])")


def test_the_data_source_is_the_one_the_dashboards_ask_for():
    provisioning = DOCKER / "grafana" / "provisioning"
    (source,) = yaml.safe_load((provisioning / "datasources" / "prometheus.yml").read_text())[
        "datasources"
    ]
    for board in BOARDS.values():
        variables = {v["name"]: v for v in board["templating"]["list"]}
        assert variables["datasource"]["current"]["value"] == source["uid"]
        assert variables["job"]["current"]["value"] == "san-serve"
        assert set(variables) == {"datasource", "job", "namespace", "instance"}
    compose = yaml.safe_load((DOCKER.parent / "docker-compose.yml").read_text())
    prometheus = yaml.safe_load((DOCKER / "prometheus" / "prometheus.yml").read_text())
    assert source["url"] == "http://prometheus:9090"
    assert "prometheus" in compose["services"]
    interval = prometheus["global"]["scrape_interval"]
    assert source["jsonData"]["timeInterval"] == interval
    (provider,) = yaml.safe_load((provisioning / "dashboards" / "files.yml").read_text())[
        "providers"
    ]
    mounted = {
        volume.split(":")[1]: volume.split(":")[0]
        for volume in compose["services"]["grafana"]["volumes"]
    }
    assert mounted[provider["options"]["path"]] == "./docker/grafana/dashboards"
    home = compose["services"]["grafana"]["environment"][
        "GF_DASHBOARDS_DEFAULT_HOME_DASHBOARD_PATH"
    ]
    assert home.removeprefix(provider["options"]["path"] + "/") in {p.name for p in DASHBOARDS}


def test_every_panel_follows_the_variables():
    for board in BOARDS.values():
        for panel in panels(board):
            for target in panel["targets"]:
                expr = target["expr"]
                if "san_" in expr and "ALERTS" not in expr:
                    assert 'job="$job"' in expr
                    assert "$namespace" in expr
                    recorded = expr.count("job:san_") + expr.count("job_resolution:san_")
                    assert "$instance" in expr or recorded or "version:san_" in expr


def test_swaps_of_the_bundle_are_annotations():
    for board in BOARDS.values():
        swaps, *_ = board["annotations"]["list"]
        assert "san_bundle_swapped_timestamp_seconds" in swaps["expr"]
        assert swaps["useValueForTime"]


def test_latency_is_linked_to_traces():
    asked = {
        panel["title"]
        for panel in panels(BOARDS["latency-and-budgets"])
        for target in panel["targets"]
        if target.get("exemplar")
    }
    assert asked == {"Latency of answers", "Distribution of latency"}
    compose = yaml.safe_load((DOCKER.parent / "docker-compose.yml").read_text())
    assert "--enable-feature=exemplar-storage" in compose["services"]["prometheus"]["command"]
