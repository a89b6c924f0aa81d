"""Service types of subnets."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0019"
down_revision = "0018"
branch_labels = None
depends_on = None


def upgrade() -> None:
    for name in ("service_types", "service_types6"):
        op.add_column("networks", sa.Column(name, sa.JSON(none_as_null=True)))
