"""libvirt of a compute host: TLS for consoles and for moves between hosts, with the certificates of the cloud.

libvirtd reads its certificates at fixed places. Links lead from there to the host's, so that a renewal of these is one.
"""

from __future__ import annotations

import time
from pathlib import Path

from nova_lite.base import exceptions, host_certificates, ip
from nova_lite.base.host_certificates import (
    CA_CERTIFICATE,
    CLIENT_CERTIFICATE,
    CLIENT_KEY,
    CONSOLES,
    SERVER_CERTIFICATE,
    SERVER_KEY,
)
from nova_lite.cmd.setup import machine
from nova_lite.cmd.setup.admission import CERTIFICATES, MEMORY

QEMU = Path("/etc/libvirt/qemu.conf")
#: Settings of libvirt's own networks, in which older versions wrote lines.
NETWORK = Path("/etc/libvirt/network.conf")
MARKS = ("# >>> nova-lite-setup", "# <<< nova-lite-setup")
PKI = Path("/etc/pki")
#: Places at which libvirtd looks for its files, below `PKI`, with the names of the host's.
LINKS = {
    "CA/cacert.pem": CA_CERTIFICATE,
    "libvirt/servercert.pem": SERVER_CERTIFICATE,
    "libvirt/clientcert.pem": CLIENT_CERTIFICATE,
    "libvirt/private/serverkey.pem": SERVER_KEY,
    "libvirt/private/clientkey.pem": CLIENT_KEY,
}
_DIRECTORIES = ("libvirt/private", "libvirt", "CA")
TLS_SOCKET = "libvirtd-tls.socket"
SOCKET_SETTINGS = machine.UNITS / f"{TLS_SOCKET}.d" / "nova-lite.conf"
#: Units that can start libvirtd, which must not run when a further socket of it starts.
_STARTERS = ("libvirtd.socket", "libvirtd-ro.socket", "libvirtd-admin.socket")
PORT = 16514
#: Seconds that libvirt may take to start.
_SECONDS = 60


def check() -> None:
    """Raise `ConfigurationError` if libvirtd has certificates of an operator, which this program must not replace."""
    for place in LINKS:
        path = PKI / place
        if (path.exists() or path.is_symlink()) and not _is_ours(path):
            raise exceptions.ConfigurationError(reason=f"{path} is another certificate or key: move it away.")


def _is_ours(path: Path) -> bool:
    return path.is_symlink() and path.readlink().parent == CERTIFICATES


def set_up(address: str, has_console_tls: bool) -> str:
    """Start libvirtd, which listens for other hosts at ``address``. Returns its version."""
    changed = has_console_tls and write_settings(QEMU, _console_lines())
    machine.run("systemctl", "enable", "--now", "virtlogd.socket")
    if _write_tls(address) or not machine.succeeds("systemctl", "is-active", "--quiet", TLS_SOCKET):
        machine.run("systemctl", "daemon-reload")
        machine.run("systemctl", "stop", "libvirtd.service", *_STARTERS, TLS_SOCKET)
        machine.run("systemctl", "enable", "--now", TLS_SOCKET)
        changed = True
    machine.run("systemctl", "enable", "--now", *_STARTERS)
    if changed:
        machine.run("systemctl", "restart", "libvirtd")
    return _wait_for_libvirtd() + (", TLS for moves and consoles" if has_console_tls else ", TLS for moves")


def _write_tls(address: str) -> bool:
    """Write links and the socket's address. Returns whether anything changed."""
    changed = False
    for place, name in LINKS.items():
        path = PKI / place
        path.parent.mkdir(mode=0o755, parents=True, exist_ok=True)
        if not path.is_symlink():
            path.symlink_to(CERTIFICATES / name)
            changed = True
    shown = f"[{address}]" if ip.parse(address).version == 6 else address
    # The address may come later than the socket when the machine starts.
    text = f"# Written by nova-lite-setup.\n[Socket]\nListenStream=\nListenStream={shown}:{PORT}\nFreeBind=yes\n"
    return machine.replace(SOCKET_SETTINGS, text) or changed


def _wait_for_libvirtd() -> str:
    deadline = time.monotonic() + _SECONDS
    while True:
        try:
            said = machine.run("virsh", "--connect", "qemu:///system", "version", "--daemon")
            return said.strip().splitlines()[-1].strip()
        except exceptions.ConfigurationError:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.5)


def reload_certificates() -> None:
    """Let a running libvirtd read renewed certificates. qemu reads them for each connection."""
    if SOCKET_SETTINGS.exists() and machine.succeeds("systemctl", "is-active", "--quiet", "libvirtd"):
        machine.run("virt-admin", "--connect", "libvirtd:///system", "server-update-tls", "libvirtd")


def _console_lines() -> list[str]:
    directory = CERTIFICATES / CONSOLES
    return [
        "vnc_tls = 1",
        "vnc_tls_x509_verify = 1",
        f'vnc_tls_x509_cert_dir = "{directory}"',
        "spice_tls = 1",
        f'spice_tls_x509_cert_dir = "{directory}"',
        "chardev_tls_x509_verify = 1",
        f'chardev_tls_x509_cert_dir = "{directory}"',
    ]


def write_settings(path: Path, lines: list[str]) -> bool:
    """Write our lines at the end of a file. Of a setting that an operator made before, libvirt takes theirs."""
    first, last = MARKS
    return machine.replace(path, "\n".join([*_other_lines(path), first, *lines, last, ""]), mode=0o600)


def _other_lines(path: Path) -> list[str]:
    """Return the lines of a file that are not ours."""
    first, last = MARKS
    kept, inside = [], False
    for line in path.read_text().splitlines() if path.exists() else []:
        inside = inside or line == first
        if not inside:
            kept.append(line)
        inside = inside and line != last
    return kept


def purge() -> None:
    """Remove the certificates, libvirtd's links and port for other hosts, and our lines in its settings."""
    for place in LINKS:
        if _is_ours(PKI / place):
            (PKI / place).unlink()
    if MEMORY.exists():
        for name in (*host_certificates.HOST_FILES, SERVER_KEY, CLIENT_KEY, f"{CONSOLES}/{SERVER_KEY}"):
            (CERTIFICATES / name).unlink(missing_ok=True)
    for directory in (CERTIFICATES / CONSOLES, CERTIFICATES, *(PKI / name for name in _DIRECTORIES)):
        if directory.is_dir() and not any(directory.iterdir()):
            directory.rmdir()
    changed = False
    for path in (QEMU, NETWORK):
        if path.exists() and MARKS[0] in path.read_text().splitlines():
            changed |= machine.replace(path, "\n".join([*_other_lines(path), ""]), mode=0o600)
    if SOCKET_SETTINGS.exists():
        machine.run("systemctl", "disable", "--now", TLS_SOCKET)
        SOCKET_SETTINGS.unlink()
        SOCKET_SETTINGS.parent.rmdir()
        machine.run("systemctl", "daemon-reload")
        changed = True
    if changed and machine.succeeds("systemctl", "is-active", "--quiet", "libvirtd"):
        machine.run("systemctl", "restart", "libvirtd")
