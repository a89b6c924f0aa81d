"""Subnets without DHCP, with several allocation pools and host routes, whose settings change."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0036"
down_revision = "0047"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column("networks", sa.Column("enable_dhcp", sa.Boolean(), nullable=False, server_default=sa.true()))
    op.add_column("networks", sa.Column("pools", sa.JSON(), nullable=True))
    op.add_column("networks", sa.Column("host_routes", sa.JSON(), nullable=True))
    op.add_column("networks", sa.Column("host_address", sa.String(45), nullable=True))
    op.add_column("networks", sa.Column("revised", sa.Boolean(), nullable=False, server_default=sa.false()))
