"""Debian's Chromium, driven through its DevTools pipe: no driver to install, no port to open.

A page is loaded from a file. Everything it says on the console, every exception and every request is kept, so that
tests can assert that there was none.
"""

from __future__ import annotations

import base64
import json
import os
import select
import subprocess
import sys
import time
from pathlib import Path
from types import TracebackType
from typing import Any

from harness.packages import need

FLAGS = (
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--remote-debugging-pipe",
)
_LONGEST_S = 60.0
_ON_3_AND_4 = (
    "import fcntl, os, sys\n"
    "r, w = (fcntl.fcntl(int(end), fcntl.F_DUPFD, 10) for end in sys.argv[1:3])\n"
    "os.dup2(r, 3), os.dup2(w, 4)\n"
    "os.execv(sys.argv[3], sys.argv[3:])\n"
)
"""The browser wants its pipe on these descriptors, and dash knows one-digit descriptors only."""


def chromium() -> str:
    """The browser's path."""
    return need("chromium")


class Browser:
    """One headless Chromium with one page. A context manager that ends it."""

    def __init__(self, profile: Path) -> None:
        to_browser, self._out = os.pipe()
        self._in, from_browser = os.pipe()
        ends = (str(to_browser), str(from_browser))
        browser = (chromium(), *FLAGS, f"--user-data-dir={profile}", "about:blank")
        command = [sys.executable, "-c", _ON_3_AND_4, *ends, *browser]
        self._process = subprocess.Popen(
            command, pass_fds=(to_browser, from_browser), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )
        os.close(to_browser)
        os.close(from_browser)
        self._buffer = b""
        self._number = 0
        self._session: str | None = None
        self.events: list[dict[str, Any]] = []
        try:
            self._session = self._attach()
            for domain in ("Page", "Runtime", "Log", "Network"):
                self.call(f"{domain}.enable")
        except BaseException:
            self._process.kill()
            self._process.wait()
            raise

    def _attach(self) -> str:
        deadline = time.monotonic() + _LONGEST_S
        while time.monotonic() < deadline:
            pages = [t for t in self.call("Target.getTargets")["targetInfos"] if t["type"] == "page"]
            if pages:
                found = self.call("Target.attachToTarget", targetId=pages[0]["targetId"], flatten=True)
                return str(found["sessionId"])
            time.sleep(0.05)
        raise AssertionError("chromium opened no page")

    def __enter__(self) -> Browser:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._session = None
        try:
            self.call("Browser.close")
        except (AssertionError, OSError):
            self._process.kill()
        self._process.wait(timeout=_LONGEST_S)
        os.close(self._in)
        os.close(self._out)

    # -- protocol -------------------------------------------------------------------------------------------------

    def call(self, method: str, **params: Any) -> dict[str, Any]:
        """One DevTools command; events that arrive meanwhile are kept."""
        self._number += 1
        message: dict[str, Any] = {"id": self._number, "method": method, "params": params}
        if self._session is not None:
            message["sessionId"] = self._session
        os.write(self._out, json.dumps(message).encode() + b"\0")
        deadline = time.monotonic() + _LONGEST_S
        while True:
            answer = self._next(deadline)
            if answer.get("id") == self._number:
                if "error" in answer:
                    raise AssertionError(f"{method}: {answer['error']}")
                return dict(answer["result"])
            self.events.append(answer)

    def _next(self, deadline: float) -> dict[str, Any]:
        while b"\0" not in self._buffer:
            ready, _, _ = select.select([self._in], [], [], max(0.0, deadline - time.monotonic()))
            chunk = os.read(self._in, 1 << 20) if ready else b""
            if not chunk:
                raise AssertionError("chromium does not answer")
            self._buffer += chunk
        line, _, self._buffer = self._buffer.partition(b"\0")
        return dict(json.loads(line))

    # -- pages ----------------------------------------------------------------------------------------------------

    def screen(self, width: int, height: int = 900, dark: bool = False) -> None:
        """Size of the screen in CSS pixels, and the colour scheme that the reader prefers."""
        self.call(
            "Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=width < 600
        )
        scheme = "dark" if dark else "light"
        features = [{"name": "prefers-color-scheme", "value": scheme}]
        self.call("Emulation.setEmulatedMedia", media="", features=features)

    def open(self, path: Path, until: str = "document.documentElement.dataset.drawn === 'all'") -> None:
        """Loads *path* and waits until the expression *until* is true there."""
        self.events.clear()
        self.call("Page.navigate", url=path.resolve().as_uri())
        deadline = time.monotonic() + _LONGEST_S
        while not self.value(f"document.readyState === 'complete' && ({until})"):
            if time.monotonic() > deadline:
                raise AssertionError(f"{path}: never true: {until}; console: {self.complaints()}")
            time.sleep(0.02)

    def value(self, expression: str) -> Any:
        """The value of a JavaScript expression; promises are awaited."""
        answer = self.call("Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True)
        if "exceptionDetails" in answer:
            raise AssertionError(f"{expression}: {answer['exceptionDetails']}")
        return answer["result"].get("value")

    def wait_for(self, path: Path) -> None:
        """Waits until a download has its final name and content."""
        deadline = time.monotonic() + _LONGEST_S
        while not (path.exists() and path.stat().st_size):
            if time.monotonic() > deadline:
                raise AssertionError(f"{path.name} was not downloaded; console: {self.complaints()}")
            self.value("0")
            time.sleep(0.02)

    def complaints(self) -> list[str]:
        """Exceptions, and errors and warnings on the console or in the browser's own log (CSP violations too)."""
        found = []
        for event in self.events:
            method, params = event.get("method"), event.get("params", {})
            if method == "Runtime.exceptionThrown":
                found.append(json.dumps(params["exceptionDetails"]))
            elif method == "Runtime.consoleAPICalled" and params["type"] in ("error", "warning", "assert"):
                found.append(json.dumps(params["args"]))
            elif method == "Log.entryAdded" and params["entry"]["level"] in ("error", "warning"):
                found.append(json.dumps(params["entry"]))
        return found

    def requests(self) -> list[str]:
        """Every URL that the page asked for, data: URLs aside."""
        asked = [e["params"]["request"]["url"] for e in self.events if e.get("method") == "Network.requestWillBeSent"]
        return [url for url in asked if not url.startswith("data:")]

    def screenshot(self, path: Path, whole: bool = True) -> None:
        """A PNG of the page, whole or as much as the screen shows."""
        data = self.call(
            "Page.captureScreenshot", captureBeyondViewport=whole, **({"clip": self._whole()} if whole else {})
        )
        path.write_bytes(base64.b64decode(data["data"]))

    def _whole(self) -> dict[str, float]:
        size = self.call("Page.getLayoutMetrics")["cssContentSize"]
        return {"x": 0, "y": 0, "width": size["width"], "height": size["height"], "scale": 1}
