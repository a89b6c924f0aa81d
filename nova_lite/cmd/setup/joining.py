"""The part of a set-up that is the same for each machine that joins the cloud with a token."""

from __future__ import annotations

import abc
import socket
from pathlib import Path
from typing import NamedTuple

import msgspec

from nova_lite.base import exceptions, ip
from nova_lite.base.context import is_host_name
from nova_lite.base.join_requests import JoinBody, JoinToken
from nova_lite.cmd.setup import admission, cluster, machine, settings
from nova_lite.objects import JoinReply, JoinState
from nova_lite.rpc.trust import JoinClient


class Host(NamedTuple):
    """A machine to be. ``address``: by which others reach it."""

    token: JoinToken
    name: str
    address: str


def read(text: str, address: str | None) -> Host:
    """Return the machine that the command line describes. Raises `ConfigurationError`."""
    try:
        token = JoinToken.parse(text)
    except exceptions.InvalidInput as error:
        raise exceptions.ConfigurationError(reason=f"TOKEN: {error.kwargs['reason']}.") from error
    name = socket.gethostname()
    if not is_host_name(name) or name == "localhost":
        raise exceptions.ConfigurationError(
            reason=f"this machine's name, {name[:64]!r}, cannot be a host's: hostnamectl set-hostname NAME."
        )
    if address is not None and (not ip.is_address(address) or not settings.is_local(address)):
        raise exceptions.ConfigurationError(reason=f"address: {address} is no IP address of this machine.")
    known = cluster.local()  # A controller may have the virtual address, which the token names.
    if address is None and known is not None:
        address = known.address
    return Host(token, name, address or _address_towards(token.address))


def _address_towards(target: str) -> str:
    """Return the address from which this machine reaches another. Nothing is sent."""
    host, _, port = target.rpartition(":")
    try:
        found = socket.getaddrinfo(host.strip("[]"), int(port), type=socket.SOCK_DGRAM)[0]
        with socket.socket(found[0], socket.SOCK_DGRAM) as sock:
            sock.connect(found[4])
            return str(sock.getsockname()[0])
    except OSError as error:
        raise exceptions.ConfigurationError(
            reason=f"{target}, which the token names, cannot be reached: {error.strerror}."
        ) from error


class Setup(abc.ABC):
    """The set-up of one machine. Later steps use what earlier ones found."""

    #: Debian packages that the machine needs.
    _packages: tuple[str, ...] = ()

    def __init__(self, wanted: Host) -> None:
        self._wanted = wanted
        self._authority = ""
        self._reply: JoinReply | None = None

    @property
    @abc.abstractmethod
    def _key(self) -> Path:
        """Return the file of the key that signs the request."""

    @abc.abstractmethod
    def _body(self) -> JoinBody:
        """Return the request."""

    def reach(self) -> str:
        """Fetch the signed list, and compare its authority with the token's."""
        self._authority = admission.reach(self._wanted.token)
        return f"{self._wanted.token.address}, whose certificate is the token's"

    def install_packages(self) -> str:
        installed = machine.install_packages(*self._packages)
        return f"installed {', '.join(installed)}" if installed else "all are there"

    def _send(self) -> JoinState:
        token = self._wanted.token
        text = msgspec.json.encode(self._body()).decode()
        made = admission.request(token.id, text, token.sign(text), self._key)
        return admission.asked(lambda: JoinClient(token.address, self._authority).join(made), admission.PATIENCE)
