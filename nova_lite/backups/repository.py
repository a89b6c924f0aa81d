"""Repository of backups: restic stores streams deduplicated and encrypted, in one repository for each project.

Only this process and restic read the files of the password and of an S3 server's keys. Neither these nor data are in
arguments or logs. A stream
that this process does not write to its end is never stored: restic is killed, also if this process dies. No caller
takes a snapshot for complete whose id its caller has not recorded. A restic that stands still is ended
(`nova_lite.backups.watched_process`), and its repository counts as not reached.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import re
import shutil
import stat
import tempfile
from collections.abc import Callable, Iterator, Sequence
from typing import IO, NamedTuple

import msgspec
from oslo_config import cfg

from nova_lite.backups.disk_data import Digested, Source, Target
from nova_lite.backups.watched_process import WatchedProcess
from nova_lite.base import exceptions

PROGRAM = "restic"
#: Name of a stream in its snapshot, and of the host that all snapshots have.
_STREAM, _HOST = "disk", "nova-lite"
#: Ids of projects that are names of repositories. Each other id has its digest as a name, so a digest is none of them.
_PLAIN_NAME = re.compile(r"(?![0-9a-f]{64}$)[A-Za-z0-9][A-Za-z0-9_-]{0,63}")
#: Error of restic about a repository that is not there. An unreached place has another one.
#: restic 0.17 and newer try for 15 minutes to reach a server. Killed, it leaves the last reason as its last line.
_CHECK_LIMIT = ("timeout", "--signal=KILL", "30")
_PRESENT = re.compile(r"already (initialized|exists)")
_ABSENT = re.compile(r"(unable to open config file|<config/>).*(no such file or directory|does not exist)")
_MISSING = "it is not at its place, although it has backups. Is its file system mounted?"
#: Seconds within which restic ends after its output has ended.
_END_SECONDS = 5.0
#: Seconds after which a restic that moves no data is ended.
STALL_SECONDS = 600.0
#: restic ends with this process. It does not slow the daemons down.
_WRAPPED = ("setpriv", "--pdeathsig", "KILL", "nice", "-n", "19", PROGRAM, "--quiet")


class Stored(NamedTuple):
    """A stream in a repository. ``digest``: SHA-256 in hex. ``added``: bytes by which the repository has grown."""

    snapshot: str
    digest: str
    added: int


class _Summary(msgspec.Struct):
    snapshot_id: str
    data_added: int = 0


class _Snapshot(msgspec.Struct):
    """Snapshot. ``original``: its id in the repository from which ``restic copy`` has taken it."""

    id: str
    original: str | None = None


class Repositories:
    """The repositories at one location."""

    def __init__(
        self,
        location: str,
        password_file: str,
        cache: str,
        stall_seconds: float = STALL_SECONDS,
        credentials_file: str = "",
    ) -> None:
        self._location = location.rstrip("/")
        self._stall_seconds = stall_seconds
        self._environment = {
            **os.environ,
            "RESTIC_PASSWORD_FILE": password_file,
            "RESTIC_CACHE_DIR": cache,
        }
        if credentials_file:
            self._environment["AWS_SHARED_CREDENTIALS_FILE"] = credentials_file

    def of_project(self, project_id: str, may_be_missing: bool = False) -> Repository:
        """Return a project's repository.

        ``may_be_missing``: no stream in it is recorded. Then it is made when the first stream is stored. Otherwise a
        missing repository is an error, because its file system may not be mounted.
        """
        is_plain = _PLAIN_NAME.fullmatch(project_id) is not None
        name = project_id if is_plain else hashlib.sha256(project_id.encode()).hexdigest()
        environment = {**self._environment, "RESTIC_REPOSITORY": f"{self._location}/{name}"}
        return Repository(environment, may_be_missing, self._stall_seconds)


class Repository:
    """Repository of a project. Its methods raise `BackupRepositoryError`, also if it is missing and may not be."""

    def __init__(self, environment: dict[str, str], may_be_missing: bool, stall_seconds: float) -> None:
        self._environment = environment
        self.may_be_missing = may_be_missing
        self._stall_seconds = stall_seconds

    def store(self, tag: str, write: Callable[[Target], None]) -> Stored:
        """Store the stream that ``write`` writes. If it raises, nothing is stored."""
        self._prepare()
        command = ("backup", "--stdin", "--stdin-filename", _STREAM, "--host", _HOST, "--tag", tag, "--json")
        with tempfile.TemporaryFile() as output, tempfile.TemporaryFile() as errors:
            with self._start(command, errors, output, has_input=True) as process:
                target = Digested(process)
                with contextlib.suppress(BrokenPipeError):  # restic has ended, and its errors say why
                    write(target)
                process.close_input()
                _require_success(process.wait(), errors)
            output.seek(0)
            summary = msgspec.json.decode(output.read().strip().splitlines()[-1], type=_Summary)
        found = [item.id for item in self._snapshots(tag) if item.id.startswith(summary.snapshot_id)]
        if len(found) != 1:
            raise exceptions.BackupRepositoryError(reason=f"the new snapshot {summary.snapshot_id} is not there")
        return Stored(found[0], target.hexdigest(), summary.data_added)

    @contextlib.contextmanager
    def read(self, snapshot: str, digest: str) -> Iterator[Source]:
        """Yield a stream. At the end, if it was read to its end, check its digest. Raises `BackupDataInvalid`."""
        command = ("dump", self._id_here(snapshot), _STREAM)
        with tempfile.TemporaryFile() as errors, self._start(command, errors) as process:
            source = Digested(process)
            try:
                yield source
                is_whole = not process.read(1)
            except exceptions.BackupDataInvalid:
                # The stream may have ended early because restic has failed.
                if process.has_ended(_END_SECONDS):
                    _require_success(process.wait(), errors)
                raise
            if not is_whole:
                raise exceptions.BackupDataInvalid(reason="there are more of them than their header says")
            _require_success(process.wait(), errors)
        if source.hexdigest() != digest:
            raise exceptions.BackupDataInvalid(reason="their digest is not the recorded one")

    def present(self, tags: Sequence[str]) -> set[str]:
        """Return the snapshots that have any of the tags. A copy has its own id, and that of its original."""
        found = self._snapshots(*tags) if tags and self._exists() else []
        return {name for item in found for name in (item.id, item.original) if name is not None}

    def require(self) -> None:
        """Raise an error unless the repository is there."""
        if not self._exists():
            raise exceptions.BackupRepositoryError(reason=_MISSING)

    def forget(self, tag: str) -> None:
        """Remove all snapshots with a tag. `prune` frees their room."""
        if self._exists() and (found := self._snapshots(tag)):
            self._run("forget", *(item.id for item in found))

    def prune(self) -> None:
        """Free the room of data that no snapshot has any more. Locks of daemons that were killed are removed."""
        if self._exists():
            self._run("unlock")
            self._run("prune")

    def _snapshots(self, *tags: str, snapshot: str = "") -> list[_Snapshot]:
        """Return the snapshots that have any of these tags, or one of them by its id."""
        words = [word for tag in tags for word in ("--tag", tag)] + [snapshot] * bool(snapshot)
        return msgspec.json.decode(self._run("snapshots", "--json", *words), type=list[_Snapshot] | None) or []

    def _id_here(self, snapshot: str) -> str:
        """Return the id of a recorded snapshot, or of its copy if this repository was made by ``restic copy``."""
        if self._snapshots(snapshot=snapshot):
            return snapshot
        return next((item.id for item in self._snapshots() if item.original == snapshot), snapshot)

    def _exists(self) -> bool:
        """Check whether there is a repository that the password opens.

        Raises an error if its location is not reached. A missing repository that has recorded streams is not reached.
        A repository that may be missing in an S3 server is made: restic 0.17 and newer wait 15 minutes for a bucket.
        """
        if self.may_be_missing and self._environment["RESTIC_REPOSITORY"].startswith("s3:"):
            try:
                self._init()
            except exceptions.BackupRepositoryError as error:
                if not _PRESENT.search(error.message):
                    raise
        try:
            self._run("cat", "config", limit=_CHECK_LIMIT)
        except exceptions.BackupRepositoryError as error:
            if not _ABSENT.search(error.message):
                raise
            if not self.may_be_missing:
                raise exceptions.BackupRepositoryError(reason=_MISSING) from error
            return False
        return True

    def _prepare(self) -> None:
        """Make the repository if it is missing and may be."""
        if not self._exists():
            self._init()

    def _init(self) -> None:
        self._run("init", "--repository-version", "2", limit=_CHECK_LIMIT)

    def _run(self, *command: str, limit: tuple[str, ...] = ()) -> bytes:
        """Run restic and return its output. ``limit``: command before it that ends it."""
        with tempfile.TemporaryFile() as errors, self._start(command, errors, limit=limit) as process:
            output = process.read_all()
            _require_success(process.wait(), errors)
        return output

    def _start(
        self,
        command: tuple[str, ...],
        errors: IO[bytes],
        output: IO[bytes] | None = None,
        has_input: bool = False,
        limit: tuple[str, ...] = (),
    ) -> WatchedProcess:
        wrapped = (*limit, *_WRAPPED, *command)
        try:
            return WatchedProcess(wrapped, self._environment, self._stall_seconds, errors, output, has_input)
        except OSError as error:
            raise exceptions.BackupRepositoryError(reason=f"{PROGRAM} cannot be run: {error.strerror}") from error


def _require_success(status: int, errors: IO[bytes]) -> None:
    if status:
        errors.seek(0)
        lines = errors.read().decode(errors="replace").strip().splitlines()
        reason = next((line for line in lines if line.startswith("Fatal")), lines[-1] if lines else f"status {status}")
        raise exceptions.BackupRepositoryError(reason=f"{PROGRAM}: {reason}")


def load(conf: cfg.ConfigOpts) -> Repositories | None:
    """Return the repositories that ``[server_backups]`` names, or None. They may have backups although the engine has
    changed.

    Raises `ConfigurationError`, also if others may read the password.
    """
    options = conf.server_backups
    if options.engine != PROGRAM and not options.repository:
        return None
    if not options.repository or not options.password_file:
        raise exceptions.ConfigurationError(
            reason="[server_backups] engine = restic needs repository and password_file."
        )
    if shutil.which(PROGRAM) is None:
        raise exceptions.ConfigurationError(reason=f"[server_backups] engine: the program {PROGRAM} is not installed.")
    _require_private("password_file", options.password_file)
    if options.credentials_file:
        _require_private("credentials_file", options.credentials_file)
    cache = os.path.join(conf.state_path, "conductor", "restic-cache")
    return Repositories(options.repository, options.password_file, cache, credentials_file=options.credentials_file)


def _require_private(option: str, path: str) -> None:
    """Raise `ConfigurationError` if a file is missing or empty, or if others may access it."""
    try:
        with open(path, "rb") as file:
            mode = os.fstat(file.fileno()).st_mode
            is_empty = not file.read(1)
    except OSError as error:
        raise exceptions.ConfigurationError(reason=f"[server_backups] {option} {path}: {error.strerror}") from error
    if is_empty or stat.S_IMODE(mode) & 0o007:
        raise exceptions.ConfigurationError(
            reason=f"[server_backups] {option} {path}: it is empty, or every user may access it."
        )
