"""The traffic on the broker is what docs/explanation/architecture.md says it is."""

from __future__ import annotations

from tests.functional.cloud import Cloud, wait_for
from tests.functional.listener import Listener

BOOT = {
    ("call", "create_instances"): 1,
    ("reply", "create_instances"): 1,
    ("cast", "build_instances"): 1,
    ("call", "select_destinations"): 1,
    ("reply", "select_destinations"): 1,
    ("fanout", "update_host_states"): 1,
    ("cast", "build_and_run_instance"): 1,
    ("call", "finish_build"): 1,
    ("reply", "finish_build"): 1,
}


def test_boot_needs_these_messages_only(tidy: Cloud) -> None:
    with Listener(tidy.vhost) as heard:
        answer = tidy.request(
            "POST", "/servers", {"server": {"name": "vm", "imageRef": tidy.image_id, "flavorRef": "1"}}
        )
        assert answer.status_code == 202, answer.text
        wait_for("the build has finished", lambda: ("reply", "finish_build") in heard.messages)
        sent = heard.requested()
    assert dict(sent) == BOOT
    assert sum(sent.values()) == 9


def test_delete_needs_one_call_one_cast_and_one_report(tidy: Cloud) -> None:
    ids = tidy.create()
    tidy.wait_active(ids)
    with Listener(tidy.vhost) as heard:
        assert tidy.request("DELETE", f"/servers/{ids[0]}").status_code == 204
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


def test_freed_capacity_is_published_before_the_next_scheduling(tidy: Cloud) -> None:
    ids = tidy.create(count=3)
    tidy.wait_active(ids)
    with Listener(tidy.vhost) as heard:
        for server in ids:
            assert tidy.request("DELETE", f"/servers/{server}").status_code == 204
        wait_for("the deletes have finished", lambda: heard.requested()["reply", "finish_action"] == len(ids))
        tidy.wait_active(tidy.create())
    told = heard.messages.index(("fanout", "update_host_states"))
    asked = heard.messages.index(("call", "select_destinations"))
    assert told < asked
    assert heard.messages.count(("fanout", "update_host_states")) == 2, "all deletes share one"
