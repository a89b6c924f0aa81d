"""QoS policies of ports, networks and floating addresses."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

from nova_lite.db.migrations.tables import TIME, create_table

revision = "0009"
down_revision = "0008"
branch_labels = None
depends_on = None


def upgrade() -> None:
    create_table(
        "qos_policies",
        sa.Column("id", sa.String(length=36), nullable=False),
        sa.Column("project_id", sa.String(length=255), nullable=False),
        sa.Column("name", sa.String(length=255), nullable=False),
        sa.Column("description", sa.String(length=255), nullable=False),
        sa.Column("rules", sa.JSON(), nullable=False),
        sa.Column("default_of", sa.String(length=255)),
        sa.Column("tags", sa.JSON()),
        sa.Column("created_at", TIME, nullable=False),
        sa.Column("updated_at", TIME),
        sa.PrimaryKeyConstraint("id", name="pk_qos_policies"),
        sa.UniqueConstraint("default_of", name="uq_qos_policies_default_of"),
    )
    op.create_index("ix_qos_policies_project_id", "qos_policies", ["project_id"])
    for name in ("networks", "ports", "floating_ips"):
        op.add_column(name, sa.Column("qos_policy_id", sa.String(length=36)))
        op.create_index(f"ix_{name}_qos_policy_id", name, ["qos_policy_id"])
