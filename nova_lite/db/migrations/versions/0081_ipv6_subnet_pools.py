"""Subnet pools of IPv6 subnets."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0081"
down_revision = "0080"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column("networks", sa.Column("subnet6_pool_id", sa.String(36), nullable=True))
    op.create_index("ix_networks_subnet6_pool_id", "networks", ["subnet6_pool_id"])
