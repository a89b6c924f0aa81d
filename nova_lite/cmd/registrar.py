"""``nova-lite-registrar``: admits hosts that join with a token, removes hosts, and signs the list of trusted keys.

It runs as root on the machine that has the authority, the list of trusted keys and the broker. It listens nowhere: it
asks the conductor for work. What it signs, hosts believe; so neither an API nor a conductor can forge it.
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

from oslo_config import cfg  # noqa: E402

from nova_lite import conf as configuration  # noqa: E402
from nova_lite import rpc  # noqa: E402
from nova_lite.base import exceptions, join_requests  # noqa: E402
from nova_lite.base.context import get_admin_context  # noqa: E402
from nova_lite.base.host_certificates import Authority  # noqa: E402
from nova_lite.base.join_requests import JoinBody  # noqa: E402
from nova_lite.cmd.manage.keys import HOST_CERTIFICATES, distrust_host, trust_host  # noqa: E402
from nova_lite.cmd.setup import broker, machine  # noqa: E402
from nova_lite.conductor.rpcapi import ConductorRPC  # noqa: E402
from nova_lite.conf import join  # noqa: E402
from nova_lite.daemon import service  # noqa: E402
from nova_lite.objects import JoinReply, PendingJoin, TrustList  # noqa: E402
from nova_lite.objects.join import REMOVING  # noqa: E402
from nova_lite.rpc import keys, trust  # noqa: E402

LOG = logging.getLogger(__name__)

BINARY = "nova-lite-registrar"

#: Seconds between two queries for work.
INTERVAL = 1.0
#: Seconds after which the published list is compared again with the present one.
COMPARE_INTERVAL = 30.0
CERTIFICATE_DAYS = 825
#: Roles of the daemons that run on a compute host.
HOST_ROLES = (keys.COMPUTE, keys.METADATA)


class Accounts(Protocol):
    """The broker's accounts of hosts."""

    def add_host(self, vhost: str, host: str, password_hash: str) -> None: ...

    def remove_host(self, host: str) -> None: ...


class Registrar:
    """Does the work that `ConductorRPC.join_list` returns. Each part may be repeated."""

    def __init__(
        self,
        conf: cfg.ConfigOpts,
        conductor: ConductorRPC,
        accounts: Accounts,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Check that the machine is a controller. Raises `ConfigurationError` if it has no authority."""
        if not conf.rpc.keys_directory:
            raise exceptions.ConfigurationError(reason=f"{BINARY} needs [rpc] keys_directory.")
        self._conf = conf
        self._directory: str = conf.rpc.keys_directory
        self._conductor = conductor
        self._accounts = accounts
        self._clock = clock
        self._authority = Authority(os.path.join(self._directory, HOST_CERTIFICATES))
        self._authority.services_certificate()
        self._published: TrustList | None = None
        self._compared = -COMPARE_INTERVAL
        self._problems: dict[str, str] = {}

    def tick(self) -> None:
        """Publish the list if it has changed, and do what is to be done. Raises `ServiceUnavailable`."""
        self._publish()
        for work in self._conductor.join_list(get_admin_context()):
            reply = signature = problem = ""
            try:
                if work.state == REMOVING:
                    self._remove(work)
                else:
                    reply, signature = self._admit(work)
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

    def _admit(self, work: PendingJoin) -> tuple[str, str]:
        body = join_requests.parse_body(work.body)
        if body.host != work.host:
            raise exceptions.InvalidInput(reason="the request names another host.")
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

    def _settings(self, body: JoinBody) -> dict[str, dict[str, str]]:
        """Return the settings of the whole cloud, and the addresses of the host."""
        conf, address = self._conf, body.addresses[0]
        return {
            "vnc": {
                "server_listen": address,
                "server_proxyclient_address": address,
                "novncproxy_base_url": conf.vnc.novncproxy_base_url,
            },
            "serial_console": {
                "enabled": str(conf.serial_console.enabled).lower(),
                "tls": str(proxies_have_tls()).lower(),
                "proxyclient_address": address,
                "base_url": conf.serial_console.base_url,
            },
        }

    def _remove(self, work: PendingJoin) -> None:
        distrust_host(self._directory, HOST_ROLES, work.host)
        self._publish()
        self._accounts.remove_host(work.host)

    # --- trusted keys

    def _publish(self) -> None:
        """Publish the list if it is not the published one, which another machine or a restored database may have."""
        if self._clock() - self._compared >= COMPARE_INTERVAL:
            self._published = self._conductor.trust_get(get_admin_context())
            self._compared = self._clock()
        trusted = keys.read_trusted(os.path.join(self._directory, keys.TRUSTED))
        published, authority = self._published, self._authority.services_certificate()
        if published and published.authority == authority and trust.published_keys(published) == trusted:
            return
        made = trust.signed_list(self._authority, trusted, published.serial if published else 0)
        self._conductor.trust_publish(get_admin_context(), made)
        self._published = made
        LOG.info("List %d with %d trusted keys was published", made.serial, len(trusted))


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
