"""Fence agents against a real HTTP server and real programs."""

from __future__ import annotations

import base64
import json
import os
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from nova_lite.base import exceptions
from nova_lite.fence import agents
from nova_lite.fence.agent import Power, secret

SYSTEM = "/redfish/v1/Systems/1"
RESET = f"{SYSTEM}/Actions/ComputerSystem.Reset"


class Card:
    """A management card. ``obeys``: a reset has an effect. ``state``: of the power."""

    def __init__(self) -> None:
        self.state, self.obeys, self.status = "On", True, 200
        self.requests: list[tuple[str, str, Any, str]] = []
        card = self

        class Handler(BaseHTTPRequestHandler):
            def _reply(self, status: int, body: Any) -> None:
                data = json.dumps(body).encode()
                self.send_response(status)
                self.send_header("Content-Length", str(len(data)))
                self.end_headers()
                self.wfile.write(data)

            def do_GET(self) -> None:
                card.requests.append(("GET", self.path, None, self.headers["Authorization"]))
                self._reply(card.status, {"PowerState": card.state} if self.path == SYSTEM else {})

            def do_POST(self) -> None:
                body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                card.requests.append(("POST", self.path, body, self.headers["Authorization"]))
                if card.obeys and (self.path, body) == (RESET, {"ResetType": "ForceOff"}):
                    card.state = "Off"
                self._reply(card.status, {})

            def log_message(self, *_: Any) -> None:
                """Write nothing."""

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_port}"
        threading.Thread(target=self.server.serve_forever, daemon=True).start()


@pytest.fixture
def card() -> Iterator[Card]:
    card = Card()
    yield card
    card.server.shutdown()
    card.server.server_close()


@pytest.fixture
def password(tmp_path: Path) -> str:
    path = tmp_path / "password"
    path.write_text("s3 cret:\n")
    path.chmod(0o600)
    return str(path)


def redfish(card: Card, password: str) -> agents.Redfish:
    return agents.Redfish({"url": card.url, "system": SYSTEM, "username": "fence", "password_file": password})


def program(path: Path, text: str, mode: int = 0o755) -> str:
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(mode)
    return str(path)


def test_redfish_switches_off_and_reads_the_power(card: Card, password: str) -> None:
    agent = redfish(card, password)
    assert agent.power(5) is Power.ON
    agent.off(5)
    assert agent.power(5) is Power.OFF
    (_, (method, path, body, authorization), _) = card.requests
    assert (method, path, body) == ("POST", RESET, {"ResetType": "ForceOff"})
    assert base64.b64decode(authorization.removeprefix("Basic ")) == b"fence:s3 cret:"


@pytest.mark.parametrize(("state", "power"), [("PoweringOff", Power.ON), ("Paused", Power.ON), ("Off", Power.OFF)])
def test_redfish_host_that_is_not_off_yet_counts_as_on(card: Card, password: str, state: str, power: Power) -> None:
    card.state = state
    assert redfish(card, password).power(5) is power


@pytest.mark.parametrize("state", ["", "off", None, 0])
def test_redfish_unknown_power_state_is_an_error(card: Card, password: str, state: Any) -> None:
    card.state = state
    with pytest.raises(exceptions.FenceFailed, match="no power state"):
        redfish(card, password).power(5)


@pytest.mark.parametrize("status", [301, 401, 500])
def test_redfish_error_has_no_password(card: Card, password: str, status: int) -> None:
    card.status = status
    with pytest.raises(exceptions.FenceFailed, match=str(status)) as raised:
        redfish(card, password).off(5)
    assert "cret" not in str(raised.value)


def test_redfish_card_that_is_away_is_an_error(password: str) -> None:
    settings = {"url": "http://127.0.0.1:1", "system": SYSTEM, "username": "fence", "password_file": password}
    with pytest.raises(exceptions.FenceFailed, match="ConnectionError"):
        agents.Redfish(settings).power(1)


def ipmi(password: str, **settings: str) -> agents.Ipmi:
    return agents.Ipmi({"address": "192.0.2.1", "username": "fence", "password_file": password, **settings})


def test_ipmi_passes_the_password_by_its_file_alone(
    tmp_path: Path, password: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = tmp_path / "log"
    program(tmp_path / "ipmitool", f'echo "$@" >> {log}; echo Chassis Power is off')
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    agent = ipmi(password, cipher="17")
    agent.off(5)
    assert agent.power(5) is Power.OFF
    options = f"-I lanplus -H 192.0.2.1 -p 623 -U fence -L OPERATOR -f {password} -C 17 chassis power"
    assert log.read_text() == f"{options} off\n{options} status\n"


@pytest.mark.parametrize("text", ["echo on", "echo Chassis Power is unknown", "true", "exit 1"])
def test_ipmi_output_without_a_power_state_is_an_error(
    tmp_path: Path, password: str, monkeypatch: pytest.MonkeyPatch, text: str
) -> None:
    program(tmp_path / "ipmitool", text)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    with pytest.raises(exceptions.FenceFailed):
        ipmi(password).power(5)


@pytest.mark.parametrize("value", ["-x", "a b", "a;b", "$(a)", "", "a\nb"])
def test_value_that_is_no_name_reaches_no_program(password: str, value: str) -> None:
    with pytest.raises(exceptions.ConfigurationError, match="address"):
        ipmi(password, address=value)


def test_script_is_asked_for_the_power(tmp_path: Path) -> None:
    state = tmp_path / "state"
    state.write_text("on")
    path = program(tmp_path / "fence", f'[ "$2" = c1 ] && {{ [ $1 = off ] && echo off > {state} || cat {state}; }}')
    agent = agents.Script({"program": path, "target": "c1"})
    assert agent.power(5) is Power.ON
    agent.off(5)
    assert agent.power(5) is Power.OFF


def test_script_that_others_may_change_is_refused(tmp_path: Path) -> None:
    agent = agents.Script({"program": program(tmp_path / "fence", "echo off", 0o777), "target": "c1"})
    with pytest.raises(exceptions.FenceFailed, match="may change"):
        agent.power(5)


def test_program_that_hangs_or_is_missing_is_an_error(tmp_path: Path) -> None:
    agent = agents.Script({"program": program(tmp_path / "fence", "exec sleep 60"), "target": "c1"})
    with pytest.raises(exceptions.FenceFailed, match="did not end"):
        agent.power(0.2)
    with pytest.raises(exceptions.FenceFailed, match="missing"):
        agents.Script({"program": str(tmp_path / "none"), "target": "c1"}).power(5)


@pytest.mark.parametrize(
    ("state", "power"), [("running", Power.ON), ("paused", Power.ON), ("shut off", Power.OFF), ("crashed", Power.OFF)]
)
def test_libvirt_reads_the_state_of_the_domain(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, state: str, power: Power
) -> None:
    log = tmp_path / "log"
    program(tmp_path / "virsh", f'echo "$@" >> {log}; echo {state}')
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    agent = agents.Libvirt({"uri": "qemu:///system", "domain": "host1"})
    assert agent.power(5) is power
    agent.off(5)
    destroyed = "-q -c qemu:///system destroy host1" in log.read_text()
    assert destroyed is (power is Power.ON)


@pytest.mark.parametrize("mode", [0o604, 0o620, 0o666])
def test_password_that_others_may_read_is_refused(password: str, mode: int) -> None:
    os.chmod(password, mode)
    with pytest.raises(exceptions.ConfigurationError, match="others may read"):
        secret(password)
