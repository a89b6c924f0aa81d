"""``nova-lite-manage`` in the process of a test, and the rows that it works on."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa
from oslo_config import cfg

from nova_lite.base.timing import ManageTiming
from nova_lite.cmd import manage
from nova_lite.db.core.engine import Database
from nova_lite.db.core.models import Allocation, ComputeNode
from nova_lite.db.hosts import hosts as db_hosts
from tests.support import make


class Tool:
    """Calls the tool in this process. ``text`` and ``error`` are what the last call printed."""

    def __init__(self, path: Path, capsys: pytest.CaptureFixture[str]) -> None:
        self.path = path
        self.config = path / "nova-lite.conf"
        self.database = f"sqlite:///{path}/db.sqlite"
        self.capsys = capsys
        self.text = self.error = ""
        self.timing = ManageTiming(move_poll=0.01, upgrade_poll=0.01, fetch_wait=0.01)
        self.configure()

    def configure(self, extra: str = "", database: str | None = None) -> None:
        self.config.write_text(
            f"[DEFAULT]\nstate_path = {self.path}\n{extra}\n[database]\nconnection = {database or self.database}\n"
        )
        self.config.chmod(0o600)

    def __call__(self, *arguments: str, status: int = 0) -> str:
        cfg.CONF.reset()
        try:
            found = manage.main(["--config-file", str(self.config), *arguments], self.timing)
        except SystemExit as leaving:
            found = leaving.code if isinstance(leaving.code, int) else 1
        self.text, self.error = self.capsys.readouterr()
        assert found == status, (found, self.text, self.error)
        return self.text.strip()

    def json(self, *arguments: str, status: int = 0) -> Any:
        return json.loads(self(*arguments, "--format", "json", status=status))

    def fails(self, *arguments: str) -> str:
        """Exit status 1, one line."""
        self(*arguments, status=1)
        assert len(self.error.splitlines()) == 1
        return self.error

    def database_of(self) -> Database:
        return Database(make.conf(self.database))


def report(tool: Tool, *names: str) -> None:
    database = tool.database_of()
    for name in names:
        inventory = make.inventory(name, memory_mb=1024)
        database.write(db_hosts.record, make.conf(tool.database), make.report(name, inventories=[inventory]))
    database.close()


def placed(tool: Tool, host: str | None, **values: Any) -> str:
    database = tool.database_of()
    flavor = make.FLAVOR | {"memory_mb": 512}
    uuid = database.write(make.instance, host=host, node=host, flavor=flavor, memory_mb=512, **values)
    if host is not None:

        def allocate(uow: Any) -> None:
            node = uow.session.scalars(sa.select(ComputeNode).where(ComputeNode.host == host)).one()
            node.memory_mb_used += 512
            allocation = {"vcpus": 1, "memory_mb": 512, "disk_gb": 1, "generation": 1, "created_at": uow.now}
            uow.session.add(Allocation(instance_uuid=uuid, compute_node_id=node.id, **allocation))

        database.write(allocate)
    database.close()
    return uuid
