"""A broker that is killed and started again, with each kind of queues that oslo.messaging offers: nothing is lost.

With the default kind test_comparisons.py does that in every run.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path

import pytest
import requests

from tests.faults.private import PrivateBroker
from tests.functional import cloud
from tests.support.waiting import wait_for

#: Lines of ``[oslo_messaging_rabbit]``, and what then is true of a host's queue: durable, type.
KINDS = {
    "durable": ("amqp_durable_queues = true", ["true", "classic"]),
    "quorum": ("rabbit_quorum_queue = true\nrabbit_transient_quorum_queue = true", ["true", "quorum"]),
}
SETTLE_SECONDS = 180.0


pytestmark = pytest.mark.skipif(os.environ.get("NOVA_LITE_LONG") != "1", reason="NOVA_LITE_LONG is not set to 1")


@pytest.fixture(scope="module")
def private_broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[PrivateBroker]:
    with PrivateBroker(tmp_path_factory.mktemp("broker")) as broker:
        yield broker


@pytest.mark.parametrize("kind", KINDS)
def test_all_end_active_over_a_restart(tmp_path: Path, private_broker: PrivateBroker, kind: str) -> None:
    broker = private_broker
    options, described = KINDS[kind]
    with cloud.running(
        tmp_path,
        computes=2,
        broker_port=broker.port,
        broker_control=broker.control,
        extra_config=f"[oslo_messaging_rabbit]\n{options}\n",
    ) as running:
        queues = broker.control("list_queues", "-p", running.vhost, "name", "durable", "type")
        assert described in [line.split("\t")[1:] for line in queues.splitlines() if line.startswith("compute.")]
        for host in running.computes:
            running.control_host(host, spawn_delay=1.0)
        ids = running.create(count=8)
        broker.restart(2.0)
        wait_for("the API answers", lambda: answers(running), SETTLE_SECONDS, 0.5)
        found = running.wait_active(ids, SETTLE_SECONDS)
        assert running.domains() == {key: item["OS-EXT-SRV-ATTR:host"] for key, item in found.items()}
        running.delete_all(SETTLE_SECONDS)
        wait_for("nothing is left", lambda: running.domains() == {})
        running.audit()


def answers(running: cloud.Cloud) -> bool:
    with contextlib.suppress(requests.RequestException):
        return running.request("GET", "/servers").status_code == 200
    return False
