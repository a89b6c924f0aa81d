"""Log records as JSON and as entries of systemd's journal."""

from __future__ import annotations

import io
import json
import logging
import socket
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from nova_lite.base import structured_logs
from nova_lite.base.context import RequestContext
from nova_lite.base.structured_logs import JournalHandler, JsonFormatter, about, fields

SERVER = "11111111-2222-3333-4444-555555555555"
OTHER = "99999999-2222-3333-4444-555555555555"


def record(message: str = "text", *arguments: object, level: int = logging.INFO, **values: Any) -> logging.LogRecord:
    made = logging.LogRecord("nova_lite.x", level, "/x.py", 7, message, arguments, None, "function")
    made.__dict__.update(values)
    return made


@pytest.fixture
def context() -> Iterator[RequestContext]:
    """Put a request into the thread's store, and restore the store."""
    from oslo_context import context as oslo_context

    before = oslo_context.get_current()
    made = RequestContext(user_id="u", project_id="p", request_id="req-1", global_request_id="req-2", overwrite=True)
    yield made
    oslo_context._request_store.context = before


# --- fields


def test_record_has_the_request_of_its_thread(context: RequestContext) -> None:
    assert fields(record("%s", "a")) == {
        "message": "a",
        "request_id": "req-1",
        "global_request_id": "req-2",
        "user_id": "u",
        "project_id": "p",
    }


@pytest.mark.parametrize(
    ("made", "instance"),
    [
        (record(f"Instance {SERVER}: it boots"), SERVER),
        (record("The server %s is gone", SERVER), SERVER),
        (record(f"Image {SERVER} is fetched"), OTHER),
        (record("text", instance_uuid=SERVER), SERVER),
        (record("text"), OTHER),
    ],
)
def test_record_names_the_instance_that_it_is_about(made: logging.LogRecord, instance: str) -> None:
    with about(OTHER):
        assert fields(made)["instance"] == instance


def test_instance_of_a_thread_is_forgotten_and_is_not_that_of_other_threads() -> None:
    found: list[str] = []
    with about(SERVER):
        with about("no uuid"):
            assert fields(record())["instance"] == SERVER
        thread = threading.Thread(target=lambda: found.append(fields(record()).get("instance", "")))
        thread.start()
        thread.join()
    assert found == [""]
    assert "instance" not in fields(record())


# --- JSON


def test_line_of_json_has_everything_in_one_line(context: RequestContext) -> None:
    try:
        raise ValueError("one\ntwo")
    except ValueError:
        made = record("It failed\nbadly: %s", '"', level=logging.ERROR, exc_info=sys.exc_info())
    with about(SERVER):
        text = JsonFormatter("nova-lite-compute", "h1").format(made)
    assert "\n" not in text
    line = json.loads(text)
    assert line["time"].endswith("Z") and len(line["time"]) == 24
    assert (line["level"], line["priority"], line["logger"]) == ("ERROR", 3, "nova_lite.x")
    assert (line["daemon"], line["host"], line["instance"]) == ("nova-lite-compute", "h1", SERVER)
    assert (line["message"], line["request_id"]) == ('It failed\nbadly: "', "req-1")
    assert line["exception"].endswith("ValueError: one\ntwo")


def test_json_for_the_journal_keeps_the_priority_of_its_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from nova_lite.base import journal

    logger = logging.Logger("test")
    with open(tmp_path / "stream", "w+") as stream:
        handler = logging.StreamHandler(stream)
        logger.addHandler(handler)
        structured_logs.set_up(logger, structured_logs.JSON, "d", "h")
        monkeypatch.setattr(journal, "leads_there", lambda stream: True)
        journal.add_priorities(logger)
        logger.warning("text")
        stream.seek(0)
        (line,) = stream.read().splitlines()
    assert line[:3] == "<4>"
    assert json.loads(line[3:])["message"] == "text"


# --- the journal


class Journal:
    """systemd's journal, which parses entries as `systemd.journal-fields` describes them."""

    def __init__(self, path: str) -> None:
        self.path = path
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self._socket.bind(path)
        self._socket.settimeout(10)

    def entry(self) -> dict[str, str]:
        data, found = self._socket.recv(1 << 20), {}
        while data:
            name, _, data = data.partition(b"\n")
            assert b"=" not in name
            length, data = int.from_bytes(data[:8], "little"), data[8:]
            found[name.decode()], data = data[:length].decode(), data[length:]
            assert data[:1] == b"\n"
            data = data[1:]
        return found

    def close(self) -> None:
        self._socket.close()


@pytest.fixture
def systemd(tmp_path: Path) -> Iterator[Journal]:
    made = Journal(str(tmp_path / "socket"))
    yield made
    made.close()


@pytest.fixture
def logger(systemd: Journal) -> Iterator[logging.Logger]:
    made = logging.Logger("nova_lite.x")
    handler = JournalHandler("nova-lite-api", "h1", systemd.path)
    made.addHandler(handler)
    yield made
    handler.close()


