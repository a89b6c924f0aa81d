"""Ports without an address, on networks without a subnet too."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0045"
down_revision = "0039"
branch_labels = None
depends_on = None


def upgrade() -> None:
    with op.batch_alter_table("ports") as table:
        table.alter_column("address", existing_type=sa.String(length=45), nullable=True)
