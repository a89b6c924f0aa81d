"""Two libvirt hosts on one machine: its own libvirtd, and the libvirtd of `devstack/libvirt-host.sh`.

An SSH daemon lets one host fetch the other's disks.
"""

from __future__ import annotations

import contextlib
import dataclasses
import errno
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from oslo_config import cfg

from nova_lite import conf as configuration
from nova_lite.base.timing import TIMING, LibvirtTiming
from nova_lite.image import local
from nova_lite.virt.libvirt.driver import LibvirtDriver
from tests.support.ports import free_port, is_open
from tests.support.waiting import wait_for

SCRIPT = Path(__file__).parents[3] / "devstack" / "libvirt-host.sh"


def _reserve() -> tuple[int, socket.socket]:
    """Return the number of two hosts that no other process has, and what reserves it until this process ends."""
    for attempt in range(39):
        number = 20 + 2 * ((os.getpid() + attempt) % 39)
        reserved = socket.socket(socket.AF_UNIX)
        try:
            reserved.bind(f"\0nova-lite-test-hosts-{number}")
        except OSError as error:
            reserved.close()
            if error.errno != errno.EADDRINUSE:
                raise
        else:
            return number, reserved
    raise RuntimeError("39 runs of these tests have all numbers of hosts")


_number, _reserved = _reserve()
#: Number of the second host. Concurrent runs of the tests have different ones.
NUMBER = str(_number)
HERE, THERE = "169.254.76.1", f"169.254.76.{NUMBER}"
URI = "qemu+unix:///system?socket=/run/nova-lite-hosts/%s/libvirt-sock"


#: Number of a third host, which sees file systems that were mounted after the others were started.
THIRD_NUMBER = str(_number + 1)
THIRD = f"169.254.76.{THIRD_NUMBER}"


def second_host(
    action: str, number: str = NUMBER, pki: Path | None = None, certificates: Path | None = None
) -> subprocess.CompletedProcess[str]:
    """Run the script. ``pki``: certificates with which the host's libvirtd listens. ``certificates``: qemu's."""
    given = {"HOST_PKI": pki, "HOST_CERTIFICATES": certificates}
    env = os.environ | {name: str(path) for name, path in given.items() if path is not None}
    return subprocess.run([SCRIPT, action, number], capture_output=True, text=True, timeout=180, check=False, env=env)


@contextlib.contextmanager
def third_host(pki: Path | None = None, certificates: Path | None = None) -> Iterator[Path]:
    """Start a third host, and yield its directory with the files that others have in /run/libvirt."""
    started = second_host("start", THIRD_NUMBER, pki, certificates)
    assert started.returncode == 0, started.stderr
    try:
        yield Path(f"/run/nova-lite-hosts/.{THIRD_NUMBER}/run")
    finally:
        assert second_host("stop", THIRD_NUMBER).returncode == 0


def make_driver(
    path: Path, name: str, address: str, timing: LibvirtTiming = TIMING.libvirt, **options: Any
) -> LibvirtDriver:
    """Return a compute host's driver with the state directory ``path``, on the libvirtd of ``address``.

    ``options``: of the group libvirt, or of another one, as in ``compute__cpu_dedicated_set``.
    """
    conf = cfg.ConfigOpts()
    configuration.register_opts(conf)
    conf([], default_config_files=[])
    path.mkdir(mode=0o755, exist_ok=True)
    conf.set_override("state_path", str(path))
    conf.set_override("connection_uri", URI % address, "libvirt")
    conf.set_override("live_migration_inbound_addr", address, "libvirt")
    for option, value in options.items():
        group, _, plain = option.rpartition("__")
        conf.set_override(plain, value, group or "libvirt")
    driver = LibvirtDriver(conf, name, lambda image, target: local.copy(image, image.name, target), timing)
    driver.init_host()
    return driver


@dataclasses.dataclass
class SshDaemon:
    """An SSH daemon on loopback. The owner of ``key`` may read what is offered in ``directory``, and nothing else."""

    port: int
    key: Path
    known_hosts: Path
    process: subprocess.Popen[bytes]

    @property
    def options(self) -> dict[str, Any]:
        return {
            "migration_ssh_port": self.port,
            "migration_ssh_key": str(self.key),
            "migration_ssh_known_hosts": str(self.known_hosts),
        }


@contextlib.contextmanager
def ssh_daemon(path: Path, directory: Path, address: str = "127.0.0.1") -> Iterator[SshDaemon]:
    path.mkdir(mode=0o700)
    os.makedirs("/run/sshd", exist_ok=True)
    for name in ("host_key", "key"):
        command = ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(path / name)]
        subprocess.run(command, check=True, timeout=30)
    port = free_port()
    allowed = (path / "key.pub").read_text()
    gate = f"PYTHONPATH={SCRIPT.parents[1]} {sys.executable} -m nova_lite.cmd.send_disks {directory}"
    (path / "authorized_keys").write_text(f'restrict,command="{gate}" {allowed}')
    (path / "known_hosts").write_text(f"[{address}]:{port} {(path / 'host_key.pub').read_text()}")
    (path / "sshd_config").write_text(
        f"ListenAddress 127.0.0.1\nPort {port}\nHostKey {path}/host_key\nAuthorizedKeysFile {path}/authorized_keys\n"
        "AcceptEnv LC_*\n"
        f"PidFile none\nUsePAM no\nStrictModes no\nPasswordAuthentication no\nPermitRootLogin prohibit-password\n"
    )
    process = subprocess.Popen(
        ["/usr/sbin/sshd", "-D", "-E", str(path / "log"), "-f", str(path / "sshd_config")], stdin=subprocess.DEVNULL
    )
    try:
        wait_for("sshd answers", lambda: is_open(port), 20)
        yield SshDaemon(port, path / "key", path / "known_hosts", process)
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait(10)
