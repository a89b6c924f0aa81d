"""The domain whose users and groups are in a directory server: log-in by its passwords, and our records of them."""

from __future__ import annotations

import collections
import logging
import threading
import time
from collections.abc import Callable, Iterable

import cachetools
from oslo_config import cfg

from nova_lite.api.identity import external
from nova_lite.api.identity.content import Content
from nova_lite.api.identity.external import ExternalGroup, ExternalUser
from nova_lite.api.identity.ldap import Entry, LdapDirectory
from nova_lite.api.identity.records import DOMAIN_NAME, User
from nova_lite.api.identity.replica import Replica
from nova_lite.base import exceptions

LOG = logging.getLogger(__name__)

SOURCE = "ldap"

#: Seconds after which a user is looked up again before a token is issued in another way than by the password.
RECHECK = 300.0
_MAX_CHECKED = 10_000


class DomainDirectory:
    """The domain ``[ldap] domain``. Its methods raise `ServiceUnavailable` while the directory does not answer."""

    def __init__(self, conf: cfg.ConfigOpts, replica: Replica, clock: Callable[[], float] = time.monotonic) -> None:
        """Check the options. Raises `ConfigurationError`."""
        self.domain_name = conf.ldap.domain
        self._limit = conf.ldap.list_limit
        self._replica = replica
        if not self.domain_name or self.domain_name.casefold() == DOMAIN_NAME.casefold():
            raise exceptions.ConfigurationError(
                reason="[ldap] domain: set the name of a domain for the users, other than the default domain."
            )
        self._server = LdapDirectory(conf)
        self._is_missed = False
        self._lock = threading.Lock()
        self._checked: cachetools.TTLCache[str, bool] = cachetools.TTLCache(_MAX_CHECKED, RECHECK, timer=clock)

    def serves(self, content: Content, domain_id: str | None) -> bool:
        """Check whether a domain is that of the directory."""
        domain = content.domain_named(self.domain_name)
        if domain is None and content.users and not self._is_missed:
            self._is_missed = True
            LOG.warning("There is no domain %s, [ldap] domain: create it for the directory's users", self.domain_name)
        return domain is not None and domain.id == domain_id

    @staticmethod
    def label(name: str) -> str:
        """Return a name in the form in which directories compare names, for counts of failures."""
        return " ".join(name.casefold().split())

    def log_in(self, domain_id: str, name: str, known: User | None, password: str) -> User | None:
        """Return the user with this name and password, or None.

        ``known``: the user's record, if the request has the user's id instead of the name.
        """
        entry = self._entry_of(known) if known is not None else self._entry_named(name)
        if not self._server.is_password(entry, password) or entry is None:
            return None
        return self._store(domain_id, entry)

    def recheck(self, user: User) -> None:
        """Look up a user who does not log in by a password. Raises `Unauthorized` if the directory has them no more."""
        with self._lock:
            is_checked = user.id in self._checked
        if is_checked:
            return
        entry = self._entry_of(user)
        if entry is None or self._store(user.domain_id, entry) is None:
            self._set_absent([user.id])
            LOG.warning("User %r is not in the directory of domain %s any more", user.name[:64], self.domain_name)
            raise exceptions.Unauthorized()

    def read_users(self, domain_id: str, name: str | None) -> None:
        """Make records of the directory's users, or of the one with this name. Others are absent from now on."""
        entries, is_all = self._entries("users", name)
        users = [self._described(domain_id, entry, None) for entry in entries]
        content, found = self._replica.content, {user.id for user in users}
        gone = [
            item.id
            for item in content.users
            if item.source == SOURCE and item.domain_id == domain_id and not item.absent and item.id not in found
            if is_all and (name is None or self.label(item.name) == self.label(name))
        ]
        self._put(users)
        if gone:
            self._set_absent(gone)

    def read_groups(self, domain_id: str, name: str | None) -> None:
        """Make records of the directory's groups, or of the one with this name."""
        self._put([_group(domain_id, entry) for entry in self._entries("groups", name)[0]])

    # --- entries

    def _entry_named(self, name: str) -> Entry | None:
        try:
            return self._server.find(self._server.users, self._server.users.name, name.encode()) if name else None
        except UnicodeEncodeError:
            return None

    def _entry_of(self, user: User) -> Entry | None:
        return self._server.find(self._server.users, self._server.users.id, bytes.fromhex(user.external_key))

    def _entries(self, kind: str, name: str | None) -> tuple[list[Entry], bool]:
        where = self._server.users if kind == "users" else self._server.groups
        if not where.tree:
            return [], True
        if name is None:
            found, is_all = self._server.entries(where, self._limit)
            if not is_all:
                LOG.warning(
                    "The directory of domain %s has more than %d %s, [ldap] list_limit; the rest are not listed",
                    self.domain_name,
                    self._limit,
                    kind,
                )
            return found, is_all
        try:
            entry = self._server.find(where, where.name, name.encode()) if name else None
        except UnicodeEncodeError:
            entry = None
        return [entry] if entry is not None else [], True

    # --- records

    def _described(self, domain_id: str, entry: Entry, groups: Iterable[Entry] | None) -> ExternalUser:
        """Return the user of an entry. ``groups``: None keeps the record's groups."""
        id = external.id_of("user", domain_id.encode(), entry.key)
        if groups is None:
            record = self._replica.content.user(id)
            ids = tuple(record.external_groups) if record is not None else ()
        else:
            ids = tuple(_group(domain_id, group).id for group in groups)
        return ExternalUser(id, SOURCE, entry.key.hex(), entry.name, domain_id, entry.email, ids)

    def _store(self, domain_id: str, entry: Entry) -> User | None:
        """Make or update the records of a user and their groups. Returns None if the name is that of a user of ours."""
        groups = self._server.groups_of(entry)
        described = self._described(domain_id, entry, groups)
        self._put([*(_group(domain_id, group) for group in groups), described])
        user = self._replica.content.user(described.id)
        if user is None or user.source != SOURCE:
            return None
        with self._lock:
            self._checked[user.id] = True
        return user

    def _put(self, items: Iterable[ExternalUser | ExternalGroup]) -> None:
        """Store what differs from our records. Entries with names that cannot be ours are left out, with a log line."""
        content, given = self._replica.content, list(items)
        names = collections.Counter((type(item), item.name) for item in given)
        changed = [item for item in given if not external.is_current(content, item)]
        if not changed:
            return

        def put(content: Content) -> list[str]:
            twice = [name for (_, name), number in names.items() if number > 1]
            refused = [f"{name[:64]!r}: two entries have this name" for name in twice]
            for item in changed:
                if names[type(item), item.name] > 1:
                    continue
                try:
                    if isinstance(item, ExternalUser):
                        external.put_user(content, item)
                    else:
                        external.put_group(content, item)
                except (exceptions.Conflict, exceptions.InvalidInput) as error:
                    refused.append(f"{item.name[:64]!r}: {error.message}")
            return refused

        for line in self._replica.change(put):
            LOG.warning("The directory of domain %s has an entry that cannot be used, %s", self.domain_name, line)

    def _set_absent(self, user_ids: list[str]) -> None:
        def set_absent(content: Content) -> None:
            for user_id in user_ids:
                external.set_absent(content, user_id)

        self._replica.change(set_absent)


def _group(domain_id: str, entry: Entry) -> ExternalGroup:
    return ExternalGroup(external.id_of("group", domain_id.encode(), entry.key), SOURCE, entry.name, domain_id)
