"""Names of networks, ports and floating addresses in DNS."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0013"
down_revision = "0008"
branch_labels = None
depends_on = None


def upgrade() -> None:
    for table, name in (
        ("networks", "dns_domain"),
        ("ports", "dns_name"),
        ("ports", "dns_domain"),
        ("floating_ips", "dns_name"),
        ("floating_ips", "dns_domain"),
    ):
        op.add_column(table, sa.Column(name, sa.String(length=255), server_default=sa.text("''"), nullable=False))
