"""Clients of the history: they send random requests and record them with times and responses."""

from __future__ import annotations

import dataclasses
import random
import threading
import time
from collections.abc import Callable
from typing import Any

import requests

from nova_lite import operations
from nova_lite.operations import states
from tests.faults.history.events import Recorder, Request, State
from tests.functional.cloud import Cloud

#: Tokens of members and admins. A lock binds members only.
MEMBER, ADMIN = "user:demo", "admin:demo"

BIGGER = "2"
TIMEOUT = 20.0

#: Operations by kind: the body of the action, and its frequency. None: the operation is not requested by ``/action``.
ACTIONS: dict[str, tuple[dict[str, Any] | None, int]] = {
    "stop": ({"os-stop": None}, 8),
    "start": ({"os-start": None}, 8),
    "reboot": ({"reboot": {"type": "HARD"}}, 6),
    "pause": ({"pause": None}, 5),
    "unpause": ({"unpause": None}, 6),
    "suspend": ({"suspend": None}, 3),
    "resume": ({"resume": None}, 4),
    "resize": ({"resize": {"flavorRef": BIGGER}}, 6),
    "migrate": ({"migrate": None}, 2),
    "live-migration": ({"os-migrateLive": {"host": None, "block_migration": "auto"}}, 3),
    "confirmResize": ({"confirmResize": None}, 5),
    "revertResize": ({"revertResize": None}, 4),
    "rebuild": (None, 4),
    "rescue": ({"rescue": {}}, 2),
    "unrescue": ({"unrescue": None}, 3),
    "shelve": ({"shelve": None}, 3),
    "unshelve": ({"unshelve": None}, 4),
    "lock": ({"lock": None}, 2),
    "unlock": ({"unlock": None}, 4),
    "attach_volume": (None, 5),
    "detach_volume": (None, 5),
    "delete": (None, 9),
    "create": (None, 14),
    "metadata": (None, 8),
    "show": (None, 12),
    "list": (None, 4),
}
VERSIONS = {"live-migration": "2.25"}
ADMINS = ("migrate", "live-migration")


class Servers:
    """Servers that clients know, with their last seen states."""

    def __init__(self, most: int) -> None:
        self.most = most
        self._states: dict[str, State] = {}
        self._lock = threading.Lock()
        self._value = 0

    def saw(self, states_: dict[str, State | None], complete: bool) -> None:
        with self._lock:
            for server, state in states_.items():
                if state is None:
                    self._states.pop(server, None)
                else:
                    self._states[server] = state
            if complete:
                self._states = {key: value for key, value in self._states.items() if key in states_}

    def made(self, server: str) -> None:
        with self._lock:
            self._states.setdefault(server, (states.BUILDING, states.SCHEDULING, None))

    def all(self) -> dict[str, State]:
        with self._lock:
            return dict(self._states)

    def next_value(self) -> str:
        """Return a metadata value that is never repeated."""
        with self._lock:
            self._value += 1
            return str(self._value)


def asked_state(server: dict[str, Any]) -> State:
    shown = server["OS-EXT-STS:vm_state"], server["OS-EXT-STS:task_state"]
    return (*shown, server.get("metadata", {}).get("n"))


