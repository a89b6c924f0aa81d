"""libvirt of a host that joins: certificates at the places where libvirtd reads them, and its port for other hosts."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from nova_lite.base import exceptions
from nova_lite.cmd.setup import libvirt, machine

ADDRESS = "192.0.2.11"


class Host:
    """A machine's files, and the programs that were run. ``active``: units that systemd says are active."""

    def __init__(self, path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.pki = path / "pki"
        self.certificates = self.pki / "qemu"
        self.qemu, self.network = path / "qemu.conf", path / "network.conf"
        self.settings = path / "units" / "libvirtd-tls.socket.d" / "nova-lite.conf"
        self.memory = path / "join.json"
        self.commands: list[str] = []
        self.active: set[str] = set()
        self.certificates.mkdir(parents=True)
        (self.certificates / "ca-cert.pem").write_text("authority")
        self.memory.touch()
        self.qemu.write_text('user = "root"\n# a comment\n')
        for name, value in (
            ("PKI", self.pki),
            ("CERTIFICATES", self.certificates),
            ("QEMU", self.qemu),
            ("NETWORK", self.network),
            ("MEMORY", self.memory),
            ("SOCKET_SETTINGS", self.settings),
        ):
            monkeypatch.setattr(libvirt, name, value)
        monkeypatch.setattr(machine, "run", self._run)
        monkeypatch.setattr(machine, "succeeds", lambda *command: command[-1] in self.active)

    def _run(self, *command: str) -> str:
        self.commands.append(" ".join(command))
        return "Running against daemon: 9.0.0\n"

    def set_up(self, has_console_tls: bool = True) -> str:
        self.commands.clear()
        return libvirt.set_up(ADDRESS, has_console_tls)

    def files(self) -> list[str]:
        return sorted(str(path.relative_to(self.pki)) for path in self.pki.rglob("*"))


@pytest.fixture
def host(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Host:
    return Host(tmp_path, monkeypatch)


def test_libvirtd_reads_the_certificates_of_the_cloud_and_listens_at_the_address(host: Host) -> None:
    assert host.set_up() == "Running against daemon: 9.0.0, TLS for moves and consoles"
    assert (host.pki / "CA" / "cacert.pem").read_text() == "authority"
    assert os.readlink(host.pki / "libvirt" / "private" / "serverkey.pem") == str(host.certificates / "server-key.pem")
    assert f"ListenStream=\nListenStream={ADDRESS}:16514\n" in host.settings.read_text()
    stop = next(number for number, line in enumerate(host.commands) if " stop " in line)
    assert stop < host.commands.index(f"systemctl enable --now {libvirt.TLS_SOCKET}"), "systemd refuses the socket else"
    assert host.commands[-2] == "systemctl restart libvirtd"


def test_ipv6_address_is_bracketed(host: Host) -> None:
    libvirt.set_up("fd00::11", has_console_tls=False)
    assert "ListenStream=[fd00::11]:16514" in host.settings.read_text()
    assert host.qemu.read_text() == 'user = "root"\n# a comment\n'


def test_second_set_up_restarts_nothing(host: Host) -> None:
    host.set_up()
    host.active.add(libvirt.TLS_SOCKET)
    host.set_up()
    assert not [line for line in host.commands if " stop " in line or " restart " in line]


def test_interrupted_set_up_is_completed(host: Host) -> None:
    host.set_up()
    host.set_up()  # the files are there, and the socket does not listen
    assert f"systemctl enable --now {libvirt.TLS_SOCKET}" in host.commands
    assert "systemctl restart libvirtd" in host.commands


def test_certificate_of_an_operator_is_not_replaced(host: Host) -> None:
    host.set_up()
    libvirt.check()
    path = host.pki / "libvirt" / "servercert.pem"
    path.unlink()
    path.write_text("the operator's")
    with pytest.raises(exceptions.ConfigurationError, match="another certificate or key: move it away"):
        libvirt.check()
    libvirt.purge()
    assert path.read_text() == "the operator's"


def test_renewed_certificates_are_read_by_a_running_libvirtd(host: Host) -> None:
    libvirt.reload_certificates()
    assert host.commands == []
    host.set_up()
    host.active.add("libvirtd")
    libvirt.reload_certificates()
    assert host.commands[-1].endswith("server-update-tls libvirtd")


def test_purge_leaves_what_was_there_before(host: Host) -> None:
    host.set_up()
    assert host.qemu.read_text().startswith('user = "root"\n# a comment\n# >>> nova-lite-setup\nvnc_tls = 1\n')
    assert host.qemu.stat().st_mode & 0o777 == 0o600
    host.active.add("libvirtd")
    libvirt.purge()
    assert host.qemu.read_text() == 'user = "root"\n# a comment\n'
    assert host.files() == [] and not host.settings.parent.exists()
    assert f"systemctl disable --now {libvirt.TLS_SOCKET}" in host.commands
    assert host.commands[-1] == "systemctl restart libvirtd"
    before = list(host.commands)
    libvirt.purge()
    assert host.commands == before


def test_choice_of_packet_filters_by_an_older_version_is_taken_back(host: Host) -> None:
    first, last = libvirt.MARKS
    host.network.write_text(f'# a comment\n{first}\nfirewall_backend = "iptables"\n{last}\n')
    libvirt.purge()
    assert host.network.read_text() == "# a comment\n"


def test_libvirt_without_a_choice_of_packet_filters_gets_no_file(host: Host) -> None:
    host.set_up()
    assert not host.network.exists()
