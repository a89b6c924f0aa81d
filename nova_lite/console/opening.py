"""Opens consoles: checks the page's origin and the token, and connects to the console on its host, by TLS if wanted."""

from __future__ import annotations

import http
import logging
import socket
import ssl
from collections.abc import Collection
from typing import NamedTuple

from nova_lite.base import exceptions
from nova_lite.base.context import get_admin_context
from nova_lite.console import origins, rfb, tokens
from nova_lite.console.host_tls import HostTls
from nova_lite.objects import Console, ConsolePort, ConsoleTarget
from nova_lite.rpcapi.compute import ComputeRPC
from nova_lite.rpcapi.conductor import ConductorRPC

LOG = logging.getLogger(__name__)

CONNECT_TIMEOUT = 10.0

#: The setting that gives consoles of a type a port with TLS.
_TLS_SETTINGS = {"serial": "[serial_console] tls", "spice-html5": "spice_tls in qemu.conf"}


class ConsoleRefusal(Exception):
    """A refused request, with an HTTP status and a sentence for the user that repeats nothing of the request."""

    def __init__(self, status: http.HTTPStatus, sentence: str) -> None:
        super().__init__(sentence)
        self.status = status
        self.sentence = sentence


class Opened(NamedTuple):
    """Open console. ``has_begun``: the proxy has begun the RFB protocol, so it has to do the same with the browser."""

    target: ConsoleTarget
    sock: socket.socket
    has_begun: bool = False

    @property
    def largest_record(self) -> int | None:
        """The most bytes that qemu takes in one record of TLS; None: any number.

        QEMU 8.2.2, as in Ubuntu 24.04, ends the connection if a serial port cannot take a whole record at once.
        """
        is_serial = self.target.console.console_type == "serial"
        return 1 if is_serial and isinstance(self.sock, ssl.SSLSocket) else None


class Opener:
    """Opens consoles of the types ``console_types``. ``tls``: certificates for the way to the hosts, if there are."""

    def __init__(
        self,
        conductor: ConductorRPC,
        compute: ComputeRPC,
        console_types: Collection[str],
        allowed_origins: Collection[str],
        tls: HostTls | None = None,
    ) -> None:
        self._conductor = conductor
        self._compute = compute
        self._console_types = list(console_types)
        self._allowed_origins = allowed_origins
        self._tls = tls

    def open(self, path: str, origin: str | None, host: str | None) -> Opened:
        """Open the console of a request with this path, Origin header and Host header. Raises `ConsoleRefusal`.

        A page with a wrong origin does not use up the token. A host that does not answer does, since the page knew the
        token.
        """
        if not origins.is_allowed(origin, host, self._allowed_origins):
            raise _page_refused()
        token = tokens.of_path(path)
        if not token:
            raise ConsoleRefusal(http.HTTPStatus.UNAUTHORIZED, "A console is opened with its token.")
        try:
            target = self._take(token, origins.scheme_of(origin))
            return self._connect(target)
        except exceptions.ServiceUnavailable as error:
            LOG.warning("A console cannot be opened: %s", error.message)
            raise ConsoleRefusal(
                http.HTTPStatus.SERVICE_UNAVAILABLE, "The cloud does not answer. Please try again."
            ) from None

    def _take(self, token: str, page_scheme: str | None) -> ConsoleTarget:
        """Take the token. Compare the schemes again, because a conductor before 1.19 does not."""
        try:
            target = self._conductor.console_token_redeem(
                get_admin_context(), tokens.digest(token), self._console_types, page_scheme
            )
        except exceptions.ConsolePageRefused:
            raise _page_refused() from None
        except exceptions.ConsoleTokenNotFound:
            raise ConsoleRefusal(
                http.HTTPStatus.UNAUTHORIZED,
                "This token was used, or its time is over: ask for the console's URL again.",
            ) from None
        if page_scheme is not None and not target.console.is_shown_by(page_scheme):
            raise _page_refused()
        return target

    def _connect(self, target: ConsoleTarget) -> Opened:
        """Connect to the console, and then ask the host whether the port is still this guest's.

        In the opposite order a guest could end in between, and its port could go to another guest.
        """
        console = target.console
        number = self._port(console)
        try:
            sock = socket.create_connection((console.host, number), CONNECT_TIMEOUT)
        except OSError as error:
            raise _does_not_answer(target, error) from None
        try:
            port = self._compute.find_console_port(
                get_admin_context(), target.compute_host, target.instance_uuid, number, console.console_type
            )
            if not port.is_current:
                raise ConsoleRefusal(http.HTTPStatus.UNAUTHORIZED, "The console has moved: ask for its URL again.")
            return self._secure(target, port, sock)
        except (OSError, rfb.RfbError) as error:
            sock.close()
            raise _does_not_answer(target, error) from None
        except BaseException:
            sock.close()
            raise

    def _port(self, console: Console) -> int:
        """Return the port for TLS if the console has one and the proxy has certificates, or if there is no other."""
        if console.tls_port is not None and (self._tls is not None or not console.port):
            return console.tls_port
        return console.port

    def _secure(self, target: ConsoleTarget, port: ConsolePort, sock: socket.socket) -> Opened:
        """Do the TLS handshake, if the proxy has certificates. Raises `OSError` or `RfbError`."""
        tls, host = self._tls, target.compute_host
        if tls is None:
            if port.tls:
                raise rfb.RfbError("the host wants TLS, and this proxy has no [console] tls_directory")
            return Opened(target, sock)
        if target.console.console_type == "novnc":
            return Opened(target, rfb.connect(sock, lambda plain: tls.secure(plain, host), tls.is_required), True)
        if port.tls:
            return Opened(target, tls.secure(sock, host))
        if tls.is_required:
            setting = _TLS_SETTINGS[target.console.console_type]
            raise rfb.RfbError(f"the guest's console has no TLS: {setting} on its host, then a hard reboot")
        return Opened(target, sock)


def _does_not_answer(target: ConsoleTarget, error: Exception) -> ConsoleRefusal:
    console = target.console
    LOG.warning(
        "Console of %s at %s port %d of host %s: %s",
        target.instance_uuid,
        console.host,
        console.port,
        target.compute_host,
        error,
    )
    return ConsoleRefusal(http.HTTPStatus.BAD_GATEWAY, "The console does not answer.")


def _page_refused() -> ConsoleRefusal:
    return ConsoleRefusal(http.HTTPStatus.FORBIDDEN, exceptions.ConsolePageRefused.msg_fmt)
