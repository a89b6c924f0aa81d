"""Keys of encrypted volumes and backups."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

from nova_lite.db.migrations.tables import TIME, create_table

revision = "0072"
down_revision = "0070"
branch_labels = None
depends_on = None


def upgrade() -> None:
    create_table(
        "volume_keys",
        sa.Column("id", sa.String(36), nullable=False),
        sa.Column("master_key", sa.String(32), nullable=False),
        sa.Column("wrapped", sa.String(255), nullable=False),
        sa.Column("provider", sa.String(255), nullable=False),
        sa.Column("cipher", sa.String(255), nullable=False),
        sa.Column("key_size", sa.Integer(), nullable=False),
        sa.Column("control_location", sa.String(32), nullable=False),
        sa.Column("created_at", TIME, nullable=False),
        sa.PrimaryKeyConstraint("id", name="pk_volume_keys"),
    )
    op.add_column("volumes", sa.Column("encryption_key_id", sa.String(36), nullable=True))
    op.add_column("volume_backups", sa.Column("encryption_key_id", sa.String(36), nullable=True))
