"""``nova-lite-registrar``: admits machines that join with a token, removes them, and signs the list of trusted keys.

It runs as root on the machine that has the authority, the list of trusted keys and the broker. It listens nowhere: it
asks the conductor for work. What it signs, hosts believe; so neither an API nor a conductor can forge it.

On a controller or front end that joined, which has no authority, it fetches the list as compute hosts do. On each of
several controllers it restarts a broker that stays stopped (`nova_lite.cmd.setup.broker_watch`), and lets the database
return from the loss of a majority (`nova_lite.cmd.setup.database_watch`).
"""

from __future__ import annotations

from nova_lite.base import concurrency

concurrency.setup(concurrency.THREADING)

# isort: split
import logging  # noqa: E402
import os  # noqa: E402
import sys  # noqa: E402
import time  # noqa: E402
from collections.abc import Callable  # noqa: E402
from typing import Protocol  # noqa: E402
from urllib.parse import unquote, urlsplit  # noqa: E402

import msgspec  # noqa: E402
from oslo_config import cfg  # noqa: E402

from nova_lite import conf as configuration  # noqa: E402
from nova_lite import rpc  # noqa: E402
from nova_lite.base import exceptions, join_requests, sealing  # noqa: E402
from nova_lite.base.context import get_admin_context  # noqa: E402
from nova_lite.base.host_certificates import HOST_CERTIFICATES, Authority  # noqa: E402
from nova_lite.base.join_requests import ControllerBody, FrontEndBody, JoinBody  # noqa: E402
from nova_lite.cmd.setup import admission, broker, broker_watch, cluster, database_watch, machine  # noqa: E402
from nova_lite.conf import join  # noqa: E402
from nova_lite.daemon import service  # noqa: E402
from nova_lite.objects import Controller, FrontEnd, JoinReply, PendingJoin, TrustList  # noqa: E402
from nova_lite.objects.join import REMOVING  # noqa: E402
from nova_lite.rpc import controllers, keys, trust  # noqa: E402
from nova_lite.rpc.trusted_list import distrust_host, trust_host  # noqa: E402
from nova_lite.rpcapi.conductor import ConductorRPC  # noqa: E402

LOG = logging.getLogger(__name__)

BINARY = "nova-lite-registrar"

#: Seconds between two queries for work.
INTERVAL = 1.0
#: Seconds after which the published list is compared again with the present one.
COMPARE_INTERVAL = 30.0
#: Seconds between two queries of a controller without the authority for the list.
FETCH_INTERVAL = 5.0
CERTIFICATE_DAYS = 825
#: Roles of the daemons that run on a compute host.
HOST_ROLES = (keys.COMPUTE, keys.METADATA)


class Accounts(Protocol):
    """The broker's accounts of hosts and front ends."""

    def add_host(self, vhost: str, host: str, password_hash: str, role: str = ...) -> None: ...

    def remove_host(self, host: str, role: str = ...) -> None: ...

    def remove_controller(self, host: str) -> None: ...


class Machine(Protocol):
    """Parts of this controller that others are about: `nova_lite.cmd.setup.cluster`."""

    def secrets(self, directory: str) -> cluster.Secrets: ...

    def front_end_settings(self, directory: str, role: str) -> cluster.FrontEndSettings: ...

    def apply(self, directory: str) -> list[str]: ...


