"""A headless Firefox, driven by WebDriver BiDi over a WebSocket."""

from __future__ import annotations

import base64
import contextlib
import itertools
import json
import os
import re
import socket
import struct
import subprocess
import urllib.parse
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tests.support import consoles
from tests.support.browser import CTRL, Browser
from tests.support.waiting import wait_for

#: Keys by their names, as WebDriver writes them.
_KEYS = {
    "Tab": "\ue004",
    "Enter": "\ue007",
    "Escape": "\ue00c",
    "ArrowUp": "\ue013",
    "ArrowRight": "\ue014",
    "ArrowDown": "\ue015",
    "F6": "\ue036",
}
_CONTROL = "\ue009"
#: Firefox reports a breach of the content security policy only to the page.
_BREACHES = """() => addEventListener('securitypolicyviolation',
  (event) => console.error(`refused by ${event.violatedDirective}: ${event.blockedURI}`))"""
_PREFERENCES = {
    "remote.active-protocols": 1,
    "datareporting.policy.dataSubmissionEnabled": False,
    "toolkit.telemetry.reportingpolicy.firstRun": False,
    "app.update.disabledForTesting": True,
    "browser.shell.checkDefaultBrowser": False,
    "browser.download.alwaysOpenPanel": False,  # it would take the keys
}


class Firefox(Browser):
    """A browser page."""

    def __init__(self, process: subprocess.Popen[str], sock: socket.socket) -> None:
        self._process = process
        self._sock = sock
        self._buffer = b""
        self._numbers = itertools.count(1)
        self._events: list[Any] = []
        self._ends: tuple[str, ...] = ()
        self._blocked: str | None = None
        self._ask("session.new", capabilities={})
        # The first window has no focus without a screen, and keys press no button in it.
        self._context = self._ask("browsingContext.create", type="window")["context"]
        self._ask("browsingContext.activate", context=self._context)

    def navigate(self, url: str) -> None:
        self._ask("browsingContext.navigate", context=self._context, url=url, wait="none")

    def evaluate(self, script: str) -> Any:
        found = self._evaluate(script)
        return _plain(found["result"]) if found["type"] == "success" else None

    def run(self, script: str) -> Any:
        found = self._evaluate(script)
        assert found["type"] == "success", found
        return _plain(found["result"])

    def watch(self) -> None:
        self._ask("script.addPreloadScript", functionDeclaration=_BREACHES)
        self._ask("session.subscribe", events=["log.entryAdded", "network.responseCompleted"])

    def complaints(self) -> list[Any]:
        events, self._events = self._events, []
        found = []
        for event in events:
            values = event["params"]
            if event["method"] == "log.entryAdded" and values["level"] == "error":
                found.append(values["text"])
            elif event["method"] == "network.responseCompleted" and values["response"]["status"] >= 400:
                found.append(f"{values['response']['status']} {values['response']['url']}")
        return found

    def preload(self, script: str) -> None:
        self._ask("script.addPreloadScript", functionDeclaration=f"() => {{ {script} }}")

    @contextlib.contextmanager
    def second_tab(self) -> Iterator[None]:
        first = self._context
        self._context = self._ask("browsingContext.create", type="tab")["context"]
        try:
            yield
        finally:
            self._ask("browsingContext.close", context=self._context)
            self._context = first
            self._ask("browsingContext.activate", context=first)

    def resize(self, width: int, height: int, dark: bool = False) -> None:
        assert not dark, "WebDriver BiDi does not choose the appearance"
        viewport = {"width": width, "height": height}
        self._ask("browsingContext.setViewport", context=self._context, viewport=viewport)

    def press(self, key: str, text: str = "", modifiers: int = 0) -> None:
        held = [_CONTROL] if modifiers & CTRL else []
        value = _KEYS.get(key, key)
        downs = [{"type": "keyDown", "value": item} for item in [*held, value]]
        ups = [{"type": "keyUp", "value": item} for item in [value, *held]]
        actions = [{"type": "key", "id": "keyboard", "actions": [*downs, *ups]}]
        self._ask("input.performActions", context=self._context, actions=actions)

    def drag(self, *paths: list[tuple[int, int]]) -> None:
        kind = {"pointerType": "touch" if len(paths) > 1 else "mouse"}
        sources = []
        for finger, path in enumerate(paths):
            moves = [{"type": "pointerMove", "x": x, "y": y, "duration": 20} for x, y in path]
            steps = [moves[0], {"type": "pointerDown", "button": 0}, *moves[1:], {"type": "pointerUp", "button": 0}]
            sources.append({"type": "pointer", "id": f"finger{finger}", "parameters": kind, "actions": steps})
        self._ask("input.performActions", context=self._context, actions=sources)

    def wheel(self, at: tuple[int, int], delta: int, modifiers: int = 0) -> None:
        held = [_CONTROL] if modifiers & CTRL else []
        turn = {"type": "scroll", "x": at[0], "y": at[1], "deltaX": 0, "deltaY": delta}
        pauses = [{"type": "pause"}] * len(held)
        keys = [{"type": "keyDown", "value": key} for key in held]
        keys += [{"type": "pause"}, *({"type": "keyUp", "value": key} for key in held)]
        actions = [
            {"type": "key", "id": "keyboard", "actions": keys},
            {"type": "wheel", "id": "wheel", "actions": [*pauses, turn]},
        ]
        self._ask("input.performActions", context=self._context, actions=actions)

    def choose_file(self, script: str, path: Path) -> None:
        element = {"sharedId": self._evaluate(script)["result"]["sharedId"]}
        self._ask("input.setFiles", context=self._context, element=element, files=[str(path)])

    def block(self, *urls: str) -> None:
        if self._blocked:
            self._ask("network.removeIntercept", intercept=self._blocked)
            self._blocked = None
        if urls:
            self._ends = tuple(url.rpartition("*")[2] for url in urls)
            self._ask("session.subscribe", events=["network.beforeRequestSent"])
            # Its patterns have whole paths only.
            self._blocked = self._ask("network.addIntercept", phases=["beforeRequestSent"])["intercept"]

    def forget(self) -> None:
        self._ask("storage.deleteCookies")

    def screenshot(self, path: Path) -> None:
        path.write_bytes(
            base64.b64decode(self._ask("browsingContext.captureScreenshot", context=self._context)["data"])
        )

    def _evaluate(self, script: str) -> Any:
        options = {"maxDomDepth": 0, "maxObjectDepth": 6}
        target = {"context": self._context}
        values = {"expression": script, "target": target, "awaitPromise": True, "serializationOptions": options}
        return self._ask("script.evaluate", **values)

    def _ask(self, method: str, **parameters: Any) -> Any:
        number = self._send(method, parameters)
        self._sock.settimeout(120)
        while True:
            answer = self._read()
            if answer["type"] == "event":
                self._notice(answer)
            elif answer.get("id") == number:
                assert answer["type"] == "success", answer
                return answer["result"]

    def _notice(self, event: Any) -> None:
        if event["params"].get("isBlocked"):
            request = event["params"]["request"]
            way = "failRequest" if request["url"].endswith(self._ends) else "continueRequest"
            self._send(f"network.{way}", {"request": request["request"]})
        self._events.append(event)

    def _send(self, method: str, parameters: dict[str, Any]) -> int:
        """Send a text frame. Firefox takes none whose mask is zero."""
        number = next(self._numbers)
        text = json.dumps({"id": number, "method": method, "params": parameters}).encode()
        mask = os.urandom(4)
        masked = bytes(byte ^ key for byte, key in zip(text, itertools.cycle(mask), strict=False))
        self._sock.sendall(b"\x81" + _length(len(text)) + mask + masked)
        return number

    def _read(self) -> Any:
        text, is_last = b"", False
        while not is_last:
            first, length = self._take(2)
            if length >= 126:
                length = int.from_bytes(self._take(2 if length == 126 else 8), "big")
            is_last = bool(first & 0x80)
            payload = self._take(length)
            assert first & 0x0F in (0, 1), f"the browser ends the connection (status {self._process.poll()})"
            text += payload
        return json.loads(text)

    def _take(self, length: int) -> bytes:
        while len(self._buffer) < length:
            said = self._sock.recv(1 << 20)
            assert said, f"the browser does not answer (status {self._process.poll()})"
            self._buffer += said
        taken, self._buffer = self._buffer[:length], self._buffer[length:]
        return taken


