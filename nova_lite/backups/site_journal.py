"""Journal of replicated servers: which site may run a server, and which backups it begins with.

A directory that the conductors of both sites mount. Each server has numbered generations. A generation is a file that
is linked into place: it is written once, whoever tries, and never changes. The newest one names the site that may run
the server. Beside it is a file with the newest backups that this site has published, and, once the server runs from
that generation, an empty one. Each site has two files: the id of its server, and whether it can take over.
"""

from __future__ import annotations

import contextlib
import datetime
import enum
import errno
import os
import re
import stat
import tempfile
from collections.abc import Iterator, Sequence
from typing import NamedTuple, TypeVar

import msgspec
from oslo_config import cfg

from nova_lite.base import exceptions, files
from nova_lite.objects import ServerBackup

_GENERATION = re.compile(r"(\d{8})\.json")
_ID = re.compile(r"[0-9a-f-]{36}")
_SITE = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,62}")
_PUBLISHED, _BUILT, _JOINED, _SERVER = "{:08}.backups", "{:08}.built", "site-", "server-"
#: Most bytes of an obstacle.
_LONGEST = 1000
#: Files and directories are for the conductors of both sites, which share a group.
_MODE, _DIRECTORY_MODE = 0o660, 0o2770

T = TypeVar("T")


class Reason(enum.StrEnum):
    """Reason of a generation: the first one, a planned or unplanned failover, or a failover that was rolled back."""

    ENABLED = "enabled"
    PLANNED = "planned"
    UNPLANNED = "unplanned"
    ROLLED_BACK = "rolled back"


class SiteGeneration(msgspec.Struct, kw_only=True):
    """Generation of a replicated server. ``site`` may run the server.

    ``backups``: what it begins with, the whole backup first and then its increments. A site that keeps its server does
    not restore them. They are for the next site, until this one has published others.
    """

    number: int
    site: str
    reason: Reason
    backups: list[ServerBackup] = []
    written_at: datetime.datetime


class Published(msgspec.Struct, kw_only=True):
    """Newest backup of a generation with its bases, the whole one first."""

    backups: list[ServerBackup]


class SiteServer(msgspec.Struct, frozen=True, kw_only=True):
    """Server of a site in the journal, for a database that is restored and may not know it.

    ``policy_id``: the policy that backs it up. ``generation``: of its guest, which is not that of the journal.
    ``last_generation``: the highest that its guest ever had.
    """

    instance_uuid: str
    policy_id: str
    generation: int
    last_generation: int


class JoinedSite(NamedTuple):
    """Site that has joined. ``obstacle``: why it cannot take the server over as planned; "": it can."""

    name: str
    obstacle: str


