"""The steps that make a further controller: admission by the cloud, and its parts of broker, database and balancer.

The machine makes its keys itself. An operator compares its code on the first controller. The secrets of the cloud then
come sealed to a key that never leaves this machine (docs/adr/0027-further-controllers.md).
"""

from __future__ import annotations

import abc
import os
import secrets
import time
from collections.abc import Mapping
from pathlib import Path
from typing import ClassVar, Generic, NamedTuple, TypeVar

import msgspec

from nova_lite.base import exceptions, files, host_certificates, ip, join_requests, sealing, version
from nova_lite.base.host_certificates import (
    CA_CERTIFICATE,
    CLIENT_CERTIFICATE,
    CLIENT_KEY,
    SERVER_CERTIFICATE,
    SERVER_KEY,
)
from nova_lite.base.join_requests import ControllerBody, JoinBody
from nova_lite.cmd.manage.app import HAS_SQL, NO_SQL
from nova_lite.cmd.setup import (
    admission,
    balancer,
    broker,
    cluster,
    controller,
    galera,
    machine,
    settings,
    units,
)
from nova_lite.cmd.setup.controller import DAEMONS, FILE_ROLES, KEY_OWNERS, KEYS, OPTIONAL, PACKAGES, REGISTRAR
from nova_lite.cmd.setup.joining import Host, Setup
from nova_lite.cmd.setup.machine import CONFIGURATION
from nova_lite.cmd.setup.steps import Step
from nova_lite.objects import JoinReply, JoinState
from nova_lite.rpc import controllers, keys, trust
from nova_lite.rpc.trust import JoinClient

#: Key to which the secrets are sealed. The last step removes it: what was captured can never be opened then.
SEAL_KEY = CONFIGURATION / "join-seal.key"


Found = TypeVar("Found")


class Place(NamedTuple):
    """Directory of a certificate, the user of its key, and the names of the files."""

    directory: Path
    owner: str
    key: str = SERVER_KEY
    certificate: str = SERVER_CERTIFICATE


#: Places of the certificates of a controller.
PLACES = {
    "api": Place(controller.API_CERTIFICATES, "nova-lite-api"),
    "consoles": Place(controller.CONSOLE_CERTIFICATES, "nova-lite-console"),
    "broker": Place(controller.BROKER_CERTIFICATES, "rabbitmq"),
    "database": Place(galera.CERTIFICATES, "mysql"),
    "proxies": Place(controller.PROXY_CERTIFICATES, "nova-lite-console", CLIENT_KEY, CLIENT_CERTIFICATE),
    "broker-cluster": Place(controller.BROKER_CLUSTER_CERTIFICATES, "rabbitmq"),
    "database-cluster": Place(galera.CLUSTER_CERTIFICATES, "mysql"),
}


def steps(wanted: Host) -> list[Step]:
    setup = ControllerSetup(wanted)
    return [
        Step("Checking this machine", setup.check_machine),
        Step("Reaching the cloud", setup.reach),
        Step("Installing packages", setup.install_packages),
        Step("Creating users and directories", units.create_users),
        Step("Creating keys", setup.create_keys),
        Step("Joining the cloud", setup.join),
        Step("Writing the configuration", setup.write_configuration),
        Step("Setting up the load balancer", setup.set_up_balancer),
        Step("Setting up the message broker", setup.set_up_broker),
        Step("Setting up the database", setup.set_up_database),
        Step("Starting the daemons", _start_daemons),
        Step("Checking the controller", setup.check),
    ]


def farewell(wanted: Host) -> str:
    return f"\nController {wanted.name} serves. It needs the images: docs/howto/high-availability.md, Images."


