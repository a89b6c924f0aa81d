"""A guest that lets a user log in with the server's key pair: the test guest, and this machine's OpenSSH beside it."""

from __future__ import annotations

import gzip
import re
import shutil
import subprocess
from pathlib import Path

SSHD = "/usr/sbin/sshd"
#: Byte at which the guest's partition begins (devstack/guest/build.sh).
_PARTITION = 2048 * 512

_INIT = """#!/bin/sh
/bin/mount -t devtmpfs dev /dev
/bin/sh /ssh-server &
exec /init.guest
"""
_SERVER = """#!/bin/sh
export PATH=/bin
until [ -s /config/openstack/latest/meta_data.json ] || [ -s /run/meta_data.json ]; do sleep 1; done
mkdir -p /root/.ssh /run/sshd
cat /config/openstack/latest/meta_data.json /run/meta_data.json 2>/dev/null |
    grep -o 'ssh-[a-z0-9]* [A-Za-z0-9+/=]*' >/root/.ssh/authorized_keys
exec /usr/sbin/sshd -D -e -f /etc/ssh/sshd_config >/dev/ttyS0 2>&1
"""
_CONFIG = """HostKey /etc/ssh/host_key
AuthorizedKeysFile /root/.ssh/authorized_keys
UsePAM no
StrictModes no
PidFile none
"""
#: Users of the guest. Both are root, since it has no files of others.
_USERS = "root:x:0:0::/root:/bin/sh\ndebian:x:0:0::/root:/bin/sh\nsshd:x:100:100::/run/sshd:/bin/false\n"


def build(guest: Path, directory: Path) -> Path:
    """Return a bootable disk. ``guest``: directory of the test guest's files."""
    root = directory / "root"
    for name in ("etc/ssh", "root", "run"):
        (root / name).mkdir(parents=True)
    for path in [SSHD, *_libraries(SSHD)]:
        target = root / path.lstrip("/")
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(path, target)
    for name, text in (("etc/ssh/sshd_config", _CONFIG), ("etc/passwd", _USERS), ("ssh-server", _SERVER)):
        (root / name).write_text(text)
    _run("ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(root / "etc/ssh/host_key"))
    (root / "init").write_text(_INIT)
    (root / "init").chmod(0o755)
    initrd = (guest / "initrd.img").read_bytes()
    subprocess.run(["cpio", "--quiet", "-i", "init"], input=initrd, cwd=directory, check=True, timeout=60)
    (directory / "init").rename(root / "init.guest")
    names = "\n".join(sorted(str(path.relative_to(root)) for path in root.rglob("*")))
    command = ["cpio", "--quiet", "-o", "-H", "newc", "-R", "0:0"]
    added = subprocess.run(command, input=names.encode(), cwd=root, capture_output=True, check=True, timeout=60).stdout
    # The kernel takes several archives after each other, and what is in a later one replaces the earlier.
    whole = directory / "initrd.img"
    whole.write_bytes(initrd + bytes(-len(initrd) % 512) + gzip.compress(added))
    raw, disk = directory / "disk.raw", directory / "disk.qcow2"
    _run("qemu-img", "convert", "-O", "raw", str(guest / "disk.qcow2"), str(raw))
    _run("mcopy", "-o", "-i", f"{raw}@@{_PARTITION}", str(whole), "::/initrd.img")
    _run("qemu-img", "convert", "-O", "qcow2", str(raw), str(disk))
    return disk


def _libraries(program: str) -> list[str]:
    """Return the shared libraries of a program, and its loader."""
    listed = subprocess.run(["ldd", program], capture_output=True, text=True, check=True, timeout=60).stdout
    return re.findall(r"(/\S+) \(0x", listed)


def _run(*command: str) -> None:
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=120)
    assert done.returncode == 0, f"{' '.join(command)}: {done.stdout}{done.stderr}"
