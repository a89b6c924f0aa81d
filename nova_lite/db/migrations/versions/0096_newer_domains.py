"""Domains of hosts that are newer than their servers."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0096"
down_revision = "0095"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column("unknown_domains", sa.Column("newer", sa.JSON(), nullable=True))
