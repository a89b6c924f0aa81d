"""Signed messages: verification, refusals, and the replacement of keys."""

from __future__ import annotations

import datetime
import hashlib
import os
import sys
import time
import types
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from oslo_config import cfg

from nova_lite import rpc
from nova_lite.base import exceptions
from nova_lite.base.context import get_admin_context
from nova_lite.rpc import keys, permissions, signing
from nova_lite.rpc.client import Message
from nova_lite.rpc.keys import Keyring
from nova_lite.rpc.signing import SIGNATURE, SIGNED, Clock, ReplayCache
from nova_lite.rpcapi.compute import ComputeRPC
from nova_lite.rpcapi.conductor import ConductorRPC
from nova_lite.rpcapi.scheduler import SchedulerRPC
from tests.support.clock import Clock as SetClock
from tests.unit.rpc.bench import ASK, CONTEXT, Bench, ThingRPC


@pytest.fixture(scope="module", params=[False, True], ids=["broker", "socket"])
def served(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Bench]:
    made = Bench(tmp_path_factory.mktemp("bench"), request.param, sessions=False)
    made.serve()
    yield made
    made.close()
    cfg.CONF.reset()


@pytest.fixture
def bench(served: Bench) -> Bench:
    served.begin()
    return served


# --- what is taken


def test_signed_call_gets_a_reply_and_its_sender_is_known(bench: Bench) -> None:
    what = {"text": "é€\U0001f600", "float": 0.1, "big": 2**70, "none": None, "list": [1, [2]], "1": {"b": 1, "a": 2}}
    assert bench.client(rpc.API, "web").ask(CONTEXT, what) == {"again": what}
    context = bench.things.context
    assert context is not None and context.sender == ("api", "web")
    assert (context.user_id, context.request_id) == ("u", "req-1")


def test_signed_errors_cross_as_themselves(bench: Bench) -> None:
    client = bench.client(rpc.API, "web")
    with pytest.raises(exceptions.InstanceNotFound, match="i1 could not be found"):
        client.fail(CONTEXT)


def test_method_that_is_not_served_is_too_old(bench: Bench, caplog: pytest.LogCaptureFixture) -> None:
    sender = bench.sender(rpc.API, "web")
    with pytest.raises(exceptions.ServiceTooOld):
        sender.call(Message("conductor", "fly", CONTEXT))
    with pytest.raises(exceptions.ServiceTooOld):
        sender.call(Message("conductor", "ask", CONTEXT, version="2.9", arguments={"what": {}}))
    assert "Traceback" not in caplog.text


def test_message_that_its_sender_repeats_is_taken_twice(bench: Bench) -> None:
    client = bench.client(rpc.API, "web")
    for _ in range(2):
        client.tell(CONTEXT, "hello")
    for _ in range(2):
        assert bench.things.told.acquire(timeout=10)
    assert bench.things.heard == ["hello", "hello"]


def test_context_of_a_host_is_no_admin_and_no_user(bench: Bench) -> None:
    bench.client(rpc.COMPUTE, "host-1").ask(get_admin_context("req-7"), {})
    context = bench.things.context
    assert context is not None and context.sender == ("compute", "host-1")
    assert (context.is_admin, context.roles, context.request_id) == (False, [], "req-7")


# --- what is refused


def refused(bench: Bench, caplog: pytest.LogCaptureFixture, send: Any, why: str) -> None:
    """Check that the call has no reply, no function has run, and one log line has the cause."""
    caplog.clear()
    before = list(bench.things.heard)
    with pytest.raises(exceptions.MessagingUnavailable):
        send()
    assert bench.things.heard == before
    lines = [record.getMessage() for record in caplog.records if " is refused: " in record.getMessage()]
    assert len(lines) == 1 and why in lines[0], lines


def replayed(bench: Bench, message: Message, context: dict[str, Any]) -> Any:
    """Send ``message`` with this context, as it was captured or made."""
    transport = bench.sender(rpc.API, "web")
    made = types.SimpleNamespace(message_id=None, signed=lambda: (context, None))
    transport.signing.draft = lambda message: made  # type: ignore[method-assign, assignment, return-value]
    return transport.call(message)


