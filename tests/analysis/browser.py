"""A headless Chromium for tests of pages: found on this machine, or a skip that says how."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chrome")
HOW = (
    "no browser: install chromium, run `python -m playwright install chromium`, or set "
    "BERTSMITH_BROWSER to one"
)
QUIET = ["--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-sync"]
QUIET += ["--disable-background-networking", "--disable-component-update"]


def program(playwright: Any) -> str | None:
    """The browser that is named, on the path, or that playwright has fetched."""
    named = os.environ.get("BERTSMITH_BROWSER")
    if named:
        return named
    own = playwright.chromium.executable_path
    return next(filter(None, map(shutil.which, NAMES)), own if Path(own).is_file() else None)


@contextmanager
def chromium() -> Iterator[Any]:
    """A running browser."""
    sync = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
    with sync.sync_playwright() as playwright:
        found = program(playwright)
        if found is None:
            pytest.skip(HOW)
        browser = playwright.chromium.launch(executable_path=found, args=QUIET)
        yield browser
        browser.close()


class Watched:
    """A page that is open, with all that it asked for and complained of."""

    def __init__(self, browser: Any, file: Path, **options: Any) -> None:
        self.context = browser.new_context(viewport={"width": 1280, "height": 900}, **options)
        self.page = self.context.new_page()
        self.requests: list[str] = []
        self.faults: list[str] = []
        self.page.on("request", lambda request: self.requests.append(request.url))
        self.page.on("pageerror", lambda error: self.faults.append(str(error)))
        self.page.on("console", self._heard)
        self.page.goto(file.as_uri())
        self.page.wait_for_selector("html[data-ready=yes]")

    def _heard(self, message: Any) -> None:
        if message.type in ("error", "warning"):
            self.faults.append(message.text)

    def chip(self, name: str, value: str | int) -> None:
        """Choose a radio or a checkbox as a person does, by clicking on it."""
        self.page.locator(f'input[name="{name}"][value="{value}"]').click()
