"""Takes every picture of a running service that the documents show, with a service of its own.

The README's example of an answer comes from the same service.

Usage, from the repository, on a machine that does nothing else::

    python -m docs.take_screenshots             # the console and the dashboards, about four minutes
    python -m docs.take_screenshots --only console --budget-ms 25

It needs chromium and, for the dashboards, prometheus. It fails if the answer in a picture missed
its budget: then the machine was not quiet.
"""

from __future__ import annotations

import argparse
import json
import shutil
import subprocess
import tempfile
import time
import urllib.request
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import yaml
from playwright.sync_api import Browser, Page, expect, sync_playwright

from benchmarks.servers.our_service import OurService
from benchmarks.servers.processes import free_port
from docs.images.render_dashboards import draw_all
from tests.docker.traffic import Traffic

ROOT = Path(__file__).parents[1]
README = ROOT / "README.md"
IMAGES = ROOT / "docs" / "images"
EXAMPLES = ROOT / "service" / "http" / "web" / "assets" / "examples"
RULES = ROOT / "docker" / "prometheus" / "rules"
PATIENCE_MS = 180_000
FLAGS = ("--no-sandbox", "--disable-gpu", "--disable-background-networking")
ATTEMPTS = 20
CALM_S = 3.0
PHASES = ((60.0, 25.0), (20.0, 250.0), (20.0, 25.0))
"""Seconds, and requests per second: little load, a burst, little load."""
BUDGETS = (10, 20, 50, 50, 100)


def use_everything(page: Page) -> None:
    """Every panel once."""
    page.locator("#compare-run").click()
    expect(page.locator(".side-answer dl")).to_have_count(2)
    page.locator("#sweep-run").click()
    expect(page.locator("#sweep-run")).to_have_text("Run the sweep")
    page.locator("#cold-run").click()
    expect(page.locator(".versus")).to_be_visible()
    page.locator("#load-run").click()
    expect(page.locator("#load-said")).to_contain_text("Load run over")


def classify_in_time(page: Page, budget: str) -> None:
    """Ask until the budget is met, as it nearly always is on a quiet machine."""
    page.locator("#budget-number").fill(budget)
    page.locator("#budget-number").press("Enter")
    page.locator("#budget-number").blur()
    took = page.locator("#tile-took")
    for _ in range(ATTEMPTS):
        page.wait_for_timeout(700)
        if "met" in took.inner_text():
            return
        page.locator("#classify").click()
    raise SystemExit("The budget was missed every time: the machine is not quiet.")


def take(browser: Browser, url: str, name: str, *, width: int, theme: str, budget: str) -> None:
    """The first screen, then the whole page with every panel in use."""
    context = browser.new_context(
        viewport={"width": width, "height": 844 if width < 500 else 900},
        color_scheme=theme,  # type: ignore[arg-type]
        reduced_motion="reduce",
    )
    page = context.new_page()
    page.set_default_timeout(PATIENCE_MS)
    page.goto(url)
    expect(page.locator(".predictions li")).to_have_count(5)
    classify_in_time(page, budget)
    page.evaluate("scrollTo(0, 0)")
    page.screenshot(path=IMAGES / f"console-{name}.png")
    if name == "dark":
        use_everything(page)
        time.sleep(CALM_S)  # what the load taught the service is forgotten
        classify_in_time(page, budget)
        page.screenshot(path=IMAGES / f"console-{name}.png", full_page=True)
    context.close()


def take_console(url: str, budget: str) -> None:
    """Light on a desk, dark with every panel, light on a phone."""
    expect.set_options(timeout=PATIENCE_MS)
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(
            executable_path=shutil.which("chromium"), args=list(FLAGS)
        )
        take(browser, url, "light", width=1440, theme="light", budget=budget)
        take(browser, url, "phone", width=390, theme="light", budget=budget)
        take(browser, url, "dark", width=1440, theme="dark", budget=budget)
        browser.close()


