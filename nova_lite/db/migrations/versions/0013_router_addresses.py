"""Addresses of routers in their external networks."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0013"
down_revision = "0012"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column("floating_ips", sa.Column("gateway_router_id", sa.String(length=36)))
    op.create_index("ix_floating_ips_gateway_router_id", "floating_ips", ["gateway_router_id"])
