"""Servers whose disks are missing, as of the last comparison of their host."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0093"
down_revision = "0092"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column("unknown_domains", sa.Column("without_disks", sa.JSON(none_as_null=True), nullable=True))
