"""Events of the audit log."""

from __future__ import annotations

import sqlalchemy as sa

from nova_lite.db.migrations.tables import BIG_ID, TIME, create_table

revision = "0034"
down_revision = "0033"
branch_labels = None
depends_on = None

_FILTERS = ("target_id", "user_id", "project_id", "action", "outcome")


def upgrade() -> None:
    create_table(
        "audit_events",
        sa.Column("id", BIG_ID, nullable=False),
        sa.Column("uuid", sa.String(length=36), nullable=False),
        sa.Column("event_time", TIME, nullable=False),
        sa.Column("service", sa.String(length=16), nullable=False),
        sa.Column("action", sa.String(length=64), nullable=False),
        sa.Column("outcome", sa.String(length=16), nullable=False),
        sa.Column("reason_code", sa.Integer(), nullable=False),
        sa.Column("request_id", sa.String(length=64), nullable=False),
        sa.Column("user_id", sa.String(length=255), nullable=False),
        sa.Column("project_id", sa.String(length=255), nullable=False),
        sa.Column("credential", sa.String(length=255), nullable=False),
        sa.Column("address", sa.String(length=64), nullable=False),
        sa.Column("agent", sa.String(length=255), nullable=False),
        sa.Column("target_type", sa.String(length=255), nullable=False),
        sa.Column("target_id", sa.String(length=255), nullable=False),
        sa.Column("path", sa.String(length=512), nullable=False),
        sa.Column("observer", sa.String(length=255), nullable=False),
        sa.Column("count", sa.Integer(), nullable=False),
        sa.PrimaryKeyConstraint("id", name="pk_audit_events"),
        sa.UniqueConstraint("uuid", name="uq_audit_events_uuid"),
        sa.Index("ix_audit_events_event_time_id", "event_time", "id"),
        *(sa.Index(f"ix_audit_events_{name}_event_time_id", name, "event_time", "id") for name in _FILTERS),
    )
