"""An action has its events in its own row."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0012"
down_revision = "0011"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column("instance_actions", sa.Column("events", sa.JSON, nullable=True))
    _move_open_events()


def _move_open_events() -> None:
    """Those of actions under way are closed in the action's row; the others stay where they are, and are read there."""
    old = sa.table(
        "instance_action_events",
        *(sa.column(name) for name in ("id", "action_id", "event", "host")),
        *(sa.column(name, sa.DateTime) for name in ("start_time", "finish_time")),
    )
    actions = sa.table("instance_actions", sa.column("id"), sa.column("events", sa.JSON))
    connection = op.get_bind()
    found: dict[int, list[dict[str, str | None]]] = {}
    for row in connection.execute(sa.select(old).where(old.c.finish_time.is_(None)).order_by(old.c.id)).all():
        event = {"event": row.event, "host": row.host, "start_time": row.start_time.isoformat()}
        found.setdefault(row.action_id, []).append(event)
    for action_id, events in found.items():
        connection.execute(sa.update(actions).where(actions.c.id == action_id).values(events=events))
    connection.execute(sa.delete(old).where(old.c.finish_time.is_(None)))