def test_entry_of_the_journal_has_native_fields(
    logger: logging.Logger, systemd: Journal, context: RequestContext
) -> None:
    with about(SERVER):
        logger.warning("It is %s", "slow")
    entry = systemd.entry()
    assert (entry["MESSAGE"], entry["PRIORITY"], entry["LOGGER"]) == ("It is slow", "4", "nova_lite.x")
    assert (entry["SYSLOG_IDENTIFIER"], entry["NOVA_LITE_HOST"]) == ("nova-lite-api", "h1")
    assert (entry["NOVA_LITE_REQUEST_ID"], entry["NOVA_LITE_INSTANCE"]) == ("req-1", SERVER)
    assert entry["CODE_FILE"].endswith("test_structured_logs.py") and entry["CODE_LINE"].isdecimal()


def test_text_of_a_user_adds_no_field_to_an_entry(logger: logging.Logger, systemd: Journal) -> None:
    logger.info("name %s", "a\nPRIORITY=0\nMESSAGE=b\n")
    entry = systemd.entry()
    assert entry["MESSAGE"] == "name a\nPRIORITY=0\nMESSAGE=b\n"
    assert entry["PRIORITY"] == "6"


def test_entry_that_would_be_too_long_is_shortened(logger: logging.Logger, systemd: Journal) -> None:
    logger.info("x" * 1_000_000)
    assert systemd.entry()["MESSAGE"] == "x" * structured_logs.MOST + "..."


def test_record_without_a_function_is_an_entry(logger: logging.Logger, systemd: Journal) -> None:
    logger.handle(logging.LogRecord("x", logging.INFO, "x.py", 1, "text", None, None))
    assert systemd.entry()["CODE_FUNC"] == ""


def test_traceback_is_a_field(logger: logging.Logger, systemd: Journal) -> None:
    try:
        raise ValueError("cause")
    except ValueError:
        logger.exception("It failed")
    entry = systemd.entry()
    assert entry["MESSAGE"] == "It failed"
    assert entry["NOVA_LITE_EXCEPTION"].endswith("ValueError: cause")


def test_record_that_the_journal_does_not_take_goes_to_stderr(
    logger: logging.Logger, systemd: Journal, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    systemd.close()
    logger.error("It failed")
    assert "ERROR nova_lite.x It failed (not in the journal: " in capsys.readouterr().err
    (tmp_path / "socket").unlink()
    restarted = Journal(systemd.path)
    logger.error("Again")
    assert restarted.entry()["MESSAGE"] == "Again"
    restarted.close()


@pytest.mark.parametrize(("stream", "replaced"), [(lambda: sys.stderr, True), (io.StringIO, False)])
def test_handler_of_the_console_is_replaced_and_a_file_stays(stream: Callable[[], Any], replaced: bool) -> None:
    logger = logging.Logger("test")
    handler = logging.StreamHandler(stream())
    handler.setLevel(logging.WARNING)
    logger.addHandler(handler)
    structured_logs.set_up(logger, structured_logs.JOURNAL, "d", "h")
    (found,) = logger.handlers
    assert isinstance(found, JournalHandler) is replaced
    assert found.level == logging.WARNING
    if replaced:
        found.close()


def test_message_of_a_text_log_is_one_line_without_controls() -> None:
    stream = io.StringIO()
    logger = logging.Logger("test")
    logger.addHandler(logging.StreamHandler(stream))
    structured_logs.set_up(logger, structured_logs.TEXT, "d", "h")
    logger.warning("named %s, \N{PILE OF POO} é", "a\nb\r\x1b[2J\x85\u2028")
    assert stream.getvalue() == "named a\\nb\\r\\x1b[2J\\x85\\u2028, \N{PILE OF POO} é\n"


def test_traceback_of_a_text_log_keeps_its_lines() -> None:
    stream = io.StringIO()
    logger = logging.Logger("test")
    logger.addHandler(logging.StreamHandler(stream))
    structured_logs.set_up(logger, structured_logs.TEXT, "d", "h")
    try:
        raise ValueError("\x1b[2J")
    except ValueError:
        logger.exception("failed")
    first, second, *_, last = stream.getvalue().splitlines()
    assert (first, second, last) == ("failed", "Traceback (most recent call last):", "ValueError: \\x1b[2J")


def test_line_of_a_json_log_is_json_without_controls() -> None:
    stream = io.StringIO()
    logger = logging.Logger("test")
    logger.addHandler(logging.StreamHandler(stream))
    structured_logs.set_up(logger, structured_logs.JSON, "d", "h")
    logger.warning("%s", "a\nb\x7f\x9b\u2028\U000e0001")
    text = stream.getvalue()
    assert text.rstrip("\n").isprintable()
    assert json.loads(text)["message"] == "a\nb\x7f\x9b\u2028\U000e0001"
