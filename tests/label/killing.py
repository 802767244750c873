"""A server that labels, a browser that is killed at random moments, two tabs: what was lost?"""

from __future__ import annotations

import json
import os
import random
import shutil
import signal
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from analysis.browser import QUIET, program

LABELS = ["one", "two", "three"]
PRESS_LATER = """([key, later]) => setTimeout(() => document.dispatchEvent(
  new KeyboardEvent("keydown", { key, bubbles: true })), later)"""
NEXT = """name => document.documentElement.dataset.text !== name
  && document.getElementById("card").getAttribute("aria-busy") === "false" """


def label_of(text: str) -> str:
    """The label that each text gets."""
    return LABELS[sum(map(ord, text)) % len(LABELS)]


@dataclass
class Outcome:
    """What happened, for a person and for assertions."""

    labels: int = 0
    seen_as_stored: int = 0  # texts after whose label a page showed the next text
    browsers_killed: int = 0
    servers_killed: int = 0
    reported_in_another_tab: int = 0
    lost: list[str] = field(default_factory=list)
    doubled: list[str] = field(default_factory=list)
    wrong: list[str] = field(default_factory=list)


class Server:
    """`bertsmith label` as a process of its own."""

    def __init__(self, data: Path, out: Path, port: int) -> None:
        words = [sys.executable, "-m", "bertsmith", "label", str(data), "--out", str(out)]
        words += ["--task", "classification", "--labels", ",".join(LABELS), "--order", "random"]
        words += ["--port", str(port), "--no-browser"]
        self.words, self.url = words, f"http://127.0.0.1:{port}/"
        self.process = self.start()

    def start(self) -> subprocess.Popen[bytes]:
        """Start it, and wait until it answers."""
        self.process = subprocess.Popen(self.words, stdout=subprocess.DEVNULL)
        while True:
            if self.process.poll() is not None:
                raise RuntimeError("the server ended")
            try:
                urllib.request.urlopen(self.url).close()
                return self.process
            except urllib.error.URLError:
                time.sleep(0.1)

    def kill(self) -> None:
        """Kill it; its file stays."""
        self.process.send_signal(signal.SIGKILL)
        self.process.wait()


class Browser:
    """A browser process that can be killed, with two tabs of the page."""

    def __init__(self, playwright: Any, url: str, folder: Path) -> None:
        folder.mkdir()
        port = folder / "DevToolsActivePort"
        words = [str(program(playwright)), "--headless", *QUIET, "--remote-debugging-port=0"]
        words += [f"--user-data-dir={folder}", "about:blank"]
        self.process = subprocess.Popen(
            words, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True
        )
        while not (port.is_file() and "\n" in port.read_text()):
            time.sleep(0.05)
        address = f"http://127.0.0.1:{port.read_text().splitlines()[0]}"
        self.connected = playwright.chromium.connect_over_cdp(address)
        context = self.connected.contexts[0]
        self.pages = [context.new_page() for _ in range(2)]
        for page in self.pages:
            page.set_default_timeout(20_000)
            page.goto(url)
            page.wait_for_selector("html[data-ready]")

    def kill(self) -> None:
        """Kill all of its processes at once."""
        os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()


def shown(page: Any) -> str:
    """The name of the text that a page shows."""
    return str(page.locator("html").get_attribute("data-text"))


def run(
    playwright: Any, folder: Path, port: int, wanted: int, kills: int, servers: int, seed: int = 0
) -> Outcome:
    """Label texts by keyboard in two tabs; kill the browser, and now and then the server."""
    draws, found = random.Random(seed), Outcome()
    texts = [f"message {number}: {draws.random()}" for number in range(wanted)]
    data, out = folder / "texts.jsonl", folder / "labels.jsonl"
    data.write_text("".join(json.dumps({"text": one}) + "\n" for one in texts), "utf-8")
    server, number, stored = Server(data, out, port), 0, set[str]()
    deaths = sorted(draws.sample(range(3, wanted - 3), kills))
    outages = set(draws.sample(range(3, wanted - 3), servers))
    browser = Browser(playwright, server.url, folder / "profile-0")
    pressed = 0
    try:
        while True:
            page = draws.choice(browser.pages)
            name = shown(page)
            if name == "none":  # the last text may be in the other tab
                page.reload()
                page.wait_for_selector("html[data-ready]")
                if shown(page) == "none":
                    break
                continue
            text = page.inner_text("#text p")
            key = str(1 + LABELS.index(label_of(text)))
            if deaths and pressed >= deaths[0]:
                deaths.pop(0)
                number += 1
                # The key is pressed, and the browser dies some milliseconds later.
                page.evaluate(PRESS_LATER, [key, draws.randrange(12)])
                time.sleep(draws.random() * 0.03)
                browser.kill()
                found.browsers_killed += 1
                browser = Browser(playwright, server.url, folder / f"profile-{number}")
                pressed += 1
                continue
            if pressed in outages:
                outages.discard(pressed)
                page.keyboard.press(key)
                server.kill()
                found.servers_killed += 1
                server.start()
            else:
                page.keyboard.press(key)
            pressed += 1
            page.wait_for_function(NEXT, arg=name)
            if "another tab" in page.inner_text("#status"):
                found.reported_in_another_tab += 1
            stored.add(text)
    finally:
        browser.kill()
        server.kill()
        for one in folder.glob("profile-*"):
            shutil.rmtree(one, ignore_errors=True)
    events = [json.loads(line) for line in out.read_text("utf-8").splitlines()[1:]]
    counts = Counter(one["text"] for one in events if one["event"] == "label")
    found.labels, found.seen_as_stored = len(counts), len(stored)
    found.lost = sorted((stored | set(texts)) - set(counts))
    found.doubled = [text for text, count in counts.items() if count > 1]
    found.wrong = [one["text"] for one in events if one["label"] != label_of(one["text"])]
    return found
