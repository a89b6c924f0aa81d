from __future__ import annotations

import types
from typing import Any

import libvirt
import pytest

from nova_lite.base import exceptions
from nova_lite.virt.libvirt.connection import FILTER_TRIES, Connection, LibvirtFailure
from tests.support.libvirt_errors import failing, libvirt_error


@pytest.fixture
def connection() -> Connection:
    return Connection("test:///default", "one")


def test_libvirt_error_is_one_line_with_its_code(connection: Connection) -> None:
    with pytest.raises(LibvirtFailure, match=r"it broke$") as caught:
        connection.call(failing(libvirt_error(libvirt.VIR_ERR_NO_DOMAIN)))
    assert caught.value.error_code == libvirt.VIR_ERR_NO_DOMAIN


@pytest.mark.parametrize(
    ("code", "origin"),
    [
        (libvirt.VIR_ERR_NO_CONNECT, libvirt.VIR_FROM_NONE),
        (libvirt.VIR_ERR_INTERNAL_ERROR, libvirt.VIR_FROM_RPC),
        (libvirt.VIR_ERR_SYSTEM_ERROR, libvirt.VIR_FROM_RPC),
    ],
)
def test_unavailable_libvirtd_differs_from_an_error(connection: Connection, code: int, origin: int) -> None:
    with pytest.raises(exceptions.HypervisorUnavailable, match="on host one: it broke"):
        connection.call(failing(libvirt_error(code, origin)))


def test_expected_errors_are_ignored(connection: Connection) -> None:
    refuse = failing(libvirt_error(libvirt.VIR_ERR_NO_DOMAIN))
    assert connection.call_unless((libvirt.VIR_ERR_NO_DOMAIN,), refuse) is None
    with pytest.raises(LibvirtFailure):
        connection.call_unless((libvirt.VIR_ERR_NO_NETWORK,), refuse)


def test_missing_libvirtd_is_one_line() -> None:
    away = Connection("qemu+unix:///system?socket=/nonexistent/libvirt-sock", "one")
    with pytest.raises(exceptions.HypervisorUnavailable, match=r"on host one: .*/nonexistent/libvirt-sock") as caught:
        away.get()
    assert "\n" not in caught.value.message


def test_connection_is_reopened_when_it_broke() -> None:
    opened: list[Any] = []
    connection = Connection("test:///default", "one", opened.append)
    assert connection.get() is connection.get()
    assert len(opened) == 1
    connection._queries.first()._connection = types.SimpleNamespace(isAlive=lambda: 0)
    assert connection.connect_call("getType") == "TEST"
    assert len(opened) == 2


@pytest.mark.parametrize(("failures", "works"), [(FILTER_TRIES - 1, True), (FILTER_TRIES, False)])
def test_filters_are_retried_after_a_conflict(
    connection: Connection, monkeypatch: pytest.MonkeyPatch, failures: int, works: bool
) -> None:
    monkeypatch.setattr("nova_lite.virt.libvirt.connection.time.sleep", lambda seconds: None)
    message = "internal error: Failed to apply firewall rules /usr/sbin/ebtables: RULE_DELETE failed"
    ends: list[Exception] = [libvirt_error(libvirt.VIR_ERR_INTERNAL_ERROR, message=message)] * failures

    def start() -> str:
        if ends:
            raise ends.pop()
        return "started"

    if works:
        assert connection.call_filtering(start) == "started"
    else:
        with pytest.raises(LibvirtFailure, match="firewall rules"):
            connection.call_filtering(start)
    assert ends == []


def test_other_failures_of_a_start_are_not_retried(connection: Connection) -> None:
    tried = []

    def start() -> None:
        tried.append(1)
        raise libvirt_error(libvirt.VIR_ERR_INTERNAL_ERROR, message="qemu ended")

    with pytest.raises(LibvirtFailure, match="qemu ended"):
        connection.call_filtering(start)
    assert tried == [1]
