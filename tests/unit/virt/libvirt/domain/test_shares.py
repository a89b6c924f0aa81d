"""Shares in the XML of guests, and their places on the host. `tests/integration/libvirt/test_shares.py` uses guests."""

from __future__ import annotations

import xml.etree.ElementTree as ET
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from oslo_config import cfg

from nova_lite.base import exceptions
from nova_lite.base.timing import TIMING
from nova_lite.objects import ShareMapping, ShareState
from nova_lite.virt.libvirt.context import HostContext
from nova_lite.virt.libvirt.disks.disks import Disk, DiskSet
from nova_lite.virt.libvirt.domain import guest_xml, shares_xml
from nova_lite.virt.libvirt.domain.shares import GuestShares
from nova_lite.virt.libvirt.host import host_traits
from tests.support.guests import make_instance, make_spec

HUGE = "<memoryBacking><hugepages/></memoryBacking>"
CAPABILITIES = "<d><devices><filesystem><enum name='driverType'><value>{}</value></enum></filesystem></devices></d>"


def mapping(tag: str = "data", location: str = "directory/data", state: ShareState = ShareState.ATTACHED) -> Any:
    return ShareMapping(uuid="u", share_id="s", tag=tag, location=location, state=state)


def of(domain: ET.Element) -> dict[str | None, str | None]:
    """Return the sources of a guest's shares by tag."""
    found = {}
    for share in domain.findall("devices/filesystem"):
        driver, source, target = (share.find(tag) for tag in ("driver", "source", "target"))
        assert driver is not None and source is not None and target is not None
        assert (share.attrib, driver.attrib) == ({"type": "mount", "accessmode": "passthrough"}, {"type": "virtiofs"})
        found[target.get("dir")] = source.get("dir")
    return found


def backing(domain: ET.Element) -> list[tuple[str, dict[str, str]]]:
    return [(element.tag, element.attrib) for element in domain.findall("memoryBacking/*")]


SHARED = [("source", {"type": "memfd"}), ("access", {"mode": "shared"})]


@pytest.mark.parametrize("machine", ["pc", "q35"])
def test_guest_has_its_shares_and_memory_for_them(machine: str) -> None:
    shares = [mapping(), mapping("more", "nfs/more"), mapping("broken", state=ShareState.ERROR)]
    disks = DiskSet(disks=[Disk(path="/i/disk", device="vda", format="qcow2")], direct_boot=None)
    ports = []
    for given in ([], shares):
        spec = make_spec(instance=make_instance(shares=given))
        host = guest_xml.Host(machine=machine, shares_path="/srv/shares", spare_ports=4)
        domain = ET.fromstring(guest_xml.guest_xml(spec, "h", "/i", disks, "qemu", 0, given=host))
        ports.append(len(domain.findall("devices/controller[@model='pcie-root-port']")))
    assert of(domain) == {"data": "/srv/shares/directory/data", "more": "/srv/shares/nfs/more"}
    assert backing(domain) == SHARED
    assert ports[1] - ports[0] == (2 if machine == "q35" else 0)


@pytest.mark.parametrize(
    ("location", "path"),
    [
        ("directory/data", None),
        *((wrong, "/s") for wrong in ("directory/..", "/etc/x", "NFS/x", "nfs/a/b", "9p/x", "")),
    ],
)
def test_share_that_is_not_below_the_directory_of_shares_is_refused(location: str, path: str | None) -> None:
    with pytest.raises(exceptions.VirtDriverError, match="cannot be used"):
        shares_xml.add(ET.fromstring("<domain><devices/></domain>"), [mapping(location=location)], path)


class Domains:
    """A domain that is defined."""

    def __init__(self, xml: str) -> None:
        self.xml = xml
        self.defined = 0

    def get(self, instance_uuid: str) -> tuple[None, None]:
        return None, None

    def description(self, domain: None) -> str:
        return self.xml

    def define(self, xml: str) -> None:
        self.xml = xml
        self.defined += 1

    @property
    def domain(self) -> ET.Element:
        return ET.fromstring(self.xml)


def shares_of(conf: cfg.ConfigOpts, path: Path, domains: Any) -> GuestShares:
    conf.set_override("shares_path", str(path), "libvirt")
    other: Any = SimpleNamespace()
    return GuestShares(HostContext(conf, "h", TIMING.libvirt, other, domains, other))


@pytest.mark.parametrize("before", ["", HUGE])
def test_share_is_attached_once_and_the_last_one_takes_its_memory_along(
    conf: cfg.ConfigOpts, tmp_path: Path, before: str
) -> None:
    made = Domains(f"<domain>{before}<devices/></domain>")
    shares = shares_of(conf, tmp_path, made)
    for name in ("data", "more"):
        (tmp_path / "directory" / name).mkdir(parents=True)
    for _ in range(2):
        shares.attach("u", mapping())
    shares.attach("u", mapping("more", "directory/more"))
    assert (made.defined, [*of(made.domain)]) == (2, ["data", "more"])
    assert backing(made.domain)[-2:] == SHARED
    for _ in range(2):
        shares.detach("u", mapping())
    assert (made.defined, backing(made.domain)[-2:]) == (3, SHARED)
    shares.detach("u", mapping("more"))
    assert backing(made.domain) == ([("hugepages", {})] if before else [])
    assert (made.domain.find("memoryBacking") is not None) is bool(before)


@pytest.mark.parametrize(
    ("location", "mounted", "is_there"),
    [
        ("directory/data", set(), True),
        ("directory/absent", set(), False),
        ("nfs/data", {"nfs4"}, True),
        ("nfs/data", {"autofs", "nfs"}, True),
        ("nfs/data", {"ext4"}, False),
        ("nfs/data", set(), False),
        ("cephfs/data", {"ceph"}, True),
        ("cephfs/data", {"nfs4"}, False),
    ],
)
def test_share_is_attached_only_where_it_is(
    conf: cfg.ConfigOpts,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    location: str,
    mounted: set[str],
    is_there: bool,
) -> None:
    made = Domains("<domain><devices/></domain>")
    shares = shares_of(conf, tmp_path, made)
    for protocol in ("directory", "nfs", "cephfs"):
        (tmp_path / protocol / "data").mkdir(parents=True)
    monkeypatch.setattr(shares_xml, "_mounted", lambda: {str(tmp_path / location): mounted})
    if is_there:
        shares.attach("u", mapping(location=location))
    else:
        with pytest.raises(exceptions.VirtDriverError, match=rf"host h has .*{location}"):
            shares.attach("u", mapping(location=location))
    assert made.defined == is_there


def test_mounted_file_systems_have_their_types() -> None:
    assert "proc" in shares_xml._mounted()["/proc"]


def test_host_has_virtiofs_if_all_machines_and_its_daemon_are_there(tmp_path: Path) -> None:
    daemons = str(tmp_path / "*virtiofsd.json")
    can, cannot = CAPABILITIES.format("virtiofs"), CAPABILITIES.format("path")
    assert not host_traits.has_virtiofs([can, can], daemons)
    (tmp_path / "50-virtiofsd.json").touch()
    assert host_traits.has_virtiofs([can, can], daemons)
    assert not host_traits.has_virtiofs([can, cannot], daemons)
