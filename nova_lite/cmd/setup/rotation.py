"""Replacement of the keys of a machine that joined with a token: new keys for messages, and new certificates.

An operator confirms those of a controller or front end by a code again: the registrar does not believe a conductor that
the machine's present key has signed the request (docs/adr/0027-further-controllers.md).
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import NamedTuple

import msgspec

from nova_lite.base import exceptions, files, join_requests, sealing
from nova_lite.base.join_requests import JoinBody
from nova_lite.cmd.setup import admission, cluster, controller, front_end, further, libvirt, machine
from nova_lite.cmd.setup.admission import AUTHORITY
from nova_lite.cmd.setup.controller import KEY_OWNERS, KEYS, REGISTRAR
from nova_lite.cmd.setup.further import Place
from nova_lite.cmd.setup.machine import CONFIGURATION
from nova_lite.cmd.setup.steps import Step
from nova_lite.objects import JoinState
from nova_lite.rpc import keys, trust
from nova_lite.rpc.trust import JoinClient

#: Suffix of a key that is not used yet.
NEXT = ".next"
#: Seconds until every daemon of the controller has read the new list.
_SPREAD_SECONDS = keys.LOOK_INTERVAL + 1


def steps() -> list[Step]:
    """Return the steps for each part of the cloud that this machine joined with. Raises `ConfigurationError`."""
    parts = _confirmed_parts()
    if admission.memory() is not None or not parts:
        return [*Rotation().steps(), *(step for part in parts for step in ConfirmedRotation(part).steps())]
    return [step for part in parts for step in ConfirmedRotation(part).steps()]


class Part(NamedTuple):
    """A part of the cloud that an operator admits by a code.

    ``command``: by which, without the code. ``roles``: the first one's key signs the request. ``body``: makes the
    request of keys for messages by role, and of the key to which the reply is sealed.
    """

    title: str
    command: str
    roles: tuple[str, ...]
    places: Mapping[str, Place]
    body: Callable[[Mapping[str, Path], Path], JoinBody]


def _confirmed_parts() -> list[Part]:
    host, address = (machine.setting(CONFIGURATION / "nova-lite.conf", "DEFAULT", name) for name in ("host", "my_ip"))
    if not host or not address or not _trust_address():
        return []
    name, own = host, address
    parts = []
    if cluster.local() is not None:
        parts.append(
            Part(
                "controller",
                f"controller admit {name}",
                join_requests.CONTROLLER_ROLES,
                further.PLACES,
                lambda made, seal: further.body(name, own, made, seal),
            )
        )
    for role in join_requests.FRONT_ENDS:
        if front_end.memory_file(role).exists():
            parts.append(_front_end(role, name, own))
    return parts


def _front_end(role: str, host: str, address: str) -> Part:
    file = CONFIGURATION / f"{front_end.KINDS[role].daemons[0]}.conf"
    admission.adopt_password(front_end.memory_file(role), file)

    def body(made: Mapping[str, Path], seal: Path) -> JoinBody:
        return front_end.body(role, host, address, made[role], seal)

    return Part(role, f"frontend admit {role} {host}", (role,), front_end.places_of(role), body)


def _trust_address() -> str | None:
    """Return the join API that this controller or front end follows. The first controller follows none."""
    return machine.setting(CONFIGURATION / f"{REGISTRAR}.conf", "rpc", "trust_address")


class ConfirmedRotation:
    """The rotation of one part, with a code. An interrupted one continues with the same new keys, and the same code."""

    def __init__(self, part: Part) -> None:
        self._part = part
        self._address = _trust_address() or ""
        self._host = machine.setting(CONFIGURATION / "nova-lite.conf", "DEFAULT", "host") or ""
        self._present = {role: Path(keys.private_path(str(KEYS), role, self._host)) for role in part.roles}
        self._next = {role: Path(f"{path}{NEXT}") for role, path in self._present.items()}
        self._seal_key = CONFIGURATION / f"rotate-seal-{part.title}.key"

    def steps(self) -> list[Step]:
        of = f"of the {self._part.title}"
        return [
            Step(f"Creating the next keys {of}", self._create),
            Step("Asking the cloud", self._ask),
            Step("Using the next keys", self._use),
        ]

    def _create(self) -> str:
        made = 0
        for role, path in self._next.items():
            # A key that is used already was the next one of an interrupted rotation.
            if not path.exists() and not self._seal_key.exists():
                owner = machine.ids(KEY_OWNERS[role])
                files.write_atomically(str(path), keys.PrivateKey.generate().pem(), mode=0o600, owner=owner)
                made += 1
        if not self._seal_key.exists():
            files.write_atomically(str(self._seal_key), sealing.new_private_key().encode(), mode=0o600)
        return f"{made} made" if made else "they are there"

    def _newest(self) -> dict[str, Path]:
        """Return the next key of each role; the present one where an interrupted rotation uses the next one already."""
        return {role: path if path.exists() else self._present[role] for role, path in self._next.items()}

    def _ask(self) -> str:
        authority = controller.authority_file().read_text()
        client, newest = JoinClient(self._address, authority), self._newest()
        signer = self._part.roles[0]

        def send() -> JoinState:
            text = msgspec.json.encode(self._part.body(newest, self._seal_key)).decode()
            return admission.renewed(client, text, self._present[signer], newest[signer])

        code = join_requests.confirmation_code(self._part.body(newest, self._seal_key))
        state = admission.wait_until_confirmed(send, f"{self._part.command} {code}")
        reply = trust.reply_of(state, authority, self._host, admission.public(newest[signer]))
        further.accept_certificates(reply, self._part.places)
        further.accept_list(self._address, authority)
        return "the keys are trusted, and the certificates are new"

    def _use(self) -> str:
        """Replace the keys, which the daemons read again within a second. The old ones end in an hour."""
        time.sleep(_SPREAD_SECONDS)
        for role, path in self._next.items():
            if path.exists():
                os.replace(path, self._present[role])
        files.sync_directory(str(KEYS))
        self._seal_key.unlink()
        return "the daemons read them within a second"


class Rotation:
    """The rotation of one compute host. An interrupted one continues with the same new key."""

    def __init__(self) -> None:
        """Read this machine's settings. Raises `ConfigurationError` if it has not joined with a token."""
        known = admission.memory()
        values = [
            machine.setting(CONFIGURATION / "compute.conf", section, name)
            for section, name in (("rpc", "trust_address"), ("DEFAULT", "my_ip"))
        ]
        if known is None or not all(values) or not AUTHORITY.exists():
            raise exceptions.ConfigurationError(reason="this machine has not joined a cloud with a token.")
        self._api, self._address = (str(value) for value in values)
        self._host = known.host
        self._authority = AUTHORITY.read_text()
        self._key = admission.message_key(self._host)
        self._next = Path(f"{self._key}{NEXT}")

    def steps(self) -> list[Step]:
        return [
            Step("Creating the next key", self._create),
            Step("Asking the cloud", self._ask),
            Step("Using the next key", self._use),
        ]

    def _create(self) -> str:
        admission.adopt_password(admission.MEMORY, CONFIGURATION / "compute.conf")
        if self._next.exists():
            return "it is there"
        files.write_atomically(str(self._next), keys.PrivateKey.generate().pem(), mode=0o600)
        return "done"

    def _ask(self) -> str:
        client = JoinClient(self._api, self._authority)

        def send() -> JoinState:
            text = msgspec.json.encode(admission.body(self._address, self._next)).decode()
            return admission.renewed(client, text, self._key, self._next)

        state = admission.wait_until_joined(send)
        admission.accept(state, self._authority, self._api, self._host, self._next)
        libvirt.reload_certificates()
        return "the key is trusted, and the certificates are new"

    def _use(self) -> str:
        """Replace the key, which the daemon reads again within a second. The old one ends in an hour."""
        time.sleep(_SPREAD_SECONDS)
        os.replace(self._next, self._key)
        files.sync_directory(str(self._key.parent))
        return "the daemon reads it within a second"
