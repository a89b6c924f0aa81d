"""``[notifications]``: what other systems are notified of, and how.

Notifications on the bus are on if ``[oslo_messaging_notifications] driver`` is ``messagingv2`` or ``messaging``.
"""

from __future__ import annotations

import urllib.parse
from collections.abc import Sequence

from oslo_config import cfg, types

from nova_lite.base import ip

GROUP = "notifications"

VERSIONED = "versioned"
UNVERSIONED = "unversioned"
BOTH = "both"

VM_STATE = "vm_state"
VM_AND_TASK_STATE = "vm_and_task_state"

#: Periods of usage audits, with the offsets that each unit has.
PERIOD = r"^(hour(@[1-5]?[0-9])?|day(@(1?[0-9]|2[0-3]))?|month(@([1-9]|1[0-9]|2[0-8]))?|year(@([1-9]|1[0-2]))?)$"


class WebhookUrl(types.String):
    """URL of a webhook: https, or http on this machine."""

    def __call__(self, value: object) -> str:
        url = str(super().__call__(value))
        try:
            parts = urllib.parse.urlsplit(url)
            host, port = parts.hostname or "", parts.port
        except ValueError as error:
            raise ValueError(f"{url} is not a URL: {error}") from error
        if parts.scheme not in ("http", "https") or not host or port == 0:
            raise ValueError(f"{url} is not a URL such as https://HOST/PATH")
        if parts.username is not None or parts.password is not None or parts.fragment:
            raise ValueError(f"a webhook's URL has neither a user nor a fragment: {parts.scheme}://{host}")
        if any(character <= " " or character > "~" for character in url):
            raise ValueError(f"{url} has characters that have to be percent-encoded")
        if parts.scheme == "http" and not ip.is_loopback(host):
            raise ValueError(f"{url} would be sent without encryption: use https, or http on 127.0.0.1")
        return url


OPTS = [
    cfg.StrOpt(
        "notification_format",
        default=VERSIONED,
        choices=[VERSIONED, UNVERSIONED, BOTH],
        help=(
            "Format of notifications on the bus. Nova's versioned ones have a schema. Set both, or unversioned, for "
            "consumers of Nova's older events, such as Ceilometer. Notifications are off unless "
            "[oslo_messaging_notifications] driver is messagingv2 (or messaging)."
        ),
    ),
    cfg.ListOpt(
        "versioned_notifications_topics",
        default=["versioned_notifications"],
        help=(
            "Topics of versioned notifications. Each topic gets every notification, so give each consumer a topic of "
            "its own. Unversioned ones go to [oslo_messaging_notifications] topics."
        ),
    ),
    cfg.StrOpt(
        "exchange",
        default="nova",
        regex=r"^[A-Za-z0-9._-]{1,255}$",
        help="Exchange of notifications at the broker. Consumers of Nova's notifications expect Nova's own.",
    ),
    cfg.StrOpt(
        "notify_on_state_change",
        choices=[VM_STATE, VM_AND_TASK_STATE],
        help=(
            "Send instance.update for each change of a server's vm_state, or of its task_state, too. Unset: never. Set "
            "it for consumers that follow states and not operations. With task states it is several per operation."
        ),
    ),
    cfg.BoolOpt(
        "instance_usage_audit",
        default=False,
        help=(
            "Send instance.exists for each server that ran in a period, once the period has ended. Turn it on for "
            "accounting that counts from notifications, such as Ceilometer's."
        ),
    ),
    cfg.StrOpt(
        "instance_usage_audit_period",
        default="month",
        regex=PERIOD,
        help=(
            "Period of instance_usage_audit, and of audit_period in instance.update: hour, day, month or year. An "
            "offset is its beginning: hour@MINUTE, day@HOUR, month@DAY (1 to 28), year@MONTH. All times are UTC."
        ),
    ),
    cfg.ListOpt(
        "webhooks",
        item_type=WebhookUrl(),
        default=[],
        help=(
            "URLs that get each versioned notification by a POST request: https, or http on this machine. They need "
            "webhook_secret_file. They work with and without notifications on the bus."
        ),
    ),
    cfg.StrOpt(
        "webhook_secret_file",
        default="",
        help=(
            "File with the secret that signs requests to webhooks: one line of at least 32 characters. Only the "
            "conductor's user may read it. The same file has to be on the machines of all conductors."
        ),
    ),
    cfg.StrOpt(
        "webhook_cafile",
        default="",
        help="File with the certificates of authorities for webhooks. Empty: those of the system.",
    ),
    cfg.IntOpt(
        "max_waiting",
        default=10000,
        min=1,
        help=(
            "Largest number of notifications that wait for the bus or for one webhook. Beyond it the oldest are "
            "dropped. A notification takes about 3 KB in the database."
        ),
    ),
]


def register_opts(conf: cfg.ConfigOpts) -> None:
    conf.register_opts(OPTS, group=GROUP)


def list_opts() -> dict[str, Sequence[cfg.Opt]]:
    return {GROUP: OPTS}
