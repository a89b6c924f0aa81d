"""Snapshots with and without the guest's agent."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import libvirt
import pytest

from nova_lite.base import exceptions
from nova_lite.base.disk_room import DiskRoom
from nova_lite.virt.libvirt.connection import LibvirtFailure
from nova_lite.virt.libvirt.disks.freezes import Freezer
from nova_lite.virt.libvirt.disks.snapshots import Snapshotter
from nova_lite.virt.libvirt.domain import guest_xml
from tests.unit.virt.libvirt.scripted import Calls

METADATA = (
    f'<n:instance xmlns:n="{guest_xml.NAMESPACE}"><n:host>h</n:host><n:generation>1</n:generation>{{}}</n:instance>'
)


class Domain:
    def __init__(self, quiesce: str, agent: bool) -> None:
        self.calls: list[str] = []
        self.xml, self.agent = METADATA.format(quiesce), agent

    def metadata(self, kind: int, uri: str, flags: int) -> str:
        return self.xml

    def UUIDString(self) -> str:
        return "uuid"

    def fsFreeze(self, mounts: None, flags: int) -> None:
        if not self.agent:
            raise LibvirtFailure(libvirt.libvirtError("the agent does not answer"))
        self.calls.append("freeze")

    def fsThaw(self, mounts: None, flags: int) -> None:
        if not self.agent:
            raise LibvirtFailure(libvirt.libvirtError("the agent does not answer"))
        self.calls.append("thaw")


def snapshot(domain: Domain, path: Path) -> None:
    connection: Any = Calls()
    freezer = Freezer(connection, None, str(path), "h")  # type: ignore[arg-type]
    with Snapshotter(connection, None, None, DiskRoom(0), freezer, str, None).quiesced(domain):  # type: ignore[arg-type]
        domain.calls.append("snapshot")


REQUIRED = "<n:quiesce>required</n:quiesce>"


@pytest.mark.parametrize("quiesce", ["", REQUIRED])
def test_snapshot_with_an_agent_freezes_the_guest(tmp_path: Path, quiesce: str) -> None:
    domain = Domain(quiesce, agent=True)
    snapshot(domain, tmp_path)
    assert domain.calls == ["freeze", "snapshot", "thaw"]


def test_snapshot_without_an_agent_is_not_quiesced(tmp_path: Path) -> None:
    domain = Domain("", agent=False)
    snapshot(domain, tmp_path)
    assert domain.calls == ["snapshot"]


def test_snapshot_without_a_required_agent_fails(tmp_path: Path) -> None:
    domain = Domain(REQUIRED, agent=False)
    with pytest.raises(exceptions.VirtDriverError, match="its image has os_require_quiesce"):
        snapshot(domain, tmp_path)
    assert domain.calls == []
    assert guest_xml.parse_owner(domain.xml) == guest_xml.Owner("h", 1)
