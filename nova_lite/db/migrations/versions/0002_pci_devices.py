"""PCI devices of guests."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

from nova_lite.db.migrations.tables import BIG_ID, TIME, create_table

revision = "0002"
down_revision = "0001"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column("compute_nodes", sa.Column("pci_used", sa.JSON(none_as_null=True)))
    op.add_column("allocations", sa.Column("pci", sa.JSON(none_as_null=True)))
    op.add_column("instances", sa.Column("pci", sa.JSON(none_as_null=True)))
    create_table(
        "pci_claims",
        sa.Column("compute_node_id", BIG_ID, nullable=False),
        sa.Column("address", sa.String(length=16), nullable=False),
        sa.Column("instance_uuid", sa.String(length=36), nullable=False),
        sa.Column("alias", sa.String(length=256), nullable=False),
        sa.Column("state", sa.String(length=16), nullable=False),
        sa.Column("created_at", TIME, nullable=False),
        sa.ForeignKeyConstraint(["compute_node_id"], ["compute_nodes.id"], name="fk_pci_claims_compute_node_id"),
        sa.PrimaryKeyConstraint("compute_node_id", "address", name="pk_pci_claims"),
        sqlite_with_rowid=False,
    )
    op.create_index("ix_pci_claims_state", "pci_claims", ["state"])
