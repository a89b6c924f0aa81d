"""State of a host's networks on its disk: damaged files count as missing, with a line in the log."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from oslo_config import cfg

from nova_lite.objects import PortFilters
from nova_lite.virt.libvirt.net import reservations
from nova_lite.virt.libvirt.net.floating_ips import FloatingAddresses
from nova_lite.virt.libvirt.net.migration_peers import MigrationPeers
from nova_lite.virt.libvirt.net.qos import HostQos, Limits
from nova_lite.virt.libvirt.net.routers import HostRouters
from nova_lite.virt.libvirt.net.security_groups import PortFirewall
from nova_lite.virt.libvirt.net.tunnels import Tunnels
from nova_lite.virt.libvirt.records import Records
from tests.support import make

HOST = "one"
#: Reader of a file, its result without the file, and content with a text that is no UTF-8; by the name of the file.
KINDS: dict[str, tuple[Callable[[cfg.ConfigOpts, str], Any], Any, bytes]] = {
    f"_routers@{HOST}.json": (
        lambda conf, path: HostRouters(None, HOST, path),  # type: ignore[arg-type]
        [],
        b'[{"id": "\xff", "networks": []}]',
    ),
    f"_migrations@{HOST}.json": (
        lambda conf, path: MigrationPeers(conf, HOST, Records(path, HOST)),
        {},
        b'{"x": "\xff"}',
    ),
    f"_port-filters@{HOST}.json": (
        lambda conf, path: PortFirewall(conf, HOST, path),
        PortFilters(),
        b'{"floating": {"\xff": "x"}}',
    ),
    f"_qos@{HOST}.json": (lambda conf, path: HostQos(HOST, path), Limits(), b'{"ports": {"\xff": {}}}'),
    f"_tunnels@{HOST}.json": (lambda conf, path: Tunnels(conf, HOST, path), {}, b'{"x": ["\xff"]}'),
    f"floating@{HOST}.json": (lambda conf, path: FloatingAddresses(path, HOST, "lo"), set(), b'["\xff"]'),
}


@pytest.mark.parametrize("content", [b"", b'{"x": ', b"7", None])
@pytest.mark.parametrize("name", KINDS)
def test_damaged_file_counts_as_missing(
    tmp_path: Path, name: str, content: bytes | None, caplog: pytest.LogCaptureFixture
) -> None:
    reader, empty, text = KINDS[name]
    (tmp_path / name).write_bytes(text if content is None else content)
    assert reader(make.conf("sqlite://", tmp_path), str(tmp_path))._read() == empty
    assert f"{name} cannot be read" in caplog.text


def test_damaged_reservation_names_no_address(tmp_path: Path) -> None:
    (tmp_path / "x").write_bytes(b"\xff\xfe")
    assert reservations._keys(str(tmp_path / "x")).isdisjoint({"52:54:00:00:00:01", "10.0.0.5"})
