"""Further addresses of ports, and ports and networks without port security."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0037"
down_revision = "0045"
branch_labels = None
depends_on = None


def upgrade() -> None:
    for table in ("networks", "ports"):
        op.add_column(table, sa.Column("port_security_enabled", sa.Boolean(), nullable=False, server_default=sa.true()))
    op.add_column("ports", sa.Column("address_pairs", sa.JSON(), nullable=True))
