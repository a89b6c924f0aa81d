"""A headless browser, and Chromium, driven by the DevTools protocol over two pipes."""

from __future__ import annotations

import base64
import contextlib
import json
import os
import select
import subprocess
import time
from abc import ABC, abstractmethod
from collections.abc import Iterator
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

from tests.support.waiting import wait_for

_TEXT = "document.body ? document.body.innerText.slice(0, 2000) : ''"

#: Expression for the page's canvas: its size, number of colours, and number of dots that are not black.
CANVAS = """(() => {
    const canvas = document.querySelector('canvas');
    if (!canvas || !canvas.width) return null;
    const data = canvas.getContext('2d').getImageData(0, 0, canvas.width, canvas.height).data;
    const colours = new Set();
    let lit = 0;
    for (let i = 0; i < data.length; i += 4) {
        const colour = data[i] << 16 | data[i + 1] << 8 | data[i + 2];
        colours.add(colour);
        if (colour) lit += 1;
    }
    return [canvas.width, canvas.height, colours.size, lit];
})()"""

#: Chromium reads its orders here, and answers on the next one.
ORDERS = 3
#: Modifier of `Browser.press`.
CTRL = 2


class NavigatedError(Exception):
    """The document in which a script ran is gone."""


class Browser(ABC):
    """A browser page."""

    #: Seconds that a page may need to respond.
    _limit = 120.0

    @abstractmethod
    def navigate(self, url: str) -> None:
        """Begin to load the URL."""

    @abstractmethod
    def evaluate(self, script: str) -> Any:
        """Return the value of a JavaScript expression in the page; None if it throws."""

    @abstractmethod
    def run(self, script: str) -> Any:
        """Return what a JavaScript expression in the page, or its promise, gives. Fails if it throws."""

    @abstractmethod
    def watch(self) -> None:
        """Record what `complaints` returns."""

    @abstractmethod
    def complaints(self) -> list[Any]:
        """Return what went wrong since the last call: exceptions, refused content, and responses of 400 and above."""

    @abstractmethod
    def preload(self, script: str) -> None:
        """Run a script in each document before its own scripts."""

    @abstractmethod
    def second_tab(self) -> AbstractContextManager[None]:
        """Open a tab beside this one, with the same cookies, and drive it until the end of the context."""

    @abstractmethod
    def resize(self, width: int, height: int, dark: bool = False) -> None:
        """Set the size of the view, and the appearance that the system prefers."""

    @abstractmethod
    def press(self, key: str, text: str = "", modifiers: int = 0) -> None:
        """Press a key as a user does. ``text``: what it writes. ``modifiers``: keys that are held down."""

    @abstractmethod
    def drag(self, *paths: list[tuple[int, int]]) -> None:
        """Press at the first point of a path, move along it, and let go: with the mouse, or with a finger for each path
        if there are several. The paths have the same number of points.
        """

    @abstractmethod
    def wheel(self, at: tuple[int, int], delta: int, modifiers: int = 0) -> None:
        """Turn the wheel at a point. ``delta``: pixels, downwards."""

    @abstractmethod
    def choose_file(self, script: str, path: Path) -> None:
        """Choose a file in the input that the expression gives, as a user does in the browser's own dialog."""

    @abstractmethod
    def block(self, *urls: str) -> None:
        """Let requests to these URLs fail, and no others."""

    @abstractmethod
    def forget(self) -> None:
        """Remove all cookies."""

    @abstractmethod
    def screenshot(self, path: Path) -> None:
        """Save a picture of the view."""

    def open(self, url: str, loaded: str) -> None:
        """Open the URL and wait until the expression ``loaded`` is true in the page. A browser drops its requests
        when a network device of its machine changes, as guests' devices do; the URL is then opened again.
        """
        again = 0.0

        def is_loaded() -> bool:
            nonlocal again
            if time.monotonic() > again:
                self.navigate(url)
                again = time.monotonic() + 15
            return bool(self.evaluate(loaded))

        wait_for(f"{url.partition('?')[0]} is loaded", is_loaded, max(300.0, self._limit))

    def wait(self, script: str, seconds: float = 30.0) -> Any:
        """Wait until the expression is true, and return its value."""

        def value() -> Any:
            with contextlib.suppress(NavigatedError):
                return self.run(script)

        try:
            return wait_for(script, value, seconds, 0.05)
        except AssertionError as error:
            error.add_note(f"The page has {self.evaluate(_TEXT)!r}")
            raise