def test_unsigned_message_is_refused(bench: Bench, caplog: pytest.LogCaptureFixture) -> None:
    refused(bench, caplog, lambda: replayed(bench, ASK, CONTEXT.to_rpc()), "Message ask is refused: it is not signed")


def test_replayed_message_is_refused(bench: Bench, caplog: pytest.LogCaptureFixture) -> None:
    context, _ = bench.sender(rpc.API, "web").signing.signed(ASK)
    replayed(bench, ASK, context)
    refused(bench, caplog, lambda: replayed(bench, ASK, context), "of api on web is refused: it was taken before")
    assert bench.things.heard == [{"a": 1}]


def test_message_replayed_to_a_new_process_is_refused(bench: Bench, caplog: pytest.LogCaptureFixture) -> None:
    """The new process has an empty cache; the shared cache refuses the message."""
    shared: set[str] = set()

    def once(sender: keys.DaemonIdentity, method: str, message_id: str) -> bool:
        assert (sender.role, method) == (rpc.API, "ask")
        return message_id not in shared and not shared.add(message_id)  # type: ignore[func-returns-value]

    bench.endpoint.once = once
    try:
        context, _ = bench.sender(rpc.API, "web").signing.signed(ASK)
        replayed(bench, ASK, context)
        bench.transport.signing._seen.clear()
        refused(bench, caplog, lambda: replayed(bench, ASK, context), "api on web is refused: it was taken before, by")
    finally:
        bench.endpoint.once = None


def test_message_is_refused_when_the_shared_cache_is_unavailable(bench: Bench) -> None:
    def once(sender: keys.DaemonIdentity, method: str, message_id: str) -> bool:
        raise exceptions.DatabaseUnavailable()

    bench.endpoint.once = once
    try:
        with pytest.raises(exceptions.DatabaseUnavailable):
            bench.client(rpc.API, "web").ask(CONTEXT, {"a": 1})
        assert bench.things.heard == []
    finally:
        bench.endpoint.once = None


@pytest.mark.parametrize(
    "change",
    [
        {"arguments": {"what": {"a": 2}}},
        {"method": "tell", "arguments": {"what": {"a": 1}}},
        {"version": "2.1"},
    ],
)
def test_altered_message_is_refused(bench: Bench, caplog: pytest.LogCaptureFixture, change: dict[str, Any]) -> None:
    import dataclasses

    context, _ = bench.sender(rpc.API, "web").signing.signed(ASK)
    altered = dataclasses.replace(ASK, **change)
    refused(bench, caplog, lambda: replayed(bench, altered, context), "its signature is wrong")


@pytest.mark.parametrize("change", [{"is_admin": True}, {"user_id": "other"}, {"more": 1}])
def test_altered_context_is_refused(bench: Bench, caplog: pytest.LogCaptureFixture, change: dict[str, Any]) -> None:
    context, _ = bench.sender(rpc.API, "web").signing.signed(ASK)
    refused(bench, caplog, lambda: replayed(bench, ASK, context | change), "its signature is wrong")


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"id": "0" * 32}, "its signature is wrong"),
        ({"time": time.time() + 1}, "its signature is wrong"),
        ({"server": "controller"}, "its signature is wrong"),
        ({"key": "0123456789abcdef"}, "is not trusted"),
        ({"signature": "AAAA"}, "its signature is wrong"),
        ({"signature": "not base64"}, "its signature cannot be read"),
        ({"signature": None}, "its signature cannot be read"),
        ({"time": "soon"}, "its signature cannot be read"),
        ({"time": 10**400}, "its signature cannot be read"),
        ({"time": None}, "its signature cannot be read"),
        ({"id": 7}, "its signature is wrong"),
    ],
)
def test_altered_signature_is_refused(
    bench: Bench, caplog: pytest.LogCaptureFixture, change: dict[str, Any], why: str
) -> None:
    context, _ = bench.sender(rpc.API, "web").signing.signed(ASK)
    context[SIGNATURE] |= change
    refused(bench, caplog, lambda: replayed(bench, ASK, context), why)


