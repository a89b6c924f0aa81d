"""Places of the devices in a guest, and the number of its free ports."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0095"
down_revision = "0093"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column("instances", sa.Column("guest_devices", sa.JSON(), nullable=True))
