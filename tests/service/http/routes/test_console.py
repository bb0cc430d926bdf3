"""The console's files: complete, self-contained, small, and served under a strict policy."""

import re

import pytest
from fastapi import FastAPI
from fastapi.testclient import TestClient

from service.http.routes.console import WEB, add_console

ASSETS = WEB / "assets"
SCRIPTS = ("theme.js", "api-docs.js")
MODULES = sorted(path for path in ASSETS.rglob("*.js") if path.name not in SCRIPTS)
TEXTS = [WEB / "index.html", WEB / "docs.html", *ASSETS.rglob("*.js"), *ASSETS.rglob("*.css")]
EXPECTED_POLICY = {
    "default-src": "'none'",
    "script-src": "'self'",
    "style-src": "'self'",
    "connect-src": "'self'",
    "frame-ancestors": "'none'",
    "require-trusted-types-for": "'script'",
}


@pytest.fixture(scope="module")
def client():
    api = FastAPI(docs_url=None)
    add_console(api)
    with TestClient(api) as client:
        yield client


@pytest.mark.parametrize("path", ["/", "/assets/main.js", "/assets/console.css"])
def test_everything_comes_under_the_policy(client, path):
    response = client.get(path)
    assert response.status_code == 200
    policy = dict(
        part.strip().split(" ", 1)
        for part in response.headers["content-security-policy"].split(";")
    )
    assert EXPECTED_POLICY.items() <= policy.items()
    assert "unsafe" not in response.headers["content-security-policy"]
    assert response.headers["x-content-type-options"] == "nosniff"
    assert response.headers["referrer-policy"] == "no-referrer"


@pytest.mark.parametrize("path", ["/", "/docs", "/favicon.ico", "/assets/main.js"])
def test_head_is_answered_like_get_without_the_body(client, path):
    head, get = client.head(path), client.get(path)
    assert (head.status_code, head.content) == (200, b"")
    assert head.headers == get.headers


def test_the_api_s_page_needs_no_other_host(client):
    page = client.get("/docs")
    assert page.status_code == 200
    named = re.findall(r'(?:href|src)="([^"]+)"', page.text)
    assert "/docs/files/swagger-ui-bundle.js" in named
    for path in named:
        assert path.startswith("/")
        assert path == "/openapi.json" or client.get(path).status_code == 200, path
    policy = page.headers["content-security-policy"]
    assert "script-src 'self';" in policy
    assert "connect-src 'self'" in policy
    assert client.get("/favicon.ico").headers["content-type"].startswith("image/svg")


def test_an_unchanged_file_is_not_sent_again_and_keeps_the_policy(client):
    first = client.get("/assets/main.js")
    again = client.get("/assets/main.js", headers={"If-None-Match": first.headers["etag"]})
    assert again.status_code == 304
    assert "content-security-policy" in again.headers


@pytest.mark.parametrize("path", ["/assets/../app.py", "/assets/%2e%2e/app.py", "/assets/nothing"])
def test_nothing_else_is_served(client, path):
    assert client.get(path).status_code == 404


def test_modules_import_what_exists():
    imports = 0
    for path in MODULES:
        for found in re.findall(r'^(?:import|}) .*from "(\.[^"]+)"', path.read_text("utf-8"), re.M):
            assert (path.parent / found).resolve() in MODULES, (path.name, found)
            imports += 1
    assert imports > 40


def test_the_page_preloads_every_module():
    html = (WEB / "index.html").read_text(encoding="utf-8")
    preloaded = set(re.findall(r'modulepreload" href="/assets/([^"]+)"', html))
    assert preloaded == {path.relative_to(ASSETS).as_posix() for path in MODULES} - {"main.js"}
    assert '<script type="module" src="/assets/main.js">' in html


def test_the_examples_are_there():
    named = re.findall(
        r'^  \["([a-z-]+)", "', (ASSETS / "cards" / "picture.js").read_text("utf-8"), re.M
    )
    assert len(named) == 6
    assert {f"{name}.jpg" for name in named} == {
        p.name for p in (ASSETS / "examples").glob("*.jpg")
    }
    sources = (ASSETS / "examples" / "SOURCES.md").read_text("utf-8")
    assert all(f"{name}.jpg" in sources for name in named)


@pytest.mark.parametrize("path", TEXTS, ids=lambda path: path.name)
def test_no_file_names_another_host_or_makes_markup(path):
    text = path.read_text(encoding="utf-8").replace("http://www.w3.org/2000/svg", "")
    assert "://" not in text
    for way in ("innerHTML", "outerHTML", "insertAdjacentHTML", "document.write", "eval("):
        assert way not in text


def test_the_page_is_small():
    assert sum(path.stat().st_size for path in [*TEXTS, *ASSETS.glob("*.svg")]) < 200_000