@pytest.mark.parametrize("header", ["text", 7, [], {}])
def test_malformed_signature_is_refused(bench: Bench, caplog: pytest.LogCaptureFixture, header: Any) -> None:
    context = CONTEXT.to_rpc() | {SIGNATURE: header}
    refused(bench, caplog, lambda: replayed(bench, ASK, context), "its signature cannot be read")


def test_sender_in_a_context_is_ignored(bench: Bench, caplog: pytest.LogCaptureFixture) -> None:
    context = CONTEXT.to_rpc() | {signing.SENDER: ["api", "web"]}
    refused(bench, caplog, lambda: replayed(bench, ASK, context), "it is not signed")


def test_message_for_another_server_is_refused(bench: Bench, caplog: pytest.LogCaptureFixture) -> None:
    import dataclasses

    context, _ = bench.sender(rpc.API, "web").signing.signed(dataclasses.replace(ASK, server="elsewhere"))
    refused(bench, caplog, lambda: replayed(bench, ASK, context), "it is for conductor on elsewhere")


def test_message_for_another_topic_is_refused(bench: Bench, caplog: pytest.LogCaptureFixture) -> None:
    import dataclasses

    context, _ = bench.sender(rpc.API, "web").signing.signed(dataclasses.replace(ASK, topic="scheduler"))
    refused(bench, caplog, lambda: replayed(bench, ASK, context), "its signature is wrong")


@pytest.mark.parametrize(
    ("wrong_by", "why"),
    [
        (100, "its time is 100 s ahead of ours ([rpc] clock_skew is 30)"),
        (-400, "its time is 400 s behind ours"),
        (float("nan"), "its signature cannot be read"),
        (float("inf"), "its signature cannot be read"),
    ],
)
def test_wrong_clock_is_reported_with_its_skew(
    bench: Bench, caplog: pytest.LogCaptureFixture, wrong_by: float, why: str
) -> None:
    sender = bench.sender(rpc.API, "web")
    sender.signing.clock.time = lambda: time.time() + wrong_by  # type: ignore[method-assign]
    refused(bench, caplog, lambda: sender.call(ASK), why)
    assert f"Call ask to conductor failed: conductor on controller refuses message ask: {why}"[:80] in caplog.text


@pytest.mark.parametrize("wrong_by", [25, -250])
def test_small_clock_skew_is_tolerated(bench: Bench, wrong_by: float) -> None:
    sender = bench.sender(rpc.API, "web")
    sender.signing.clock.time = lambda: time.time() + wrong_by  # type: ignore[method-assign]
    assert sender.call(ASK) == {"again": {"a": 1}}


def test_role_without_access_is_refused(bench: Bench, caplog: pytest.LogCaptureFixture) -> None:
    host = bench.client(rpc.COMPUTE, "host-1")
    refused(bench, caplog, lambda: host.secret(CONTEXT), "compute on host-1 is refused: role compute may not call it")
    assert bench.client(rpc.API, "web").secret(CONTEXT) == "s3cret"


def test_host_in_another_hosts_name_is_refused(bench: Bench, caplog: pytest.LogCaptureFixture) -> None:
    host = bench.client(rpc.COMPUTE, "host-1")
    for report in ({"host": "host-2"}, {}, {"host": None}):
        refused(bench, caplog, lambda report=report: host.report(CONTEXT, report), "it may speak of itself alone")
    assert host.report(CONTEXT, {"host": "host-1"}) == "noted"


def test_commands_have_the_access_rule_of_their_method(bench: Bench, caplog: pytest.LogCaptureFixture) -> None:
    turn = Message("conductor", "turn", CONTEXT, server="controller", arguments={"ticket": 1})
    refused(bench, caplog, lambda: bench.sender(rpc.COMPUTE, "host-1").call(turn), "role compute may not call it")
    bench.sender(rpc.API, "web").call(turn)
    assert bench.things.heard == [1]


# --- answers


