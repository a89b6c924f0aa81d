"""The steps that make a front end: a machine with the APIs, or the console proxies, alone.

It joins as a further controller does, with a token and a code, since an API speaks for every user. It gets the
configuration of its daemons, sealed to a key of its own, and an account at the broker for its role. It gets no secret
of the database, and no key of another daemon.
"""

from __future__ import annotations

import socket
import ssl
import time
from pathlib import Path
from typing import NamedTuple
from urllib.parse import quote

from nova_lite.base import exceptions, join_requests, sealing, version
from nova_lite.base.join_requests import FrontEndBody, JoinBody
from nova_lite.cmd.setup import admission, cluster, controller, further, machine, settings, units
from nova_lite.cmd.setup.controller import KEY_OWNERS, KEYS, REGISTRAR
from nova_lite.cmd.setup.further import PLACES, Place, SealedSetup
from nova_lite.cmd.setup.joining import Host
from nova_lite.cmd.setup.machine import CONFIGURATION
from nova_lite.cmd.setup.steps import Step
from nova_lite.objects import JoinReply
from nova_lite.rpc import keys

#: MiB that have to be free for logs.
_FREE_MB = 200
#: Seconds that a daemon may take until it serves.
_SERVES_SECONDS = 60


class Kind(NamedTuple):
    """Kind of a front end: its daemons, the Debian packages that they need, and the ports at which they serve.

    ``optional``: daemons that an operator starts.
    """

    daemons: tuple[str, ...]
    packages: tuple[str, ...]
    ports: tuple[int, ...]
    optional: tuple[str, ...] = ()


KINDS = {
    keys.API: Kind(("api",), (), (8774,)),
    keys.CONSOLE: Kind(("novncproxy", "serialproxy"), ("novnc",), (6080, 6083), ("spicehtml5proxy",)),
}


def steps(role: str, wanted: Host) -> list[Step]:
    setup = FrontEndSetup(role, wanted)
    return [
        Step("Checking this machine", setup.check_machine),
        Step("Reaching the cloud", setup.reach),
        Step("Installing packages", setup.install_packages),
        Step("Creating users and directories", units.create_users),
        Step("Creating keys", setup.create_keys),
        Step("Joining the cloud", setup.join),
        Step("Writing the configuration", setup.write_configuration),
        Step("Starting the daemons", setup.start_daemons),
        Step("Checking the daemons", setup.check),
    ]


def farewell(role: str, wanted: Host) -> str:
    images = " It needs the images: docs/howto/high-availability.md, Images." if role == keys.API else ""
    return f"\nMachine {wanted.name} serves as {role}.{images}"


