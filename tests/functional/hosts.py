"""Hosts that are lost and come back, and servers that are on one of two."""

from __future__ import annotations

from tests.functional.cloud import Cloud
from tests.support.waiting import wait_for


def tidy_up(running: Cloud) -> None:
    """Enable every host, make it behave normally, and delete everything on it."""
    for host in running.computes:
        running.control_host(host)
        running.force_down(host, False)
        if host not in running.processes:
            running.start(host)
    running.wait_until_ready()
    running.fenced.clear()
    running.delete_all()
    wait_for("nothing is left", lambda: running.domains() == {})
    running.audit()


def placed(running: Cloud) -> tuple[str, str, str]:
    """Create a running server, and return it with its host and the other one."""
    (server_id,) = running.create()
    host = running.wait_active([server_id])[server_id]["OS-EXT-SRV-ATTR:host"]
    (other,) = set(running.computes) - {host}
    return server_id, host, other


def lose(running: Cloud, host: str) -> None:
    """Kill a host's daemon and force the host down."""
    running.kill(host)
    answer = running.force_down(host)
    assert answer.status_code == 200, answer.text
    running.fenced.add(host)


def come_back(running: Cloud, host: str) -> None:
    """Start a lost host again and clear its forced-down flag."""
    running.control_host(host)
    assert running.force_down(host, False).status_code == 200
    running.start(host)
    running.wait_until_ready()
    running.fenced.clear()


def enable(running: Cloud, host: str, enabled: bool = True) -> None:
    verb = "enable" if enabled else "disable"
    answer = running.request("PUT", f"/os-services/{verb}", {"host": host, "binary": "nova-compute"})
    assert answer.status_code == 200


def on(running: Cloud, host: str, count: int) -> list[str]:
    """Create servers that run on the host."""
    for other in set(running.computes) - {host}:
        enable(running, other, False)
    ids = running.create(count=count)
    found = running.wait_active(ids)
    for other in running.computes:
        enable(running, other)
    assert {server["OS-EXT-SRV-ATTR:host"] for server in found.values()} == {host}
    return ids


def places(running: Cloud, ids: list[str]) -> dict[str, tuple[str, str]]:
    found = running.wait_settled(ids)
    return {key: (item["status"], item["OS-EXT-SRV-ATTR:host"]) for key, item in found.items()}


def kinds(running: Cloud, server_id: str) -> list[str]:
    answer = running.request("GET", f"/servers/{server_id}/os-instance-actions").json()["instanceActions"]
    return [action["action"] for action in reversed(answer)][1:]