def answered(bench: Bench, change: Any) -> None:
    """Change the reply of a call on its way: the caller gets no reply."""
    sender = bench.sender(rpc.API, "web")
    opened = sender.signing.opened
    sender.signing.opened = lambda *about: opened(*about[:2], change(about[2]))  # type: ignore[method-assign]
    with pytest.raises(exceptions.MessagingUnavailable):
        sender.call(ASK)


def test_reply_of_another_daemon_is_not_trusted(bench: Bench, caplog: pytest.LogCaptureFixture) -> None:
    answered(bench, lambda answer: {"again": "mine"})
    assert "is not trusted: it is not signed" in caplog.text
    for change in ({"text": "{}"}, {"text": None, "result": {"again": {"a": 1}}}, {"text": None, "failure": "{}"}):
        caplog.clear()
        answered(bench, lambda answer, change=change: answer | change)
        assert "is not trusted: its signature is wrong" in caplog.text
    for text in (7, {}, b"{}"):
        caplog.clear()
        answered(bench, lambda answer, text=text: answer | {"text": text})
        assert "is not trusted: its signature cannot be read" in caplog.text
    host = bench.sender(rpc.COMPUTE, "host-1").signing
    forger = bench.sender(rpc.API, "web")

    def forged(answer: Any) -> Any:
        incoming = type("", (), {"ctxt": {SIGNATURE: {"id": forger.last}}})
        return host.reply(incoming, "mine", None)

    draft = forger.signing.draft

    def remember(message: Message) -> Any:
        made = draft(message)
        forger.last = made.message_id
        return made

    forger.signing.draft = remember  # type: ignore[method-assign]
    opened = forger.signing.opened
    forger.signing.opened = lambda *about: opened(*about[:2], forged(about[2]))  # type: ignore[method-assign]
    with pytest.raises(exceptions.MessagingUnavailable):
        forger.call(ASK)
    assert "is not trusted: it is signed by compute on host-1" in caplog.text


def test_older_daemons_get_and_send_replies_as_values(bench: Bench) -> None:
    """A caller that does not accept text gets a value, and every caller reads values."""
    answers: list[Any] = []
    sender = bench.sender(rpc.API, "web")
    opened, draft = sender.signing.opened, sender.signing.draft
    sender.signing.opened = lambda *about: (answers.append(about[2]), opened(*about))[1]  # type: ignore[method-assign]
    assert sender.call(ASK) == {"again": {"a": 1}}

    def as_before(message: Message) -> Any:
        made = draft(message)
        del made._header["text"]
        return made

    sender.signing.draft = as_before  # type: ignore[method-assign]
    assert sender.call(ASK) == {"again": {"a": 1}}
    of_now, of_before = answers
    assert of_now.keys() == {"text", SIGNED}
    assert of_before.keys() == {"result", SIGNED}


def test_result_that_is_not_utf8_is_sent_as_a_value(bench: Bench) -> None:
    """A file name may have bytes that are not UTF-8."""
    what = {"name": b"disk-\xff".decode(errors="surrogateescape")}
    ask = Message("conductor", "ask", CONTEXT, arguments={"what": what})
    assert bench.sender(rpc.API, "web").call(ask) == {"again": what}


def test_signed_text_is_unique_for_id_and_reply(bench: Bench) -> None:
    """No other id with the beginning of the text makes the same bytes."""
    made = {signing._reply_text(message_id, text) for message_id, text in (("a", b'"b'), ('a"', b"b"), ('a""', b""))}
    assert len(made) == 3


def test_reply_to_another_call_is_not_trusted(bench: Bench, caplog: pytest.LogCaptureFixture) -> None:
    kept: list[Any] = []
    sender = bench.sender(rpc.API, "web")
    opened = sender.signing.opened
    sender.signing.opened = lambda *about: (kept.append(about[2]), opened(*about))[1]  # type: ignore[method-assign]
    sender.call(ASK)
    assert SIGNED in kept[0]
    answered(bench, lambda answer: kept[0])
    assert "its signature is wrong" in caplog.text