class Chromium(Browser):
    """A browser page."""

    def __init__(self, process: subprocess.Popen[bytes], orders: int, answers: int, limit: float) -> None:
        self._process = process
        self._limit = limit
        self._orders = orders
        self._answers = answers
        self._buffer = b""
        self._number = 0
        self._session: str | None = None
        self._events: list[Any] = []
        self._preloaded: list[str] = []
        self._domains: tuple[str, ...] = ()
        self._begin_tab()

    def _begin_tab(self) -> str:
        """Open a tab, drive it, and return its name."""
        self._session = None
        target = self._ask("Target.createTarget", url="about:blank")["targetId"]
        self._session = self._ask("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        self._ask("Page.enable")
        for script in self._preloaded:
            self._ask("Page.addScriptToEvaluateOnNewDocument", source=script)
        for domain in self._domains:
            self._ask(f"{domain}.enable")
        return str(target)

    @contextlib.contextmanager
    def second_tab(self) -> Iterator[None]:
        first = self._session
        target = self._begin_tab()
        try:
            yield
        finally:
            self._session = None
            self._ask("Target.closeTarget", targetId=target)
            self._session = first

    def preload(self, script: str) -> None:
        self._preloaded.append(script)
        self._ask("Page.addScriptToEvaluateOnNewDocument", source=script)

    def navigate(self, url: str) -> None:
        self._ask("Page.navigate", url=url)

    def run_in_frame(self, url: str, script: str) -> Any:
        """Return the value of an expression in the frame whose URL has a text; None without such a frame. Scripts of
        the page itself see nothing in frames of other origins.
        """
        frames = self._ask("Page.getFrameTree")["frameTree"].get("childFrames", [])
        for frame in (item["frame"]["id"] for item in frames if url in item["frame"]["url"]):
            world = self._ask("Page.createIsolatedWorld", frameId=frame)["executionContextId"]
            found = self._ask("Runtime.evaluate", expression=script, contextId=world, returnByValue=True)
            return found["result"].get("value")
        return None

    def evaluate(self, script: str) -> Any:
        return self._ask("Runtime.evaluate", expression=script, returnByValue=True)["result"].get("value")

    def watch(self) -> None:
        self._domains = ("Runtime", "Log", "Network")
        for domain in self._domains:
            self._ask(f"{domain}.enable")

    def complaints(self) -> list[Any]:
        events, self._events = self._events, []
        found = []
        for event in events:
            values = event.get("params", {})
            if event["method"] == "Runtime.exceptionThrown":
                found.append(values["exceptionDetails"])
            elif event["method"] == "Log.entryAdded" and values["entry"]["level"] == "error":
                if "ERR_NETWORK_CHANGED" in values["entry"]["text"]:
                    continue  # guests of other tests give this machine interfaces, which ends requests
                found.append(values["entry"]["text"] + " " + values["entry"].get("url", ""))
            elif event["method"] == "Network.responseReceived" and values["response"]["status"] >= 400:
                found.append(f"{values['response']['status']} {values['response']['url']}")
        return found

    def run(self, script: str) -> Any:
        answer = self._ask("Runtime.evaluate", expression=script, returnByValue=True, awaitPromise=True)
        assert "exceptionDetails" not in answer, answer["exceptionDetails"]
        return answer["result"].get("value")

    def resize(self, width: int, height: int, dark: bool = False) -> None:
        metrics = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": False}
        self._ask("Emulation.setDeviceMetricsOverride", **metrics)
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self._ask("Emulation.setEmulatedMedia", features=[scheme])

    def press(self, key: str, text: str = "", modifiers: int = 0) -> None:
        code = {
            "Tab": 9,
            "Enter": 13,
            "Escape": 27,
            "ArrowDown": 40,
            "ArrowUp": 38,
            "ArrowRight": 39,
            " ": 32,
            "F6": 117,
        }.get(key, 0)
        values = {"key": key, "windowsVirtualKeyCode": code, "modifiers": modifiers}
        values |= {"text": text} if text else {}
        for kind in ("keyDown", "keyUp"):
            self._ask("Input.dispatchKeyEvent", type=kind, **values)

    def drag(self, *paths: list[tuple[int, int]]) -> None:
        if len(paths) == 1:
            steps = [("mousePressed", paths[0][0]), *(("mouseMoved", point) for point in paths[0][1:])]
            for kind, (x, y) in [*steps, ("mouseReleased", paths[0][-1])]:
                held = {"button": "left", "buttons": 1, "clickCount": 1}
                self._ask("Input.dispatchMouseEvent", type=kind, x=x, y=y, **held)
            return
        for at, points in enumerate(zip(*paths, strict=True)):
            fingers = [{"x": x, "y": y, "id": finger} for finger, (x, y) in enumerate(points)]
            self._ask("Input.dispatchTouchEvent", type="touchMove" if at else "touchStart", touchPoints=fingers)
        self._ask("Input.dispatchTouchEvent", type="touchEnd", touchPoints=[])

    def wheel(self, at: tuple[int, int], delta: int, modifiers: int = 0) -> None:
        turn = {"x": at[0], "y": at[1], "deltaX": 0, "deltaY": delta, "modifiers": modifiers}
        self._ask("Input.dispatchMouseEvent", type="mouseWheel", **turn)

    def choose_file(self, script: str, path: Path) -> None:
        found = self._ask("Runtime.evaluate", expression=script)["result"]["objectId"]
        self._ask("DOM.setFileInputFiles", files=[str(path)], objectId=found)

    def block(self, *urls: str) -> None:
        self._ask("Network.setBlockedURLs", urls=list(urls))

    def forget(self) -> None:
        self._ask("Network.clearBrowserCookies")

    def screenshot(self, path: Path) -> None:
        path.write_bytes(base64.b64decode(self._ask("Page.captureScreenshot", format="png")["data"]))

    def _ask(self, method: str, **parameters: Any) -> Any:
        self._number += 1
        order = {"id": self._number, "method": method, "params": parameters}
        if self._session is not None:
            order["sessionId"] = self._session
        os.write(self._orders, json.dumps(order).encode() + b"\0")
        deadline = time.monotonic() + self._limit
        while True:
            answer = self._read(deadline)
            if "method" in answer and self._session is not None:
                self._events.append(answer)
            if answer.get("id") == self._number:
                if "navigated" in answer.get("error", {}).get("message", ""):
                    raise NavigatedError(answer["error"]["message"])
                assert "error" not in answer, answer
                return answer["result"]

    def _read(self, deadline: float) -> Any:
        while b"\0" not in self._buffer:
            readable, _, _ = select.select([self._answers], [], [], max(0.0, deadline - time.monotonic()))
            said = os.read(self._answers, 1 << 20) if readable else b""
            assert said, f"the browser does not answer (status {self._process.poll()})"
            self._buffer += said
        message, _, self._buffer = self._buffer.partition(b"\0")
        return json.loads(message)


@contextlib.contextmanager
def browser(profile: Path, limit: float = 120.0) -> Iterator[Chromium]:
    """Run a browser, and end all its processes. ``limit``: seconds that a page may need to respond."""
    theirs_in, ours_out = os.pipe()
    ours_in, theirs_out = os.pipe()
    flags = (
        f"--headless --no-sandbox --disable-gpu --disable-dev-shm-usage --window-size=760,560 --user-data-dir={profile}"
    )
    shell = f'exec chromium {flags} --remote-debugging-pipe {ORDERS}<&"$0" {ORDERS + 1}>&"$1"'
    process = subprocess.Popen(
        ["bash", "-c", shell, str(theirs_in), str(theirs_out)],
        pass_fds=(theirs_in, theirs_out),
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    os.close(theirs_in)
    os.close(theirs_out)
    try:
        yield Chromium(process, ours_out, ours_in, limit)
    finally:
        os.close(ours_out)  # which ends it
        try:
            process.wait(30)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait(10)
        os.close(ours_in)
