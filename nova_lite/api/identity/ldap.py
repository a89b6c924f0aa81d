"""Client of a directory server (LDAP): finds users and groups, and checks passwords. It changes nothing there.

Values in filters are encoded byte by byte (`equals`), so no text of a user can become a part of a filter. DNs are used
only as the directory gave them.
"""

from __future__ import annotations

import contextlib
import socket
import ssl
import time
import uuid
from collections.abc import Iterator
from typing import Any, NamedTuple
from urllib.parse import urlsplit

from oslo_config import cfg

from nova_lite.api.identity.gate import Gate, UnreachableError
from nova_lite.base import exceptions, ip, key_files
from nova_lite.base.timing import TIMING

#: Result codes of a bind (RFC 4511): success, and the codes that are about the user rather than the directory.
_SUCCESS, _SIZE_LIMIT_EXCEEDED = 0, 4
_REFUSED = frozenset({19, 32, 48, 49, 50, 53})

#: Entries in one page of a long list.
_PAGE = 500
#: Bytes of a response that are read.
MAX_RESPONSE = 1024**2
_PAGED_RESULTS = "1.2.840.113556.1.4.319"


class Entry(NamedTuple):
    """User or group of the directory. ``key``: the value of its attribute with an id that never changes."""

    dn: str
    key: bytes
    name: str
    email: str | None = None


class Kind(NamedTuple):
    """Part of a directory: the tree of its users or groups, and their attributes."""

    tree: str
    filter: str
    id: str
    name: str
    email: str = ""

    @property
    def attributes(self) -> list[str]:
        return [name for name in (self.id, self.name, self.email) if name]


def equals(attribute: str, value: bytes) -> str:
    """Return the filter for entries whose attribute has this value. Each byte of the value is escaped."""
    escaped = "".join(f"\\{byte:02x}" for byte in value)
    return f"({attribute}={escaped})"


class _LimitedSocket:
    """Connection on which the response to each request ends within ``timeout`` seconds and `MAX_RESPONSE` bytes."""

    def __init__(self, sock: socket.socket, timeout: float) -> None:
        self._sock, self._timeout = sock, timeout
        self._deadline, self._left = time.monotonic() + timeout, MAX_RESPONSE
        self.shutdown, self.close = sock.shutdown, sock.close

    def sendall(self, request: bytes) -> None:
        self._deadline, self._left = time.monotonic() + self._timeout, MAX_RESPONSE
        self._sock.settimeout(self._timeout)
        self._sock.sendall(request)

    def recv(self, size: int) -> bytes:
        seconds = self._deadline - time.monotonic()
        if seconds <= 0:
            raise TimeoutError("its response did not end in time")
        self._sock.settimeout(seconds)
        data = self._sock.recv(size)
        self._left -= len(data)
        if self._left < 0:
            raise OSError(f"it returned more than {MAX_RESPONSE} bytes")
        return data


