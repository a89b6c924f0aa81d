"""Finds the work of a reconciler sweep with one statement. An idle cloud needs no other.

Each condition stands beside the query that finds its rows.
"""

from __future__ import annotations

import datetime
from typing import NamedTuple

import sqlalchemy as sa
from oslo_config import cfg

from nova_lite.db.core import actions
from nova_lite.db.core.engine import UnitOfWork
from nova_lite.db.core.models import Service
from nova_lite.db.hosts import services
from nova_lite.db.image import images
from nova_lite.db.network import pending_attaches
from nova_lite.db.servers import instances, server_migrations
from nova_lite.db.volume import cinder, volume_tasks

#: Seconds that lie before every timestamp.
_NEVER = 100 * 365 * 86400


class Due(NamedTuple):
    """Kinds of work that a sweep has: silent services, servers to offload, reclaim, or confirm, volume files, Cinder
    volumes, pending interfaces, abandoned uploads of images, actions.

    ``now``: the database's time. ``quiet``: seconds since the newest report of any daemon, this one included; 0 if
    there was none.
    """

    now: datetime.datetime
    quiet: float
    silent: bool
    shelved: bool
    soft_deleted: bool
    unconfirmed: bool
    volumes: bool
    cinder: bool
    attaches: bool
    uploads: bool
    actions: bool


def _before(name: str) -> sa.BindParameter[datetime.datetime]:
    return sa.bindparam(name)


_DUE_WORK = sa.select(
    sa.select(sa.func.max(Service.last_seen_up)).scalar_subquery(),
    sa.exists().where(*services.is_silent(_before("silent"))),
    sa.exists().where(*instances.shelved(_before("shelved"))),
    sa.exists().where(*instances.soft_deleted(_before("soft_deleted"))),
    sa.exists().where(*server_migrations.waiting(_before("moved"))),
    sa.exists().where(*volume_tasks.is_due(_before("now"))),
    sa.exists().where(*cinder.is_due(_before("now"))),
    sa.exists().where(*pending_attaches.is_overdue(_before("now"))),
    sa.exists().where(*images.abandoned(_before("uploaded"))),
    sa.exists().where(*actions.is_due(_before("now"))),
)


def due_work(uow: UnitOfWork, conf: cfg.ConfigOpts) -> Due:
    """Return the work that is due. Features that are switched off are never due."""
    seconds = {
        "now": 0,
        "silent": conf.service_down_time,
        "shelved": conf.shelved_offload_time if conf.shelved_offload_time >= 0 else _NEVER,
        "soft_deleted": conf.reclaim_instance_interval or _NEVER,
        "uploaded": images.upload_seconds(conf),
        "moved": conf.resize_confirm_window or _NEVER,
    }
    values = {name: uow.now - datetime.timedelta(seconds=item) for name, item in seconds.items()}
    heartbeat, *found = uow.rows(_DUE_WORK, values).one()
    quiet = 0.0 if heartbeat is None else (uow.now - heartbeat).total_seconds()
    return Due(uow.now, quiet, *map(bool, found))
