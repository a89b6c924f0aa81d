"""Log of every state of a server's row and its actions' rows, written by triggers of a private MariaDB.

Sampling would miss short states. The triggers miss none, and are rolled back with the changes that they log.
`mark_transactions` makes each transaction of a daemon log its id, since no other program sees its intermediate writes.
"""

from __future__ import annotations

import datetime
import json
from collections.abc import Iterator
from typing import Any

import sqlalchemy as sa
from sqlalchemy import event, orm

from tests.faults.history.events import Change

_TABLE = """
CREATE TABLE history (
    id BIGINT AUTO_INCREMENT PRIMARY KEY, at DECIMAL(20, 6), transaction_id VARCHAR(64),
    what VARCHAR(16), server VARCHAR(36), body LONGTEXT
) ENGINE=InnoDB CHARACTER SET utf8mb4
"""
#: Numeric and other columns of each logged table, by the names that they get.
_NUMBERS = {
    "instance": ("power_state", "generation", "last_generation", "deleted", "locked"),
    "action": ("id", "generation"),
}
_COLUMNS = {
    "instance": {name: name for name in ("vm_state", "task_state", "host", "display_name", "metadata")},
    "action": {
        **{name: name for name in ("action", "request_id", "step", "host", "message", "payload")},
        "user": "user_id",
        "finished": "finish_time",
    },
}
_SUBJECTS = {"instance": ("instances", "uuid"), "action": ("instance_actions", "instance_uuid")}

#: JSON columns are text to MariaDB.
_TEXTS = ("metadata", "payload")
_MARK = "SET @nova_lite_transaction = UUID()"


def install(engine: sa.Engine) -> None:
    """Install the triggers, before any daemon runs."""
    with engine.begin() as connection:
        connection.exec_driver_sql(_TABLE)
        for what, (table, subject) in _SUBJECTS.items():
            texts = (f"'{name}', CONVERT(NEW.{column} USING utf8mb4)" for name, column in _COLUMNS[what].items())
            pairs = ", ".join((*(f"'{name}', NEW.{name}" for name in _NUMBERS[what]), *texts))
            for when in ("INSERT", "UPDATE"):
                connection.exec_driver_sql(
                    f"CREATE TRIGGER history_{table}_{when.lower()} AFTER {when} ON {table} FOR EACH ROW "
                    "INSERT INTO history (at, transaction_id, what, server, body) VALUES (UNIX_TIMESTAMP(SYSDATE(6)), "
                    f"COALESCE(@nova_lite_transaction, CONNECTION_ID()), '{what}', NEW.{subject}, "
                    f"JSON_OBJECT({pairs}))"
                )


def mark_transactions() -> None:
    """Make all sessions of a daemon log their transactions' ids."""

    @event.listens_for(orm.Session, "after_begin")
    def marked(session: orm.Session, transaction: object, connection: sa.Connection) -> None:
        if not connection.get_execution_options().get("nova_lite_readonly"):
            connection.exec_driver_sql(_MARK)


def changes(engine: sa.Engine) -> Iterator[Change]:
    """Yield all logged changes in order."""
    with engine.connect() as connection:
        rows = connection.exec_driver_sql("SELECT id, at, transaction_id, what, server, body FROM history ORDER BY id")
        for number, at, transaction, what, server, body in rows:
            yield Change(
                order=number,
                at=float(at),
                transaction=transaction,
                what=what,
                server=server,
                row={name: _plain(name, value) for name, value in json.loads(body).items()},
            )


def _plain(name: str, value: Any) -> Any:
    return json.loads(value) if name in _TEXTS and isinstance(value, str) else value


def tables(engine: sa.Engine) -> dict[str, list[dict[str, Any]]]:
    """Return the tables that the checker judges, in one snapshot."""
    found: dict[str, list[dict[str, Any]]] = {}
    wanted = {
        "instances": "uuid, display_name, vm_state, task_state, power_state, host, node, generation, deleted, vcpus, "
        "memory_mb, disk_gb, extra_vcpus, extra_memory_mb, project_id, fault",
        "allocations": "instance_uuid, compute_node_id, generation, vcpus, memory_mb, disk_gb",
        "compute_nodes": "id, host, vcpus, memory_mb, disk_gb, vcpus_used, memory_mb_used, disk_gb_used",
        "ports": "id, instance_uuid, address, mac_address",
        "volumes": "id, status, instance_uuid",
        "quota_usages": "project_id, resource, used",
        "migrations": "instance_uuid, status, source_host, destination_host",
        "instance_actions": "id, action, instance_uuid, request_id, step, finish_time, message, events",
    }
    with engine.connect().execution_options(isolation_level="REPEATABLE READ") as connection:
        for table, columns in wanted.items():
            rows = connection.exec_driver_sql(f"SELECT {columns} FROM {table}").mappings()
            found[table] = [{name: _json(value) for name, value in row.items()} for row in rows]
    return found


def _json(value: Any) -> Any:
    return value.isoformat() if isinstance(value, datetime.datetime) else value
