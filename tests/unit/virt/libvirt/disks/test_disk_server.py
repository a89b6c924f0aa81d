"""Disks that travel by TLS with the hosts' certificates, through a real rsync."""

from __future__ import annotations

import contextlib
import logging
import os
import shutil
import socket
import uuid
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest
from oslo_config import cfg

from nova_lite import conf as configuration
from nova_lite.base import exceptions
from nova_lite.base.host_certificates import CA_CERTIFICATE, CERTIFICATES, KEYS, Authority
from nova_lite.base.timing import LibvirtTiming
from nova_lite.cmd import send_disks
from nova_lite.objects import DiskSource
from nova_lite.virt.libvirt.disks import disk_server, offers, tls_pipe, transfer
from nova_lite.virt.libvirt.disks.disk_server import DiskServer
from tests.support.ports import free_port

UUID = str(uuid.uuid4())
#: More than one piece of the pipe and of TLS, with a hole.
DISK = os.urandom(300_000) + bytes(1 << 20) + b"end"


def make_conf(certificates: Path, port: int) -> cfg.ConfigOpts:
    conf = cfg.ConfigOpts()
    configuration.register_opts(conf)
    conf([], default_config_files=[])
    conf.set_override("my_ip", "127.0.0.1")
    for name, value in (
        ("live_migration_tls", True),
        ("certificates_directory", str(certificates)),
        ("disk_port", port),
    ):
        conf.set_override(name, value, "libvirt")
    return conf


class Move:
    """A source that offers its disks, and a destination with a certificate of the same authority."""

    def __init__(self, path: Path, port: int) -> None:
        self.path = path
        self.authority = Authority(str(path / "authority"))
        self.authority.create()
        self.conf = make_conf(self.certificates("there", self.authority), port)
        self.here = path / "here" / UUID
        self.here.mkdir(parents=True)
        self.there = path / "instances" / UUID
        self.there.mkdir(parents=True)
        (self.there / "disk").write_bytes(DISK)
        (self.there / "disk.config").write_bytes(b"config")
        (self.there / "console.log").write_text("not offered")
        here = self.certificates("here", self.authority)
        self.destination = make_conf(here, port)
        self.server = DiskServer(self.conf, str(self.there.parent))
        self.server.start()
        self.offer = transfer.offer(self.conf, str(self.there))

    def certificates(self, name: str, authority: Authority) -> Path:
        directory = self.path / f"certificates-{name}"
        authority.issue(name, ["127.0.0.1"], str(directory), 10)
        return directory

    def fetch(self, source: DiskSource | None = None, conf: cfg.ConfigOpts | None = None) -> None:
        """Fetch as a host that does not see the source's directory."""
        source = source or self.offer
        elsewhere = msgspec.structs.replace(source, location=f"/nowhere/{UUID}")
        timing = LibvirtTiming(transfer_pause=0.0)
        transfer.Fetcher(conf or self.destination, elsewhere, UUID, str(self.here), timing).fetch()


@pytest.fixture
def move(tmp_path: Path) -> Iterator[Move]:
    if shutil.which("rsync") is None or not os.path.exists(send_disks.RRSYNC):
        pytest.skip("needs rsync and rrsync")
    yield Move(tmp_path, free_port())


def test_disks_arrive_by_tls(move: Move) -> None:
    move.fetch()
    assert sorted(os.listdir(move.here)) == ["disk", "disk.config"]
    assert (move.here / "disk").read_bytes() == DISK


def test_interrupted_fetch_is_resumed(move: Move) -> None:
    (move.here / "disk").write_bytes(DISK[:100_000])
    move.fetch()
    assert (move.here / "disk").read_bytes() == DISK


