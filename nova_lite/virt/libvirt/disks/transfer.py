"""Transfer of an instance's files from one host to another.

The source offers files with their sizes and checksums. The destination copies them if it can see the source's
directory; a marker file that the source has just written proves that. Otherwise it fetches them by rsync, and resumes a
killed fetch: over TLS with the hosts' certificates (`tls_pipe`, `disk_server`) if both hosts have them and no SSH key
is set, or over SSH. The source binds the key `[libvirt] migration_ssh_key` to ``nova-lite-send-disks``, which reads
what the token of this move opens (`offers`), so remote paths are relative to the source's instances directory.

The other side is not trusted. Files must have known names, be plain files in the instance's own directory, and match
the offered checksums.
"""

from __future__ import annotations

import hashlib
import logging
import os
import re
import secrets
import shlex
import stat
import subprocess
import sys
import time
from collections.abc import Sequence

from oslo_config import cfg

from nova_lite.base import disk_room, exceptions, files, key_files
from nova_lite.base.timing import TIMING, LibvirtTiming
from nova_lite.objects import DiskFile, DiskSource
from nova_lite.virt.libvirt import records
from nova_lite.virt.libvirt.disks import disk_server, disks, offers, point_files, tpm_states

LOG = logging.getLogger(__name__)

DRIVER = "libvirt"
MARKER = ".offered"

#: Files of an instance's directory that may be transferred.
TRAVELLING = (*disks.ROOTS, *disks.EPHEMERALS, disks.SWAP, disks.CONFIG_DRIVE, disks.NVRAM, *tpm_states.NAMES)

_ADDRESS = re.compile(r"[A-Za-z0-9\[][A-Za-z0-9.:_\]-]{0,252}")
_PLAIN_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,120}")
_CHUNK = 1024**2

#: Attempts on a broken connection. Each one resumes the previous one.
ATTEMPTS = 3
#: Exit codes of rsync: error of a socket, of the protocol's stream, a timeout, or an error of ssh.
_BROKEN = (10, 12, 30, 35, 255)


def check_keys(conf: cfg.ConfigOpts) -> None:
    """Raise `ConfigurationError` if others can replace or read the SSH key of moves, or replace the known hosts."""
    options = conf.libvirt
    if options.migration_ssh_key:
        key_files.check(options.migration_ssh_key, "[libvirt] migration_ssh_key", hidden_from=0o077, chmod="0600")
    if options.migration_ssh_known_hosts:
        key_files.check(options.migration_ssh_known_hosts, "[libvirt] migration_ssh_known_hosts")


def withdraw(directory: str) -> None:
    """End the offer of an instance's files, if there is one."""
    files.remove(os.path.join(directory, offers.OFFER))


def offer(
    conf: cfg.ConfigOpts, directory: str, names: Sequence[str] | None = None, images: list[str] | None = None
) -> DiskSource:
    """Return the files that one other host may fetch from here now: the guest is off, or the files are read-only.

    ``names``: None: all that travel. ``images``: ids of cached images that it may fetch, too.
    A new offer ends the last one.
    """
    if names is None:
        names = [*TRAVELLING, *sorted(filter(point_files.travels, os.listdir(directory)))]
    offered = [_describe(directory, name) for name in names if os.path.exists(os.path.join(directory, name))]
    files.write_atomically(os.path.join(directory, MARKER), secrets.token_hex(16).encode(), durable=False)
    token, content = offers.make(directory, [file.name for file in offered], images or [])
    files.write_atomically(os.path.join(directory, offers.OFFER), content, mode=0o600)
    return DiskSource(
        driver=DRIVER,
        host=conf.libvirt.live_migration_inbound_addr or conf.my_ip,
        location=directory,
        files=[*offered, _describe(directory, MARKER)],
        token=token,
        port=disk_server.port_of(conf),
    )


def _describe(directory: str, name: str) -> DiskFile:
    path = os.path.join(directory, name)
    return DiskFile(name=name, size=os.path.getsize(path), checksum=checksum(path))


def checksum(path: str) -> str:
    """Return the SHA-256 checksum of a file."""
    digest = hashlib.sha256()
    with open(path, "rb", buffering=0) as file:
        while block := file.read(_CHUNK):
            digest.update(block)
    return digest.hexdigest()


