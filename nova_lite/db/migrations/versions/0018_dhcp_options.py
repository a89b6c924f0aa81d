"""DHCP options of ports."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0018"
down_revision = "0017"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column("ports", sa.Column("dhcp_options", sa.JSON(none_as_null=True)))
