"""The time until which a host is to protect nothing."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0092"
down_revision = "0089"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column("host_leases", sa.Column("suspended_until", sa.DateTime(), nullable=True))