def test_host_of_another_authority_gets_nothing(move: Move) -> None:
    stranger = Authority(str(move.path / "stranger"))
    stranger.create()
    directory = move.certificates("stranger", stranger)
    # The stranger believes the source, but the source does not believe the stranger.
    shutil.copy(move.path / "certificates-here" / CA_CERTIFICATE, directory)
    with pytest.raises(exceptions.VirtDriverError):
        move.fetch(conf=make_conf(directory, move.offer.port))
    assert os.listdir(move.here) == ["disk"] and (move.here / "disk").stat().st_size == 0


def test_source_of_another_authority_is_not_believed(move: Move) -> None:
    stranger = Authority(str(move.path / "stranger"))
    stranger.create()
    directory = move.certificates("other", stranger)
    with pytest.raises(exceptions.VirtDriverError, match=r"(?i)certificate.verify.failed"):
        move.fetch(conf=make_conf(directory, move.offer.port))


def test_token_of_another_move_is_refused_with_a_reason(move: Move) -> None:
    with pytest.raises(exceptions.VirtDriverError, match="is offered with another token"):
        move.fetch(msgspec.structs.replace(move.offer, token="0" * 64))


def test_file_that_is_not_offered_stays(move: Move) -> None:
    with pytest.raises(exceptions.VirtDriverError, match="is not offered with"):
        fetcher = transfer.Fetcher(
            move.destination,
            msgspec.structs.replace(move.offer, location=f"/nowhere/{UUID}"),
            UUID,
            str(move.here),
            LibvirtTiming(transfer_pause=0.0),
        )
        fetcher.fetch_base("image-1", str(move.here / "base"))


def test_stranger_that_sends_nothing_useful_disturbs_no_move(move: Move) -> None:
    with socket.create_connection(("127.0.0.1", move.offer.port), timeout=30) as sock:
        sock.sendall(b"GET / HTTP/1.0\r\n\r\n")
        with contextlib.suppress(ConnectionResetError):
            while sock.recv(4096):
                pass
    move.fetch()
    assert (move.here / "disk").read_bytes() == DISK


def test_source_without_certificates_for_moves_offers_no_port(move: Move) -> None:
    move.conf.set_override("live_migration_tls", False, "libvirt")
    assert transfer.offer(move.conf, str(move.there)).port == 0


@pytest.mark.parametrize("change", [{"migration_ssh_key": "/etc/key"}, {"live_migration_tls": False}])
def test_destination_with_an_ssh_key_or_without_tls_uses_ssh(
    move: Move, monkeypatch: pytest.MonkeyPatch, change: dict[str, object]
) -> None:
    for name, value in change.items():
        move.destination.set_override(name, value, "libvirt")
    commands: list[list[str]] = []
    monkeypatch.setattr(transfer, "_run", lambda command, **more: (commands.append(command), (23, "no"))[1])
    with pytest.raises(exceptions.VirtDriverError, match="no"):
        move.fetch()
    assert commands[0][commands[0].index("--rsh") + 1].startswith("ssh ")
    assert commands[0][-2].startswith("root@127.0.0.1:")


def test_port_that_is_taken_is_reported_once_and_the_daemon_goes_on(
    move: Move, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.ERROR, disk_server.LOG.name):
        DiskServer(move.conf, str(move.there.parent)).start()
    (record,) = caplog.records
    assert "the port is in use" in record.getMessage()


def test_names_of_certificates_are_those_of_the_authority() -> None:
    assert tls_pipe.AUTHORITY == CA_CERTIFICATE
    assert set(zip(CERTIFICATES, KEYS, strict=True)) == {tls_pipe.SERVER, tls_pipe.CLIENT}


@pytest.mark.parametrize("line", ["", "{", "[]", '{"offer": "x"}'])
def test_request_that_is_none_is_refused(line: str) -> None:
    with pytest.raises(tls_pipe.PipeError, match="no request for disks"):
        tls_pipe.parse(line)


def test_request_is_read_as_it_was_written() -> None:
    value = offers.value_of(f"/x/{UUID}", "0" * 64)
    assert tls_pipe.parse(tls_pipe.request(value, "rsync --server").decode()) == (value, "rsync --server")