@dataclasses.dataclass
class Client:
    """``mix``: weights of operations by kind, if not those of `ACTIONS`."""

    name: str
    cloud: Cloud
    servers: Servers
    volumes: list[str]
    recorder: Recorder
    random: random.Random
    rest: float = 0.4
    mix: dict[str, int] | None = None

    def run(self, stop: threading.Event) -> None:
        """Ask until ``stop``."""
        mix = self.mix or {kind: weight for kind, (_, weight) in ACTIONS.items()}
        while not stop.wait(self.random.uniform(0, 2 * self.rest)):
            (kind,) = self.random.choices(list(mix), list(mix.values()))
            self.ask(kind)

    def ask(self, kind: str) -> None:
        if kind == "create":
            if len(self.servers.all()) < self.servers.most:
                self.create()
        elif kind == "list":
            self.list()
        elif (server := self._choose(kind)) is not None:
            match kind:
                case "show":
                    self.show(server)
                case "delete":
                    self.send(kind, "DELETE", f"/servers/{server}", server=server)
                case "metadata":
                    value = self.servers.next_value()
                    body = {"metadata": {"n": value}}
                    self.send(kind, "POST", f"/servers/{server}/metadata", body, server=server, value=value)
                case _:
                    self._act(kind, server)

    def _choose(self, kind: str) -> str | None:
        """Choose a server, mostly in a state that allows the operation."""
        known = self.servers.all()
        row = operations.OPERATIONS.get(kind)
        allowed = None if row is None else row.allowed
        fitting = [key for key, state in known.items() if allowed is None or (state[0] in allowed and not state[1])]
        candidates = fitting if fitting and self.random.random() < 0.85 else list(known)
        return self.random.choice(candidates) if candidates else None

    def _act(self, kind: str, server: str) -> None:
        path, method, body = f"/servers/{server}/action", "POST", ACTIONS[kind][0]
        if kind == "rebuild":
            body = {"rebuild": {"imageRef": self.cloud.image_id}}
        elif kind == "reboot" and self.random.random() < 0.4:
            body = {"reboot": {"type": "SOFT"}}
        elif kind.endswith("_volume"):
            volume = self.random.choice(self.volumes)
            path, body = f"/servers/{server}/os-volume_attachments", {"volumeAttachment": {"volumeId": volume}}
            if kind == "detach_volume":
                path, method, body = f"{path}/{volume}", "DELETE", None
        token = ADMIN if kind in ADMINS or self.random.random() < 0.1 else MEMBER
        self.send(kind, method, path, body, server=server, token=token, version=VERSIONS.get(kind))

    # --- requests

    def create(self) -> None:
        """Create a server. An unanswered create is repeated with the same key, and sometimes an answered one."""
        name = f"{self.name}-{self.random.randrange(10**9)}"
        key = name if self.random.random() < 0.7 else None
        server = {"name": name, "imageRef": self.cloud.image_id, "flavorRef": "1"}
        for _ in range(1 if key is None else 4):
            done = self.send("create", "POST", "/servers", {"server": server}, name=name, key=key)
            if done.server is not None:
                self.servers.made(done.server)
            if not done.unknown and self.random.random() > 0.15:
                return
            time.sleep(self.random.uniform(0, 2))

    def show(self, server: str) -> Request:
        def read(body: dict[str, Any]) -> dict[str, State | None]:
            return {server: asked_state(body["server"])}

        return self.send("show", "GET", f"/servers/{server}", server=server, read=read)

    def list(self) -> Request:
        def read(body: dict[str, Any]) -> dict[str, State | None]:
            return {item["id"]: asked_state(item) for item in body["servers"]}

        return self.send("list", "GET", "/servers/detail?limit=1000", read=read, token=ADMIN)

    def send(
        self,
        kind: str,
        method: str,
        path: str,
        body: Any = None,
        *,
        read: Callable[[dict[str, Any]], dict[str, State | None]] | None = None,
        token: str = MEMBER,
        version: str | None = None,
        **fields: Any,
    ) -> Request:
        """Send one request and record it with its response."""
        headers = {"X-Auth-Token": ADMIN if read else token}
        if fields.get("key"):
            headers["Idempotency-Key"] = fields["key"]
        if version:
            headers["OpenStack-API-Version"] = f"compute {version}"
        request = Request(client=self.name, operation=kind, called=time.time(), **fields)
        url = f"http://127.0.0.1:{self.cloud.port}/v2.1{path}"
        try:
            answer = requests.request(method, url, json=body, headers=headers, timeout=TIMEOUT)
        except requests.RequestException as error:
            request.text = type(error).__name__
        else:
            request.returned, request.status = time.time(), answer.status_code
            request.request_id = answer.headers.get("X-OpenStack-Request-Id")
            self._understand(request, answer, read)
        self.recorder.add(request)
        return request

    def _understand(
        self,
        request: Request,
        answer: requests.Response,
        read: Callable[[dict[str, Any]], dict[str, State | None]] | None,
    ) -> None:
        if not request.accepted:
            request.text = answer.text[:300]
            if request.status == 404 and request.server is not None:
                self.servers.saw({request.server: None}, False)
        elif read is not None:
            request.states = read(answer.json())
            request.complete = request.operation == "list"
            self.servers.saw(request.states, request.complete)
        elif request.operation == "create":
            request.server = answer.json()["server"]["id"]
