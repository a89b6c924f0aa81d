"""Users, projects and all other records of the identity service."""

from __future__ import annotations

import sqlalchemy as sa

from nova_lite.db.migrations.tables import BIG_ID, create_table

revision = "0030"
down_revision = "0029"
branch_labels = None
depends_on = None


def upgrade() -> None:
    create_table(
        "identity_versions",
        sa.Column("id", sa.Integer(), nullable=False),
        sa.Column("version", sa.BigInteger(), nullable=False),
        sa.Column("private_key", sa.String(length=64), server_default=sa.text("''"), nullable=False),
        sa.PrimaryKeyConstraint("id", name="pk_identity_versions"),
    )
    create_table(
        "identity_records",
        sa.Column("id", BIG_ID, nullable=False),
        sa.Column("kind", sa.String(length=64), nullable=False),
        sa.Column("key", sa.String(length=255), nullable=False),
        sa.Column("version", sa.BigInteger(), nullable=False),
        sa.Column("data", sa.JSON(), nullable=True),
        sa.PrimaryKeyConstraint("id", name="pk_identity_records"),
        sa.UniqueConstraint("kind", "key", name="uq_identity_records_kind_key"),
        sa.Index("ix_identity_records_version", "version"),
    )
