"""Offers of volumes on a running cloud: who does not have the key gets nothing, and the key is nowhere but in one
response."""

from __future__ import annotations

import re
import secrets
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
import requests

from nova_lite.api.volume import versions
from tests.functional.cloud import Cloud
from tests.support.waiting import wait_for

PATH = "/volume-transfers"


@pytest.fixture(scope="module")
def cloud(broker: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cloud]:
    config = "[DEFAULT]\ndebug = true\n[api]\nenabled_apis = osapi_compute, identity, volume\n"
    made = Cloud(tmp_path_factory.mktemp("transfers"), standalone=True, extra_config=config)
    try:
        made.make()
        made.start_all()
        yield made
    finally:
        made.destroy()


class User:
    """Member of a project at the volume API."""

    def __init__(self, cloud: Cloud, name: str) -> None:
        self._root = f"http://127.0.0.1:{cloud.volume_port}/v3"
        self._headers = {
            "X-Auth-Token": cloud.token_of(name),
            "OpenStack-API-Version": f"volume 3.{versions.MAXIMUM}",
        }

    def __call__(self, method: str, path: str, body: Any = None) -> requests.Response:
        return requests.request(method, self._root + path, json=body, headers=self._headers, timeout=60)

    def accept(self, transfer: str, key: Any) -> requests.Response:
        return self("POST", f"{PATH}/{transfer}/accept", {"accept": {"auth_key": key}})

    def offer(self) -> dict[str, Any]:
        """Offer a new volume. Return the offer."""
        volume = self("POST", "/volumes", {"volume": {"size": 1}}).json()["volume"]["id"]
        found = f"/volumes/{volume}"
        wait_for("the volume is there", lambda: self("GET", found).json()["volume"]["status"] == "available")
        made: dict[str, Any] = self("POST", PATH, {"transfer": {"volume_id": volume}}).json()["transfer"]
        return made


@pytest.fixture(scope="module")
def victim(cloud: Cloud) -> User:
    return User(cloud, "demo")


@pytest.fixture(scope="module")
def stranger(cloud: Cloud) -> User:
    return User(cloud, "other")


def test_offer_of_another_project_is_not_found_without_its_key(victim: User, stranger: User) -> None:
    made = victim.offer()
    assert stranger("GET", f"{PATH}/{made['id']}").status_code == 404
    assert stranger("DELETE", f"{PATH}/{made['id']}").status_code == 404
    for query in ("", "?all_tenants=1", "?all_projects=true", f"?id={made['id']}"):
        for path in (PATH, f"{PATH}/detail"):
            assert stranger("GET", path + query).json() == {"transfers": []}
    assert stranger("GET", f"/volumes/{made['volume_id']}").status_code == 404
    assert victim("GET", f"{PATH}/{made['id']}").status_code == 200


def test_wrong_keys_open_nothing_and_say_nothing_of_the_right_one(victim: User, stranger: User) -> None:
    made = victim.offer()
    key = made["auth_key"]
    wrong = [key[:-1], key + "0", key.upper() + "x", f"{key}\0", "0" * len(key), "é", "\ud800"]
    wrong += ["%", "' OR '1'='1", *(key[: len(key) // 2] + secrets.token_hex(4) for _ in range(20))]
    said = set()
    for guess in wrong:
        response = stranger.accept(made["id"], guess)
        assert response.status_code == 400, (guess, response.text)
        assert key not in response.text
        said.add(re.sub(r"req-[0-9a-f-]+", "", response.text))
    assert len(said) <= 3, said
    for guess in ([key], {"a": key}, 1, None, True, ""):
        assert stranger.accept(made["id"], guess).status_code == 400, guess
    assert victim("GET", f"/volumes/{made['volume_id']}").json()["volume"]["status"] == "awaiting-transfer"


def test_key_is_random_and_too_long_to_be_guessed(victim: User) -> None:
    """A client that tries 100,000 keys a second finds one of 64 bits after some million years."""
    keys = [victim.offer()["auth_key"] for _ in range(3)]
    assert len(set(keys)) == 3
    assert all(re.fullmatch("[0-9a-f]{16,}", key) for key in keys)


def test_key_works_once_also_for_many_at_a_time(victim: User, stranger: User) -> None:
    made = victim.offer()
    with ThreadPoolExecutor(8) as pool:
        found = list(pool.map(lambda _: stranger.accept(made["id"], made["auth_key"]).status_code, range(8)))
    assert found.count(202) == 1 and set(found) <= {202, 400, 404}, found
    assert stranger("GET", f"/volumes/{made['volume_id']}").status_code == 200
    for user in (victim, stranger):
        assert user.accept(made["id"], made["auth_key"]).status_code == 404
    assert victim("GET", f"/volumes/{made['volume_id']}").status_code == 404


def test_key_of_another_offer_or_of_a_withdrawn_one_opens_nothing(victim: User, stranger: User) -> None:
    one, other = victim.offer(), victim.offer()
    assert stranger.accept(one["id"], other["auth_key"]).status_code == 400
    assert victim("DELETE", f"{PATH}/{one['id']}").status_code == 202
    assert stranger.accept(one["id"], one["auth_key"]).status_code == 404
    again = victim("POST", PATH, {"transfer": {"volume_id": one["volume_id"]}}).json()["transfer"]
    assert stranger.accept(again["id"], one["auth_key"]).status_code == 400
    assert stranger.accept(one["id"], again["auth_key"]).status_code == 404


def test_key_is_in_no_list_no_log_and_no_file(cloud: Cloud, victim: User, stranger: User) -> None:
    made = victim.offer()
    key = made["auth_key"]
    shown = [victim("GET", path).text for path in (PATH, f"{PATH}/detail", f"{PATH}/{made['id']}")]
    assert stranger.accept(made["id"], key + "0").status_code == 400
    assert stranger.accept(made["id"], key).status_code == 202
    assert made["id"] in shown[0] and not any(key in text for text in shown)
    files = [path for path in Path(cloud.path).rglob("*") if path.is_file() and path.stat().st_size < 2**26]
    assert any(made["volume_id"].encode() in path.read_bytes() for path in files), "nothing was read"
    assert [path.name for path in files if key.encode() in path.read_bytes()] == []
