"""Physical networks, and the kinds of ports that have devices of their hosts."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0008"
down_revision = "0007"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column("networks", sa.Column("physical_network", sa.String(length=255)))
    op.add_column("networks", sa.Column("vlan", sa.Integer()))
    op.add_column(
        "ports",
        sa.Column("vnic_type", sa.String(length=16), server_default=sa.text("'normal'"), nullable=False),
    )