class LdapDirectory:
    """The directory of ``[ldap]``. Every method raises `ServiceUnavailable` if it does not answer in time."""

    def __init__(self, conf: cfg.ConfigOpts) -> None:
        """Check the options. Raises `ConfigurationError`."""
        options = conf.ldap
        try:
            import ldap3
        except ImportError as error:
            raise _mistake("urls", "this needs the package ldap3: pip install 'nova_lite[ldap]'") from error
        self._ldap3 = ldap3
        self._options = options
        self.users = Kind(
            options.user_tree,
            options.user_filter,
            options.user_id_attribute,
            options.user_name_attribute,
            options.user_mail_attribute,
        )
        self.groups = Kind(
            options.group_tree, options.group_filter, options.group_id_attribute, options.group_name_attribute
        )
        if not self.users.tree:
            raise _mistake("user_tree", "set the DN of the entry below which the users are")
        for name in ("user_filter", "group_filter"):
            self._check_filter(name, options[name])
        self._servers = [self._server(url) for url in options.urls]
        self._password = _read_password(options.password_file) if options.bind_dn else ""
        self._gate = Gate(f"The directory of domain {options.domain}")

    # --- look-ups

    def find(self, kind: Kind, attribute: str, value: bytes) -> Entry | None:
        """Return the entry whose attribute has this value. None if there is none, or more than one."""
        with self._gate.call(), self._service() as connection:
            found = self._search(connection, kind, equals(attribute, value), 2)[0]
        return found[0] if len(found) == 1 else None

    def entries(self, kind: Kind, limit: int) -> tuple[list[Entry], bool]:
        """Return at most ``limit`` entries, and whether these are all."""
        with self._gate.call(), self._service() as connection:
            return self._search(connection, kind, "", limit)

    def groups_of(self, user: Entry) -> list[Entry]:
        """Return the groups that have the user as a member."""
        if not self.groups.tree:
            return []
        value = user.name if self._options.group_members_are_names else user.dn
        members = equals(self._options.group_member_attribute, value.encode())
        with self._gate.call(), self._service() as connection:
            return self._search(connection, self.groups, members, self._options.list_limit)[0]

    def is_password(self, user: Entry | None, password: str) -> bool:
        """Check a user's password by a bind. None, for an unknown user, takes as long and returns False.

        An empty password is never sent: a directory would accept it as an anonymous bind.
        """
        dn = user.dn if user is not None else f"uid={uuid.uuid4().hex},{self.users.tree}"
        try:
            secret = password.encode()
        except UnicodeEncodeError:
            return False
        if not secret or not dn:
            return False
        with self._gate.call(), self._open() as connection:
            code = self._bind(connection, dn, secret)
            if code != _SUCCESS and code not in _REFUSED:
                raise UnreachableError(f"a log-in ended with the result {code} of LDAP")
        return code == _SUCCESS and user is not None

    # --- connections

    @contextlib.contextmanager
    def _service(self) -> Iterator[Any]:
        """Open a connection as the user of ``bind_dn``."""
        with self._open() as connection:
            if self._options.bind_dn:
                code = self._bind(connection, self._options.bind_dn, self._password.encode())
                if code != _SUCCESS:
                    raise UnreachableError(f"it refuses [ldap] bind_dn with the result {code} of LDAP")
            yield connection

    @contextlib.contextmanager
    def _open(self) -> Iterator[Any]:
        """Open a connection to the first server that answers, which is the first one from now on."""
        connection, error = None, None
        for server in list(self._servers):
            try:
                connection = self._connect(server)
                break
            except Exception as failure:  # ldap3 has many for responses that it cannot decode
                error = failure
                self._servers = [item for item in self._servers if item is not server] + [server]
        if connection is None:
            raise UnreachableError(_one_line(error)) from error
        try:
            yield connection
        except UnreachableError:
            raise
        except Exception as failure:  # as above
            raise UnreachableError(_one_line(failure)) from failure
        finally:
            with contextlib.suppress(self._ldap3.core.exceptions.LDAPException, OSError):
                connection.unbind()

    def _connect(self, server: Any) -> Any:
        # ldap3 would follow referrals with the password of the user.
        connection = self._ldap3.Connection(
            server, auto_bind=self._ldap3.AUTO_BIND_NONE, auto_referrals=False, read_only=True, check_names=False
        )
        connection.open(read_server_info=False)
        connection.socket.settimeout(TIMING.clients.identity_timeout)
        if not server.ssl and self._options.start_tls and not connection.start_tls(read_server_info=False):
            raise UnreachableError("it refuses StartTLS")
        connection.socket = _LimitedSocket(connection.socket, TIMING.clients.identity_timeout)
        return connection

    def _bind(self, connection: Any, dn: str, password: bytes) -> int:
        """Return the result code of a bind. The password is bytes: ldap3 would make some other texts an empty one."""
        connection.authentication, connection.user, connection.password = self._ldap3.SIMPLE, dn, password
        connection.bind(read_server_info=False)
        return int(connection.result["result"])

    def _search(self, connection: Any, kind: Kind, condition: str, limit: int) -> tuple[list[Entry], bool]:
        entries: list[Entry] = []
        cookie: bytes | None = None
        # A server may make smaller pages, and empty ones, but not without end.
        for _ in range(10 * (2 + limit // _PAGE)):
            connection.search(
                kind.tree,
                f"(&{kind.filter}{condition})",
                attributes=kind.attributes,
                time_limit=max(1, int(TIMING.clients.identity_timeout)),
                paged_size=min(_PAGE, limit + 1),
                paged_cookie=cookie,
            )
            code = int(connection.result["result"])
            if code not in (_SUCCESS, _SIZE_LIMIT_EXCEEDED):
                raise UnreachableError(f"a search below {kind.tree} ended with {connection.result['description']}")
            found = [_entry(kind, item) for item in connection.response if item["type"] == "searchResEntry"]
            entries += [entry for entry in found if entry is not None]
            control = (connection.result.get("controls") or {}).get(_PAGED_RESULTS)
            cookie = control["value"]["cookie"] if control else None
            if not cookie or code == _SIZE_LIMIT_EXCEEDED or len(entries) > limit:
                return entries[:limit], not cookie and code == _SUCCESS and len(entries) <= limit
        raise UnreachableError(f"a search below {kind.tree} does not end")

    # --- options

    def _server(self, url: str) -> Any:
        parts = urlsplit(url)
        host, options = parts.hostname or "", self._options
        if parts.scheme not in ("ldap", "ldaps") or not host or parts.path.strip("/"):
            raise _mistake("urls", f"{url} is not of the form ldaps://HOST or ldap://HOST:PORT")
        is_tls = parts.scheme == "ldaps"
        if not is_tls and not options.start_tls and not ip.is_loopback(host):
            raise _mistake("urls", f"{url} would send passwords unencrypted; use ldaps:// or start_tls = true")
        try:
            port = parts.port or (636 if is_tls else 389)
        except ValueError as error:
            raise _mistake("urls", f"{url}: {error}") from error
        tls = _verified_tls(self._ldap3, host, options) if is_tls or options.start_tls else None
        return self._ldap3.Server(
            host,
            port,
            use_ssl=is_tls,
            tls=tls,
            get_info=self._ldap3.NONE,
            connect_timeout=TIMING.clients.identity_timeout,
            allowed_referral_hosts=[],
        )

    def _check_filter(self, name: str, text: str) -> None:
        from ldap3.operation.search import parse_filter

        try:
            parse_filter(text, None, True, True, None, False)
        except self._ldap3.core.exceptions.LDAPException as error:
            raise _mistake(name, f"{text} is not a filter of LDAP: {error}") from error


def _verified_tls(ldap3: Any, host: str, options: Any) -> Any:
    """Return TLS settings that verify the server's certificate and name."""
    if options.ca_file:
        key_files.check(options.ca_file, "[ldap] ca_file")
    try:
        context = ssl.create_default_context(cafile=options.ca_file or None)
    except (OSError, ssl.SSLError) as error:
        raise _mistake("ca_file", f"{options.ca_file} has no certificates: {error}") from error
    context.minimum_version = ssl.TLSVersion.TLSv1_2

    class VerifiedTls(ldap3.Tls):  # type: ignore[misc]
        """TLS of the standard library instead of ldap3's, with a time limit for the handshake."""

        def wrap_socket(self, connection: Any, do_handshake: bool = False) -> None:
            connection.socket.settimeout(TIMING.clients.identity_timeout)
            connection.socket = context.wrap_socket(connection.socket, server_hostname=host)

    return VerifiedTls()


def _entry(kind: Kind, item: dict[str, Any]) -> Entry | None:
    """Return the entry of a response, or None if it has no id or no name."""
    values = {name.lower(): found for name, found in item["raw_attributes"].items()}

    def first(attribute: str) -> bytes:
        found = values.get(attribute.lower()) or [b""]
        return bytes(found[0])

    key = first(kind.id)
    try:
        name, email = first(kind.name).decode(), first(kind.email).decode() if kind.email else ""
    except UnicodeDecodeError:
        return None
    return Entry(item["dn"], key, name, email or None) if key and name and item["dn"] else None


def _read_password(path: str) -> str:
    if not path:
        raise _mistake("password_file", "bind_dn needs a file with its password")
    key_files.check(path, "[ldap] password_file", hidden_from=0o007, chmod="0640")
    with open(path, encoding="utf-8") as file:
        password = file.read().strip("\n")
    if not password:
        raise _mistake("password_file", f"{path} is empty")
    return password


def _one_line(error: object) -> str:
    return f"{type(error).__name__}: {' '.join(str(error).split())}"[:300]


def _mistake(option: str, why: str) -> exceptions.ConfigurationError:
    return exceptions.ConfigurationError(reason=f"[ldap] {option}: {why}.")
