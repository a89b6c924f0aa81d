"""Load balancers, and ports that services have on hosts."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

from nova_lite.db.migrations.tables import LONG_TEXT, TIME, create_table

revision = "0010"
down_revision = "0009"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column("ports", sa.Column("bound_host", sa.String(length=255)))
    op.create_index("ix_ports_bound_host", "ports", ["bound_host"])
    create_table(
        "load_balancers",
        sa.Column("id", sa.String(length=36), nullable=False),
        sa.Column("project_id", sa.String(length=255), nullable=False),
        sa.Column("vip_port_id", sa.String(length=36), nullable=False),
        sa.Column("provisioning_status", sa.String(length=16), nullable=False),
        sa.Column("host", sa.String(length=255)),
        sa.Column("standby_host", sa.String(length=255)),
        sa.Column("former_host", sa.String(length=255)),
        sa.Column("changed_at", TIME, nullable=False),
        sa.Column("tree", sa.JSON(), nullable=False),
        sa.Column("counters", sa.JSON(), nullable=False),
        sa.Column("created_at", TIME, nullable=False),
        sa.Column("updated_at", TIME),
        sa.PrimaryKeyConstraint("id", name="pk_load_balancers"),
    )
    for name in ("project_id", "provisioning_status", "host", "standby_host", "former_host"):
        op.create_index(f"ix_load_balancers_{name}", "load_balancers", [name])
    create_table(
        "load_balancer_parts",
        sa.Column("id", sa.String(length=36), nullable=False),
        sa.Column("load_balancer_id", sa.String(length=36), nullable=False),
        sa.ForeignKeyConstraint(
            ["load_balancer_id"],
            ["load_balancers.id"],
            name="fk_load_balancer_parts_load_balancer_id_load_balancers",
        ),
        sa.PrimaryKeyConstraint("id", name="pk_load_balancer_parts"),
    )
    op.create_index("ix_load_balancer_parts_load_balancer_id", "load_balancer_parts", ["load_balancer_id"])
    create_table(
        "load_balancer_hosts",
        sa.Column("host", sa.String(length=255), nullable=False),
        sa.Column("seen_at", TIME, nullable=False),
        sa.Column("problem", LONG_TEXT, nullable=False),
        sa.Column("boot_id", sa.String(length=36), nullable=False),
        sa.Column("number", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("host", name="pk_load_balancer_hosts"),
    )
