"""How many reports of a compute host's life were taken: an older one that comes again is none."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0023"
down_revision = "0022"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column("services", sa.Column("report_count", sa.Integer(), server_default=sa.text("0"), nullable=False))
