"""Broker alarms for memory or disk: the broker accepts connections, but no published message.

Users get an error in bounded time, and daemons keep running. After the alarm every accepted request is done, and no
refused one.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from concurrent import futures

import pytest

from tests.faults.private import PrivateBroker
from tests.functional import cloud
from tests.support.waiting import wait_for

#: Alarms with the commands that raise and clear them.
ALARMS = {
    "memory": (["set_vm_memory_high_watermark", "absolute", "1MB"], ["set_vm_memory_high_watermark", "0.4"]),
    "disk": (["set_disk_free_limit", "1000000000000000"], ["set_disk_free_limit", "1000000"]),
}
#: Line in the daemons' logs during an alarm.
BLOCKED = "The broker has blocked the connection"
#: A call gives up after 10 s here, and a second daemon may be asked.
BOUND = 40.0


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[PrivateBroker]:
    with PrivateBroker(tmp_path_factory.mktemp("broker")) as made:
        yield made


@pytest.fixture(scope="module")
def running(broker: PrivateBroker, tmp_path_factory: pytest.TempPathFactory) -> Iterator[cloud.Cloud]:
    path, options = tmp_path_factory.mktemp("cloud"), {"broker_port": broker.port, "broker_control": broker.control}
    with cloud.running(path, computes=2, vcpus=32, **options) as made:
        yield made


@pytest.mark.parametrize("alarm", ALARMS)
def test_accepted_requests_survive_a_broker_alarm(running: cloud.Cloud, broker: PrivateBroker, alarm: str) -> None:
    begins, ends = ALARMS[alarm]
    for host in running.computes:
        running.control_host(host, spawn_delay=2.0)
    (there,) = running.create("there")
    running.wait_active([there])
    under_way = running.create("under-way", count=4)
    processes = dict(running.processes)
    broker.control(*begins)
    try:
        wait_for("every publisher is blocked", lambda: in_force(broker))
        with futures.ThreadPoolExecutor(8) as pool:
            answers = list(pool.map(lambda ask: asked(running, *ask), requests(running, there) * 2))
        for status, told, seconds in answers:
            assert (status, seconds < BOUND) == (503, True), (status, told, seconds)
            assert told.endswith(".") and "Traceback" not in told, told
        for name in ("api", "conductor"):
            wait_blocked(running, name)
    finally:
        broker.control(*ends)
    running.wait_active([there, *under_way])
    assert "refused" not in {server["name"] for server in running.servers()}
    wait_for("hosts are up again", lambda: all_up(running))
    running.wait_active(running.create("afterwards", count=2))
    assert running.processes == processes and all(process.poll() is None for process in processes.values())
    for name in running.names:
        assert "Traceback" not in running.log(name, 5000), running.log(name, 200)
    running.delete_all()
    wait_for("nothing is left", lambda: running.domains() == {})
    running.audit()


def in_force(broker: PrivateBroker) -> bool:
    """Check that the alarm is in force. The broker notifies each connection separately; one without notice may still
    send.
    """
    states = broker.control("--silent", "list_connections", "state").split()
    return bool(states) and not set(states) - {"blocking", "blocked"}


def wait_blocked(running: cloud.Cloud, name: str) -> None:
    wait_for(f"{name} is told why", lambda: BLOCKED in running.log(name, 1000))


def requests(running: cloud.Cloud, server_id: str) -> list[tuple[str, str, object]]:
    create = {"server": {"name": "refused", "imageRef": running.image_id, "flavorRef": "1"}}
    stop = (f"/servers/{server_id}/action", {"os-stop": None})
    return [("POST", "/servers", create), ("POST", *stop), ("GET", f"/servers/{server_id}", None)]


def asked(running: cloud.Cloud, method: str, path: str, body: object) -> tuple[int, str, float]:
    """Send a request and return status, text, and seconds."""
    began = time.monotonic()
    answer = running.request(method, path, body, timeout=60)
    told = next(iter(answer.json().values())).get("message", "")
    return answer.status_code, told, time.monotonic() - began


def all_up(running: cloud.Cloud) -> bool:
    services = running.request("GET", "/os-services?binary=nova-compute").json().get("services", [])
    return len(services) == 2 and all(service["state"] == "up" for service in services)
