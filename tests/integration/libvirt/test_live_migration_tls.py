"""Live migration between two hosts with certificates: no memory crosses the network in plain text."""

from __future__ import annotations

import pwd
import shutil
import socket
import struct
import subprocess
import threading
from collections.abc import Iterator
from pathlib import Path

import libvirt
import pytest

from nova_lite.base import exceptions
from nova_lite.base.host_certificates import Authority
from nova_lite.objects import MigrationControl, MigrationProgress
from nova_lite.operations.states import PowerState
from nova_lite.virt.abilities import SpawnSpec
from tests.integration import scripts
from tests.integration.libvirt import hosts
from tests.integration.libvirt.conftest import Images, MakeHost, guest_spec
from tests.integration.libvirt.moves import arriving, counts, migrate, state, wait_for_count

#: The guest fills memory with it. The script itself has it in two parts, so that nothing else contains it.
MARKER = b"guest-memory-in-plain-text"
FILLS = """
mkdir -p /secret
mount -t tmpfs none /secret
a=guest-memory; b=-in-plain-text
i=0; while [ $i -lt 200 ]; do echo $a$b$a$b$a$b$a$b$a$b$a$b >>/secret/file; i=$((i+1)); done
"""
#: Option of Linux that sets a buffer's size beyond the limit of other users.
SO_RCVBUFFORCE = 33
#: Directory in which the libvirtd of this machine looks for certificates.
OURS = Path("/etc/pki/qemu")
#: File in that directory by which a later run recognizes the certificates of a run that was killed.
MADE_BY_TESTS = OURS / "made-by-tests"
THEIRS = Path(f"/run/nova-lite-hosts/.{hosts.NUMBER}/lib/pki")


class Sniffer:
    """Reads all that crosses the network of the hosts. Fails if the kernel had to drop a frame."""

    #: Bytes of frames that wait to be read: more than the guest's memory, as a migration is faster than the reader.
    BUFFER = 1 << 30
    #: Level and option of Linux that count dropped frames. The module socket does not name them.
    SOL_PACKET, PACKET_STATISTICS = 263, 6

    def __init__(self) -> None:
        self._socket = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(3))
        self._socket.setsockopt(socket.SOL_SOCKET, SO_RCVBUFFORCE, self.BUFFER // 2)  # the kernel doubles it
        self._socket.bind(("nl-hosts", 3))
        self._socket.settimeout(0.2)
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._read, daemon=True)
        self.bytes = self.found = 0

    def __enter__(self) -> Sniffer:
        self._thread.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._stop.set()
        self._thread.join(60)
        assert not self._thread.is_alive(), "frames never ended"
        _, dropped = struct.unpack("II", self._socket.getsockopt(self.SOL_PACKET, self.PACKET_STATISTICS, 8))
        self._socket.close()
        assert error[0] is not None or dropped == 0, f"{dropped} frames were not read"

    def _read(self) -> None:
        while True:
            try:
                frame = self._socket.recv(70000)
            except TimeoutError:
                if self._stop.is_set():
                    return
                continue
            self.bytes += len(frame)
            self.found += MARKER in frame


@pytest.fixture
def certificates(tmp_path: Path) -> Iterator[Authority]:
    """Give both hosts a certificate of one authority."""
    if MADE_BY_TESTS.exists():
        shutil.rmtree(OURS)
    assert not OURS.exists(), "this machine has certificates of its own"
    OURS.mkdir(parents=True)
    MADE_BY_TESTS.touch()
    authority = Authority(str(tmp_path / "authority"))
    authority.create()
    try:
        give(authority, "here", hosts.HERE, OURS)
        give(authority, "there", hosts.THERE, THEIRS)
        yield authority
    finally:
        shutil.rmtree(OURS)
        if not any(OURS.parent.iterdir()):
            OURS.parent.rmdir()


def give(authority: Authority, host: str, address: str, directory: Path) -> None:
    qemu = pwd.getpwnam("libvirt-qemu")
    authority.issue(host, [address], str(directory), 1, (qemu.pw_uid, qemu.pw_gid))


def secret_guest(images: Images) -> SpawnSpec:
    return guest_spec(images, [], config_drive=True, user_data=scripts.user_data(FILLS + scripts.COUNTS))


def test_encrypted_migration_shows_no_memory(make_host: MakeHost, images: Images, certificates: Authority) -> None:
    options = {"live_migration_uri": hosts.URI}
    here = make_host("here", hosts.HERE, live_migration_tls=True, **options)
    there = make_host("there", hosts.THERE, **options)
    spec = secret_guest(images)
    here.guests.spawn(spec)
    wait_for_count(here, spec, 10)
    before = counts(here, spec)[-1][0]
    with Sniffer() as sniffer:
        migrate(here, there, arriving(spec, 2))
        wait_for_count(there, spec, before + 10)
    assert sniffer.bytes > 2**20, "nothing was captured"
    assert sniffer.found == 0
    assert state(here, spec) is None
    here.guests.destroy(spec.instance.uuid)
    with Sniffer() as sniffer, pytest.raises(exceptions.MigrationPreCheckError, match="live_migration_tls is true on"):
        migrate(there, here, arriving(spec, 3))
    assert sniffer.found == 0
    here.conf.set_override("live_migration_tls", False, "libvirt")
    with Sniffer() as sniffer:  # without encryption on its way back
        migrate(there, here, arriving(spec, 3))
    assert sniffer.found > 0, "the test would prove nothing"
    there.guests.destroy(spec.instance.uuid)


