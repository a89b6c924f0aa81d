"""Security groups and their rules; floating addresses; and what is being done with a port."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

from nova_lite.db.migrations.tables import TIME, create_table

revision = "0014"
down_revision = "0013"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column("ports", sa.Column("state", sa.String(length=16), nullable=True))
    create_table(
        "security_groups",
        sa.Column("id", sa.String(length=36), nullable=False),
        sa.Column("project_id", sa.String(length=255), nullable=False),
        sa.Column("user_id", sa.String(length=255), nullable=False),
        sa.Column("name", sa.String(length=255), nullable=False),
        sa.Column("description", sa.String(length=255), nullable=True),
        sa.Column("created_at", TIME, nullable=False),
        sa.Column("updated_at", TIME, nullable=True),
        sa.PrimaryKeyConstraint("id", name="pk_security_groups"),
        sa.UniqueConstraint("project_id", "name", name="uq_security_groups_project_id_name"),
    )
    create_table(
        "security_group_rules",
        sa.Column("id", sa.String(length=36), nullable=False),
        sa.Column("security_group_id", sa.String(length=36), nullable=False),
        sa.Column("direction", sa.String(length=16), nullable=False),
        sa.Column("ethertype", sa.String(length=16), nullable=False),
        sa.Column("protocol", sa.String(length=16), nullable=True),
        sa.Column("port_range_min", sa.Integer(), nullable=True),
        sa.Column("port_range_max", sa.Integer(), nullable=True),
        sa.Column("remote_ip_prefix", sa.String(length=64), nullable=True),
        sa.Column("remote_group_id", sa.String(length=36), nullable=True),
        sa.Column("created_at", TIME, nullable=False),
        sa.PrimaryKeyConstraint("id", name="pk_security_group_rules"),
        *(
            sa.ForeignKeyConstraint([column], ["security_groups.id"], name=f"fk_security_group_rules_{column}")
            for column in ("security_group_id", "remote_group_id")
        ),
    )
    for column in ("security_group_id", "remote_group_id"):
        op.create_index(f"ix_security_group_rules_{column}", "security_group_rules", [column], unique=False)
    create_table(
        "floating_ip_pools",
        sa.Column("id", sa.String(length=36), nullable=False),
        sa.Column("name", sa.String(length=255), nullable=False),
        sa.Column("cidr", sa.String(length=64), nullable=False),
        sa.Column("created_at", TIME, nullable=False),
        sa.PrimaryKeyConstraint("id", name="pk_floating_ip_pools"),
        sa.UniqueConstraint("name", name="uq_floating_ip_pools_name"),
    )
    create_table(
        "floating_ips",
        sa.Column("id", sa.String(length=36), nullable=False),
        sa.Column("pool_id", sa.String(length=36), nullable=False),
        sa.Column("address", sa.String(length=45), nullable=False),
        sa.Column("project_id", sa.String(length=255), nullable=False),
        sa.Column("user_id", sa.String(length=255), nullable=False),
        sa.Column("port_id", sa.String(length=36), nullable=True),
        sa.Column("created_at", TIME, nullable=False),
        sa.PrimaryKeyConstraint("id", name="pk_floating_ips"),
        sa.ForeignKeyConstraint(["pool_id"], ["floating_ip_pools.id"], name="fk_floating_ips_pool_id"),
        sa.ForeignKeyConstraint(["port_id"], ["ports.id"], name="fk_floating_ips_port_id", ondelete="SET NULL"),
        sa.UniqueConstraint("address", name="uq_floating_ips_address"),
        sa.UniqueConstraint("port_id", name="uq_floating_ips_port_id"),
    )
    for column in ("pool_id", "project_id"):
        op.create_index(f"ix_floating_ips_{column}", "floating_ips", [column], unique=False)
