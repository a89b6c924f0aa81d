"""Logs of a job that ends without a report."""

from __future__ import annotations

import errno
import logging
import os

import pytest

from nova_lite.base import structured_logs
from nova_lite.base.context import get_admin_context
from nova_lite.compute.jobs import Jobs

SERVER = "11111111-1111-1111-1111-111111111111"


def ended_by(error: Exception, caplog: pytest.LogCaptureFixture) -> logging.LogRecord:
    def work() -> None:
        raise error

    jobs = Jobs()
    with caplog.at_level(logging.WARNING, "nova_lite.compute.jobs"):
        assert jobs.start_action(get_admin_context(), SERVER, 1, work)
        assert jobs.wait_idle(10)
    (record,) = caplog.records
    return record


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EIO])
def test_disk_failure_is_logged_in_one_line(number: int, caplog: pytest.LogCaptureFixture) -> None:
    record = ended_by(OSError(number, os.strerror(number)), caplog)
    assert record.exc_info is None and record.levelno == logging.WARNING
    assert os.strerror(number) in record.getMessage() and SERVER in record.getMessage()


@pytest.mark.parametrize("error", [OSError(errno.EBADF, "no such descriptor"), KeyError("a bug")])
def test_unexpected_error_is_logged_with_its_traceback(error: Exception, caplog: pytest.LogCaptureFixture) -> None:
    assert ended_by(error, caplog).exc_info


def test_records_of_a_job_name_its_instance(caplog: pytest.LogCaptureFixture) -> None:
    found: list[str | None] = []

    def work() -> None:
        record = logging.LogRecord("x", logging.INFO, "", 0, "text", None, None)
        found.append(structured_logs.fields(record).get("instance"))

    jobs = Jobs()
    jobs.start_build(get_admin_context(), SERVER, 1, work)
    assert jobs.wait_idle(10)
    assert found == [SERVER]
