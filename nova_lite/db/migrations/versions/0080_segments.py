"""Segments: further subnets of a network, in rows of their own."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0080"
down_revision = "0084"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column("networks", sa.Column("parent_id", sa.String(36), nullable=True))
    op.add_column("networks", sa.Column("is_segmented", sa.Boolean(), nullable=False, server_default=sa.false()))
    op.create_index("ix_networks_parent_id", "networks", ["parent_id"])
