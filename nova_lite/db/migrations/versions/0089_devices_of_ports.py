"""Devices of ports that other programs have: load balancers, shares, containers."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0089"
down_revision = "0088"
branch_labels = None
depends_on = None


def upgrade() -> None:
    for name in ("device_id", "device_owner"):
        op.add_column("ports", sa.Column(name, sa.String(255), nullable=False, server_default=sa.text("''")))
    op.create_index("ix_ports_device_id", "ports", ["device_id"])
