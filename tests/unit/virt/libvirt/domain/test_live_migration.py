"""Location of a guest whose live migration ended without a result."""

from __future__ import annotations

import re
import types
import xml.etree.ElementTree as ET
from collections.abc import Callable
from typing import Any

import libvirt
import msgspec
import pytest
from oslo_config import cfg

from nova_lite.base import exceptions
from nova_lite.objects import LiveDestination, LiveSource
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


OWN = f"""<domain>
<metadata><n:instance xmlns:n="{guest_xml.NAMESPACE}"><n:host>h1</n:host></n:instance></metadata>
<devices><interface></interface></devices>
</domain>"""


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


# --- ports of Open vSwitch


def test_port_keeps_its_identity_and_bridge_at_the_destination() -> None:
    """Open vSwitch of the destination gets them from this XML, and OVN finds the port by its id."""
    vif = make_vif(vif_type="ovs", vif_details={"bridge_name": "br-x", "datapath_type": "netdev"})
    interface = guest_xml.interface_xml(vif)
    domain = re.sub("<interface>.*</interface>", interface, OWN)
    (moved,) = ET.fromstring(live_migration.destination_xml(domain, THERE)).iterfind("devices/interface")
    assert ET.tostring(moved, encoding="unicode") == interface
    assert moved.find(f"virtualport/parameters[@interfaceid='{vif.id}']") is not None


DISKS = f"""<domain><metadata><novalite:instance xmlns:novalite="{guest_xml.NAMESPACE}"/></metadata><devices>
<disk><driver type="qcow2"/><source file="/a/disk"/><backingStore><source file="/a/base"/></backingStore></disk>
<disk><driver type="raw"/><source file="/a/disk.swap"/></disk>
<disk><driver type="raw"/><source file="/v/1"/><serial>1</serial></disk>
<disk><driver type="qcow2"/><source file="/v/2"/><serial>2</serial>
<backingStore><source file="/v/b"/></backingStore></disk>
</devices></domain>"""


@pytest.mark.parametrize(("below", "root"), [([("/b/base", "raw")], ["/b/base"]), ([], [])], ids=["image", "whole"])
def test_destination_has_the_files_below_each_disk_named(below: list[tuple[str, str]], root: list[str]) -> None:
    paths = {"disk": "/b/disk", "disk.swap": "/b/disk.swap"}
    there = msgspec.structs.replace(THERE, paths=paths, below=below)
    disks = ET.fromstring(live_migration.destination_xml(DISKS, there)).findall("devices/disk")
    found = [
        None
        if disk.find("backingStore") is None
        else [item.get("file") for item in disk.iterfind(".//backingStore/source")]
        for disk in disks
    ]
    assert found == [root, [], [], ["/v/b"]]


# --- encryption


class Recorder:
    """A domain that records how it is migrated."""

    def __init__(self) -> None:
        self.calls: list[tuple[str, dict[str, Any], int]] = []

    def state(self, flags: int) -> tuple[int, int]:
        return RUNNING

    def XMLDesc(self, flags: int) -> str:
        owner = f"<x:instance xmlns:x='{guest_xml.NAMESPACE}'><x:host>h1</x:host></x:instance>"
        return f"<domain><metadata>{owner}</metadata><devices/></domain>"

    def migrateToURI3(self, uri: str, parameters: dict[str, Any], flags: int) -> None:
        self.calls.append((uri, parameters, flags))


def migrated(conf: cfg.ConfigOpts, address: str, monkeypatch: pytest.MonkeyPatch) -> tuple[str, dict[str, Any], int]:
    monkeypatch.setattr(libvirt, "open", lambda uri: host(lambda uuid: domain))
    domain = Recorder()
    there = msgspec.structs.replace(THERE, address=address)
    watch: Any = lambda progress: None  # noqa: E731
    LiveMigrator(conf, Connection("test:///default", "h1"), UUID, there).run(domain, watch)
    (call,) = domain.calls
    return call


def test_migration_is_encrypted_between_hosts_with_certificates(
    conf: cfg.ConfigOpts, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    conf.set_override("live_migration_tls", True, "libvirt")
    uri, parameters, flags = migrated(conf, "192.0.2.2", monkeypatch)
    assert uri == "qemu+tls://192.0.2.2/system"
    assert flags & libvirt.VIR_MIGRATE_TLS
    assert parameters[libvirt.VIR_MIGRATE_PARAM_TLS_DESTINATION] == "192.0.2.2"
    assert caplog.messages == []


def test_migration_without_certificates_is_logged(
    conf: cfg.ConfigOpts, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    uri, parameters, flags = migrated(conf, "192.0.2.2", monkeypatch)
    assert uri == "qemu+ssh://root@192.0.2.2/system"
    assert not flags & libvirt.VIR_MIGRATE_TLS
    assert libvirt.VIR_MIGRATE_PARAM_TLS_DESTINATION not in parameters
    assert caplog.messages == [
        f"Live migration of {UUID} to h2 sends the guest's memory in plain text ([libvirt] live_migration_tls is off)"
    ]


@pytest.mark.parametrize(("tls", "encrypts"), [(True, True), (False, False), (False, True)])
def test_destination_accepts_a_source_that_encrypts_as_it_does_or_more(
    conf: cfg.ConfigOpts, tls: bool, encrypts: bool
) -> None:
    conf.set_override("live_migration_tls", tls, "libvirt")
    source = LiveSource(driver="libvirt", disks={}, host="h1", encrypts=encrypts)
    live_migration.check_encryption(conf, source, "h2")


@pytest.mark.parametrize("address", ["192.0.2.2", "2001:db8::2", "two.example.org"])
@pytest.mark.parametrize("tls", [True, False])
def test_destination_listens_at_its_address_alone(
    conf: cfg.ConfigOpts, monkeypatch: pytest.MonkeyPatch, address: str, tls: bool
) -> None:
    conf.set_override("live_migration_tls", tls, "libvirt")
    uri, parameters, _ = migrated(conf, address, monkeypatch)
    assert parameters[libvirt.VIR_MIGRATE_PARAM_LISTEN_ADDRESS] == address
    bracketed = f"[{address}]" if ":" in address else address
    assert parameters[libvirt.VIR_MIGRATE_PARAM_URI] == f"tcp://{bracketed}"
    assert f"{bracketed}/system" in uri


def test_own_uri_of_other_libvirtds_is_used(conf: cfg.ConfigOpts, monkeypatch: pytest.MonkeyPatch) -> None:
    conf.set_override("live_migration_uri", "qemu+unix:///system?socket=/run/%s/socket", "libvirt")
    assert migrated(conf, "192.0.2.2", monkeypatch)[0] == "qemu+unix:///system?socket=/run/192.0.2.2/socket"
