"""Command ``backup``: write the database, the configuration and the broker's accounts into one file, and restore them.

A backup is a tar archive: ``database/TABLE.jsonl`` (`nova_lite.db.upkeep.dump`), ``files/PATH``, ``broker.json``, and
at its end ``manifest.json`` with the SHA-256 of each. An archive without a manifest is incomplete and is refused.
"""

from __future__ import annotations

import argparse
import contextlib
import datetime
import grp
import hashlib
import io
import json
import os
import pwd
import shutil
import subprocess
import sys
import tarfile
import tempfile
import time
from collections.abc import Iterable, Iterator
from typing import IO, Any

from nova_lite.base import exceptions, files, version
from nova_lite.cmd.manage import programs
from nova_lite.cmd.manage.app import App, Commands
from nova_lite.db.hosts import leases, services
from nova_lite.db.migrations import schema
from nova_lite.db.upkeep import dump

FORMAT = 1
MANIFEST = "manifest.json"
BROKER = "broker.json"

#: Directory that is in every backup.
CONFIGURATION = "/etc/nova-lite"

#: Seconds that a program of the broker may take.
_BROKER_SECONDS = 120
#: Files beyond this size are not configuration.
_MAX_FILE = 64 * 1024 * 1024


def register(commands: Commands) -> None:
    noun = commands.noun("backup", "Back up and restore what this machine keeps of the cloud, except images and disks.")
    create_ = commands.verb(
        noun,
        "create",
        "Write the database as of one moment, the configuration with keys and certificates, and the broker's accounts "
        "into a file of mode 0600. The daemons may run meanwhile.",
        create,
    )
    create_.add_argument("file", metavar="FILE", help="it must not exist yet")
    create_.add_argument(
        "--include",
        action="append",
        default=[],
        metavar="PATH",
        help=f"a further file or directory; may be repeated. {CONFIGURATION} is always included, if it exists",
    )
    create_.add_argument(
        "--passphrase-file", metavar="FILE", help="encrypt with gpg and the passphrase in this file's first line"
    )
    check_ = commands.verb(noun, "check", "Verify that a backup is complete, and list its content.", check)
    restore_ = commands.verb(
        noun,
        "restore",
        "Restore a backup on a machine whose daemons are stopped: its files, the broker's accounts, and the database, "
        "which has to be empty.",
        restore,
    )
    restore_.add_argument(
        "--only",
        action="append",
        choices=["database", "files", "broker"],
        help="restore only this part; may be repeated",
    )
    restore_.add_argument("--overwrite", action="store_true", help="delete the rows of the database first")
    restore_.add_argument("--root", default="/", metavar="DIRECTORY", help="restore files below it; default: /")
    for verb in (check_, restore_):
        verb.add_argument("file", metavar="FILE")
        verb.add_argument("--passphrase-file", metavar="FILE", help="file with the passphrase of the backup")


# --- create


class _Writer:
    """The archive that is written, with the manifest of what is in it."""

    def __init__(self, archive: tarfile.TarFile, directory: str) -> None:
        self._archive = archive
        self._directory = directory
        self.parts: dict[str, dict[str, Any]] = {}

    def add_lines(self, name: str, lines: Iterable[str]) -> int:
        """Add a file of lines, which need not fit into memory. Returns their number."""
        digest, count = hashlib.sha256(), 0
        with tempfile.TemporaryFile(dir=self._directory) as file:
            for line in lines:
                data = line.encode() + b"\n"
                digest.update(data)
                file.write(data)
                count += 1
            size = file.tell()
            file.seek(0)
            self._add(name, file, size, digest.hexdigest())
        return count

    def add_bytes(self, name: str, data: bytes, **described: Any) -> None:
        self._add(name, io.BytesIO(data), len(data), hashlib.sha256(data).hexdigest(), **described)

    def _add(self, name: str, file: IO[bytes], size: int, digest: str, **described: Any) -> None:
        info = tarfile.TarInfo(name)
        info.size, info.mode, info.mtime = size, 0o600, int(time.time())
        self._archive.addfile(info, file)
        self.parts[name] = {"sha256": digest, **described}