def test_unsigned_failure_is_trusted_only_if_unavailable(bench: Bench) -> None:
    """An overload may be reported without a signature, the state of an instance may not."""
    about = bench.sender(rpc.API, "web").signing
    gone, busy = exceptions.InstanceGone(instance_id="i"), exceptions.ServiceUnavailable()
    assert isinstance(about.unsigned_failure(ASK, "id", gone), exceptions.MessagingUnavailable)
    assert about.unsigned_failure(ASK, "id", busy) is busy
    epoch = exceptions.HostEpochOver(host="h")
    assert isinstance(about.unsigned_failure(ASK, "id", epoch), exceptions.MessagingUnavailable)


# --- keys change


def test_keys_revoked_expired_or_early_are_refused(bench: Bench, caplog: pytest.LogCaptureFixture) -> None:
    client = bench.client(rpc.API, "web")
    client.ask(CONTEXT, {})
    bench.trusted = [each for each in bench.trusted if each.role != rpc.API]
    bench.write()
    bench.look_again()
    refused(bench, caplog, lambda: client.ask(CONTEXT, {}), "is not trusted")
    past, future = keys.now() - datetime.timedelta(hours=1), keys.now() + datetime.timedelta(hours=1)
    bench.add(rpc.API, "old", not_before=past, until=past + datetime.timedelta(minutes=1))
    refused(bench, caplog, lambda: bench.client(rpc.API, "old").ask(CONTEXT, {}), "of api on old is refused")
    bench.add(rpc.API, "early", not_before=future)
    refused(bench, caplog, lambda: bench.client(rpc.API, "early").ask(CONTEXT, {}), "is not valid now")


def test_key_is_replaced_while_messages_are_sent(bench: Bench) -> None:
    """The old and the new key are trusted for a while, so that messages on their way are accepted."""
    sender = bench.sender(rpc.API, "web")
    under_way, _ = sender.signing.signed(ASK)
    assert sender.call(ASK)
    bench.add(rpc.API, "web")
    bench.look_again()
    after, _ = sender.signing.signed(ASK)
    assert after[SIGNATURE]["key"] != under_way[SIGNATURE]["key"]
    assert sender.call(ASK)
    assert replayed(bench, ASK, under_way)


def test_corrupt_list_leaves_the_keys_as_they_were(bench: Bench, caplog: pytest.LogCaptureFixture) -> None:
    client = bench.client(rpc.API, "web")
    client.ask(CONTEXT, {})
    (bench.keys / keys.TRUSTED).write_text("{")
    bench.look_again()
    client.ask(CONTEXT, {})
    assert "The daemon continues with its previous keys" in caplog.text
    assert "is not a list of trusted keys" in caplog.text


# --- settings


def test_messages_without_keys_are_not_signed(bench: Bench, caplog: pytest.LogCaptureFixture) -> None:
    conf = bench.conf(keys_directory="")
    made = signing.Signing(conf)
    assert made.mode == signing.OFF
    assert made.signed(ASK) == (CONTEXT.to_rpc(), None)


def test_permissive_mode_accepts_and_logs_unsigned_messages(bench: Bench, caplog: pytest.LogCaptureFixture) -> None:
    bench.transport.signing.mode = signing.PERMISSIVE
    for _ in range(2):
        replayed(bench, ASK, CONTEXT.to_rpc())
    assert caplog.text.count("Unsigned messages arrive (ask)") == 1
    context = CONTEXT.to_rpc() | {SIGNATURE: {"key": "0", "id": "0" * 32, "time": 0, "server": None, "signature": ""}}
    refused(bench, caplog, lambda: replayed(bench, ASK, context), "is not trusted")


@pytest.mark.parametrize(
    ("options", "role", "told"),
    [
        ({"keys_directory": "", "signing": "required"}, rpc.API, "needs .rpc. keys_directory"),
        ({}, None, "no role"),
        ({}, rpc.MANAGE, "keys create makes it"),
        ({"keys_directory": "/nowhere"}, rpc.CONDUCTOR, "No such file"),
    ],
)
def test_contradicting_settings_are_refused(bench: Bench, options: dict[str, Any], role: str | None, told: str) -> None:
    with pytest.raises(exceptions.ConfigurationError, match=told):
        signing.Signing(bench.conf(**options), role)


