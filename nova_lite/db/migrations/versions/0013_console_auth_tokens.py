"""Tokens that open consoles."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

from nova_lite.db.migrations.tables import BIG_ID, TIME, create_table

revision = "0013"
down_revision = "0012"
branch_labels = None
depends_on = None


def upgrade() -> None:
    create_table(
        "console_auth_tokens",
        sa.Column("id", BIG_ID, nullable=False),
        sa.Column("token_hash", sa.String(length=64), nullable=False),
        sa.Column("instance_uuid", sa.String(length=36), nullable=False),
        sa.Column("generation", sa.Integer(), nullable=False),
        sa.Column("compute_host", sa.String(length=255), nullable=False),
        sa.Column("console_type", sa.String(length=255), nullable=False),
        sa.Column("host", sa.String(length=255), nullable=False),
        sa.Column("port", sa.Integer(), nullable=False),
        sa.Column("internal_access_path", sa.String(length=255), nullable=True),
        sa.Column("access_url_base", sa.Text(), nullable=False),
        sa.Column("created_at", TIME, nullable=False),
        sa.Column("expires_at", TIME, nullable=False),
        sa.PrimaryKeyConstraint("id", name="pk_console_auth_tokens"),
        sa.UniqueConstraint("token_hash", name="uq_console_auth_tokens_token_hash"),
    )
    op.create_index(
        "ix_console_auth_tokens_instance_uuid_id", "console_auth_tokens", ["instance_uuid", "id"], unique=False
    )
    op.create_index("ix_console_auth_tokens_expires_at", "console_auth_tokens", ["expires_at"], unique=False)