def create(app: App, args: argparse.Namespace) -> None:
    """Write a backup beside its final name first, so that a file of this name is complete."""
    schema.check(app.conf)
    if os.path.lexists(args.file):
        raise exceptions.ConfigurationError(reason=f"{args.file} exists already; name a new file.")
    directory = os.path.dirname(os.path.abspath(args.file))
    if not os.path.isdir(directory):
        raise exceptions.ConfigurationError(reason=f"{directory} is not a directory; make it first.")
    with tempfile.TemporaryDirectory(prefix=".nova-lite-backup-", dir=directory) as work:
        plain = os.path.join(work, "backup.tar.gz")
        with open(plain, "xb", opener=files.private_opener) as file, tarfile.open(fileobj=file, mode="w:gz") as archive:
            _fill(app, args, _Writer(archive, work), archive)
        if args.passphrase_file:
            encrypted = f"{plain}.gpg"
            _gpg(args.passphrase_file, "--symmetric", "--cipher-algo", "AES256", "--output", encrypted, plain)
            plain = encrypted
        with open(plain, "rb") as written:
            os.fsync(written.fileno())
        os.link(plain, args.file)  # Unlike a rename, it never replaces a file.
        files.sync_directory(directory)
    app.say(f"{args.file} has been written.")


def _fill(app: App, args: argparse.Namespace, writer: _Writer, archive: tarfile.TarFile) -> None:
    rows = {}
    with dump.snapshot(app.conf) as connection:
        for table in dump.tables():
            rows[table.name] = writer.add_lines(f"database/{table.name}.jsonl", dump.lines(connection, table)) - 1
        counters = dump.counters(connection)
    app.say(f"Database: {sum(rows.values())} rows in {len(rows)} tables.")
    own = [CONFIGURATION] if os.path.isdir(CONFIGURATION) else []
    for path in _files([*own, *args.include]):
        _add_file(writer, path)
    app.say(f"Files: {sum(name.startswith('files/') for name in writer.parts)}.")
    accounts = _broker_definitions(app)
    if accounts is not None:
        writer.add_bytes(BROKER, json.dumps(accounts).encode())
        app.say(f"Broker: {len(accounts['users'])} accounts.")
    manifest = {
        "format": FORMAT,
        "schema": schema.head(),
        "program": version.VERSION,
        "written_at": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        "host": app.conf.host,
        "rows": rows,
        "counters": counters,
        "parts": writer.parts,
    }
    data = json.dumps(manifest, indent=1).encode()
    info = tarfile.TarInfo(MANIFEST)
    info.size, info.mode = len(data), 0o600
    archive.addfile(info, io.BytesIO(data))


def _files(included: list[str]) -> Iterator[str]:
    for path in dict.fromkeys(os.path.abspath(path) for path in included):
        if os.path.isdir(path):
            yield from _files_below(path, frozenset())
        elif os.path.exists(path):
            yield path
        else:
            raise exceptions.ConfigurationError(reason=f"{path} does not exist.")


def _files_below(path: str, around: frozenset[str]) -> Iterator[str]:
    """Yield the files below a directory, also those of linked directories. ``around``: the directories above it."""
    here = os.path.realpath(path)
    if here in around:
        return  # a link to a directory that contains it
    for entry in sorted(os.scandir(path), key=lambda item: item.name):
        if entry.is_dir():
            yield from _files_below(entry.path, around | {here})
        elif not entry.name.startswith(files.TEMPORARY):  # another process is writing that
            yield entry.path


def _add_file(writer: _Writer, path: str) -> None:
    """Add a file with its mode and the names of its owner. A link becomes the file that it names."""
    if not os.path.isfile(path):
        raise exceptions.ConfigurationError(reason=f"{path} is no file: it is a broken link, a socket or the like.")
    with open(path, "rb") as file:
        status = os.fstat(file.fileno())
        if status.st_size > _MAX_FILE:
            raise exceptions.ConfigurationError(reason=f"{path} has more than {_MAX_FILE >> 20} MiB.")
        data = file.read()
    writer.add_bytes(
        f"files{path}",
        data,
        mode=status.st_mode & 0o777,
        user=_name(pwd.getpwuid, status.st_uid),
        group=_name(grp.getgrgid, status.st_gid),
    )


def _name(look_up: Any, number: int) -> str:
    """Return the name of a user or group. Numbers differ between machines; one without a name becomes root."""
    try:
        return str(look_up(number)[0])
    except KeyError:
        return "root"


# --- the broker's accounts


def _broker_definitions(app: App) -> dict[str, Any] | None:
    """Return the accounts of our virtual host, or None if this machine's broker is not the cloud's or is not ours."""
    if shutil.which("rabbitmqctl") is None or os.geteuid() != 0:
        app.say("Broker: not included; run this as root on the broker's machine to include its accounts.")
        return None
    try:
        found = json.loads(programs.run("rabbitmqctl", "--quiet", "export_definitions", "-", seconds=_BROKER_SECONDS))
    except exceptions.ConfigurationError as error:
        app.say(f"Broker: not included; {error.message}")
        return None
    return _of_vhost(found, _vhost(app))


