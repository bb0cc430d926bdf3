"""The compose files and Dockerfiles, as far as they can be checked without an engine."""

import re
import runpy
import subprocess
import sys
import sysconfig
import tomllib
from pathlib import Path

import pytest
import yaml

from service.settings import Settings

ROOT = Path(__file__).parents[2]
COMPOSE = yaml.safe_load((ROOT / "docker-compose.yml").read_text())
LASTING = ("service", "prometheus", "grafana")
DOCKERFILES = ("Dockerfile", "Dockerfile.training")
TORCH = ("TORCH_VARIANT", "TORCH_CPU_INDEX_URL", "TORCH_CUDA_INDEX_URL")


def install_torch(*values):
    """Run the Dockerfile's own lines with a pip that only says what it was told."""
    text = (ROOT / "docker" / "Dockerfile").read_text()
    found = re.search(r"^ARG TORCH_CUDA_INDEX_URL=\nRUN --mount=\S+ (.*?[^\\])$", text, re.S | re.M)
    assert found
    script = 'pip() { echo "$@"; }\n' + found[1].replace("\\\n", "")
    environment = dict(zip(TORCH, values, strict=True))
    return subprocess.run(
        ["sh", "-c", script], env=environment, capture_output=True, text=True, check=False
    )


@pytest.mark.parametrize("name", LASTING)
def test_a_service_is_pinned_limited_and_confined(name):
    service = COMPOSE["services"][name]
    if "build" not in service:
        assert re.search(r":v?\d+\.\d+\.\d+@sha256:[0-9a-f]{64}$", service["image"])
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
        assert service["build"]["args"] == {"TORCH_VARIANT": "cuda"}
    limits = override["services"]["service"]["deploy"]["resources"]["limits"]
    # No limit: more cores than the host has would be refused.
    assert limits == {"cpus": "${SAN_CPUS:-0}", "memory": "${SAN_MEMORY:-16g}"}


def test_compose_passes_what_the_dockerfiles_ask_for():
    for name in ("service", "training"):
        build = COMPOSE["services"][name]["build"]
        asked = re.findall(
            r"^ARG (TORCH_\w+)", (ROOT / build["dockerfile"]).read_text(), re.MULTILINE
        )
        assert list(build["args"]) == asked == list(TORCH)


def test_images_of_others_are_named_by_digest():
    names = [s["image"] for s in COMPOSE["services"].values() if "build" not in s]
    for name in DOCKERFILES:
        text = (ROOT / "docker" / name).read_text()
        stages = set(re.findall(r" AS (\S+)", text))
        names += [x for x in re.findall(r"^FROM (\S+)", text, re.MULTILINE) if x not in stages]
    assert len(names) == 6
    assert all(re.fullmatch(r"\S+:[\w.-]+@sha256:[0-9a-f]{64}", name) for name in names), names


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


def test_the_whole_wheel_is_sent_to_the_engine():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    packages = project["tool"]["hatch"]["build"]["targets"]["wheel"]["packages"]
    ignored = (ROOT / ".dockerignore").read_text().splitlines()
    assert {f"!{package}" for package in packages} <= set(ignored)
    for name in DOCKERFILES:
        assert "\nCOPY . /source\n" in (ROOT / "docker" / name).read_text()


def test_both_images_share_the_layer_of_torch():
    shared = [
        re.search(r"^FROM .*?(?=^# The other)", (ROOT / "docker" / name).read_text(), re.S | re.M)
        for name in DOCKERFILES
    ]
    assert all(shared)
    assert len({found[0] for found in shared if found}) == 1


@pytest.mark.parametrize(
    ("variant", "indexes", "takes"),
    [
        ("cpu", ("", ""), ""),
        ("cuda", ("", ""), ""),
        ("cpu", ("https://c/", "https://g/"), "--index-url https://c/ "),
        ("cuda", ("https://c/", "https://g/"), "--index-url https://g/ "),
        ("cuda", ("https://c/", ""), ""),
    ],
)
def test_torch_comes_from_the_index_of_its_variant(variant, indexes, takes):
    done = install_torch(variant, *indexes)
    assert done.stdout == f"install {takes}-c torch.txt torch torchvision\n"
    assert ("No index" in done.stderr) == (not takes)
    assert done.returncode == 0


def test_an_unknown_variant_is_refused_with_those_that_exist():
    done = install_torch("rocm", "", "")
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr == "TORCH_VARIANT must be none, cpu or cuda, not 'rocm'.\n"


def test_a_cpu_does_without_torch():
    done = install_torch("none", "", "")
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


def test_the_default_image_is_installed_by_hash():
    text = (ROOT / "docker" / "Dockerfile").read_text()
    arguments = dict(re.findall(r"^ARG (\w+)=(.*)$", text, re.M))
    default = f"{arguments['TORCH_VARIANT']},{arguments['EXTRAS']}"
    assert f'if [ "$TORCH_VARIANT,$EXTRAS" = {default} ]' in text
    assert "pip install --require-hashes --no-deps -r service.lock" in text
    assert "!requirements/service.lock" in (ROOT / ".dockerignore").read_text()


def test_requirements_are_those_of_the_project(tmp_path):
    script = ROOT / "docker" / "requirements.py"
    requirements = runpy.run_path(str(script))["requirements"]
    found = requirements(ROOT / "pyproject.toml", ["tracing"])
    assert any(line.startswith("fastapi") for line in found)
    assert any(line.startswith("opentelemetry-sdk") for line in found)
    assert not any(line.startswith("torch") for line in found)
    trains = requirements(ROOT / "pyproject.toml", ["training", "export"])
    assert sum(line.startswith("torch>") for line in trains) == 1
    assert not any(line.startswith("san-serve") for line in trains)
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
