"""The compose files and Dockerfiles, as far as they can be checked without an engine."""

import re
import runpy
import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest
import yaml

from service.settings import Settings

ROOT = Path(__file__).parents[2]
COMPOSE = yaml.safe_load((ROOT / "docker-compose.yml").read_text())
LASTING = ("service", "prometheus", "grafana")
DOCKERFILES = ("Dockerfile", "Dockerfile.training")


@pytest.mark.parametrize("name", LASTING)
def test_a_service_is_pinned_limited_and_confined(name):
    service = COMPOSE["services"][name]
    if "build" not in service:
        assert re.search(r":v?\d+\.\d+\.\d+$", service["image"])
    assert set(service["deploy"]["resources"]["limits"]) == {"cpus", "memory", "pids"}
    assert service["cap_drop"] == ["ALL"]
    assert service["security_opt"] == ["no-new-privileges:true"]
    assert all(re.search(r"127\.0\.0\.1", port) for port in service["ports"])
    named = [v for v in service["volumes"] if not v.startswith((".", "$"))]
    assert all(volume.split(":")[0] in COMPOSE["volumes"] for volume in named)


def test_passed_settings_exist():
    for entry in COMPOSE["services"]["service"]["environment"]:
        assert entry.removeprefix("SAN_").lower() in Settings.model_fields


def test_there_is_time_to_drain():
    defaults = Settings.model_fields
    needed = defaults["drain_grace_s"].default + defaults["drain_timeout_s"].default
    assert int(COMPOSE["services"]["service"]["stop_grace_period"].removesuffix("s")) > needed


def test_anonymous_visitors_of_grafana_can_only_look():
    environment = COMPOSE["services"]["grafana"]["environment"]
    assert environment["GF_AUTH_ANONYMOUS_ORG_ROLE"] == "Viewer"
    assert environment["GF_SECURITY_DISABLE_INITIAL_ADMIN_CREATION"] == "true"


def test_the_gpu_file_only_adds_to_services_that_exist():
    override = yaml.safe_load((ROOT / "docker-compose.gpu.yml").read_text())
    assert set(override["services"]) <= set(COMPOSE["services"])
    for service in override["services"].values():
        (device,) = service["deploy"]["resources"]["reservations"]["devices"]
        assert device["capabilities"] == ["gpu"]


@pytest.mark.parametrize("name", DOCKERFILES)
def test_hadolint_has_no_complaint(name):
    hadolint = Path(sysconfig.get_path("scripts")) / "hadolint"
    done = subprocess.run(
        [hadolint, ROOT / "docker" / name], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize("name", DOCKERFILES)
def test_an_image_does_not_run_as_root_and_takes_only_what_is_sent(name):
    text = (ROOT / "docker" / name).read_text()
    assert re.findall(r"^USER (.*)$", text, re.MULTILINE) == ["10001:10001"]
    ignored = (ROOT / ".dockerignore").read_text().splitlines()
    for source in re.findall(r"^COPY (?!--from)(.*) \S+$", text, re.MULTILINE):
        for path in source.split():
            assert path == "." or f"!{path}" in ignored
    # Without BuildKit's remote frontend a build needs no registry but that of the base image.
    assert "# syntax" not in text


def test_requirements_are_those_of_the_project(tmp_path):
    script = ROOT / "docker" / "requirements.py"
    requirements = runpy.run_path(str(script))["requirements"]
    found = requirements(ROOT / "pyproject.toml", ["tracing"])
    assert any(line.startswith("fastapi") for line in found)
    assert any(line.startswith("opentelemetry-sdk") for line in found)
    assert not any(line.startswith("pytest") for line in found)
    done = subprocess.run(
        [sys.executable, script, ROOT / "pyproject.toml", "tracing"],
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.split("\n") == [*found, ""]


@pytest.mark.parametrize(("status", "code"), [(200, 0), (503, 1), (None, 1)])
def test_the_health_check_asks_whether_the_service_is_ready(status, code, monkeypatch):
    import http.server
    import threading

    asked = []

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            asked.append(self.path)
            self.send_response(status)
            self.end_headers()

        def log_message(self, *_: object) -> None:
            pass

    server = http.server.HTTPServer(("127.0.0.1", 0), Handler)
    port = server.server_address[1]
    if status is None:
        server.server_close()
    else:
        threading.Thread(target=server.handle_request, daemon=True).start()
    done = subprocess.run(
        [sys.executable, ROOT / "docker" / "healthcheck.py"],
        env={"SAN_PORT": str(port)},
        capture_output=True,
        check=False,
    )
    server.server_close()
    assert done.returncode == code
    assert asked == ([] if status is None else ["/readyz"])