class Registrar:
    """Does the work that `ConductorRPC.join_list` returns. Each part may be repeated."""

    def __init__(
        self,
        conf: cfg.ConfigOpts,
        conductor: ConductorRPC,
        accounts: Accounts,
        clock: Callable[[], float] = time.monotonic,
        this_machine: Machine = cluster,
    ) -> None:
        """Check that the machine is a controller. Raises `ConfigurationError` if it has no authority."""
        if not conf.rpc.keys_directory:
            raise exceptions.ConfigurationError(reason=f"{BINARY} needs [rpc] keys_directory.")
        self._conf = conf
        self._directory: str = conf.rpc.keys_directory
        self._conductor = conductor
        self._accounts = accounts
        self._clock = clock
        self._authority_directory = os.path.join(self._directory, HOST_CERTIFICATES)
        self._authority = Authority(self._authority_directory)
        self._machine = this_machine
        self._authority.services_certificate()
        self._published: TrustList | None = None
        self._compared = -COMPARE_INTERVAL
        self._problems: dict[str, str] = {}

    def tick(self) -> None:
        """Publish the list if it has changed, and do what is to be done. Raises `ServiceUnavailable`."""
        self._publish()
        _apply(self._machine, self._directory)
        for work in self._conductor.join_list(get_admin_context()):
            reply = signature = problem = ""
            try:
                if work.state == REMOVING:
                    self._remove(work)
                else:
                    body = join_requests.parse_body(work.body)
                    if body.kind != join_requests.COMPUTE_HOST and not self._is_confirmed(body):
                        continue
                    reply, signature = self._admit(work, body)
            except (exceptions.ConfigurationError, exceptions.Invalid) as error:
                problem = error.message
            except OSError as error:
                problem = f"{error.filename}: {error.strerror}" if error.filename else str(error)
            self._finish(work, reply, signature, problem)

    def _finish(self, work: PendingJoin, reply: str, signature: str, problem: str) -> None:
        if problem and self._problems.get(work.host) == problem:
            return
        self._problems.pop(work.host, None)
        if problem:
            self._problems[work.host] = problem
            LOG.error("Host %s waits (%s): %s", work.host, work.state, problem)
        else:
            LOG.info("Host %s was %s", work.host, "removed" if work.state == REMOVING else "admitted")
        self._conductor.join_finish(get_admin_context(), work, reply, signature, problem)

    # --- a host

    def _admit(self, work: PendingJoin, body: JoinBody) -> tuple[str, str]:
        if body.host != work.host:
            raise exceptions.InvalidInput(reason="the request names another host.")
        if body.controller is not None:
            return self._admit_controller(body, body.controller, work.previous_key is not None)
        if body.front_end is not None:
            return self._admit_front_end(body, body.front_end, work.previous_key)
        trust_host(self._directory, keys.COMPUTE, body.host, body.key, work.previous_key)
        vhost = _vhost(self._conf.transport_url)
        self._accounts.add_host(vhost, body.host, body.password_hash)
        certificates = self._authority.certify(
            body.host, body.addresses, body.host_key, body.console_key, CERTIFICATE_DAYS
        )
        self._publish()
        reply = JoinReply(
            host=body.host,
            key=body.key,
            broker=join.broker_address(self._conf),
            vhost=vhost,
            user=broker.host_user(body.host),
            settings=self._settings(body),
            certificates=certificates,
        )
        return trust.signed_reply(self._authority, reply)

    # --- a controller

    def _is_confirmed(self, body: JoinBody) -> bool:
        """Check whether root on this machine has confirmed the keys: no token, API or conductor can."""
        code = join_requests.confirmation_code(body)
        return controllers.confirmed(self._authority_directory).get(_confirmed_name(body)) == code

    def _admit_controller(self, body: JoinBody, controller: ControllerBody, is_rotation: bool) -> tuple[str, str]:
        secrets = self._machine.secrets(self._directory)
        member = Controller(host=body.host, address=body.addresses[0])
        if member.address == secrets.virtual_address:
            raise exceptions.InvalidInput(reason=f"{member.address} is the virtual address of the cloud.")
        listed = controllers.with_member(secrets.members, member)
        for role, public in controller.message_keys.items():
            previous = self._present_key(role, body.host, public) if is_rotation else None
            trust_host(self._directory, role, body.host, public, previous)
        addresses = list(dict.fromkeys([*body.addresses, secrets.virtual_address, "127.0.0.1"]))
        certificates = self._authority.certify_controller(
            body.host, addresses, controller.certificate_keys, CERTIFICATE_DAYS
        )
        controllers.write_members(self._directory, listed)
        self._publish()
        _apply(self._machine, self._directory)
        secrets.members = listed
        reply = JoinReply(
            host=body.host,
            key=body.key,
            broker=join.broker_address(self._conf),
            vhost=_vhost(self._conf.transport_url),
            user="",
            settings={},
            certificates=_by_file(certificates),
            sealed=sealing.seal(controller.seal_key, msgspec.json.encode(secrets)),
        )
        return trust.signed_reply(self._authority, reply)

    def _present_key(self, role: str, host: str, public: str) -> str | None:
        """Return the key of a controller's role that ``public`` replaces."""
        trusted = keys.read_trusted(os.path.join(self._directory, keys.TRUSTED))
        of_role = [item for item in trusted if (item.role, item.host) == (role, host) and item.not_after is None]
        return next((item.key for item in of_role if item.key != public), None)

    # --- a front end

    def _admit_front_end(self, body: JoinBody, front_end: FrontEndBody, previous_key: str | None) -> tuple[str, str]:
        role, vhost = front_end.role, _vhost(self._conf.transport_url)
        found = self._machine.front_end_settings(self._directory, role)
        made = FrontEnd(role=role, host=body.host, address=body.addresses[0])
        if made.address == found.virtual_address:
            raise exceptions.InvalidInput(reason=f"{made.address} is the virtual address of the cloud.")
        if made.host in [member.host for member in found.members]:
            raise exceptions.InvalidInput(reason=f"{made.host} is a controller, which has this role already.")
        listed = controllers.with_front_end(controllers.front_ends(self._directory), made)
        trust_host(self._directory, role, body.host, body.key, previous_key)
        self._accounts.add_host(vhost, body.host, body.password_hash, role)
        shared = [found.virtual_address] if found.virtual_address else []
        addresses = list(dict.fromkeys([*body.addresses, *shared, "127.0.0.1"]))
        certificates = self._authority.certify_controller(
            body.host, addresses, front_end.certificate_keys, CERTIFICATE_DAYS
        )
        controllers.write_front_ends(self._directory, listed)
        self._publish()
        _apply(self._machine, self._directory)
        reply = JoinReply(
            host=body.host,
            key=body.key,
            broker=join.broker_address(self._conf),
            vhost=vhost,
            user=broker.host_user(body.host, role),
            settings={},
            certificates=_by_file(certificates),
            sealed=sealing.seal(front_end.seal_key, msgspec.json.encode(found)),
        )
        return trust.signed_reply(self._authority, reply)

    def _settings(self, body: JoinBody) -> dict[str, dict[str, str]]:
        """Return the settings of the whole cloud, and the addresses of the host."""
        conf, address = self._conf, body.addresses[0]
        return self._queues() | {
            "vnc": {
                "server_listen": address,
                "server_proxyclient_address": address,
                "novncproxy_base_url": conf.vnc.novncproxy_base_url,
            },
            "spice": {
                "enabled": str(conf.spice.enabled).lower(),
                "server_listen": address,
                "server_proxyclient_address": address,
                "html5proxy_base_url": conf.spice.html5proxy_base_url,
            },
            "serial_console": {
                "enabled": str(conf.serial_console.enabled).lower(),
                "tls": str(proxies_have_tls()).lower(),
                "proxyclient_address": address,
                "base_url": conf.serial_console.base_url,
            },
        }

    def _queues(self) -> dict[str, dict[str, str]]:
        """Return the section of the broker's driver if queues are not of the default kind: it is the same everywhere.

        It replaces the section that the host would write itself.
        """
        options = self._conf.oslo_messaging_rabbit
        names = ("amqp_durable_queues", "rabbit_quorum_queue", "rabbit_transient_quorum_queue")
        kinds = {name: "true" for name in names if options[name]}
        tls = {"ssl": "true", "ssl_ca_file": str(admission.AUTHORITY)}
        return {"oslo_messaging_rabbit": tls | kinds} if kinds else {}

    def _remove(self, work: PendingJoin) -> None:
        body = join_requests.parse_body(work.body)
        if body.front_end is not None:
            self._remove_front_end(work.host, body.front_end.role, body)
            return
        if body.controller is not None:
            listed = controllers.members(self._directory)
            controllers.forget(self._authority_directory, work.host)
            distrust_host(self._directory, join_requests.CONTROLLER_ROLES, work.host)
            controllers.write_members(self._directory, [member for member in listed if member.host != work.host])
            self._publish()
            _apply(self._machine, self._directory)
            self._accounts.remove_controller(work.host)
            return
        distrust_host(self._directory, HOST_ROLES, work.host)
        self._publish()
        self._accounts.remove_host(work.host)

    def _remove_front_end(self, host: str, role: str, body: JoinBody) -> None:
        listed = controllers.front_ends(self._directory)
        controllers.forget(self._authority_directory, _confirmed_name(body))
        distrust_host(self._directory, (role,), host)
        kept = [machine for machine in listed if (machine.role, machine.host) != (role, host)]
        controllers.write_front_ends(self._directory, kept)
        self._publish()
        _apply(self._machine, self._directory)
        self._accounts.remove_host(host, role)

    # --- trusted keys

    def _publish(self) -> None:
        """Publish the list if it is not the published one, which another machine or a restored database may have."""
        if self._clock() - self._compared >= COMPARE_INTERVAL:
            self._published = self._conductor.trust_get(get_admin_context())
            self._compared = self._clock()
        trusted = keys.read_trusted(os.path.join(self._directory, keys.TRUSTED))
        published, authority = self._published, self._authority.services_certificate()
        listed, front_ends = controllers.members(self._directory), controllers.front_ends(self._directory)
        if (
            published
            and published.authority == authority
            and trust.published_keys(published) == trusted
            and trust.controllers_of(published) == listed
            and trust.front_ends_of(published) == front_ends
        ):
            return
        made = trust.signed_list(self._authority, trusted, published.serial if published else 0, listed, front_ends)
        self._conductor.trust_publish(get_admin_context(), made)
        self._published = made
        LOG.info("List %d with %d trusted keys was published", made.serial, len(trusted))


