"""Stored notifications, and their payloads held against Nova's classes."""

from __future__ import annotations

from typing import Any

import sqlalchemy as sa

from nova_lite.db.core import models
from nova_lite.db.core.engine import Database
from tests.unit.conductor.notifications import nova_facts


def rows(db: Database, channel: str = "versioned") -> list[models.Notification]:
    query = sa.select(models.Notification).where(models.Notification.channel == channel)
    return db.read(lambda uow: list(uow.session.scalars(query.order_by(models.Notification.id))))


def data(row: models.Notification) -> dict[str, Any]:
    found: dict[str, Any] = row.payload["nova_object.data"]
    return found


def checked(value: Any) -> Any:
    """Compare each object in a payload with Nova's class of its name, key by key."""
    if isinstance(value, list):
        return [checked(item) for item in value]
    if isinstance(value, dict) and "nova_object.name" in value:
        assert set(value) == {f"nova_object.{key}" for key in ("name", "namespace", "version", "data")}
        version, keys = nova_facts.CLASSES[value["nova_object.name"]]
        assert value["nova_object.namespace"] == "nova"
        assert value["nova_object.version"] == version, value["nova_object.name"]
        assert value["nova_object.data"].keys() == keys, value["nova_object.name"]
        for item in value["nova_object.data"].values():
            checked(item)
    return value
