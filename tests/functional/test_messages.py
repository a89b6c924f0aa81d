"""The traffic on the broker is what docs/explanation/architecture.md says it is."""

from __future__ import annotations

from collections import Counter

import pytest

from tests.functional.cloud import Cloud
from tests.functional.listener import Listener
from tests.support.waiting import wait_for, wait_for_none

SELECT = ("call", "select_destinations")
BOOT = {
    ("call", "create_instances"): 1,
    ("reply", "create_instances"): 1,
    ("cast", "build_instances"): 1,
    SELECT: 1,
    ("reply", "select_destinations"): 1,
    ("fanout", "update_host_states"): 1,
    ("cast", "build_and_run_instance"): 1,
    ("call", "finish_build"): 1,
    ("reply", "finish_build"): 1,
}


def boot(tidy: Cloud) -> tuple[str, Counter[tuple[str, str]]]:
    """Create a server, and return its id and the messages of its boot.

    Wait for each of them: a thread of its own publishes the claim, perhaps after the build has finished.
    """
    with Listener(tidy.vhost) as heard:
        answer = tidy.request(
            "POST", "/servers", {"server": {"name": "vm", "imageRef": tidy.image_id, "flavorRef": "1"}}
        )
        assert answer.status_code == 202, answer.text
        wait_for_none("its messages are heard", lambda: BOOT.keys() - heard.requested().keys())
        return answer.json()["server"]["id"], heard.requested()


@pytest.fixture
def placing(tidy: Cloud) -> Cloud:
    """Provide a cloud that has placed a server. A scheduler that does not know the hosts yet is called again."""
    boot(tidy)
    return tidy


def test_boot_needs_these_messages_only(placing: Cloud) -> None:
    _, sent = boot(placing)
    assert dict(sent) == BOOT
    assert sum(sent.values()) == 9


def test_delete_needs_one_call_one_cast_and_one_report(placing: Cloud) -> None:
    server, _ = boot(placing)
    with Listener(placing.vhost) as heard:
        assert placing.request("DELETE", f"/servers/{server}").status_code == 204
        wait_for("the delete has finished", lambda: ("reply", "finish_action") in heard.messages)
        sent = heard.requested()
    assert dict(sent) == {
        ("call", "accept_action"): 1,
        ("reply", "accept_action"): 1,
        ("cast", "terminate_instance"): 1,
        ("call", "finish_action"): 1,
        ("reply", "finish_action"): 1,
    }
    assert sum(sent.values()) == 5


def test_freed_capacity_is_published_with_the_next_claim(placing: Cloud) -> None:
    servers = [boot(placing)[0] for _ in range(3)]
    published = ("fanout", "update_host_states")
    with Listener(placing.vhost) as heard:
        for server in servers:
            assert placing.request("DELETE", f"/servers/{server}").status_code == 204
        wait_for_none("the servers are gone", lambda: [*filter(placing.show, servers)])
        placing.create()
        wait_for(
            "the claim is published",
            lambda: SELECT in (messages := [*heard.messages]) and published in messages[messages.index(SELECT) :],
        )
    assert heard.messages.index(published) > heard.messages.index(SELECT), "no create waits for a publication"
    assert heard.messages.count(published) == 1
