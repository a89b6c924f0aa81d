"""A restart of the API under systemd refuses no request."""

from __future__ import annotations

import json
from concurrent import futures

import pytest

from tests.integration.systemd.machine import DEADLINE, Machine
from tests.support.waiting import wait_for

UNIT = "nova-lite-api.service"
#: Settings of an API that needs no other service.
API = """
[api]
auth_strategy = noauth2
enabled_apis = osapi_compute
listen = 127.0.0.1
"""
#: Sends requests, each on a new connection, until there is a file. Prints how many were served, and all failures.
CLIENT = """
import http.client, json, os, sys
served, failures = 0, []
while not os.path.exists(sys.argv[1]):
    try:
        connection = http.client.HTTPConnection("127.0.0.1", 8774, timeout=60)
        connection.request("GET", "/v2.1")
        status = connection.getresponse().status
        connection.close()
        if status != 200:
            failures.append(status)
        served += 1
    except OSError as error:
        failures.append(repr(error))
    if not served % 20:
        open(sys.argv[1] + ".served", "w").write(str(served))
print(json.dumps([served, failures]))
"""


@pytest.mark.parametrize("workers", [1, 2])
def test_restart_refuses_no_request(machine: Machine, workers: int) -> None:
    stop = f"/root/stop-{workers}"
    machine.write("/etc/nova-lite/api.conf", f"{API}workers = {workers}\n")
    machine.change_unit(UNIT)
    machine.run("systemctl", "start", UNIT)
    with futures.ThreadPoolExecutor() as pool:
        client = pool.submit(machine.run, "/opt/nova-lite/venv/bin/python", "-c", CLIENT, stop)
        try:
            for _ in range(3):
                served = _served(machine, stop)
                _wait_for_more(machine, stop, served)
                machine.run("systemctl", "restart", UNIT)
                assert machine.property_of(UNIT, "NFileDescriptorStore") == str(workers)
            _wait_for_more(machine, stop, _served(machine, stop))
        finally:
            machine.write(stop, "")
        total, failures = json.loads(client.result(DEADLINE))
    machine.run("systemctl", "stop", UNIT)
    assert failures == []
    assert total > 80


def _served(machine: Machine, stop: str) -> int:
    file = machine.tree / f"{stop.lstrip('/')}.served"
    return int(file.read_text() or 0) if file.exists() else 0


def _wait_for_more(machine: Machine, stop: str, served: int) -> None:
    wait_for("more requests are served", lambda: _served(machine, stop) > served, DEADLINE)
