"""Kill -9 in the middle of an atomic write, for each writer: the file that it leaves is removed later."""

from __future__ import annotations

import os
import signal
import uuid
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NamedTuple

import pytest

from nova_lite.base import files, host_certificates
from nova_lite.cmd.dev import clouds_file
from nova_lite.cmd.manage import keys as keys_command
from nova_lite.compute.fencing import FencingTokenStore
from nova_lite.compute.host_boot import HostBoot
from nova_lite.objects import HostRouter, PortFilters
from nova_lite.rpc import trusted_list
from nova_lite.rpc.keys import PrivateKey
from nova_lite.virt import fake, fake_rules
from nova_lite.virt.libvirt.disks import disks, transfer
from nova_lite.virt.libvirt.host import kvm
from nova_lite.virt.libvirt.net import dhcp, floating_ips, former_networks, networks, nft, reservations
from nova_lite.virt.libvirt.net.migration_peers import MigrationPeers
from nova_lite.virt.libvirt.net.routers import HostRouters
from nova_lite.virt.libvirt.net.security_groups import PortFirewall
from nova_lite.virt.libvirt.net.tunnels import Tunnels
from nova_lite.virt.libvirt.records import Records
from nova_lite.volume.cinder import CinderVolumes
from tests.support import make
from tests.support.compute_host import make_conf, make_instance
from tests.support.guests import make_spec, make_vif

ONE, VIF = str(uuid.UUID(int=1)), make_vif()
#: Host names of which one begins with the other.
HOST, OTHER = "host-a", "host"


class Writer(NamedTuple):
    """``write(path, host)`` writes a file below ``path``. ``start(path, host)`` is what the daemon does at its start,
    or the next command."""

    write: Callable[[Path, str], object]
    start: Callable[[Path, str], object]


def _conf(path: Path, host: str = HOST) -> Any:
    conf = make_conf(path)
    conf.set_override("host", host)
    conf.set_override("live_migration_tls", True, "libvirt")
    return conf


def _records(path: Path, host: str) -> Records:
    made = Records(str(path), host)
    made.prepare()
    return made


def _guest(path: Path, host: str) -> str:
    return _records(path, host).create(ONE, 1)


def _cinder(path: Path, host: str) -> CinderVolumes:
    conf = make.conf("sqlite://", path)
    conf.set_override("host", host)
    return CinderVolumes(conf, lambda image, target: None)


def _networks(path: Path, host: str) -> None:
    networks.HostNetworks(_conf(path), SimpleNamespace(), host).init_host([])  # type: ignore[arg-type]


def _reserve(path: Path, host: str) -> None:
    Path(reservations.directory_for(VIF.network)).mkdir(exist_ok=True)
    reservations.reserve(VIF, "web", host)


def _fake(path: Path, host: str) -> fake.FakeDriver:
    made = fake_rules.RuledFakeDriver(_conf(path), host, lambda image, target: Path(target).touch())
    made.init_host()
    return made


def _create_key(path: Path, host: str) -> None:
    with trusted_list.changing(str(path)):
        keys_command._write_private(str(path / f"compute.{host}.key"), PrivateKey.generate(), None)


def _issue(path: Path, host: str) -> None:
    authority = host_certificates.Authority(str(path / "authority"))
    authority.create()
    authority.issue(host, [], str(path / host), 1)


#: Writers to directories that several hosts share.
SHARED = {
    "interfaces": Writer(lambda path, host: _records(path, host).write_interfaces(ONE, [VIF]), _records),
    "port filters": Writer(
        lambda path, host: PortFirewall(_conf(path), host, str(path)).set(PortFilters(instances={ONE: []})), _records
    ),
    "floating addresses": Writer(
        lambda path, host: floating_ips.FloatingAddresses(str(path), host, "lo").assign({"192.0.2.1"}), _records
    ),
    "tunnels": Writer(lambda path, host: Tunnels(_conf(path), host, str(path)).set({"net": []}), _records),
    "routers": Writer(
        lambda path, host: HostRouters(SimpleNamespace(), host, str(path)).set([HostRouter(id="r")]),  # type: ignore[arg-type]
        _records,
    ),
    "sources of migrations": Writer(
        lambda path, host: MigrationPeers(_conf(path), host, Records(str(path), host)).open(ONE, "192.0.2.1"), _records
    ),
    "boot id": Writer(
        lambda path, host: HostBoot(str(path / host)).mark_reconciled(),
        lambda path, host: HostBoot(str(path / host)),
    ),
    "connected volumes": Writer(
        lambda path, host: _cinder(path, host)._write(str(path / "volumes-connected" / "x.json"), {}, None), _cinder
    ),
    "address reservations": Writer(_reserve, _networks),
    "result of the KVM probe": Writer(
        lambda path, host: kvm.choose_virt_type(str(path / "kvm.json"), 1.0, "/dev/null", host),
        lambda path, host: kvm.choose_virt_type(str(path / "kvm.json"), 1.0, "/dev/null", host),
    ),
    "rules of fake guests": Writer(
        lambda path, host: _fake(path, host)._record(make_spec(instance=make_instance())), _fake
    ),
}

