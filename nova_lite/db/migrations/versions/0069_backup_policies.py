"""Policies by which servers are backed up, and the backups that they make."""

from __future__ import annotations

import sqlalchemy as sa

from nova_lite.db.migrations.tables import BIG_ID, TIME, create_table

revision = "0069"
down_revision = "0057"
branch_labels = None
depends_on = None


def upgrade() -> None:
    create_table(
        "backup_policies",
        sa.Column("id", BIG_ID, nullable=False),
        sa.Column("uuid", sa.String(36), nullable=False),
        sa.Column("project_id", sa.String(255), nullable=False),
        sa.Column("user_id", sa.String(255), nullable=False),
        sa.Column("name", sa.String(255), nullable=False),
        sa.Column("enabled", sa.Boolean(), nullable=False),
        sa.Column("every", sa.String(8), nullable=False),
        sa.Column("minute", sa.Integer(), nullable=False),
        sa.Column("hour", sa.Integer(), nullable=False),
        sa.Column("weekday", sa.Integer(), nullable=False),
        sa.Column("keep_hourly", sa.Integer(), nullable=False),
        sa.Column("keep_daily", sa.Integer(), nullable=False),
        sa.Column("keep_weekly", sa.Integer(), nullable=False),
        sa.Column("not_before", sa.Integer(), nullable=True),
        sa.Column("not_after", sa.Integer(), nullable=True),
        sa.Column("servers", sa.JSON(), nullable=False),
        sa.Column("tags", sa.JSON(), nullable=False),
        sa.Column("all_servers", sa.Boolean(), nullable=False),
        sa.Column("next_run_at", TIME, nullable=True),
        sa.Column("created_at", TIME, nullable=False),
        sa.Column("updated_at", TIME, nullable=True),
        sa.PrimaryKeyConstraint("id", name="pk_backup_policies"),
        sa.UniqueConstraint("uuid", name="uq_backup_policies_uuid"),
        sa.Index("ix_backup_policies_project_id", "project_id"),
        sa.Index("ix_backup_policies_next_run_at", "next_run_at"),
    )
    create_table(
        "server_backups",
        sa.Column("id", BIG_ID, nullable=False),
        sa.Column("uuid", sa.String(36), nullable=False),
        sa.Column("policy_id", sa.String(36), nullable=False),
        sa.Column("project_id", sa.String(255), nullable=False),
        sa.Column("user_id", sa.String(255), nullable=False),
        sa.Column("instance_uuid", sa.String(36), nullable=False),
        sa.Column("status", sa.String(16), nullable=False),
        sa.Column("scheduled_for", TIME, nullable=False),
        sa.Column("due_at", TIME, nullable=False),
        sa.Column("deadline", TIME, nullable=False),
        sa.Column("image_id", sa.String(36), nullable=False),
        sa.Column("size", sa.BigInteger(), nullable=False),
        sa.Column("attempts", sa.Integer(), nullable=False),
        sa.Column("reason", sa.Text(), nullable=True),
        sa.Column("action_id", sa.BigInteger(), nullable=True),
        sa.Column("host", sa.String(255), nullable=True),
        sa.Column("started_at", TIME, nullable=True),
        sa.Column("finished_at", TIME, nullable=True),
        sa.Column("held_until", TIME, nullable=True),
        sa.Column("server", sa.JSON(), nullable=False),
        sa.Column("created_at", TIME, nullable=False),
        sa.PrimaryKeyConstraint("id", name="pk_server_backups"),
        sa.UniqueConstraint("uuid", name="uq_server_backups_uuid"),
        sa.UniqueConstraint(
            "policy_id",
            "instance_uuid",
            "scheduled_for",
            name="uq_server_backups_policy_id_instance_uuid_scheduled_for",
        ),
        sa.Index("ix_server_backups_project_id_id", "project_id", "id"),
        sa.Index("ix_server_backups_status_due_at", "status", "due_at"),
        sqlite_autoincrement=True,
    )
