"""Names of networks, ports and floating addresses in DNS; zones and record sets of projects."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

from nova_lite.db.migrations.tables import TIME, create_table

revision = "0011"
down_revision = "0010"
branch_labels = None
depends_on = None


def upgrade() -> None:
    for table, name in (
        ("networks", "dns_domain"),
        ("ports", "dns_name"),
        ("ports", "dns_domain"),
        ("floating_ips", "dns_name"),
        ("floating_ips", "dns_domain"),
    ):
        op.add_column(table, sa.Column(name, sa.String(length=255), server_default=sa.text("''"), nullable=False))
    create_table(
        "dns_zones",
        sa.Column("id", sa.String(length=36), nullable=False),
        sa.Column("project_id", sa.String(length=255), nullable=False),
        sa.Column("name", sa.String(length=255), nullable=False),
        sa.Column("email", sa.String(length=255), nullable=False),
        sa.Column("ttl", sa.Integer(), nullable=False),
        sa.Column("description", sa.String(length=255)),
        sa.Column("serial", sa.BigInteger(), nullable=False),
        sa.Column("version", sa.Integer(), nullable=False),
        sa.Column("status", sa.String(length=16), nullable=False),
        sa.Column("action", sa.String(length=16), nullable=False),
        sa.Column("created_at", TIME, nullable=False),
        sa.Column("updated_at", TIME),
        sa.PrimaryKeyConstraint("id", name="pk_dns_zones"),
        sa.UniqueConstraint("name", name="uq_dns_zones_name"),
    )
    op.create_index("ix_dns_zones_project_id", "dns_zones", ["project_id"])
    op.create_index("ix_dns_zones_action", "dns_zones", ["action"])
    create_table(
        "dns_recordsets",
        sa.Column("id", sa.String(length=36), nullable=False),
        sa.Column("zone_id", sa.String(length=36)),
        sa.Column("project_id", sa.String(length=255), nullable=False),
        sa.Column("name", sa.String(length=255), nullable=False),
        sa.Column("type", sa.String(length=16), nullable=False),
        sa.Column("ttl", sa.Integer()),
        sa.Column("records", sa.JSON(), nullable=False),
        sa.Column("description", sa.String(length=255)),
        sa.Column("managed", sa.Boolean(), nullable=False),
        sa.Column("version", sa.Integer(), nullable=False),
        sa.Column("status", sa.String(length=16), nullable=False),
        sa.Column("action", sa.String(length=16), nullable=False),
        sa.Column("created_at", TIME, nullable=False),
        sa.Column("updated_at", TIME),
        sa.ForeignKeyConstraint(["zone_id"], ["dns_zones.id"], name="fk_dns_recordsets_zone_id_dns_zones"),
        sa.PrimaryKeyConstraint("id", name="pk_dns_recordsets"),
        sa.UniqueConstraint("zone_id", "name", "type", name="uq_dns_recordsets_zone_id_name_type"),
    )
    op.create_index("ix_dns_recordsets_project_id", "dns_recordsets", ["project_id"])
    op.create_index("ix_dns_recordsets_action", "dns_recordsets", ["action"])
