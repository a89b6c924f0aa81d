"""Static routes of IPv6."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0086"
down_revision = "0081"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column("routers", sa.Column("routes6", sa.JSON(), nullable=True))
