"""A real browser for tests: any Chromium on the PATH, driven through its pipe, without another
package.
"""

from __future__ import annotations

import base64
import json
import os
import shutil
import subprocess
from pathlib import Path
from types import TracebackType
from typing import Any

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
CHROMIUM = next((path for name in NAMES if (path := shutil.which(name))), None)


class Browser:
    """One page in a headless Chromium; what it complains about is in ``errors``."""

    def __init__(self, profile: Path) -> None:
        assert CHROMIUM is not None
        ours, theirs = os.pipe(), os.pipe()  # the protocol wants its pipes at 3 and 4

        def connect() -> None:
            read, write = os.dup(ours[0]), os.dup(theirs[1])
            os.dup2(read, 3)
            os.dup2(write, 4)

        line = [
            CHROMIUM,
            "--headless=new",
            "--remote-debugging-pipe",
            f"--user-data-dir={profile}",
            "--disable-gpu",
        ]
        line += ["--hide-scrollbars", "--no-first-run"] + (
            ["--no-sandbox"] if os.geteuid() == 0 else []
        )
        self.process = subprocess.Popen(
            line,
            preexec_fn=connect,
            close_fds=False,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        os.close(ours[0])
        os.close(theirs[1])
        self.out, self.into = os.fdopen(ours[1], "wb", 0), os.fdopen(theirs[0], "rb")
        self.count, self.session, self.rest = 0, "", b""
        self.errors: list[str] = []
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        self.session = self.call("Target.attachToTarget", targetId=target, flatten=True)[
            "sessionId"
        ]
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.call(f"{domain}.enable")

    def __enter__(self) -> Browser:
        return self

    def __exit__(self, *_: type[BaseException] | BaseException | TracebackType | None) -> None:
        self.session = ""
        self.call("Browser.close")
        self.process.wait(20)
        self.out.close()
        self.into.close()

    def call(self, method: str, **params: Any) -> dict[str, Any]:
        """Ask, and wait for the answer."""
        self.count += 1
        message = {"id": self.count, "method": method, "params": params}
        self.out.write(
            json.dumps(message | ({"sessionId": self.session} if self.session else {})).encode()
            + b"\0"
        )
        while (answer := self._next()).get("id") != self.count:
            self._note(answer)
        assert "error" not in answer, answer["error"]
        result: dict[str, Any] = answer["result"]
        return result

    def _next(self) -> dict[str, Any]:
        while b"\0" not in self.rest:
            piece = self.into.read1(1 << 20)
            assert piece, "the browser is gone"
            self.rest += piece
        message, _, self.rest = self.rest.partition(b"\0")
        message_json: dict[str, Any] = json.loads(message)
        return message_json

    def _note(self, event: dict[str, Any]) -> None:
        kind, params = event.get("method"), event.get("params", {})
        if kind == "Runtime.exceptionThrown":
            self.errors.append(json.dumps(params["exceptionDetails"]))
        elif kind == "Runtime.consoleAPICalled" and params["type"] in (
            "error",
            "warning",
            "assert",
        ):
            self.errors.append(json.dumps(params["args"]))
        elif kind == "Log.entryAdded" and params["entry"]["level"] in ("error", "warning"):
            self.errors.append(params["entry"]["text"])
        elif kind == "Network.requestWillBeSent" and params["request"]["url"].startswith("http"):
            self.errors.append(f"the page wants {params['request']['url']}")

    def screen(
        self, width: int, height: int = 900, dark: bool = False, phone: bool = False
    ) -> None:
        """Be a screen of that size, in that mode; a phone has a finger instead of a mouse."""
        self.call(
            "Emulation.setDeviceMetricsOverride",
            width=width,
            height=height,
            deviceScaleFactor=1,
            mobile=phone,
        )
        self.call("Emulation.setTouchEmulationEnabled", enabled=phone)
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self.call("Emulation.setEmulatedMedia", features=[scheme])

    def open(self, file: Path) -> None:
        """Open a file and wait until its figures are drawn."""
        self.call("Page.navigate", url=file.resolve().as_uri())
        self.run("new Promise(done => addEventListener('load', () => setTimeout(done, 300)) || "
                 "document.readyState === 'complete' && setTimeout(done, 300))")  # fmt: skip

    def run(self, script: str) -> Any:
        """Return what a script in the page says."""
        answer = self.call(
            "Runtime.evaluate", expression=script, awaitPromise=True, returnByValue=True
        )
        assert "exceptionDetails" not in answer, answer["exceptionDetails"]
        return answer["result"].get("value")

    def click(self, selector: str) -> None:
        """Press the mouse in the middle of an element."""
        place = self._place(selector, 0.5, 0.5)
        for kind in ("mouseMoved", "mousePressed", "mouseReleased"):
            self.call("Input.dispatchMouseEvent", type=kind, button="left", clickCount=1, **place)
        self.run("new Promise(done => setTimeout(done, 150))")

    def hover(self, selector: str, across: float = 0.5, down: float = 0.5) -> None:
        """Move the mouse onto an element, to a place between its edges."""
        place = self._place(selector, across, down)
        self.call("Input.dispatchMouseEvent", type="mouseMoved", **place)
        self.run("new Promise(done => setTimeout(done, 300))")

    def swipe_up(self, selector: str) -> float:
        """Draw a finger over the middle of an element; return how far the page has gone."""
        place = self._place(selector, 0.5, 0.5)
        before = self.run("scrollY")
        self.call("Input.synthesizeScrollGesture", yDistance=-100, **place)
        moved: float = self.run("scrollY") - before
        return moved

    def _place(self, selector: str, across: float, down: float) -> dict[str, Any]:
        """Scroll to an element, and return a place in it."""
        element = f"document.querySelector({json.dumps(selector)})"
        place: dict[str, Any] = self.run(
            f"{element}.scrollIntoView({{block: 'center'}}); (r => ({{"
            f"x: r.x + r.width * {across}, y: r.y + r.height * {down}}}))"
            f"({element}.getBoundingClientRect())"
        )
        return place

    def picture(self, file: Path, whole: bool = False) -> None:
        """Save what is seen, or all of the page."""
        taken = self.call("Page.captureScreenshot", captureBeyondViewport=whole)
        if whole:
            size = self.call("Page.getLayoutMetrics")["cssContentSize"]
            clip = {"x": 0, "y": 0, "width": size["width"], "height": size["height"], "scale": 1}
            taken = self.call("Page.captureScreenshot", captureBeyondViewport=True, clip=clip)
        file.write_bytes(base64.b64decode(taken["data"]))
