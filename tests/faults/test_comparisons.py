"""Loads under which OpenStack Nova lost servers or left them in BUILD. Here each server ends ACTIVE without an
operator, whether a daemon, the database or the broker is killed.

Database and broker are private, so that they can be killed.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import threading
from collections.abc import Callable, Iterator
from concurrent import futures
from typing import Any

import pytest
import requests

from tests.faults.private import PrivateBroker, PrivateDatabase, Server
from tests.functional import cloud
from tests.support.waiting import wait_for

LONG = os.environ.get("NOVA_LITE_LONG") == "1"

#: Seconds that a database or broker is away.
AWAY = 3.0
SETTLE_SECONDS = 180.0
#: Duration of each build.
SPAWN_SECONDS = 0.5


class Site:
    """The cloud, and what it stands on."""

    def __init__(self, running: cloud.Cloud, servers: dict[str, Server]) -> None:
        self.cloud = running
        self.servers = servers

    def take(self, seconds: float) -> None:
        """Set the duration of builds that start from now on."""
        for host in self.cloud.computes:
            self.cloud.control_host(host, spawn_delay=seconds)

    def strike(self, victim: str) -> None:
        """Kill it and have it back."""
        if victim in self.servers:
            self.servers[victim].restart(AWAY)
        else:
            self.cloud.kill(victim)
            self.cloud.start(victim)


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    path = tmp_path_factory.mktemp("comparisons")
    with PrivateDatabase(path / "database") as database, PrivateBroker(path / "broker") as broker:
        options: dict[str, Any] = {"broker_port": broker.port, "broker_control": broker.control}
        with cloud.running(path, database=database.url, computes=2, vcpus=64, quota=-1, **options) as running:
            made = Site(running, {"database": database, "broker": broker})
            made.take(SPAWN_SECONDS)
            yield made


def post(running: cloud.Cloud, name: str) -> str:
    """Ask until it is accepted, as a user would; returns its id."""

    body = {"name": name, "imageRef": running.image_id, "flavorRef": "1"}

    def accepted() -> str:
        with contextlib.suppress(requests.RequestException):
            answer = running.request("POST", "/servers", {"server": body})
            assert answer.status_code in (202, 503), answer.text
            return str(answer.json()["server"]["id"]) if answer.status_code == 202 else ""
        return ""

    server_id: str = wait_for(f"{name} is accepted", accepted, SETTLE_SECONDS, 0.5)
    return server_id


def one_request(count: int) -> Callable[[Site, str], list[str]]:
    """Inject the fault while the servers of one accepted request are being built."""

    def load(site: Site, victim: str) -> list[str]:
        site.take(15.0)
        ids = site.cloud.create(count=count)
        if count <= 8:
            tasks = ("OS-EXT-STS:task_state", "spawning")
            wait_for("builds are under way", lambda: any(tasks in item.items() for item in site.cloud.servers()))
        assert any(item["status"] == "BUILD" for item in site.cloud.servers())
        site.take(SPAWN_SECONDS)
        site.strike(victim)
        return ids

    return load


def many_requests(count: int) -> Callable[[Site, str], list[str]]:
    """Return a load of many requests. The fault comes after a third of them; refused requests are repeated."""

    def load(site: Site, victim: str) -> list[str]:
        third = threading.Barrier(2)
        arrived = itertools.count(1)

        def ask(number: int) -> str:
            server_id = post(site.cloud, f"vm-{number}")
            if next(arrived) == count // 3:
                third.wait(60)
            return server_id

        with futures.ThreadPoolExecutor(8) as pool:
            asked = [pool.submit(ask, number) for number in range(count)]
            third.wait(60)
            site.strike(victim)
            return [item.result() for item in asked]

    return load


LOADS = {"8 of 8": one_request(8), "24 of 24": many_requests(24), "40 of 40": one_request(40)}
DAEMONS = [("8 of 8", "compute-1"), ("24 of 24", "conductor"), ("40 of 40", "scheduler")]


#: `NOVA_LITE_LONG=1`: every load with the database and with the broker killed.
SERVERS = itertools.product(LOADS if LONG else ["24 of 24"], ("database", "broker"))


@pytest.mark.parametrize(("load", "victim"), [*DAEMONS, *SERVERS])
def test_all_end_active(site: Site, load: str, victim: str) -> None:
    running = site.cloud
    ids = LOADS[load](site, victim)
    wait_for("the API answers", lambda: answers(running), SETTLE_SECONDS, 0.5)
    found = running.wait_active(ids, SETTLE_SECONDS)
    assert len(set(ids)) == int(load.split()[0])
    # A request that was not answered may have been accepted all the same: then its server has to be whole, too.
    found = running.wait_active([item["id"] for item in running.servers()], SETTLE_SECONDS)
    assert running.domains() == {key: item["OS-EXT-SRV-ATTR:host"] for key, item in found.items()}
    running.delete_all()
    wait_for("nothing is left", lambda: running.domains() == {})
    running.audit()


def answers(running: cloud.Cloud) -> bool:
    try:
        return running.request("GET", "/servers").status_code == 200
    except requests.RequestException:
        return False
