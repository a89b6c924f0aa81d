"""Routers and their interfaces. Existing networks need no router for their way out (NULL)."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

from nova_lite.db.migrations.tables import TIME, create_table

revision = "0031"
down_revision = "0030"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column("networks", sa.Column("needs_router", sa.Boolean(), nullable=True))
    create_table(
        "routers",
        sa.Column("id", sa.String(length=36), nullable=False),
        sa.Column("project_id", sa.String(length=255), nullable=False),
        sa.Column("name", sa.String(length=255), nullable=False),
        sa.Column("description", sa.String(length=255), nullable=False),
        sa.Column("pool_id", sa.String(length=36), nullable=True),
        sa.Column("enable_snat", sa.Boolean(), nullable=False),
        sa.Column("routes", sa.JSON(), nullable=False),
        sa.Column("created_at", TIME, nullable=False),
        sa.Column("updated_at", TIME, nullable=True),
        sa.PrimaryKeyConstraint("id", name="pk_routers"),
        sa.ForeignKeyConstraint(["pool_id"], ["floating_ip_pools.id"], name="fk_routers_pool_id"),
    )
    op.create_index("ix_routers_project_id", "routers", ["project_id"], unique=False)
    op.create_index("ix_routers_pool_id", "routers", ["pool_id"], unique=False)
    create_table(
        "router_interfaces",
        sa.Column("port_id", sa.String(length=36), nullable=False),
        sa.Column("router_id", sa.String(length=36), nullable=False),
        sa.Column("network_id", sa.String(length=36), nullable=False),
        sa.PrimaryKeyConstraint("port_id", name="pk_router_interfaces"),
        sa.UniqueConstraint("network_id", name="uq_router_interfaces_network_id"),
        sa.ForeignKeyConstraint(["port_id"], ["ports.id"], name="fk_router_interfaces_port_id"),
        sa.ForeignKeyConstraint(["router_id"], ["routers.id"], name="fk_router_interfaces_router_id"),
        sa.ForeignKeyConstraint(["network_id"], ["networks.id"], name="fk_router_interfaces_network_id"),
    )
    op.create_index("ix_router_interfaces_router_id", "router_interfaces", ["router_id"], unique=False)
