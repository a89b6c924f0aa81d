"""Access of other hosts during migrations, on one host. tests/integration/network uses real packets."""

from __future__ import annotations

import re
import uuid
from pathlib import Path

import pytest
from oslo_config import cfg

from nova_lite.base import exceptions
from nova_lite.virt.libvirt.net import migration_peers, nft
from nova_lite.virt.libvirt.net.migration_peers import MigrationPeers
from nova_lite.virt.libvirt.records import Records

ONE, TWO = str(uuid.UUID(int=1)), str(uuid.UUID(int=2))


class Host:
    """A host whose nft accepts everything, unless ``error`` is set."""

    def __init__(self, conf: cfg.ConfigOpts, path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.conf = conf
        self.rules: list[str] = []
        self.error = ""
        self.records = Records(str(path), "host-1")
        self.records.prepare()
        for instance_uuid in (ONE, TWO):
            self.records.create(instance_uuid, 1)
        monkeypatch.setattr(nft, "run", self._run)
        conf.set_override("live_migration_tls", True, "libvirt")
        conf.set_override("my_ip", "192.0.2.1")

    def _run(self, text: str) -> str:
        self.rules.append(text)
        return self.error

    def start(self) -> MigrationPeers:
        made = MigrationPeers(self.conf, "host-1", self.records)
        made.prepare()
        return made

    def open_for(self) -> list[str]:
        found = re.findall(r"type ipv[46]_addr;(?: elements = \{ (.*) \};)?", self.rules[-1])
        return [address for text in found if text for address in text.split(", ")]


@pytest.fixture
def host(conf: cfg.ConfigOpts, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Host:
    return Host(conf, tmp_path, monkeypatch)


def test_source_is_let_in_until_its_last_migration_ends(host: Host) -> None:
    peers = host.start()
    assert host.open_for() == []
    peers.open(ONE, "192.0.2.7")
    peers.open(TWO, "192.0.2.7")
    assert host.open_for() == ["192.0.2.7"]
    peers.open(TWO, "2001:db8::7")
    assert host.open_for() == ["192.0.2.7", "2001:db8::7"]
    peers.close(ONE)
    assert host.open_for() == ["2001:db8::7"]
    peers.close(TWO)
    assert host.open_for() == []
    count = len(host.rules)
    peers.close(TWO)
    assert len(host.rules) == count


def test_restart_keeps_the_access_of_migrations_that_are_under_way(host: Host) -> None:
    peers = host.start()
    peers.open(ONE, "192.0.2.7")
    peers.open(TWO, "192.0.2.8")
    host.start()
    assert host.open_for() == ["192.0.2.7", "192.0.2.8"]
    host.records.remove(TWO)
    host.start()
    assert host.open_for() == ["192.0.2.7"]


def test_unreadable_record_opens_nothing(host: Host, caplog: pytest.LogCaptureFixture) -> None:
    host.start().open(ONE, "192.0.2.7")
    (path,) = Path(host.records.instances_path).glob("_migrations@*")
    path.write_text('{"x": 1}')
    host.start()
    assert host.open_for() == [] and "cannot be read" in caplog.text


@pytest.mark.parametrize(
    "address",
    ["", "host-2", "192.0.2.0/24", "127.0.0.1", "::1", "0.0.0.0", "::", "224.0.0.1", "fe80::1%lo", "192.0.2.7 accept"],
)
def test_address_that_is_no_other_hosts_is_refused(host: Host, address: str) -> None:
    peers = host.start()
    count = len(host.rules)
    with pytest.raises(exceptions.MigrationPreCheckError, match="live_migration_inbound_addr"):
        peers.open(ONE, address)
    assert len(host.rules) == count


def test_filter_that_cannot_be_loaded_is_an_error(host: Host) -> None:
    peers = host.start()
    host.error = "nft cannot be run: No such file or directory"
    with pytest.raises(exceptions.VirtDriverError, match="nft cannot be run"):
        peers.open(ONE, "192.0.2.7")
    expected = "live_migration_tls: the filter of live migrations cannot be loaded: nft cannot be run"
    with pytest.raises(exceptions.ConfigurationError, match=expected):
        host.start()


def test_access_that_could_not_be_ended_is_ended_by_the_repetition(host: Host) -> None:
    peers = host.start()
    peers.open(ONE, "192.0.2.7")
    host.error = "nft: Resource busy"
    with pytest.raises(exceptions.VirtDriverError, match="Resource busy"):
        peers.close(ONE)
    host.error = ""
    count = len(host.rules)
    peers.close(ONE)
    assert len(host.rules) == count + 1 and host.open_for() == []
    peers.close(ONE)
    assert len(host.rules) == count + 1


def test_host_without_tls_has_no_filter_and_needs_no_nft(host: Host, caplog: pytest.LogCaptureFixture) -> None:
    host.start().open(ONE, "192.0.2.7")
    host.conf.set_override("live_migration_tls", False, "libvirt")
    peers = host.start()
    assert host.rules[-1] == migration_peers.without("nova_lite_migrations_host_1")
    host.error = "nft cannot be run: No such file or directory"
    host.start()
    peers.open(ONE, "not an address")
    peers.close(ONE)
    assert caplog.text == ""


@pytest.mark.parametrize(
    ("own", "rule"),
    [("192.0.2.1", "ip daddr 192.0.2.1 "), ("2001:db8::1", "ip6 daddr 2001:db8::1 "), ("host-1", "")],
)
def test_ports_of_qemu_are_guarded_at_the_address_of_migrations(own: str, rule: str) -> None:
    """Other programs may listen on the same ports at other addresses."""
    assert f"ct direction original {rule}tcp dport 49152-49215" in migration_peers.ruleset("t", own, [])