class SealedSetup(Setup, Generic[Found]):
    """The set-up of a machine that gets secrets or settings of the cloud, sealed to a key of its own."""

    #: Type of what the cloud seals, and its name in an error.
    FOUND: type[Found]
    WHAT: ClassVar[str]

    def __init__(self, wanted: Host) -> None:
        super().__init__(wanted)
        self._settings: Found | None = None

    @property
    @abc.abstractmethod
    def _seal_key(self) -> Path:
        """Return the file of the key to which the cloud seals. The last step removes it."""

    @abc.abstractmethod
    def _is_done(self) -> bool:
        """Check whether an earlier run came to its end."""

    def _make_seal_key(self) -> int:
        if self._seal_key.exists() or self._is_done():
            return 0
        files.write_atomically(str(self._seal_key), sealing.new_private_key().encode(), mode=0o600)
        return 1

    def _wait_until_confirmed(self, command: str) -> JoinState:
        """Send the request until an operator has confirmed it. ``command``: of the operator, without the code."""
        code = join_requests.confirmation_code(self._body())
        return admission.wait_until_confirmed(self._send, f"{command} {self._wanted.name} {code}")

    def _accept(self, state: JoinState, places: Mapping[str, Place]) -> None:
        """Open the sealed data. Then write the data of the cloud."""
        reply = trust.reply_of(state, self._authority, self._wanted.name, admission.public(self._key))
        self._check(reply)
        try:
            opened = sealing.unseal(self._seal_key.read_text(), reply.sealed)
            self._settings = msgspec.json.decode(opened, type=self.FOUND)
        except (sealing.Unreadable, msgspec.DecodeError) as error:
            reason = f"the {self.WHAT} of the cloud are not for this machine."
            raise exceptions.ConfigurationError(reason=reason) from error
        accept_certificates(reply, places)
        accept_list(self._wanted.token.address, self._authority)
        self._reply = reply

    def _check(self, reply: JoinReply) -> None:
        """Raise `ConfigurationError` for a reply to another kind of machine."""


