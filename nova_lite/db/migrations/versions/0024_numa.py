"""Where guests are in the NUMA cells of their hosts: CPUs of their own, memory and pages of each cell."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0024"
down_revision = "0023"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column("compute_nodes", sa.Column("numa_used", sa.JSON(), nullable=True))
    op.add_column("allocations", sa.Column("numa", sa.JSON(), nullable=True))
    op.add_column("instances", sa.Column("numa", sa.JSON(), nullable=True))
