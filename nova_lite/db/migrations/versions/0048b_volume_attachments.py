"""Attachments that the volume API makes."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0048b"
down_revision = "0037"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column("volumes", sa.Column("attachment", sa.JSON(), nullable=True))