class ControllerSetup(SealedSetup[cluster.Secrets]):
    """The set-up of one controller."""

    FOUND = cluster.Secrets
    WHAT = "secrets"
    _packages = (*PACKAGES, *balancer.PACKAGES)

    def check_machine(self) -> str:
        wanted = self._wanted
        settings.require_systemd()
        if not HAS_SQL:
            raise exceptions.ConfigurationError(reason=f"a controller has a conductor, and {NO_SQL}.")
        settings.require_programs(*DAEMONS, REGISTRAR)
        known = cluster.local()
        if known is not None and known.host != wanted.name:
            raise exceptions.ConfigurationError(reason=f"this machine joined as {known.host}: give it that name again.")
        if known is None and (CONFIGURATION / "conductor.conf").exists():
            raise exceptions.ConfigurationError(
                reason=f"{CONFIGURATION}/conductor.conf is there: this machine is a controller already."
            )
        if (CONFIGURATION / "compute.conf").exists():
            raise exceptions.ConfigurationError(
                reason="this machine is a compute host: make it a controller first, and then a host."
            )
        machine.require_space("/var/lib", 1000)
        return f"{wanted.name} at {wanted.address}"

    # --- keys and admission

    def create_keys(self) -> str:
        """Make what does not exist: keys for messages, for certificates, and for the secrets of the cloud."""
        made = make_keys(self._wanted.name, KEY_OWNERS, PLACES) + self._make_seal_key()
        return f"{made} made" if made else "all are there"

    def join(self) -> str:
        """Send the request until an operator has confirmed it. Then write the secrets of the cloud."""
        if self._is_done():
            self._settings = cluster.secrets(str(KEYS))
            return "joined already"
        self._accept(self._wait_until_confirmed("controller admit"), PLACES)
        return f"as controller {self._wanted.name}"

    def _check(self, reply: JoinReply) -> None:
        if not reply.sealed:
            raise exceptions.ConfigurationError(
                reason="the first controller took this machine for a compute host: upgrade all its daemons, remove the "
                f"host (nova-lite-manage host remove {self._wanted.name}), and use another token."
            )

    @property
    def _seal_key(self) -> Path:
        return SEAL_KEY

    @property
    def _key(self) -> Path:
        return self._message_key(join_requests.CONTROLLER_ROLES[0])

    def _body(self) -> JoinBody:
        message_keys = {role: self._message_key(role) for role in join_requests.CONTROLLER_ROLES}
        return body(self._wanted.name, self._wanted.address, message_keys, SEAL_KEY)

    def _message_key(self, role: str) -> Path:
        return Path(keys.private_path(str(KEYS), role, self._wanted.name))

    # --- this machine

    def write_configuration(self) -> str:
        """Write the first controller's files with this one's address, name and accounts."""
        found, wanted = self._found(), self._wanted
        local = cluster.Local(
            host=wanted.name,
            address=wanted.address,
            interface=balancer.interface_of(wanted.address),
            virtual_address=found.virtual_address,
            has_database=found.has_database,
            proxy_protocol=controller.has_proxy_protocol(found.proxy_protocol),
        )
        cluster.write_local(local)
        if found.volume_keys and not cluster.VOLUME_KEYS.exists():
            owner = machine.ids(KEY_OWNERS[keys.CONDUCTOR])
            files.write_atomically(str(cluster.VOLUME_KEYS), found.volume_keys.encode(), mode=0o600, owner=owner)
        passwords = {role: secrets.token_urlsafe(24) for role in FILE_ROLES.values()}
        written = False
        for name, text in found.files.items():
            if name not in cluster.FILES:
                raise exceptions.ConfigurationError(reason=f"the cloud sent an unknown file: {name[:64]!r}.")
            stem = name.removesuffix(".conf")
            values: dict[tuple[str, str], str] = {}
            if name == "nova-lite.conf":
                values = {("DEFAULT", "host"): wanted.name, ("DEFAULT", "my_ip"): wanted.address}
            if stem in FILE_ROLES:
                role = FILE_ROLES[stem]
                password = controller.password(role) or passwords[role]
                values["DEFAULT", "transport_url"] = broker.url(role, password, wanted.name, balancer.BROKER_PORT)
            if stem == REGISTRAR:
                values["rpc", "trust_address"] = wanted.token.address
                values["rpc", "trust_ca_file"] = str(controller.authority_file())
            group, mode = controller.group_of(stem), 0o640
            if not name.endswith(".conf"):
                mode = 0o644
            else:
                text = cluster.adapted(text, values, found.address, wanted.address)
            written |= machine.write_once(CONFIGURATION / name, text, group, mode)
        return f"in {CONFIGURATION}" if written else f"what {CONFIGURATION} has, stays"

    def set_up_balancer(self) -> str:
        found, wanted = self._found(), self._wanted
        balancer.set_up(wanted.address, found.has_database)
        cluster.apply(str(KEYS))
        balancer.start()
        return f"{found.virtual_address}, by HAProxy and keepalived"

    def set_up_broker(self) -> str:
        """Make the broker a node of the cluster, with accounts for this controller's daemons."""
        found, wanted = self._found(), self._wanted
        if broker.write_cluster_settings(controller.BROKER_CLUSTER_CERTIFICATES) or broker.cookie_differs(found.cookie):
            broker.stop()
            broker.write_cookie(found.cookie)
        broker.listen(wanted.address, controller.BROKER_CERTIFICATES)
        done = broker.join_cluster(found.members[0].host)
        accounts = {}
        for name, role in FILE_ROLES.items():
            path = CONFIGURATION / f"{name}.conf"
            accounts[role] = broker.account(role, wanted.name, machine.setting(path, "DEFAULT", "transport_url"), path)
        broker.add_accounts(list(accounts.values()))
        broker.grow(wanted.name)
        return done

    def set_up_database(self) -> str:
        if not self._found().has_database:
            return "that of the cloud"
        machine.install_packages(*galera.PACKAGES)
        for place in (PLACES["database"], PLACES["database-cluster"]):
            os.chown(place.directory / place.key, *machine.ids(place.owner))
        galera.start(galera.write_settings(self._wanted.name, self._wanted.address))
        balancer.wait_until_served(controllers.DATABASE_PORT)
        return f"one of {galera.size()} nodes"

    def check(self) -> str:
        """Wait until this controller's conductor is up, and its API answers. Then check the configuration."""
        deadline = time.monotonic() + controller.START_SECONDS
        while True:
            listed = msgspec.json.decode(machine.manage("service", "list", "--format", "json"))
            down = [row["binary"] for row in listed if row["host"] == self._wanted.name and row["state"] != "up"]
            if not down and any(row["host"] == self._wanted.name for row in listed):
                break
            if time.monotonic() > deadline:
                raise exceptions.ConfigurationError(
                    reason=f"{', '.join(down) or 'the conductor'} of this machine is not up: "
                    f"{units.last_line('nova-lite-conductor')}"
                )
            time.sleep(1)
        admission.asked(lambda: JoinClient(f"{ip.in_url(self._wanted.address)}:8780", self._authority).trust())
        machine.manage("config", "check")
        SEAL_KEY.unlink(missing_ok=True)
        return f"{sum(row['state'] == 'up' for row in listed)} of {len(listed)} daemons with a heartbeat are up"

    def _is_done(self) -> bool:
        """Check whether an earlier run came to its end."""
        return (CONFIGURATION / "conductor.conf").exists() and not SEAL_KEY.exists()

    def _found(self) -> cluster.Secrets:
        assert self._settings is not None, "An earlier step found them."
        return self._settings