#: Names of libvirt's files, by those of qemu's.
LIBVIRT_NAMES = {
    "ca-cert.pem": "cacert.pem",
    **{f"{role}-{kind}.pem": f"{role}{kind}.pem" for role in ("server", "client") for kind in ("cert", "key")},
}


def libvirt_pki(authority: Authority, host: str, address: str, directory: Path) -> Path:
    """Make a host's certificate with the names of files that libvirt expects in one directory."""
    authority.issue(host, [address], str(directory), 1)
    for name, other in LIBVIRT_NAMES.items():
        (directory / name).rename(directory / other)
    return directory


@pytest.fixture
def listening(certificates: Authority, second_host: None, tmp_path: Path) -> Iterator[None]:
    """Start a third host, whose libvirtd listens by TLS."""
    with hosts.third_host(libvirt_pki(certificates, "third", hosts.THIRD, tmp_path / "third")) as run:
        give(certificates, "third", hosts.THIRD, run.parent / "lib/pki")
        yield


def test_libvirtds_reach_each_other_by_tls(
    listening: None, make_host: MakeHost, images: Images, certificates: Authority, tmp_path: Path
) -> None:
    own = libvirt_pki(certificates, "here", hosts.HERE, tmp_path / "here")
    here = make_host(
        "here", hosts.HERE, live_migration_tls=True, live_migration_uri=f"qemu+tls://%s/system?pkipath={own}"
    )
    third = make_host("third", hosts.THIRD)
    spec = secret_guest(images)
    here.guests.spawn(spec)
    wait_for_count(here, spec, 5)
    before = counts(here, spec)[-1][0]
    with Sniffer() as sniffer:
        migrate(here, third, arriving(spec, 2))
        wait_for_count(third, spec, before + 5)
    assert (sniffer.found, state(here, spec)) == (0, None)
    here.guests.destroy(spec.instance.uuid)
    third.guests.destroy(spec.instance.uuid)


def test_libvirtd_refuses_a_certificate_of_another_authority(
    listening: None, certificates: Authority, tmp_path: Path
) -> None:
    own = libvirt_pki(certificates, "here", hosts.HERE, tmp_path / "here")
    other = Authority(str(tmp_path / "other"))
    other.create()
    stranger = libvirt_pki(other, "here", hosts.HERE, tmp_path / "stranger")
    # The stranger trusts both authorities, so that only the other side can refuse.
    with open(stranger / "cacert.pem", "ab") as file:
        file.write((own / "cacert.pem").read_bytes())
    libvirt.open(f"qemu+tls://{hosts.THIRD}/system?pkipath={own}").close()
    with pytest.raises(libvirt.libvirtError):
        libvirt.open(f"qemu+tls://{hosts.THIRD}/system?pkipath={stranger}")


def test_host_with_a_certificate_of_another_authority_gets_no_guest(
    make_host: MakeHost, images: Images, certificates: Authority, tmp_path: Path
) -> None:
    options = {"live_migration_uri": hosts.URI, "live_migration_tls": True}
    here, there = make_host("here", hosts.HERE, **options), make_host("there", hosts.THERE, **options)
    other = Authority(str(tmp_path / "other"))
    other.create()
    give(other, "there", hosts.THERE, THEIRS)
    spec = secret_guest(images)
    here.guests.spawn(spec)
    wait_for_count(here, spec, 5)
    with Sniffer() as sniffer, pytest.raises(exceptions.MigrationFailed):
        migrate(here, there, arriving(spec, 2))
    assert sniffer.found == 0
    assert state(here, spec) == PowerState.RUNNING
    there.guests.destroy(spec.instance.uuid)


def test_destination_listens_at_one_address(make_host: MakeHost, images: Images, certificates: Authority) -> None:
    options = {"live_migration_uri": hosts.URI, "live_migration_bandwidth": 1}
    here = make_host("here", hosts.HERE, live_migration_tls=True, **options)
    there = make_host("there", hosts.THERE, **options)
    spec = secret_guest(images)
    here.guests.spawn(spec)
    wait_for_count(here, spec, 5)
    ready = there.live_moves.prepare(arriving(spec, 2), here.live_moves.check_source(spec.instance.uuid))
    seen: set[str] = set()

    def look(progress: MigrationProgress) -> MigrationControl:
        command = [hosts.SCRIPT, "enter", hosts.NUMBER, "ss", "--no-header", "--listening", "--tcp", "--numeric"]
        lines = subprocess.run(command, capture_output=True, text=True, check=True, timeout=60).stdout.splitlines()
        seen.update(line.split()[3] for line in lines if ":491" in line.split()[3] or ":492" in line.split()[3])
        return MigrationControl.ABORT if seen and progress.memory_processed else MigrationControl.CONTINUE

    with pytest.raises(exceptions.MigrationAborted):
        here.live_moves.migrate(spec.instance.uuid, ready, look)
    assert {place.rpartition(":")[0] for place in seen} == {hosts.THERE}
    there.guests.destroy(spec.instance.uuid)