class SiteJournal:
    """Journal as this ``site`` sees it. Its methods raise `SiteJournalUnavailable`."""

    def __init__(self, directory: str, site: str) -> None:
        self.site = site
        self._directory = directory

    def newest(self, server_id: str) -> SiteGeneration:
        """Return the newest generation. A server without one counts as a journal that is not there."""
        found = self.find(server_id)
        if found is None:
            raise exceptions.SiteJournalUnavailable(reason=f"it has no generation of server {server_id}")
        return found

    def find(self, server_id: str) -> SiteGeneration | None:
        """Return the newest generation, or None if the server has none."""
        with _translated():
            numbers = [int(match[1]) for name in self._names(server_id) if (match := _GENERATION.fullmatch(name))]
            return self._read(server_id, f"{max(numbers):08}.json", SiteGeneration) if numbers else None

    def write(self, server_id: str, generation: SiteGeneration) -> bool:
        """Write a generation. Return False if there is one of its number."""
        directory = os.path.join(self._directory, _checked(server_id))
        path = os.path.join(directory, f"{generation.number:08}.json")
        with _translated():
            _prepare(directory)
            descriptor, temporary = tempfile.mkstemp(prefix=files.TEMPORARY, dir=directory)
            try:
                with os.fdopen(descriptor, "wb") as file:
                    os.fchmod(descriptor, _MODE)
                    file.write(msgspec.json.encode(generation))
                    file.flush()
                    os.fsync(file.fileno())
                os.link(temporary, path)
            except FileExistsError:
                return False
            finally:
                files.remove(temporary)
            files.sync_directory(directory)
            files.sync_directory(self._directory)
        return True

    def publish(self, server_id: str, number: int, backups: Sequence[ServerBackup]) -> None:
        """Replace the published backups of a generation, which is this site's."""
        path = os.path.join(self._directory, _checked(server_id), _PUBLISHED.format(number))
        with _translated():
            files.write_atomically(path, msgspec.json.encode(Published(backups=list(backups))), mode=_MODE)

    def last_backups(self, server_id: str, generation: SiteGeneration) -> list[ServerBackup]:
        """Return the published backups of a generation, or else the backups that it began with."""
        with _translated():
            name = _PUBLISHED.format(generation.number)
            found = self._read(server_id, name, Published) if name in self._names(server_id) else None
        return generation.backups if found is None else found.backups

    def join(self, server_id: str, obstacle: str = "") -> None:
        """Record that this site has a server for the replica, and what keeps it from taking over as planned."""
        directory = os.path.join(self._directory, _checked(server_id))
        path = os.path.join(directory, f"{_JOINED}{self.site}")
        with _translated():
            _prepare(directory)
            with contextlib.suppress(FileNotFoundError), open(path, "rb") as file:
                if file.read() == obstacle.encode():
                    return
            files.write_atomically(path, obstacle.encode(), mode=_MODE)

    def withdraw(self, server_id: str, instance_uuid: str) -> None:
        """Record that this server is not for the replica any more. If the journal has another one, that stays."""
        known = self.server(server_id)
        if known is not None and known.instance_uuid != instance_uuid:
            return
        with _translated():
            for name in {f"{_JOINED}{self.site}", f"{_SERVER}{self.site}"}.intersection(self._names(server_id)):
                files.remove(os.path.join(self._directory, server_id, name))

    def note_server(self, server_id: str, server: SiteServer) -> None:
        """Record the server of this site."""
        if self.server(server_id) != server:
            path = os.path.join(self._directory, _checked(server_id), f"{_SERVER}{self.site}")
            with _translated():
                files.write_atomically(path, msgspec.json.encode(server), mode=_MODE)

    def server(self, server_id: str) -> SiteServer | None:
        """Return the server of this site."""
        name = f"{_SERVER}{self.site}"
        with _translated():
            return self._read(server_id, name, SiteServer) if name in self._names(server_id) else None

    def servers(self) -> dict[str, SiteServer]:
        """Return the servers of this site by their ids in the journal."""
        with _translated():
            ids = sorted(name for name in os.listdir(self._directory) if _ID.fullmatch(name))
        found = {server_id: self.server(server_id) for server_id in ids}
        return {server_id: server for server_id, server in found.items() if server is not None}

    def note_built(self, server_id: str, number: int) -> None:
        """Record that the server of this site runs from its own generation: nothing has to be restored any more."""
        with _translated():
            if (name := _BUILT.format(number)) not in self._names(server_id):
                files.write_atomically(os.path.join(self._directory, server_id, name), b"", mode=_MODE)

    def is_here(self, server_id: str, generation: SiteGeneration) -> bool:
        """Check whether this site has the disk of a generation, whatever its database knows."""
        if generation.site != self.site:
            return False
        with _translated():
            is_built = _BUILT.format(generation.number) in self._names(server_id)
        return is_built or generation.reason in (Reason.ENABLED, Reason.ROLLED_BACK)

    def other_site(self, server_id: str) -> JoinedSite | None:
        """Return the other site that has joined, or None. A site without obstacle comes first."""
        with _translated():
            names = [name.removeprefix(_JOINED) for name in self._names(server_id) if name.startswith(_JOINED)]
            found = [JoinedSite(name, self._obstacle(server_id, name)) for name in sorted(names) if name != self.site]
        return min(found, key=lambda site: bool(site.obstacle), default=None)

    def _obstacle(self, server_id: str, site: str) -> str:
        with open(os.path.join(self._directory, server_id, f"{_JOINED}{site}"), "rb") as file:
            return file.read(_LONGEST).decode(errors="replace")

    def _names(self, server_id: str) -> list[str]:
        directory = os.path.join(self._directory, _checked(server_id))
        try:
            return os.listdir(directory)
        except FileNotFoundError:
            os.stat(self._directory)  # the server may be unknown, but the journal has to be there
            return []

    def _read(self, server_id: str, name: str, kind: type[T]) -> T:
        with open(os.path.join(self._directory, _checked(server_id), name), "rb") as file:
            return msgspec.json.decode(file.read(), type=kind)


def _prepare(directory: str) -> None:
    """Make a server's directory. Its mode does not follow the umask, and a cut mode is repaired by the owner or root.

    Raises `FileNotFoundError` without the journal's own directory, which may not be mounted.
    """
    with contextlib.suppress(FileExistsError):
        os.mkdir(directory)
    found = os.stat(directory)
    if stat.S_IMODE(found.st_mode) != _DIRECTORY_MODE and os.geteuid() in (0, found.st_uid):
        os.chmod(directory, _DIRECTORY_MODE)


@contextlib.contextmanager
def _translated() -> Iterator[None]:
    try:
        yield
    except FileExistsError:
        raise
    except OSError as error:
        reason = error.strerror or errno.errorcode.get(error.errno or 0, "")
        raise exceptions.SiteJournalUnavailable(reason=reason) from error
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise exceptions.SiteJournalUnavailable(reason=f"a file cannot be read: {error}") from error


def _checked(server_id: str) -> str:
    """Return the id, which is the name of a directory."""
    if _ID.fullmatch(server_id) is None:
        raise exceptions.InvalidInput(reason=f"{server_id[:64]} is not the id of a server")
    return server_id


def load(conf: cfg.ConfigOpts) -> SiteJournal | None:
    """Return the journal that ``[replication]`` names, or None. Raises `ConfigurationError`."""
    options = conf.replication
    if not options.directory:
        return None
    if _SITE.fullmatch(options.site) is None:
        raise exceptions.ConfigurationError(
            reason="[replication] directory needs [replication] site: letters, digits, - and _."
        )
    if not conf.server_backups.repository:
        raise exceptions.ConfigurationError(reason="[replication] directory needs [server_backups] repository.")
    return SiteJournal(options.directory, options.site)