class FrontEndSetup(SealedSetup[cluster.FrontEndSettings]):
    """The set-up of one front end."""

    FOUND = cluster.FrontEndSettings
    WHAT = "settings"

    def __init__(self, role: str, wanted: Host) -> None:
        super().__init__(wanted)
        self._role = role
        self._kind = KINDS[role]
        self._packages = self._kind.packages

    @property
    def _memory(self) -> Path:
        return memory_file(self._role)

    @property
    def _seal_key(self) -> Path:
        return CONFIGURATION / f"join-seal-{self._role}.key"

    @property
    def _key(self) -> Path:
        return Path(keys.private_path(str(KEYS), self._role, self._wanted.name))

    @property
    def _places(self) -> dict[str, Place]:
        return places_of(self._role)

    def _is_done(self) -> bool:
        """Check whether an earlier run came to its end."""
        has_files = all((CONFIGURATION / f"{name}.conf").exists() for name in self._kind.daemons)
        return has_files and not self._seal_key.exists()

    # --- before anything is changed

    def check_machine(self) -> str:
        wanted = self._wanted
        settings.require_systemd()
        settings.require_programs(*self._kind.daemons, REGISTRAR)
        for name, said in (("conductor", "a controller, which has this role"), ("compute", "a compute host")):
            if (CONFIGURATION / f"{name}.conf").exists():
                raise exceptions.ConfigurationError(reason=f"this machine is {said} already.")
        known = admission.memory(self._memory)
        if known is not None and known.host != wanted.name:
            raise exceptions.ConfigurationError(reason=f"this machine joined as {known.host}: give it that name again.")
        if known is None and any((CONFIGURATION / f"{name}.conf").exists() for name in self._kind.daemons):
            raise exceptions.ConfigurationError(
                reason=f"{CONFIGURATION}/{self._kind.daemons[0]}.conf is there: it was made by hand. Move it away."
            )
        machine.require_space("/var/lib", _FREE_MB)
        machine.require_space("/etc", 1)
        return f"{wanted.name} at {wanted.address}"

    # --- keys and admission

    def create_keys(self) -> str:
        """Make what does not exist: keys for messages, for certificates, for the configuration, and a password."""
        made = further.make_keys(self._wanted.name, {self._role: KEY_OWNERS[self._role]}, self._places)
        if admission.memory(self._memory) is None:
            admission.make_memory(self._memory, self._wanted.name)
            made += 1
        made += self._make_seal_key()
        return f"{made} made" if made else "all are there"

    def join(self) -> str:
        """Send the request until an operator has confirmed it. Then write the secrets of the cloud."""
        if self._is_done():
            return "joined already"
        self._accept(self._wait_until_confirmed(f"frontend admit {self._role}"), self._places)
        return f"as {self._role} of {self._wanted.name}"

    def _body(self) -> JoinBody:
        return body(self._role, self._wanted.name, self._wanted.address, self._key, self._seal_key)

    # --- this machine

    def write_configuration(self) -> str:
        """Write the first controller's files with this machine's name, address and account."""
        found, reply = self._settings, self._reply
        if found is None or reply is None:
            return f"what {CONFIGURATION} has, stays"
        written = False
        for name, text in found.files.items():
            if name not in cluster.FRONT_END_FILES[self._role]:
                raise exceptions.ConfigurationError(reason=f"the cloud sent an unknown file: {name[:64]!r}.")
            is_common = name == "nova-lite.conf"
            group, mode = controller.group_of(name.removesuffix(".conf")), 0o640
            if name.endswith(".conf"):
                values = self._common() if is_common else self._account(reply)
                text = cluster.adapted(text, values, found.address, self._wanted.address)
            else:
                mode = 0o644
            written |= machine.write_once(CONFIGURATION / name, text, group, mode)
        trusted = {"trust_address": self._wanted.token.address, "trust_ca_file": str(controller.authority_file())}
        written |= machine.write_once(CONFIGURATION / f"{REGISTRAR}.conf", machine.ini({"rpc": trusted}))
        return f"in {CONFIGURATION}" if written else f"what {CONFIGURATION} has, stays"

    def _common(self) -> dict[tuple[str, str], str]:
        return {
            ("DEFAULT", "host"): self._wanted.name,
            ("DEFAULT", "my_ip"): self._wanted.address,
            ("rpc", "keys_directory"): str(KEYS),
            ("oslo_messaging_rabbit", "ssl"): "true",
            ("oslo_messaging_rabbit", "ssl_ca_file"): str(controller.authority_file()),
        }

    def _account(self, reply: JoinReply) -> dict[tuple[str, str], str]:
        known = admission.memory(self._memory)
        assert known is not None, "An earlier step made it."
        user, password = quote(reply.user, safe=""), quote(known.password, safe="")
        url = f"rabbit://{user}:{password}@{reply.broker}/{quote(reply.vhost, safe='')}"
        return {("DEFAULT", "transport_url"): url}

    def start_daemons(self) -> str:
        names = [f"nova-lite-{name}" for name in (*self._kind.daemons, REGISTRAR)]
        return units.start(names, [f"nova-lite-{name}" for name in self._kind.optional])

    def check(self) -> str:
        """Wait until the daemons serve by TLS. Then check their configuration, and that they reach the broker."""
        for port in self._kind.ports:
            self._wait_until_served(port)
        machine.manage("config", "check")
        self._seal_key.unlink(missing_ok=True)
        return f"{len(self._kind.daemons)} serve at {self._wanted.address}"

    def _wait_until_served(self, port: int) -> None:
        deadline = time.monotonic() + _SERVES_SECONDS
        while True:
            try:
                # Its certificate has to be the authority's, for this machine's address.
                tls = ssl.create_default_context(cadata=self._authority)
                with socket.create_connection((self._wanted.address, port), 5) as sock:
                    tls.wrap_socket(sock, server_hostname=self._wanted.address).close()
                return
            except OSError as error:
                if time.monotonic() > deadline:
                    names = ", ".join(f"nova-lite-{name}" for name in self._kind.daemons)
                    raise exceptions.ConfigurationError(
                        reason=f"{names}: port {port} does not answer: {error.strerror or error}"
                    ) from error
            time.sleep(0.5)


def memory_file(role: str) -> Path:
    """Return the file of what the set-up made up, besides keys. The machine has it once it joins with this role."""
    return CONFIGURATION / f"join-{role}.json"


def places_of(role: str) -> dict[str, Place]:
    return {name: PLACES[name] for name in join_requests.FRONT_ENDS[role]}


def body(role: str, host: str, address: str, key: Path, seal_key: Path) -> JoinBody:
    """Return the request of a machine with these keys."""
    known = admission.memory(memory_file(role))
    assert known is not None, "An earlier step made it."
    return JoinBody(
        host=host,
        addresses=[address],
        key=admission.public(key),
        password_hash=known.password_hash,
        host_key="",
        console_key="",
        version=version.VERSION,
        sent=time.time(),
        front_end=FrontEndBody(
            role=role,
            certificate_keys=further.public_keys(places_of(role)),
            seal_key=sealing.public_key(seal_key.read_text()),
        ),
    )