class Follower:
    """Keeps the list of trusted keys, and that of the controllers, as the registrar with the authority signs them."""

    def __init__(self, conf: cfg.ConfigOpts, this_machine: Machine = cluster) -> None:
        """Read ``[rpc] trust_address``, trust_ca_file and keys_directory. Raises `ConfigurationError`."""
        self._update = trust.updater(conf, self._receive)
        self._directory: str = conf.rpc.keys_directory
        self._machine = this_machine

    def tick(self) -> None:
        """Fetch the list if it has changed. Raises `ServiceUnavailable`."""
        assert self._update is not None, "The daemon looks for trust_address first."
        try:
            self._update()
        finally:  # An interrupted change is completed even while no join API answers.
            _apply(self._machine, self._directory)

    def _receive(self, found: TrustList) -> None:
        if listed := trust.controllers_of(found):
            controllers.write_members(self._directory, listed)
        controllers.write_front_ends(self._directory, trust.front_ends_of(found))


def _confirmed_name(body: JoinBody) -> str:
    return body.host if body.front_end is None else controllers.front_end_name(body.front_end.role, body.host)


def _by_file(certificates: dict[str, tuple[str, str]]) -> dict[str, str]:
    """Return the trusted certificate and the own one of each name by the names of a reply."""
    return {
        f"{name}/{file}": pem
        for name, pems in certificates.items()
        for file, pem in zip(("ca-cert.pem", "cert.pem"), pems, strict=True)
    }


