"""Hosts that are lost and come back, and servers that are on one of two."""

from __future__ import annotations

from tests.functional.cloud import Cloud, wait_for


def tidy_up(running: Cloud) -> None:
    """Every host is let in again and behaves, and nothing is on any."""
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
    """A server that runs, its host and the other one."""
    (server_id,) = running.create()
    host = running.wait_active([server_id])[server_id]["OS-EXT-SRV-ATTR:host"]
    (other,) = set(running.computes) - {host}
    return server_id, host, other


def lose(running: Cloud, host: str) -> None:
    """Its daemon is killed, and by the operator's word nothing runs there."""
    running.kill(host)
    answer = running.force_down(host)
    assert answer.status_code == 200, answer.text
    running.fenced.add(host)


def come_back(running: Cloud, host: str) -> None:
    """As it behaves by itself."""
    running.control_host(host)
    assert running.force_down(host, False).status_code == 200
    running.start(host)
    running.wait_until_ready()
    running.fenced.clear()