def _of_vhost(found: dict[str, Any], vhost: str) -> dict[str, Any]:
    """Return the part of a broker's definitions that concerns one virtual host, without queues: daemons make them."""
    permissions = [entry for entry in found.get("permissions", []) if entry["vhost"] == vhost]
    names = {entry["user"] for entry in permissions}
    return {
        "vhosts": [entry for entry in found.get("vhosts", []) if entry["name"] == vhost],
        "users": [entry for entry in found.get("users", []) if entry["name"] in names],
        "permissions": permissions,
        "topic_permissions": [entry for entry in found.get("topic_permissions", []) if entry["vhost"] == vhost],
        "policies": [entry for entry in found.get("policies", []) if entry["vhost"] == vhost],
    }


def _vhost(app: App) -> str:
    import oslo_messaging

    return str(oslo_messaging.TransportURL.parse(app.conf).virtual_host or "/")


def _restore_broker(app: App, archive: _Reader) -> None:
    if BROKER not in archive.manifest["parts"]:
        app.say("Broker: the backup has no accounts.")
        return
    given = archive.read(BROKER).decode()
    programs.run("rabbitmqctl", "--quiet", "import_definitions", programs.INPUT, given=given, seconds=_BROKER_SECONDS)
    app.say("Broker: its accounts are restored.")


# --- read


class _Reader:
    """A backup that is complete: every part has the checksum that the manifest says."""

    def __init__(self, archive: tarfile.TarFile, path: str) -> None:
        self._archive = archive
        self._path = path
        self.manifest = self._read_manifest()
        self._verify()

    def _read_manifest(self) -> dict[str, Any]:
        try:
            manifest: dict[str, Any] = json.loads(self.read(MANIFEST))
        except (KeyError, ValueError, EOFError, OSError, tarfile.TarError) as error:
            raise exceptions.ConfigurationError(reason=f"{self._path} is not a complete backup.") from error
        if manifest.get("format") != FORMAT:
            raise exceptions.ConfigurationError(
                reason=f"{self._path} has format {manifest.get('format')}, and this program reads {FORMAT}."
            )
        return manifest

    def _verify(self) -> None:
        for name, described in self.manifest["parts"].items():
            digest = hashlib.sha256()
            try:
                with self.open(name) as file:
                    while piece := file.read(1 << 20):
                        digest.update(piece)
            except (KeyError, EOFError, OSError, tarfile.TarError) as error:
                raise exceptions.ConfigurationError(reason=f"{self._path} is damaged at {name}.") from error
            if digest.hexdigest() != described["sha256"]:
                raise exceptions.ConfigurationError(reason=f"{self._path} is damaged at {name}.")

    def open(self, name: str) -> IO[bytes]:
        file = self._archive.extractfile(name)
        if file is None:
            raise KeyError(name)
        return file

    def read(self, name: str) -> bytes:
        with self.open(name) as file:
            return file.read()

    def files(self) -> dict[str, dict[str, Any]]:
        """Return how each file of the machine is described, by its part's name."""
        return {name: found for name, found in self.manifest["parts"].items() if name.startswith("files/")}


@contextlib.contextmanager
def _opened(args: argparse.Namespace) -> Iterator[_Reader]:
    """Provide a backup. A decrypted copy lies in a directory that only this user reads, and is removed afterwards."""
    with contextlib.ExitStack() as stack:
        path = args.file
        if not os.path.isfile(path):
            raise exceptions.ConfigurationError(reason=f"{path} does not exist.")
        if args.passphrase_file:
            directory = os.path.dirname(os.path.abspath(path))
            work = stack.enter_context(tempfile.TemporaryDirectory(prefix=".nova-lite-backup-", dir=directory))
            path = os.path.join(work, "backup.tar.gz")
            _gpg(args.passphrase_file, "--decrypt", "--output", path, args.file)
        try:
            archive = stack.enter_context(tarfile.open(path, "r:gz"))
        except (tarfile.TarError, OSError, EOFError) as error:
            hint = "" if args.passphrase_file else "; an encrypted one needs --passphrase-file"
            raise exceptions.ConfigurationError(reason=f"{args.file} is not a backup{hint}.") from error
        yield _Reader(archive, args.file)