#: Writers to directories that no other program writes to.
OWN = {
    "fencing record": Writer(
        lambda path, host: FencingTokenStore(str(path)).revoke(ONE, 1), lambda path, host: FencingTokenStore(str(path))
    ),
    "identity": Writer(
        lambda path, host: FencingTokenStore(str(path)).identity(), lambda path, host: FencingTokenStore(str(path))
    ),
    "record of a guest": Writer(_guest, _records),
    "offered disks": Writer(
        lambda path, host: transfer.offer(_conf(path), str(path / ONE), ()),
        _records,
    ),
    "fake port filters": Writer(lambda path, host: _fake(path, host).filters.apply(PortFilters()), _fake),
    "fake interfaces": Writer(lambda path, host: _fake(path, host).networks.plug(make_instance(), [VIF]), _fake),
    "private key": Writer(_create_key, _create_key),
    "certificates": Writer(_issue, _issue),
    "clouds.yaml": Writer(
        lambda path, host: clouds_file.write(str(path / "clouds.yaml"), "http://a", []),
        lambda path, host: clouds_file.write(str(path / "clouds.yaml"), "http://a", []),
    ),
}


@pytest.fixture(autouse=True)
def _harmless(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Keep the kernel's tables and addresses, and the machine's directories, out of these tests."""
    monkeypatch.setattr(nft, "run", lambda text, namespace=None: "")
    monkeypatch.setattr(floating_ips.images, "run", lambda *command: b"")
    monkeypatch.setattr(kvm, "runs_guests", lambda accelerator, timeout: False)
    monkeypatch.setattr(dhcp, "DIRECTORY", str(tmp_path))
    for name in ("remove", "remove_rules"):
        monkeypatch.setattr(former_networks, name, lambda *arguments: None)


def kill_in(write: Callable[[], object]) -> None:
    """Kill a process with signal 9 right before its first atomic write replaces the file."""
    child = os.fork()
    if child == 0:
        os.replace = lambda source, target: os.kill(os.getpid(), signal.SIGKILL)  # type: ignore[assignment,misc]
        try:
            write()
        finally:
            os._exit(1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == -signal.SIGKILL


def unfinished(path: Path) -> list[str]:
    return sorted(str(found.relative_to(path)) for found in path.rglob(f"{files.TEMPORARY}*"))


@pytest.mark.parametrize("name", SHARED)
def test_file_of_a_killed_writer_is_removed_by_its_own_host_only(tmp_path: Path, name: str) -> None:
    writer = SHARED[name]
    for host in (HOST, OTHER):
        writer.start(tmp_path, host)
    if name == "connected volumes":
        (tmp_path / "volumes-connected").mkdir()
    if name == "result of the KVM probe":
        (tmp_path / "kvm.json").unlink()
    kill_in(lambda: writer.write(tmp_path, HOST))
    (left,) = unfinished(tmp_path)
    writer.start(tmp_path, OTHER)
    assert unfinished(tmp_path) == [left]
    if name == "result of the KVM probe":
        (tmp_path / "kvm.json").unlink()
    writer.start(tmp_path, HOST)
    assert unfinished(tmp_path) == []


@pytest.mark.parametrize("name", OWN)
def test_file_of_a_killed_writer_is_removed_at_the_next_start(tmp_path: Path, name: str) -> None:
    writer = OWN[name]
    if name == "offered disks":
        _guest(tmp_path, HOST)
    kill_in(lambda: writer.write(tmp_path, HOST))
    assert unfinished(tmp_path)
    writer.start(tmp_path, HOST)
    assert unfinished(tmp_path) == []


def test_check_of_direct_access_leaves_nothing(tmp_path: Path) -> None:
    (tmp_path / ".direct").write_bytes(b"of a killed check")
    disks.supports_direct_io(str(tmp_path))
    assert list(tmp_path.iterdir()) == []


def test_reservation_of_a_killed_host_is_none(tmp_path: Path) -> None:
    """The file of the other host may be complete a moment later: it does not count as outdated."""
    kill_in(lambda: _reserve(tmp_path, OTHER))
    (left,) = unfinished(tmp_path)
    reservations.reserve(make_vif(id="another", network=VIF.network), "web", HOST)
    assert unfinished(tmp_path) == [left]
