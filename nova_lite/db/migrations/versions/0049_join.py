"""Hosts that join by tokens, and the signed list of trusted keys."""

from __future__ import annotations

import sqlalchemy as sa

from nova_lite.db.migrations.tables import LONG_TEXT, TIME, create_table

revision = "0049"
down_revision = "0056"
branch_labels = None
depends_on = None


def upgrade() -> None:
    create_table(
        "join_tokens",
        sa.Column("id", sa.String(length=16), nullable=False),
        sa.Column("public_key", sa.String(length=64), nullable=False),
        sa.Column("created_at", TIME, nullable=False),
        sa.Column("expires_at", TIME, nullable=False),
        sa.Column("used_at", TIME, nullable=True),
        sa.Column("revoked_at", TIME, nullable=True),
        sa.Column("host", sa.String(length=255), nullable=True),
        sa.PrimaryKeyConstraint("id"),
    )
    create_table(
        "joined_hosts",
        sa.Column("host", sa.String(length=255), nullable=False),
        sa.Column("token_id", sa.String(length=16), nullable=False),
        sa.Column("public_key", sa.String(length=64), nullable=False),
        sa.Column("previous_key", sa.String(length=64), nullable=True),
        sa.Column("state", sa.String(length=16), nullable=False),
        sa.Column("body", LONG_TEXT, nullable=False),
        sa.Column("reply", LONG_TEXT, nullable=False),
        sa.Column("signature", sa.Text(), nullable=False),
        sa.Column("problem", sa.Text(), nullable=False),
        sa.Column("created_at", TIME, nullable=False),
        sa.Column("updated_at", TIME, nullable=True),
        sa.PrimaryKeyConstraint("host"),
    )
    create_table(
        "published_trust",
        sa.Column("id", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("serial", sa.BigInteger(), nullable=False),
        sa.Column("content", LONG_TEXT, nullable=False),
        sa.Column("signature", sa.Text(), nullable=False),
        sa.Column("authority", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("id"),
    )
