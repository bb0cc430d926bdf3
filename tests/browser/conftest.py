"""A browser, a service for it, and pages that are watched while a test uses them."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Page, expect, sync_playwright

from service.settings import Settings
from tests.browser.service_in_slow_motion import serving, write_bundle

FLAGS = (
    "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run",
    "--disable-background-networking", "--disable-component-update", "--disable-sync",
    "--use-fake-device-for-media-stream", "--use-fake-ui-for-media-stream",
)  # fmt: skip
PATIENCE_MS = 60_000
_NETWORK_CHANGED = "ERR_NETWORK_CHANGED"
"""Chromium drops what it is loading when a container starts or stops on the same machine."""
WIDTHS = {"desktop": (1440, 900), "phone": (390, 844)}


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    here = Path(__file__).parent
    for item in items:
        if here in item.path.parents:
            item.add_marker(pytest.mark.browser)
    # They come last: playwright keeps an event loop running in the thread of the tests until its
    # session ends, and no other test could run one of its own there.
    items.sort(key=lambda item: item.get_closest_marker("browser") is not None)


def chromium() -> str:
    names = ("chromium", "chromium-browser", "google-chrome")
    path = os.environ.get("CHROMIUM") or next(filter(None, map(shutil.which, names)), None)
    assert path, "Install chromium, or name it in CHROMIUM."
    return path


@pytest.fixture(scope="session")
def browser() -> Iterator[Browser]:
    expect.set_options(timeout=PATIENCE_MS)
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium(), args=list(FLAGS))
        yield browser
        browser.close()


@pytest.fixture(scope="session")
def bundle(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_bundle(tmp_path_factory.mktemp("bundle") / "tiny.safetensors")


@pytest.fixture(scope="session")
def make_settings(
    bundle: Path, tmp_path_factory: pytest.TempPathFactory
) -> Callable[..., Settings]:
    def make(**changes: object) -> Settings:
        options: dict[str, object] = {
            "bundle": bundle,
            "cache_dir": tmp_path_factory.mktemp("latencies"),
            "engine": "torch",
            "engine_threads": 1,
            "decode_threads": 1,
            "device": "cpu",
            "max_batch": 2,
            "access_log": False,
            "agreement_fraction": 0.0,
            "patience_ms": 60_000,
        }
        return Settings(**(options | changes))  # type: ignore[arg-type]

    return make


@pytest.fixture(scope="module")
def url(make_settings: Callable[..., Settings]) -> Iterator[str]:
    # One per file: what the panels do to the cache teaches the service times that others would see.
    with serving(make_settings()) as address:
        yield address


@dataclass
class Watch:
    """What went on behind a page."""

    complaints: list[str] = field(default_factory=list)
    foreign: list[str] = field(default_factory=list)


@dataclass
class Visitor:
    """Opens watched pages."""

    browser: Browser
    watch: Watch = field(default_factory=Watch)
    allowed: tuple[str, ...] = ()
    """Complaints that a test provokes."""

    def open(
        self,
        url: str,
        *,
        width: str = "desktop",
        answered: bool = True,
        prepare: Callable[[Page], object] = lambda _: None,
        **options: object,
    ) -> Page:
        size = WIDTHS[width]
        context = self.browser.new_context(
            viewport={"width": size[0], "height": size[1]},
            **options,  # type: ignore[arg-type]
        )
        page = context.new_page()
        page.set_default_timeout(PATIENCE_MS)
        watch = self.watch
        page.on("pageerror", lambda error: watch.complaints.append(str(error)))
        page.on(
            "console",
            lambda message: (
                message.type in ("error", "warning") and watch.complaints.append(message.text)
            ),
        )
        page.on(
            "request",
            lambda request: (
                request.url.startswith((url, "blob:")) or watch.foreign.append(request.url)
            ),
        )
        prepare(page)
        page.goto(url)
        while any(_NETWORK_CHANGED in text for text in watch.complaints):
            watch.complaints.clear()
            page.reload()
        if answered:
            expect(page.locator(".predictions li")).to_have_count(5)
        return page


@pytest.fixture
def visitor(browser: Browser) -> Iterator[Visitor]:
    """Every test that uses a page also tests that it complains of nothing and calls nobody."""
    visitor = Visitor(browser)
    yield visitor
    for context in browser.contexts:
        context.close()
    assert visitor.watch.foreign == []
    assert [
        text
        for text in visitor.watch.complaints
        if not any(allowed in text for allowed in visitor.allowed)
    ] == []


@pytest.fixture
def page(visitor: Visitor, url: str) -> Page:
    return visitor.open(url)