def _apply(this_machine: Machine, directory: str) -> None:
    """Bring the files of this machine up to date. A failure does not keep hosts from joining."""
    try:
        if changed := this_machine.apply(directory):
            LOG.info("The list of controllers is new in: %s", ", ".join(changed))
    except (exceptions.ConfigurationError, OSError) as error:
        LOG.error("The list of controllers is not in the files of this machine: %s", error)


def proxies_have_tls() -> bool:
    """Check whether the console proxies of this machine speak TLS to hosts."""
    return bool(machine.setting(machine.CONFIGURATION / "novncproxy.conf", "console", "tls_directory"))


def _vhost(transport_url: str) -> str:
    return unquote(urlsplit(transport_url).path.lstrip("/"))


class RegistrarDaemon(service.Daemon):
    """The registrar daemon. It has the role and the account of `nova-lite-manage`."""

    def __init__(self, conf: cfg.ConfigOpts, connect: rpc.Connect = rpc.Transport) -> None:
        super().__init__(conf, BINARY)
        self._connect = connect
        self._transport: rpc.Transport | None = None

    def prepare(self) -> None:
        if self.conf.rpc.keys_directory:
            watch = broker_watch.BrokerWatch(self.conf.rpc.keys_directory)
            self.add_periodic("Broker of this machine", broker_watch.INTERVAL, watch.tick)
            nodes = database_watch.DatabaseWatch(self.conf.rpc.keys_directory)
            self.add_periodic("Nodes of the database", database_watch.INTERVAL, nodes.tick)
        if self.conf.rpc.trust_address:
            follower = Follower(self.conf)
            self.add_periodic("List of trusted keys", FETCH_INTERVAL, follower.tick, at_once=True)
            return
        transport = self._transport = self._transport or self._connect(self.conf, rpc.MANAGE)
        registrar = Registrar(self.conf, rpc.proxy(ConductorRPC, transport), broker)
        self.add_periodic("Admission of hosts", INTERVAL, registrar.tick, at_once=True)

    def cleanup(self) -> None:
        if self._transport is not None:
            self._transport.cleanup()
            self._transport = None


def main() -> int:
    conf = configuration.load(prog=BINARY)
    service.setup_logging(conf, BINARY)
    return RegistrarDaemon(conf).run()


if __name__ == "__main__":
    sys.exit(main())
