"""Security groups without connection tracking."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0017"
down_revision = "0016"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column("security_groups", sa.Column("stateful", sa.Boolean(), server_default=sa.true(), nullable=False))
