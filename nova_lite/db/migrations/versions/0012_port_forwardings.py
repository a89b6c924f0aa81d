"""Ports of floating addresses that lead to ports of interfaces."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

from nova_lite.db.migrations.tables import TIME, create_table

revision = "0012"
down_revision = "0011"
branch_labels = None
depends_on = None


def upgrade() -> None:
    create_table(
        "port_forwardings",
        sa.Column("id", sa.String(length=36), nullable=False),
        sa.Column("floating_ip_id", sa.String(length=36), nullable=False),
        sa.Column("port_id", sa.String(length=36), nullable=False),
        sa.Column("protocol", sa.String(length=16), nullable=False),
        sa.Column("external_first", sa.Integer(), nullable=False),
        sa.Column("external_last", sa.Integer(), nullable=False),
        sa.Column("internal_first", sa.Integer(), nullable=False),
        sa.Column("internal_last", sa.Integer(), nullable=False),
        sa.Column("description", sa.String(length=255), nullable=False),
        sa.Column("created_at", TIME, nullable=False),
        sa.Column("updated_at", TIME),
        sa.ForeignKeyConstraint(
            ["floating_ip_id"], ["floating_ips.id"], name="fk_port_forwardings_floating_ip_id_floating_ips"
        ),
        sa.ForeignKeyConstraint(
            ["port_id"], ["ports.id"], name="fk_port_forwardings_port_id_ports", ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("id", name="pk_port_forwardings"),
    )
    for name in ("floating_ip_id", "port_id"):
        op.create_index(f"ix_port_forwardings_{name}", "port_forwardings", [name])
