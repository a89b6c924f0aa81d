"""An attacker with a whole IPv6 network, or with many addresses, guesses the password of one user."""

from __future__ import annotations

import json
from pathlib import Path

import webob

from nova_lite.api.identity import passwords
from nova_lite.api.identity.throttle import OF_STRANGERS, OF_USER
from tests.support.identity_api import PASSWORDS, World

GUESSES = 60


def world_of(path: Path) -> World:
    return World(path, {name: passwords.hashed(password) for name, password in PASSWORDS.items()})


def log_in(world: World, address: str, password: str) -> int:
    user = {"name": "alice", "domain": {"id": "default"}, "password": password}
    body = {"auth": {"identity": {"methods": ["password"], "password": {"user": user}}}}
    request = webob.Request.blank("/v3/auth/tokens", method="POST", remote_addr=address)
    request.content_type, request.body = "application/json", json.dumps(body).encode()
    return int(request.get_response(world.app("identity")).status_code)


def test_guesses_from_one_ipv6_network_are_those_of_one_client(tmp_path: Path) -> None:
    world = world_of(tmp_path)
    statuses = [log_in(world, f"2001:db8::{number:x}", "guess") for number in range(1, GUESSES)]
    assert set(statuses[: OF_USER.free]) == {401}
    assert statuses.count(429) > GUESSES / 2
    assert log_in(world, "2001:db8:0:1::1", PASSWORDS["alice"]) == 201


def test_guesses_from_many_clients_are_slowed_and_the_user_logs_in(tmp_path: Path) -> None:
    world = world_of(tmp_path)
    assert log_in(world, "192.0.2.1", PASSWORDS["alice"]) == 201
    statuses = [log_in(world, f"198.51.100.{number}", "guess") for number in range(GUESSES)]
    assert set(statuses[: OF_STRANGERS.free]) == {401}
    assert 429 in statuses
    assert log_in(world, "192.0.2.1", PASSWORDS["alice"]) == 201
