"""Networks that span hosts by VXLAN, and those with IPv6 beside IPv4."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0025"
down_revision = "0024"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column("networks", sa.Column("vni", sa.Integer(), nullable=True))
    op.add_column("networks", sa.Column("cidr6", sa.String(length=64), server_default=sa.text("''"), nullable=False))
    op.create_index("ix_networks_vni", "networks", ["vni"], unique=True)
    op.add_column("ports", sa.Column("address6", sa.String(length=45), nullable=True))
    op.create_index("ix_ports_network_id_address6", "ports", ["network_id", "address6"], unique=True)
