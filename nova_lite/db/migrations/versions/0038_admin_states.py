"""Networks, ports and routers that their owner has turned off."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0038"
down_revision = "0044"
branch_labels = None
depends_on = None


def upgrade() -> None:
    for table in ("networks", "ports", "routers"):
        op.add_column(table, sa.Column("admin_state_up", sa.Boolean(), nullable=False, server_default=sa.true()))
