"""Replacement of the keys of a host that joined with a token: a new key for messages, and new certificates."""

from __future__ import annotations

import os
import time
from pathlib import Path

from nova_lite.base import exceptions, files
from nova_lite.cmd.setup import admission, libvirt, machine
from nova_lite.cmd.setup.admission import AUTHORITY
from nova_lite.cmd.setup.machine import CONFIGURATION
from nova_lite.cmd.setup.steps import Step
from nova_lite.objects import JoinState
from nova_lite.rpc import keys
from nova_lite.rpc.trust import JoinClient

#: Suffix of a key that is not used yet.
NEXT = ".next"
#: Seconds until every daemon of the controller has read the new list.
_SPREAD_SECONDS = keys.LOOK_INTERVAL + 1


class Rotation:
    """The rotation of one host. An interrupted one goes on with the same new key."""

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
        if self._next.exists():
            return "it is there"
        files.write_atomically(str(self._next), keys.PrivateKey.generate().pem(), mode=0o600)
        return "done"

    def _ask(self) -> str:
        client = JoinClient(self._api, self._authority)

        def send() -> JoinState:
            text = admission.body(self._address, self._next)
            signature = admission.signature_of(self._key, text)
            made = admission.request("", text, signature, self._next)
            return admission.asked(lambda: client.join(made), admission.PATIENCE)

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
