"""Trunks and their subports."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

from nova_lite.db.migrations.tables import TIME, create_table

revision = "0021"
down_revision = "0020"
branch_labels = None
depends_on = None


def upgrade() -> None:
    create_table(
        "trunks",
        sa.Column("id", sa.String(length=36), nullable=False),
        sa.Column("project_id", sa.String(length=255), nullable=False),
        sa.Column("port_id", sa.String(length=36), nullable=False),
        sa.Column("name", sa.String(length=255), nullable=False),
        sa.Column("description", sa.String(length=255), nullable=False),
        sa.Column("admin_state_up", sa.Boolean(), nullable=False),
        sa.Column("tags", sa.JSON()),
        sa.Column("created_at", TIME, nullable=False),
        sa.Column("updated_at", TIME),
        sa.ForeignKeyConstraint(["port_id"], ["ports.id"], name="fk_trunks_port_id_ports"),
        sa.PrimaryKeyConstraint("id", name="pk_trunks"),
        sa.UniqueConstraint("port_id", name="uq_trunks_port_id"),
    )
    op.create_index("ix_trunks_project_id", "trunks", ["project_id"])
    create_table(
        "trunk_subports",
        sa.Column("port_id", sa.String(length=36), nullable=False),
        sa.Column("trunk_id", sa.String(length=36), nullable=False),
        sa.Column("segmentation_id", sa.Integer(), nullable=False),
        sa.Column("state", sa.String(length=16), nullable=False),
        sa.Column("arriving_host", sa.String(length=255)),
        sa.ForeignKeyConstraint(["port_id"], ["ports.id"], name="fk_trunk_subports_port_id_ports"),
        sa.ForeignKeyConstraint(["trunk_id"], ["trunks.id"], name="fk_trunk_subports_trunk_id_trunks"),
        sa.PrimaryKeyConstraint("port_id", name="pk_trunk_subports"),
        sa.UniqueConstraint("trunk_id", "segmentation_id", name="uq_trunk_subports_trunk_id_segmentation_id"),
    )
    op.create_index("ix_trunk_subports_arriving_host", "trunk_subports", ["arriving_host"])
