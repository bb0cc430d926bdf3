"""The dashboards against the types that Grafana publishes, by the TypeScript compiler."""

import json
import re
import subprocess
from pathlib import Path

import pytest

from tests.docker.conftest import COMPOSE
from tests.docker.expressions import DASHBOARDS, panels

# Beside the containers: it, too, needs more than Python (node, and npm's registry).
pytestmark = pytest.mark.docker

GRAFANA = COMPOSE["services"]["grafana"]["image"].partition("@")[0].rpartition(":")[2]
HEAD = """\
import type { AnnotationQuery, Dashboard } from '@grafana/schema';
%s
// Enums are written as their values in JSON.
type Plain<T> = T extends string ? `${T}` : T extends (infer U)[] ? Plain<U>[]
  : T extends object ? { [K in keyof T]: Plain<T[K]> } : T;
// What the Prometheus data source reads beside what every annotation has; no type is published.
type Annotation = Plain<AnnotationQuery> & {
  expr: string, titleFormat?: string, textFormat?: string, tagKeys?: string, step?: string,
  useValueForTime?: boolean | string
};
"""
KINDS = ("timeseries", "stat", "heatmap", "table")
TYPES = "./node_modules/@grafana/schema/dist/types/raw/composable/%s/panelcfg/x/types.gen"


def _source(boards: dict[str, dict]) -> str:
    imports = "\n".join(f"import type * as {kind} from '{TYPES % kind}';" for kind in KINDS)
    lines = [HEAD % imports]
    for name, board in boards.items():
        variable = re.sub(r"\W", "_", name)
        noted = json.dumps(board["annotations"]["list"])
        lines.append(f"export const {variable}_annotations: Annotation[] = {noted};")
        rest = json.dumps({k: v for k, v in board.items() if k != "annotations"}, indent=1)
        lines.append(f"export const {variable}: Plain<Dashboard> = {rest};")
        for panel in panels(board):
            place = f"{variable}_{panel['id']}"
            kind = panel["type"]
            options = json.dumps(panel["options"])
            lines.append(f"export const {place}: Plain<{kind}.Options> = {options};")
            if kind != "stat":
                custom = json.dumps(panel["fieldConfig"]["defaults"]["custom"])
                lines.append(f"export const {place}_custom: Plain<{kind}.FieldConfig> = {custom};")
    return "\n".join(lines)


@pytest.fixture(scope="session")
def project(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("schema")
    (folder / "package.json").write_text('{"private": true, "type": "module"}')
    packages = [f"@grafana/schema@{GRAFANA}", "typescript@5"]
    subprocess.run(
        ["npm", "install", "--no-audit", "--no-fund", "--ignore-scripts", *packages],
        cwd=folder,
        check=True,
        capture_output=True,
        timeout=600,
    )
    return folder


def _complaints(project: Path, boards: dict[str, dict]) -> str:
    (project / "check.ts").write_text(_source(boards))
    flags = "--noEmit --strict --skipLibCheck --module esnext --moduleResolution bundler"
    done = subprocess.run(
        [project / "node_modules" / ".bin" / "tsc", *flags.split(), "check.ts"],
        cwd=project,
        capture_output=True,
        text=True,
        check=False,
        timeout=600,
    )
    return done.stdout


def test_the_dashboards_have_the_types_of_grafana(project):
    boards = {path.stem: json.loads(path.read_text()) for path in DASHBOARDS}
    assert _complaints(project, boards) == ""


def test_a_wrong_dashboard_would_be_refused(project):
    board = json.loads(DASHBOARDS[0].read_text())
    panel = next(panels(board))
    panel["options"]["colorMode"] = "loud"
    board["graphTooltip"] = "shared"
    complaints = _complaints(project, {"wrong": board})
    assert '"loud"' in complaints
    assert "DashboardCursorSync" in complaints