def _start_daemons() -> str:
    names = [f"nova-lite-{name}" for name in (*DAEMONS, REGISTRAR)]
    return units.start(names, [f"nova-lite-{name}" for name in OPTIONAL])


def body(host: str, address: str, message_keys: Mapping[str, Path], seal_key: Path) -> JoinBody:
    """Return the request of a machine with these keys. ``message_keys``: by role."""
    public = {role: admission.public(path) for role, path in message_keys.items()}
    return JoinBody(
        host=host,
        addresses=[address],
        key=public[join_requests.CONTROLLER_ROLES[0]],
        password_hash="",
        host_key="",
        console_key="",
        version=version.VERSION,
        sent=time.time(),
        controller=ControllerBody(
            message_keys=public,
            certificate_keys=public_keys(PLACES),
            seal_key=sealing.public_key(seal_key.read_text()),
        ),
    )


def public_keys(places: Mapping[str, Place]) -> dict[str, str]:
    """Return the public halves of certificates' keys, in PEM."""
    return {name: admission.public_pem(place.directory / place.key) for name, place in places.items()}


def make_keys(host: str, owners: Mapping[str, str], places: Mapping[str, Place]) -> int:
    """Make the keys that do not exist: for messages, by role with its user, and of certificates. Returns how many."""
    KEYS.mkdir(mode=0o755, parents=True, exist_ok=True)
    made = 0
    for role, owner in owners.items():
        path = Path(keys.private_path(str(KEYS), role, host))
        if not path.exists():
            files.write_atomically(str(path), keys.PrivateKey.generate().pem(), mode=0o600, owner=machine.ids(owner))
            made += 1
    for place in places.values():
        path = place.directory / place.key
        if not path.exists():
            place.directory.mkdir(mode=0o755, parents=True, exist_ok=True)
            # The database's package, which makes its user, comes only if the cloud has a database of its own.
            owner = place.owner if machine.has_user(place.owner) else "root"
            files.write_atomically(str(path), host_certificates.new_key(), mode=0o600, owner=machine.ids(owner))
            made += 1
    return made


def accept_certificates(reply: JoinReply, places: Mapping[str, Place]) -> None:
    for name, place in places.items():
        machine.replace(place.directory / CA_CERTIFICATE, reply.certificates[f"{name}/ca-cert.pem"])
        machine.replace(place.directory / place.certificate, reply.certificates[f"{name}/cert.pem"])


def accept_list(address: str, authority: str) -> None:
    """Write the list of trusted keys, and those of controllers and front ends. ``address``: of the join API."""
    machine.replace(controller.authority_file(), authority)
    listed = admission.asked(JoinClient(address, authority).trust, admission.PATIENCE)
    assert listed is not None, "The list was not requested with a number."
    trust.write(str(KEYS), listed, authority)
    controllers.write_members(str(KEYS), trust.controllers_of(listed))
    controllers.write_front_ends(str(KEYS), trust.front_ends_of(listed))
