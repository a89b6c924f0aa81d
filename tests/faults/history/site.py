"""The cloud of a history: each daemon reaches the broker, and each conductor the database, by a way of its own that can
be cut."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import sqlalchemy as sa

from nova_lite.base import failpoints
from tests.faults.history import daemon, rowlog
from tests.faults.outages import BROKER_PORT
from tests.faults.private import PrivateDatabase
from tests.functional import cloud
from tests.functional.proxy import Proxy
from tests.model import daemons

MORE = ("conductor-2", "scheduler-2")

CONFIG = """
[DEFAULT]
shelved_offload_time = 1
[fake]
spawn_delay = 0.2
destroy_delay = 0.3
power_delay = 0.05
[conductor]
migration_deadline = {deadline}
snapshot_deadline = {deadline}
live_migration_deadline = {deadline}
[rpc]
self_check_interval = 2
self_check_misses = 3
"""


class HistoryCloud(cloud.Cloud):
    """``brokers``, ``databases``: each daemon's way there. Start it by `running`."""

    def __init__(self, path: Path, server: PrivateDatabase, computes: int, deadline: int, without: str) -> None:
        self.control = path / "failpoints.json"
        super().__init__(
            path,
            database=server.url,
            computes=computes,
            vcpus=32,
            more=MORE,
            quota=-1,
            action_deadline=deadline,
            extra_config=CONFIG.format(deadline=deadline),
            launcher=("tests.faults.history.daemon", without or daemon.NONE),
            environment={failpoints.ENVIRONMENT: str(self.control), daemons.ENVIRONMENT: str(path / "traces")},
        )
        conductors = [name for name in self.names if cloud.daemon_of(name) == "conductor"]
        self.brokers = {name: Proxy(BROKER_PORT) for name in self.names}
        self.databases = {name: Proxy(server.port) for name in conductors}

    def make(self) -> None:
        super().make()
        for name, proxy in self.databases.items():
            url = sa.make_url(self.database).set(port=proxy.port).render_as_string(hide_password=False)
            (self.path / f"database-{name}.conf").write_text(f"[database]\nconnection = {url}\n")
        engine = sa.create_engine(self.database)
        rowlog.install(engine)
        engine.dispose()
        (self.path / "traces").mkdir()
        daemons.prepare(self)

    def _write_config(self, name: str) -> None:
        self.broker_port = self.brokers[name].port
        super()._write_config(name)

    def config_arguments(self, name: str) -> list[str]:
        own = self.path / f"database-{name}.conf"
        more = ["--config-file", str(own)] if own.exists() else []
        return [*super().config_arguments(name), *more]

    def lose_broker(self) -> None:
        """Reset all connections and drop queues and messages, as a killed broker does."""
        for proxy in self.brokers.values():
            proxy.cut()
        self.delete_vhost()

    def new_broker(self) -> None:
        self.make_vhost()
        for proxy in self.brokers.values():
            proxy.restore()


@contextlib.contextmanager
def running(path: Path, **options: Any) -> Iterator[tuple[HistoryCloud, PrivateDatabase]]:
    with contextlib.ExitStack() as stack:
        server = stack.enter_context(PrivateDatabase(path / "database"))
        made = HistoryCloud(path, server, **options)
        for proxy in (*made.brokers.values(), *made.databases.values()):
            stack.enter_context(proxy)
        stack.callback(made.destroy)
        made.make()
        made.start_all()
        yield made, server