def test_key_files_with_open_permissions_are_refused(bench: Bench) -> None:
    bench.add(rpc.API, "web")
    path = keys.private_path(str(bench.keys), rpc.API, "web")
    os.chmod(path, 0o640)
    with pytest.raises(exceptions.ConfigurationError, match=r"can be read by others \(mode 0640\)"):
        Keyring(str(bench.keys), rpc.API, "web", print)
    os.chmod(path, 0o600)
    os.chmod(bench.keys / keys.TRUSTED, 0o666)
    with pytest.raises(exceptions.ConfigurationError, match="can be written by others"):
        Keyring(str(bench.keys), rpc.API, "web", print)
    os.chmod(bench.keys / keys.TRUSTED, 0o644)
    Path(path).write_text("no key")
    with pytest.raises(exceptions.ConfigurationError, match="is not a private key"):
        Keyring(str(bench.keys), rpc.API, "web", print)


# --- parts


def an_id(number: int) -> bytes:
    return hashlib.md5(str(number).encode()).digest()


def test_replay_cache_keeps_ids_for_their_lifetime() -> None:
    seen = ReplayCache(80, limit=1000)
    assert seen.add(an_id(1), 100.0, 20.0)
    assert not seen.add(an_id(1), 100.0, 20.0)
    assert not seen.add(an_id(1), 100.0, 99.0), "it is not older than what is taken"
    assert seen.add(an_id(2), 300.0, 220.0)
    assert len(seen) == 1, "what is too old to be taken is forgotten"
    assert not seen.add(an_id(3), 100.0, 220.0)


def test_replay_cache_keeps_many_ids_of_one_moment() -> None:
    seen = ReplayCache(80, limit=10_000)
    for number in range(3000):
        assert seen.add(an_id(number), 100.0, 20.0)
        assert not seen.add(an_id(number), 100.0, 20.0)
    assert len(seen) == 3000
    assert not any(seen.add(an_id(number), 100.0, 20.0) for number in range(3000))


def test_replay_cache_buckets_cannot_be_chosen_by_a_sender() -> None:
    seen = ReplayCache(80, limit=10_000)
    alike = [bytes(12) + number.to_bytes(4, "big") for number in range(4000)]
    assert all(seen.add(each, 100.0, 20.0) for each in alike)
    assert not any(seen.add(each, 100.0, 20.0) for each in alike)
    (ids,) = seen._parts.values()
    assert max(map(len, ids._buckets)) < 16 * 100, "some sixteen ids each, and not thousands"


def test_replay_cache_of_few_messages_is_small() -> None:
    """A conductor has thousands of such senders."""
    seen = ReplayCache(80, limit=1000)
    for number in range(48):
        assert seen.add(an_id(number), 100.0 + number * 80 / 48, 20.0)
    assert len(seen) == 48
    assert all(isinstance(each, bytes) for each in seen._parts.values()), "what refers to more is not measured"
    assert sum(map(sys.getsizeof, seen._parts.values())) < 48 * 16 + 9 * 40, "the ids, and a string for each part"


def test_replay_cache_ignores_matches_across_ids() -> None:
    seen = ReplayCache(80, limit=1000)
    first, second = bytes(range(16)), bytes(range(16, 32))
    for each in (first, second, first[8:] + second[:8]):
        assert seen.add(each, 100.0, 20.0)
    assert not seen.add(first[8:] + second[:8], 100.0, 20.0)


def test_replay_cache_beyond_its_limit_refuses_old_messages() -> None:
    seen = ReplayCache(80, limit=100)
    taken = [number for number in range(1000) if seen.add(an_id(number), 1000.0 + number / 20, 920.0)]
    assert len(taken) == 1000
    assert len(seen) <= 100 + 200, "one part may be over the limit"
    assert not any(seen.add(an_id(number), 1000.0 + number / 20, 920.0) for number in range(1000))