class Fetcher:
    """Fetches what ``source`` offers for one instance into ``directory``. Runs at the destination."""

    def __init__(
        self,
        conf: cfg.ConfigOpts,
        source: DiskSource,
        instance_uuid: str,
        directory: str,
        timing: LibvirtTiming = TIMING.libvirt,
    ) -> None:
        self._conf = conf.libvirt
        self._room = disk_room.of_host(conf)
        self._timing = timing
        self._source = source
        self._directory = directory
        name = os.path.basename(source.location)
        if source.driver != DRIVER:
            raise exceptions.VirtDriverError(reason=f"disks of driver {source.driver} cannot be used here")
        if not _ADDRESS.fullmatch(source.host) or records.uuid_of(name) != instance_uuid:
            raise exceptions.VirtDriverError(reason=f"{source.host}:{source.location} is not a directory of disks")
        self._name = name
        self._is_local = self._sees_source()

    def _sees_source(self) -> bool:
        """Check whether the source's directory is visible on this machine: it contains the offered marker."""
        offered = next((file for file in self._source.files if file.name == MARKER), None)
        path = os.path.join(self._source.location, MARKER)
        if offered is None or not os.path.isabs(self._source.location) or os.path.islink(path):
            return False
        try:
            return os.path.getsize(path) == offered.size and checksum(path) == offered.checksum
        except OSError:
            return False

    def fetch(self) -> None:
        """Fetch every offered file. Raises `VirtDriverError`, also if the files do not fit."""
        offered = [file for file in self._source.files if file.name != MARKER]
        for file in offered:
            if file.name not in TRAVELLING and not point_files.travels(file.name):
                raise exceptions.VirtDriverError(reason=f"{file.name!r} is not a file of an instance")
        self._check_room(offered)
        for file in offered:
            path = os.path.join(self._directory, file.name)
            self._fetch_file(os.path.join(self._name, file.name), path)
            _verify(path, file)

    def fetch_base(self, image_id: str, path: str) -> None:
        """Fetch the source's cached image, if the image service does not have it any more."""
        if not _PLAIN_NAME.fullmatch(image_id):
            raise exceptions.ImageUnacceptable(image_id=image_id, reason="its id is not a plain name")
        self._fetch_file(os.path.join(records.BASE, image_id), path)

    def _check_room(self, offered: list[DiskFile]) -> None:
        """Check the free space. Sparse files need less than their size, so only an obvious lack of space is an
        error."""
        largest = max((file.size for file in offered if file.name == disks.ROOT), default=0)
        have = os.path.join(self._directory, disks.ROOT)
        missing = largest - (os.path.getsize(have) if os.path.exists(have) else 0)
        if missing > 0:
            self._room.require(self._directory, missing, "its disks")

    def _fetch_file(self, remote: str, path: str) -> None:
        """Fetch one file. ``remote``: a path relative to the source's instances directory."""
        with open(path, "ab", opener=files.private_opener):
            pass
        if self._is_local:
            _copy(os.path.join(os.path.dirname(self._source.location), remote), path)
        else:
            self._fetch_remote(remote, path)

    def _fetch_remote(self, remote: str, path: str) -> None:
        environment = None
        if self._source.token:  # otherwise the source is older
            environment = os.environ | {offers.VARIABLE: offers.value_of(self._source.location, self._source.token)}
        host = f"[{self._source.host}]" if ":" in self._source.host.strip("[]") else self._source.host
        place = f"{host.replace('[[', '[').replace(']]', ']')}:{remote}"
        shell = self._tls()
        if not shell:
            shell, place = self._ssh(), f"{self._conf.migration_ssh_user}@{place}"
        command = ["rsync", "--partial", "--inplace", "--sparse", f"--timeout={self._timing.transfer_silence}"]
        command += ["--rsh", shlex.join(shell), "--", place, path]
        for attempt in range(1, ATTEMPTS + 1):
            status, message = _run(command, environment=environment)
            if status == 0:
                return
            LOG.warning("Fetching %s from %s failed: %s", remote, self._source.host, message)
            if status not in _BROKEN or attempt == ATTEMPTS:
                raise exceptions.VirtDriverError(reason=f"{remote} of {self._source.host}: {message}")
            time.sleep(self._timing.transfer_pause)

    def _tls(self) -> list[str]:
        """Return the command that connects by TLS. Empty: the source has no port for it, or SSH is set up."""
        if not self._source.port or not self._conf.live_migration_tls or self._conf.migration_ssh_key:
            return []
        directory, port = self._conf.certificates_directory, str(self._source.port)
        return [sys.executable, "-m", "nova_lite.cmd.fetch_disks", directory, port]

    def _ssh(self) -> list[str]:
        """Return the ssh command: without any prompt, and only to known hosts."""
        options = {
            "BatchMode": "yes",
            "StrictHostKeyChecking": "yes",
            "ConnectTimeout": "10",
            "ServerAliveInterval": "10",
            "Port": str(self._conf.migration_ssh_port),
            "SendEnv": offers.VARIABLE,
        }
        if self._conf.migration_ssh_known_hosts:
            options["UserKnownHostsFile"] = self._conf.migration_ssh_known_hosts
        key = self._conf.migration_ssh_key
        identity = ["-i", key, "-o", "IdentitiesOnly=yes"] if key else []
        return ["ssh", *identity, *(word for name, value in options.items() for word in ("-o", f"{name}={value}"))]


def _copy(origin: str, path: str) -> None:
    """Copy a plain file of this machine, as a reflink if the file system supports it."""
    try:
        descriptor = os.open(origin, os.O_RDONLY | os.O_NOFOLLOW)
    except OSError as error:
        raise exceptions.VirtDriverError(reason=f"{origin}: {error.strerror}") from error
    try:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            raise exceptions.VirtDriverError(reason=f"{origin} is not a plain file")
        command = ["cp", "--reflink=auto", "--sparse=always", "--", f"/dev/fd/{descriptor}", path]
        status, message = _run(command, descriptor)
        if status != 0:
            raise exceptions.VirtDriverError(reason=message)
    finally:
        os.close(descriptor)


def _run(command: list[str], *descriptors: int, environment: dict[str, str] | None = None) -> tuple[int, str]:
    """Run a command. Return its exit status and the last line of its errors."""
    try:
        done = subprocess.run(
            command,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            check=False,
            pass_fds=descriptors,
            errors="replace",
            env=environment,
        )
    except OSError as error:
        raise exceptions.VirtDriverError(reason=f"{command[0]} cannot be run: {error.strerror}") from error
    lines = [line for line in done.stderr.strip().splitlines() if line]
    message = next((line for line in lines if "No space left" in line), lines[0] if lines else "")
    return done.returncode, message or f"{command[0]} ended with status {done.returncode}"


def _verify(path: str, file: DiskFile) -> None:
    """Raise `VirtDriverError` unless the file matches the offer. A wrong file is removed, so that it is not resumed."""
    found = os.lstat(path)
    if stat.S_ISREG(found.st_mode) and found.st_size == file.size and checksum(path) == file.checksum:
        return
    files.remove(path)
    raise exceptions.VirtDriverError(reason=f"{file.name} does not match the offer of its host")
