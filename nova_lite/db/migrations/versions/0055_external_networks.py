"""External networks that admins make by the network API: pools of floating addresses with an owner and a subnet."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0055"
down_revision = "0051"
branch_labels = None
depends_on = None

_TABLE = "floating_ip_pools"
_TEXTS = ("project_id", "description", "subnet_name")


def upgrade() -> None:
    for name in _TEXTS:
        op.add_column(_TABLE, sa.Column(name, sa.String(255), nullable=True))
    op.add_column(_TABLE, sa.Column("gateway", sa.String(45), nullable=True))
    op.add_column(_TABLE, sa.Column("ranges", sa.JSON(), nullable=True))
