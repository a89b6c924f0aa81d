"""Aggregates, server groups, and failed builds of a host."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

from nova_lite.db.migrations.tables import BIG_ID, TIME, create_table

revision = "0002"
down_revision = "0001"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column(
        "compute_nodes", sa.Column("failed_builds", sa.Integer(), server_default=sa.text("0"), nullable=False)
    )
    create_table(
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
    create_table(
        "aggregate_hosts",
        sa.Column("aggregate_id", BIG_ID, nullable=False),
        sa.Column("host", sa.String(length=255), nullable=False),
        sa.ForeignKeyConstraint(["aggregate_id"], ["aggregates.id"], name="fk_aggregate_hosts_aggregate_id"),
        sa.PrimaryKeyConstraint("aggregate_id", "host", name="pk_aggregate_hosts"),
    )
    op.create_index("ix_aggregate_hosts_host", "aggregate_hosts", ["host"], unique=False)
    create_table(
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
    create_table(
        "instance_group_members",
        sa.Column("instance_uuid", sa.String(length=36), nullable=False),
        sa.Column("group_id", BIG_ID, nullable=False),
        sa.ForeignKeyConstraint(["group_id"], ["instance_groups.id"], name="fk_instance_group_members_group_id"),
        sa.PrimaryKeyConstraint("instance_uuid", name="pk_instance_group_members"),
    )
    op.create_index("ix_instance_group_members_group_id", "instance_group_members", ["group_id"], unique=False)