def test_replay_cache_accepts_new_messages_after_a_clock_returned_from_a_jump() -> None:
    """Messages from before the return are refused: their ids may be forgotten."""
    seen = ReplayCache(80, limit=1000)
    assert seen.add(an_id(1), 1000.0, 920.0, 1000.0)
    assert seen.add(an_id(2), 9000.0, 8920.0, 9000.0)
    assert not seen.add(an_id(3), 1030.0, 950.0, 1030.0), "only the machine's clock says that it has returned"
    assert not seen.add(an_id(1), 1000.0, 950.0, 1030.0, jumps_back=1)
    assert seen.add(an_id(4), 1041.0, 961.0, 1041.0, jumps_back=1)
    assert not seen.add(an_id(4), 1041.0, 961.0, 1041.0, jumps_back=1)


def test_clock_jump_counts_only_after_a_while(monkeypatch: pytest.MonkeyPatch) -> None:
    uptime, wall = SetClock(), SetClock()
    monkeypatch.setattr(signing, "_uptime", uptime)
    monkeypatch.setattr(signing, "time", types.SimpleNamespace(time=wall))

    def after(seconds: float) -> float:
        uptime.time += seconds
        wall.time += seconds
        return clock.time()

    clock = Clock(patience=30.0)
    assert after(10.0) == 10.0
    wall.time += 3600.0
    assert [after(0.0), after(29.0), after(1.0)] == [10.0, 39.0, 3640.0]
    assert clock.jumps_back == 0
    wall.time -= 3600.0
    assert [after(0.0), after(29.0), after(1.0)] == [3640.0, 3669.0, 70.0]
    assert clock.jumps_back == 1


# --- the tables


@pytest.mark.parametrize("protocol", [ConductorRPC, ComputeRPC, SchedulerRPC])
def test_access_rule_of_every_method_names_a_role(protocol: type) -> None:
    access = rpc.contract_of(protocol).access
    assert access is not None
    assert all(rule.roles for rule in access.values())


def test_access_rule_of_a_compute_host_names_its_own_host() -> None:
    rules = rpc.contract_of(ConductorRPC).access
    assert rules is not None
    mine = {name: rule for name, rule in rules.items() if rpc.COMPUTE in rule.roles}
    assert {name for name, rule in mine.items() if rule.own is None} == {"image_get", "image_update"}
    assert all(rule.own in ("host", "report.host", "request.host", "result.host", None) for rule in mine.values())
    for contract in (rpc.contract_of(ComputeRPC), rpc.contract_of(SchedulerRPC)):
        assert not any(rpc.COMPUTE in rule.roles for rule in (contract.access or {}).values())


def test_access_rule_arguments_that_are_no_mapping_are_refused() -> None:
    rule = permissions.AccessRule(frozenset({rpc.COMPUTE}), own="report.host")
    assert rule.refusal(keys.DaemonIdentity("compute", "h"), {"report": "h"})
    assert rule.refusal(keys.DaemonIdentity("compute", "h"), {"report": {"host": ["h"]}})
    assert rule.refusal(keys.DaemonIdentity("compute", "h"), {"report": {"host": "h"}}) is None


def test_process_can_act_as_many_hosts(bench: Bench, caplog: pytest.LogCaptureFixture) -> None:
    """Over one transport, with one list of keys, each with a key and a server of its own."""
    for number in range(20):
        bench.add(rpc.COMPUTE, f"host-{number}")
    first = bench.transport.share(rpc.COMPUTE, "host-0")
    for number in range(20):
        host = rpc.proxy(ThingRPC, bench.transport.share(rpc.COMPUTE, f"host-{number}"))
        assert host.report(CONTEXT, {"host": f"host-{number}"}) == "noted"
        refused(bench, caplog, lambda host=host: host.report(CONTEXT, {"host": "host-x"}), "of itself alone")
    assert first.signing._ring is not None and bench.transport.signing._ring is not None
    assert first.signing._ring._trusted is bench.transport.signing._ring._trusted


def test_log_line_cannot_be_forged(bench: Bench, caplog: pytest.LogCaptureFixture) -> None:
    message = Message("conductor", "ask\n2026 INFO all is well", CONTEXT)
    refused(bench, caplog, lambda: replayed(bench, message, CONTEXT.to_rpc()), r"Message 'ask\n2026 INFO all is well'")
