"""Aggregates, server groups, and failed builds of a host."""

from __future__ import annotations

from typing import Any

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import mysql

revision = "0002"
down_revision = "0001"
branch_labels = None
depends_on = None

TIME = sa.DateTime().with_variant(mysql.DATETIME(fsp=6), "mysql", "mariadb")
BIG_ID = sa.BigInteger().with_variant(sa.Integer(), "sqlite")
_OPTIONS = {"engine": "InnoDB", "charset": "utf8mb4", "collate": "utf8mb4_nopad_bin"}
OPTIONS: dict[str, Any] = {
    f"{dialect}_{name}": value for dialect in ("mysql", "mariadb") for name, value in _OPTIONS.items()
}


def _table(name: str, *parts: Any) -> None:
    op.create_table(name, *parts, **OPTIONS)


def upgrade() -> None:
    op.add_column(
        "compute_nodes", sa.Column("failed_builds", sa.Integer(), server_default=sa.text("0"), nullable=False)
    )
    _table(
        "aggregates",
        sa.Column("id", BIG_ID, nullable=False),
        sa.Column("uuid", sa.String(length=36), nullable=False),
        sa.Column("name", sa.String(length=255), nullable=False),
        sa.Column("metadata", sa.JSON(), nullable=False),
        sa.Column("created_at", TIME, nullable=False),
        sa.Column("updated_at", TIME, nullable=True),
        sa.PrimaryKeyConstraint("id", name="pk_aggregates"),
        sa.UniqueConstraint("name", name="uq_aggregates_name"),
        sa.UniqueConstraint("uuid", name="uq_aggregates_uuid"),
    )
    _table(
        "aggregate_hosts",
        sa.Column("aggregate_id", BIG_ID, nullable=False),
        sa.Column("host", sa.String(length=255), nullable=False),
        sa.ForeignKeyConstraint(["aggregate_id"], ["aggregates.id"], name="fk_aggregate_hosts_aggregate_id"),
        sa.PrimaryKeyConstraint("aggregate_id", "host", name="pk_aggregate_hosts"),
    )
    op.create_index("ix_aggregate_hosts_host", "aggregate_hosts", ["host"], unique=False)
    _table(
        "instance_groups",
        sa.Column("id", BIG_ID, nullable=False),
        sa.Column("uuid", sa.String(length=36), nullable=False),
        sa.Column("project_id", sa.String(length=255), nullable=False),
        sa.Column("user_id", sa.String(length=255), nullable=False),
        sa.Column("name", sa.String(length=255), nullable=False),
        sa.Column("policy", sa.String(length=32), nullable=False),
        sa.Column("rules", sa.JSON(), nullable=False),
        sa.Column("created_at", TIME, nullable=False),
        sa.PrimaryKeyConstraint("id", name="pk_instance_groups"),
        sa.UniqueConstraint("uuid", name="uq_instance_groups_uuid"),
    )
    op.create_index("ix_instance_groups_project_id", "instance_groups", ["project_id"], unique=False)
    _table(
        "instance_group_members",
        sa.Column("instance_uuid", sa.String(length=36), nullable=False),
        sa.Column("group_id", BIG_ID, nullable=False),
        sa.ForeignKeyConstraint(["group_id"], ["instance_groups.id"], name="fk_instance_group_members_group_id"),
        sa.PrimaryKeyConstraint("instance_uuid", name="pk_instance_group_members"),
    )
    op.create_index("ix_instance_group_members_group_id", "instance_group_members", ["group_id"], unique=False)
