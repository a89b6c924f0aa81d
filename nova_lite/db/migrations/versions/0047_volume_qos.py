"""QoS specs and encryption of volume types, default types of projects, and image metadata of volumes."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

from nova_lite.db.migrations.tables import TIME, create_table

revision = "0047"
down_revision = "0038"
branch_labels = None
depends_on = None


def upgrade() -> None:
    create_table(
        "volume_qos_specs",
        sa.Column("id", sa.String(length=36), nullable=False),
        sa.Column("name", sa.String(length=255), nullable=False),
        sa.Column("consumer", sa.String(length=16), nullable=False),
        sa.Column("specs", sa.JSON(), nullable=False),
        sa.Column("created_at", TIME, nullable=False),
        sa.PrimaryKeyConstraint("id"),
        sa.UniqueConstraint("name"),
    )
    create_table(
        "volume_default_types",
        sa.Column("project_id", sa.String(length=255), nullable=False),
        sa.Column("type_id", sa.String(length=36), nullable=False),
        sa.PrimaryKeyConstraint("project_id"),
    )
    op.add_column("volume_types", sa.Column("qos_specs_id", sa.String(length=36), nullable=True))
    op.add_column("volume_types", sa.Column("encryption", sa.JSON(), nullable=True))
    op.add_column("volumes", sa.Column("image_metadata", sa.JSON(), nullable=True))
    op.add_column("volume_snapshots", sa.Column("progress", sa.String(length=8), nullable=True))
