"""Location of a guest whose live migration ended without a result, and its filters at an older host."""

from __future__ import annotations

import types
from collections.abc import Callable
from typing import Any

import libvirt
import msgspec
import pytest
from oslo_config import cfg

from nova_lite.base import exceptions
from nova_lite.objects import LiveDestination
from nova_lite.virt.libvirt.connection import Connection
from nova_lite.virt.libvirt.domain import guest_xml, live_migration
from nova_lite.virt.libvirt.domain.live_migration import LiveMigrator
from tests.support.guests import make_vif
from tests.support.libvirt_errors import failing, libvirt_error

UUID = "2b2e0a7a-55c5-4d5a-a9fd-6d2b9a3d9c11"
THERE = LiveDestination(driver="libvirt", host="h2", generation=2, address="127.0.0.1")
STOPPED = (libvirt.VIR_DOMAIN_PAUSED, libvirt.VIR_DOMAIN_PAUSED_MIGRATION)
OFF = (libvirt.VIR_DOMAIN_SHUTOFF, libvirt.VIR_DOMAIN_SHUTOFF_CRASHED)
RUNNING = (libvirt.VIR_DOMAIN_RUNNING, libvirt.VIR_DOMAIN_RUNNING_BOOTED)
NO_DOMAIN = failing(libvirt_error(libvirt.VIR_ERR_NO_DOMAIN))


def domain(state: tuple[int, int], persistent: bool = True) -> Any:
    """Return a domain of libvirt. Its state decides whether it is active and has jobs."""
    idle: Any = lambda: {"type": libvirt.VIR_DOMAIN_JOB_NONE}  # noqa: E731
    off = failing(libvirt_error(libvirt.VIR_ERR_OPERATION_INVALID, message="domain is not running"))
    return types.SimpleNamespace(
        state=lambda flags: state,
        jobStats=off if state[0] == libvirt.VIR_DOMAIN_SHUTOFF else idle,
        isPersistent=lambda: persistent,
        isActive=lambda: state[0] != libvirt.VIR_DOMAIN_SHUTOFF,
        resume=lambda: None,
        UUIDString=lambda: UUID,
    )


def host(lookup: Callable[[str], Any]) -> Any:
    return types.SimpleNamespace(
        lookupByUUIDString=lookup, isAlive=lambda: True, setKeepAlive=lambda *_: None, close=lambda: None
    )


@pytest.fixture
def settle(conf: cfg.ConfigOpts, monkeypatch: pytest.MonkeyPatch) -> Callable[[Any, Any], bool]:
    """Return the result that the source finds with these two hosts."""

    def find(source: Any, destination: Any) -> bool:
        def open_(uri: str) -> Any:
            there = destination if "127.0.0.1" in uri else source
            if isinstance(there, Exception):
                raise there
            return there

        monkeypatch.setattr(libvirt, "open", open_)
        return LiveMigrator(conf, Connection("test:///default", "h1"), UUID, THERE).settle()

    return find


def test_guest_that_runs_at_the_source_has_not_moved(settle: Callable[[Any, Any], bool]) -> None:
    assert not settle(host(lambda uuid: domain(RUNNING)), host(NO_DOMAIN))


def test_guest_missing_at_the_source_has_moved(settle: Callable[[Any, Any], bool]) -> None:
    assert settle(host(NO_DOMAIN), host(NO_DOMAIN))


@pytest.mark.parametrize("here", [STOPPED, OFF], ids=["stopped", "off"])
@pytest.mark.parametrize("there", [RUNNING, OFF], ids=["runs there", "is off there by now"])
def test_arrived_guest_has_moved(
    settle: Callable[[Any, Any], bool], here: tuple[int, int], there: tuple[int, int]
) -> None:
    """Its disk at the source is outdated, because it ran at the destination."""
    assert settle(host(lambda uuid: domain(here)), host(lambda uuid: domain(there)))


@pytest.mark.parametrize("here", [STOPPED, OFF], ids=["stopped", "off"])
def test_guest_that_never_arrived_is_at_the_source(settle: Callable[[Any, Any], bool], here: tuple[int, int]) -> None:
    assert not settle(host(lambda uuid: domain(here)), host(NO_DOMAIN))


def test_incoming_guest_is_queried_again(settle: Callable[[Any, Any], bool]) -> None:
    coming = domain((libvirt.VIR_DOMAIN_PAUSED, libvirt.VIR_DOMAIN_PAUSED_MIGRATION), persistent=False)
    with pytest.raises(exceptions.MigrationFailed, match="still incoming"):
        settle(host(lambda uuid: domain(STOPPED)), host(lambda uuid: coming))


def test_unavailable_destination_is_queried_again(settle: Callable[[Any, Any], bool]) -> None:
    away = libvirt_error(libvirt.VIR_ERR_NO_CONNECT, libvirt.VIR_FROM_RPC)
    with pytest.raises(exceptions.HypervisorUnavailable, match="h2"):
        settle(host(lambda uuid: domain(STOPPED)), away)


# --- filters of an older version

FILTERED = f"""<domain>
<metadata><n:instance xmlns:n="{guest_xml.NAMESPACE}"><n:host>h1</n:host></n:instance></metadata>
<devices><interface><filterref filter="clean-traffic"/></interface></devices>
</domain>"""


def test_destination_that_guards_interfaces_gets_no_filters_of_libvirt() -> None:
    assert "filterref" in live_migration.destination_xml(FILTERED, THERE)
    new = msgspec.structs.replace(THERE, guards_interfaces=True)
    assert "filterref" not in live_migration.destination_xml(FILTERED, new)


def test_guest_without_filters_is_not_migrated_to_an_older_host() -> None:
    plain = FILTERED.replace("filterref", "other")
    with pytest.raises(exceptions.MigrationPreCheckError, match="host h2 is older"):
        live_migration.check_filters(plain, [make_vif()], "h2")
    live_migration.check_filters(FILTERED, [make_vif()], "h2")
    live_migration.check_filters(plain, [msgspec.structs.replace(make_vif(), vif_type="ovs")], "h2")
    live_migration.check_filters(plain, [], "h2")
