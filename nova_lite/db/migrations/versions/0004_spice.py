"""The TLS ports of SPICE consoles."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0004"
down_revision = "0003"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column("console_auth_tokens", sa.Column("tls_port", sa.Integer()))
