"""Versions of the members of projects' security groups."""

from __future__ import annotations

import sqlalchemy as sa

from nova_lite.db.migrations.tables import create_table

revision = "0032"
down_revision = "0031"
branch_labels = None
depends_on = None


def upgrade() -> None:
    create_table(
        "member_versions",
        sa.Column("project_id", sa.String(length=255), nullable=False),
        sa.Column("version", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("project_id", name="pk_member_versions"),
    )