def check(app: App, args: argparse.Namespace) -> None:
    with _opened(args) as backup:
        manifest = backup.manifest
        app.show(
            ("Host", "Written at", "Schema", "Rows", "Files", "Broker"),
            [
                (
                    manifest["host"],
                    manifest["written_at"],
                    manifest["schema"],
                    sum(manifest["rows"].values()),
                    len(backup.files()),
                    BROKER in manifest["parts"],
                )
            ],
        )


# --- restore


def restore(app: App, args: argparse.Namespace) -> int:
    """Restore the parts. Files come first, and the others in a process that reads the restored configuration."""
    parts = args.only or ["files", "broker", "database"]
    with _opened(args) as backup:
        if "database" in parts:
            dump.require_same_schema(backup.manifest["schema"], schema.head())
        if "files" in parts:
            _restore_files(app, backup, args.root)
        if "broker" in parts and "files" not in parts:
            _restore_broker(app, backup)
        if "database" in parts and "files" not in parts:
            _restore_database(app, backup, args.overwrite)
    rest = [part for part in parts if part != "files"]
    if "files" not in parts or not rest:
        return 0
    command = [sys.executable, "-m", "nova_lite.cmd.manage", "backup", "restore", args.file]
    command += [word for part in rest for word in ("--only", part)]
    command += [word for path in args.config_file for word in ("--config-file", path)]
    command += ["--overwrite"] if args.overwrite else []
    command += ["--passphrase-file", args.passphrase_file] if args.passphrase_file else []
    return subprocess.run(command, check=False).returncode


def _restore_files(app: App, backup: _Reader, root: str) -> None:
    for name, described in backup.files().items():
        path = os.path.normpath(os.path.join(root, name.removeprefix("files/")))
        if os.path.commonpath([os.path.abspath(root), os.path.abspath(path)]) != os.path.abspath(root):
            raise exceptions.ConfigurationError(reason=f"the backup has a file outside of its directories: {name}.")
        os.makedirs(os.path.dirname(path), mode=0o755, exist_ok=True)
        _write_file(path, backup.read(name), described)
    app.say(f"Files: {len(backup.files())} are restored.")


def _write_file(path: str, data: bytes, described: dict[str, Any]) -> None:
    """Replace a file. Raises `ConfigurationError` if its owner is not on this machine."""
    owner = None
    if os.geteuid() == 0:
        try:
            owner = pwd.getpwnam(described["user"]).pw_uid, grp.getgrnam(described["group"]).gr_gid
        except KeyError as error:
            raise exceptions.ConfigurationError(
                reason=f"{path} belongs to {described['user']}:{described['group']}, which this machine does not have. "
                "Create the users first."
            ) from error
    files.write_atomically(path, data, mode=described["mode"], owner=owner)


def _restore_database(app: App, backup: _Reader, overwrite: bool) -> None:
    """Restore all rows in one transaction. The ids are set before it, because MariaDB commits when they are.

    Promises of hosts are not restored: hosts may have taken them back since the backup, so that their guests run.
    """
    schema.sync(app.conf)
    with dump.writing(app.conf) as connection:
        if not dump.is_empty(connection):
            if not overwrite:
                raise exceptions.ConfigurationError(
                    reason="the database has rows. Name an empty one, or replace all of them with --overwrite."
                )
            services.require_no_conductor(connection, app.conf.service_down_time)
        dump.set_counters(connection, backup.manifest["counters"])
    rows, is_older = 0, backup.manifest["schema"] == dump.LAST_BEFORE_1_0
    with dump.writing(app.conf) as connection:
        dump.clear(connection)
        for table in dump.tables():
            name = f"database/{table.name}.jsonl"
            if is_older and name not in backup.manifest["parts"]:
                continue
            with backup.open(name) as file:
                rows += dump.load(connection, table, io.TextIOWrapper(file, encoding="utf-8"), is_older)
        leases.forget_promises(connection)
    app.has_written = True
    app.say(f"Database: {rows} rows are restored. Restart all daemons, then run nova-lite-manage audit.")


# --- other programs


def _gpg(passphrase_file: str, *arguments: str) -> None:
    if shutil.which("gpg") is None:
        raise exceptions.ConfigurationError(reason="encryption needs the program gpg: install gnupg.")
    with tempfile.TemporaryDirectory() as home:
        options = ("--homedir", home, "--batch", "--yes", "--quiet", "--no-tty", "--pinentry-mode", "loopback")
        programs.run("gpg", *options, "--passphrase-file", passphrase_file, *arguments, seconds=None)