@contextmanager
def prometheus(service_port: int) -> Iterator[str]:
    """A Prometheus that watches the service every second; its address."""
    port = free_port()
    config = {
        "global": {"scrape_interval": "1s", "evaluation_interval": "1s"},
        "rule_files": [str(RULES / "*.yml")],
        "scrape_configs": [
            {
                "job_name": "san-serve",
                "static_configs": [{"targets": [f"127.0.0.1:{service_port}"]}],
            }
        ],
    }
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "prometheus.yml"
        path.write_text(yaml.safe_dump(config))
        process = subprocess.Popen(
            [
                "prometheus",
                f"--config.file={path}",
                f"--storage.tsdb.path={folder}/data",
                f"--web.listen-address=127.0.0.1:{port}",
                "--log.level=error",
            ]
        )
        try:
            url = f"http://127.0.0.1:{port}"
            _await(f"{url}/-/ready")
            yield url
        finally:
            process.terminate()
            process.wait()


def _await(url: str, wanted: str = "") -> None:
    for _ in range(200):
        try:
            with urllib.request.urlopen(url, timeout=5) as answer:
                if wanted in answer.read().decode():
                    return
        except OSError:
            pass
        time.sleep(0.2)
    raise SystemExit(f"{url} does not answer.")


def take_dashboards(service: OurService) -> None:
    """A hundred seconds of the example photographs, with a burst after a minute.

    Requests come when they are due, whatever became of those before.
    """
    traffic = Traffic(
        f"http://127.0.0.1:{service.port}",
        [path.read_bytes() for path in sorted(EXAMPLES.glob("*.jpg"))],
    )
    traffic.learn_truth()
    with prometheus(service.port) as url:
        _await(f"{url}/api/v1/query?query=up", '"1"')
        traffic.each_kind()
        start = due = time.time()
        with ThreadPoolExecutor(64) as clients:
            for seconds, rate in PHASES:
                for number in range(int(seconds * rate)):
                    time.sleep(max(0.0, due - time.time()))
                    due += 1 / rate
                    clients.submit(traffic.one, f"budget_ms={BUDGETS[number % len(BUDGETS)]}")
        draw_all(url, start, time.time())


def take_answer(url: str, budget: str) -> None:
    """Put an answer that met its budget into the README."""
    picture = (EXAMPLES / "coffee.jpg").read_bytes()
    ask = f"{url}/classify?budget_ms={budget}&top_k=1"
    found = [json.load(urllib.request.urlopen(ask, picture)) for _ in range(ATTEMPTS)]
    met = [answer for answer in found if answer["budget"]["met"]]
    if not met:
        raise SystemExit("The budget was missed every time: the machine is not quiet.")
    told = sorted(met, key=lambda answer: answer["budget"]["spent_ms"])[len(met) // 2]
    rows = (
        ("predictions",),
        ("resolution", "mode", "precision"),
        ("expected_accuracy", "accuracy_source"),
        ("reason",),
        ("weights",),
        ("budget",),
        ("timing_ms",),
    )
    lines = [", ".join(f'"{name}": {json.dumps(told[name])}' for name in row) for row in rows]
    body = "{\n  " + ",\n  ".join(lines) + "\n}"
    text = README.read_text(encoding="utf-8")
    begin, end = text.index("<!-- answer -->"), text.index("<!-- end:answer -->")
    block = f"<!-- answer -->\n```json\n{body}\n```\n"
    README.write_text(text[:begin] + block + text[end:], encoding="utf-8")


def main() -> None:
    """Start a service and take what is asked for."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--only", choices=("console", "dashboards"))
    parser.add_argument("--budget-ms", default="25")
    args = parser.parse_args()
    # All requests come from one address here: it may use the whole service.
    with OurService(options=["--client-share", "1", "--agreement-fraction", "0.2"]) as service:
        service.await_ready()
        if args.only != "dashboards":
            url = f"http://127.0.0.1:{service.port}"
            take_answer(url, args.budget_ms)
            take_console(url, args.budget_ms)
        if args.only != "console":
            take_dashboards(service)


if __name__ == "__main__":
    main()
