"""A libvirtd of a test's own, with its own settings and emulator. Only its socket reaches it."""

from __future__ import annotations

import contextlib
import dataclasses
import os
import shutil
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.integration.libvirt.conftest import PATIENCE
from tests.support.waiting import wait_for

EMULATOR = "/usr/bin/qemu-system-x86_64"
#: The place of the real emulator if another one stands in for it. It finds its modules only in its own directory.
REAL_EMULATOR = "/usr/bin/qemu-nbd"

#: Runs libvirtd with directories of its own: $1 is the test's. A file "emulator" there stands in for qemu.
_SERVE = f"""
for directory in /run/libvirt /var/lib/libvirt /var/cache/libvirt /etc/libvirt; do
    mkdir -p $directory && mount -t tmpfs -o mode=755 none $directory || exit 1
done
mkdir -p /etc/libvirt/qemu /var/lib/libvirt/qemu
cp "$1/qemu.conf" /etc/libvirt/qemu.conf
if [ -e "$1/emulator" ]; then
    mount --bind {EMULATOR} {REAL_EMULATOR} && mount --bind "$1/emulator" {EMULATOR} || exit 1
fi
exec libvirtd --config "$1/libvirtd.conf" --pid-file "$1/pid" >"$1/log" 2>&1
"""
#: Guests run without what needs this machine's other daemons and cgroups.
_QEMU = """
stdio_handler = "file"
security_driver = "none"
namespaces = []
cgroup_controllers = []
user = "root"
group = "root"
"""
#: Ports of screens. Other libvirtds of this machine choose theirs from 5900 on, and know nothing of these.
_FIRST_PORT = 10000 + os.getpid() % 200 * 100
_QEMU += f"remote_display_port_min = {_FIRST_PORT}\nremote_display_port_max = {_FIRST_PORT + 99}\n"


@dataclasses.dataclass
class PrivateLibvirtd:
    uri: str
    directory: Path
    process: subprocess.Popen[bytes]


@contextlib.contextmanager
def private_libvirtd(directory: Path, settings: str = "", emulator: str | None = None) -> Iterator[PrivateLibvirtd]:
    """Run a libvirtd. ``settings``: lines of libvirtd.conf. ``emulator``: a script in place of qemu."""
    if shutil.which("libvirtd") is None or os.geteuid() != 0:
        pytest.skip("libvirtd is not installed, or not ours to start")
    (directory / "libvirtd.conf").write_text(f'unix_sock_dir = "{directory}"\nauth_unix_rw = "none"\n{settings}')
    (directory / "qemu.conf").write_text(_QEMU)
    if emulator is not None:
        (directory / "emulator").write_text(emulator)
        (directory / "emulator").chmod(0o755)
    process = subprocess.Popen(["unshare", "--mount", "sh", "-c", _SERVE, "sh", str(directory)])
    try:
        socket = directory / "libvirt-sock"
        wait_for("socket", lambda: socket.exists() or process.poll() is not None, PATIENCE)
        assert process.poll() is None, (directory / "log").read_text()
        yield PrivateLibvirtd(f"qemu:///system?socket={socket}", directory, process)
    finally:
        process.send_signal(signal.SIGCONT)
        process.terminate()
        process.wait(30)
