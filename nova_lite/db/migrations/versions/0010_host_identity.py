"""A compute host is known by more than its name."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0010"
down_revision = "0009"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column("services", sa.Column("identity", sa.String(64), nullable=True))
    op.add_column("services", sa.Column("identity_epoch", sa.Integer, nullable=False, server_default=sa.text("0")))
