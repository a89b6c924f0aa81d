"""Ids of subnets that are not the ids of their networks. None: the subnet is older, and has the id of its network."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0097"
down_revision = "0096"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column("networks", sa.Column("subnet_id", sa.String(36), nullable=True))
    op.create_index("ix_networks_subnet_id", "networks", ["subnet_id"])
    op.add_column("floating_ip_pools", sa.Column("subnet_id", sa.String(36), nullable=True))
