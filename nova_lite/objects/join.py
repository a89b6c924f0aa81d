"""Requests of machines that become hosts, their results, and the list of trusted keys that hosts fetch."""

from __future__ import annotations

import datetime

import msgspec

#: States of a host that joins: the registrar has to admit it, has admitted it, or has to remove it.
PENDING, JOINED, REMOVING = "pending", "joined", "removing"


class JoinRequest(msgspec.Struct, kw_only=True):
    """A signed request. ``token``: id of the token. ``body``: JSON of a `nova_lite.base.join_requests.JoinBody`, signed
    by the token's key and by the machine's own. A host that has joined gives no token, and signs with its present key
    in place of the token's.
    """

    token: str
    body: str
    token_signature: str
    key_signature: str


class JoinState(msgspec.Struct, kw_only=True):
    """Result of a request. ``reply``: JSON of a `JoinReply`, signed by the authority. ``problem``: why it is still
    pending. ``up``: the host's daemon reports.
    """

    state: str
    reply: str = ""
    signature: str = ""
    problem: str = ""
    up: bool = False


class JoinReply(msgspec.Struct, kw_only=True):
    """Parts that a host gets of the cloud. ``key``: the host's, so that no reply is taken for another machine's.

    ``broker``: host and port. ``settings``: sections of its nova-lite.conf. ``certificates``: PEM by file name.
    ``sealed``: secrets of the cloud for a controller, sealed to its key.
    """

    host: str
    key: str
    broker: str
    vhost: str
    user: str
    settings: dict[str, dict[str, str]]
    certificates: dict[str, str]
    sealed: str = ""


class Controller(msgspec.Struct, frozen=True, kw_only=True):
    """A controller of the cloud, with the address by which the others reach it."""

    host: str
    address: str


class FrontEnd(msgspec.Struct, frozen=True, kw_only=True):
    """A machine with the APIs, or the console proxies, alone. ``role``: api or console."""

    role: str
    host: str
    address: str


class PendingJoin(msgspec.Struct, kw_only=True):
    """Work for the registrar. ``state``: pending or removing. ``body``: as in `JoinRequest`.

    ``previous_key``: the host's key that the one in the body replaces, in base64.
    """

    host: str
    state: str
    body: str
    previous_key: str | None = None


class TrustList(msgspec.Struct, kw_only=True):
    """The list of trusted keys as the authority signed it. ``content``: JSON with ``serial`` and ``keys``.

    ``serial``: grows with each list. ``authority``: PEM of the certificate whose key signed it.
    """

    serial: int
    content: str
    signature: str
    authority: str


class JoinTokenInfo(msgspec.Struct, kw_only=True):
    """A token's record. Times are naive UTC. ``host``: the host that used it."""

    id: str
    created_at: datetime.datetime
    expires_at: datetime.datetime
    used_at: datetime.datetime | None = None
    revoked_at: datetime.datetime | None = None
    host: str | None = None