def _length(value: int) -> bytes:
    """Return the length of a masked frame, in as few bytes as it needs."""
    if value < 126:
        return struct.pack("!B", 0x80 | value)
    return struct.pack("!BH", 0xFE, value) if value < 1 << 16 else struct.pack("!BQ", 0xFF, value)


def _plain(value: Any) -> Any:
    """Return a value of the page as JSON has it; None for a value that JSON lacks."""
    kind = value["type"]
    if kind == "array":
        return [_plain(item) for item in value.get("value", [])]
    if kind == "object":
        return {key: _plain(item) for key, item in value.get("value", [])}
    return value["value"] if kind in ("string", "number", "boolean") else None


@contextlib.contextmanager
def firefox(profile: Path) -> Iterator[Firefox]:
    """Run a browser, and end it."""
    profile.mkdir(parents=True, exist_ok=True)
    lines = [f"user_pref({json.dumps(name)}, {json.dumps(value)});" for name, value in _PREFERENCES.items()]
    (profile / "user.js").write_text("\n".join(lines) + "\n")
    command = ["firefox-esr", "--headless", "--no-remote", "--profile", str(profile), "--remote-debugging-port", "0"]
    log = profile / "log"
    with log.open("w") as output:
        process = subprocess.Popen(command, stdout=output, stderr=output, text=True)
    try:

        def address() -> str | None:
            assert process.poll() is None, log.read_text()
            found = re.search(r"listening on (ws://\S+)", log.read_text())
            return found and found[1]

        url = urllib.parse.urlsplit(wait_for("Firefox listens", address))
        with socket.create_connection((url.hostname, url.port), 60) as sock:
            consoles.request(sock, "/session", {"Host": url.netloc})
            head = b""
            while not head.endswith(b"\r\n\r\n"):
                head += sock.recv(1)
            assert head.startswith(b"HTTP/1.1 101 "), head
            yield Firefox(process, sock)
    finally:
        process.terminate()
        try:
            process.wait(30)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait(10)
