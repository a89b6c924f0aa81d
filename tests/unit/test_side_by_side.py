"""The table of benchmarks/side_by_side.py, and its client of LXD."""

from __future__ import annotations

import pytest

from benchmarks import side_by_side

NOVA = "--url http://127.0.0.1:8774/v2.1 --token secret --image 1 --flavor 1"


class Replies(side_by_side.Lxd):
    """LXD that gives the same reply to every request."""

    def __init__(self, status: int, content: dict[str, object]) -> None:
        self._reply = status, content

    def request(self, method: str, path: str, body: object = None) -> tuple[int, dict[str, object]]:
        return self._reply


ACCEPTED = 202, {"operation": "/1.0/operations/1"}


def test_wait_for_lxd_forgotten_operation_returns() -> None:
    Replies(404, {"error": "Not found"}).wait(ACCEPTED)


def test_wait_for_lxd_failed_operation_ends_the_program() -> None:
    with pytest.raises(SystemExit, match="no space"):
        Replies(200, {"metadata": {"status_code": 400, "err": "no space"}}).wait(ACCEPTED)


def test_wait_for_lxd_refused_request_ends_the_program() -> None:
    with pytest.raises(SystemExit, match="404"):
        Replies(200, {}).wait((404, {"error": "Not found"}))


@pytest.mark.parametrize("token", ["--token secret", "--token=secret"])
def test_command_with_secrets_hides_token_and_password(token: str) -> None:
    database = "mysql+pymysql://user:hidden@127.0.0.1/x_bench"
    arguments = ["--nova", NOVA.replace("--token secret", token), "--database", database]
    shown = side_by_side.command_of(arguments, database)
    assert "secret" not in shown and "hidden" not in shown and "--image 1 --flavor 1" in shown


def test_table_with_nova_shows_its_median() -> None:
    rounds = [{"one by one": {"active_ms": value}} for value in (700.0, 500.0, 600.0)]
    assert "| POST to ACTIVE, idle, ms | 30.0 | 600 | 20 |" in side_by_side.table(
        {"new": [{"one by one": {"active_ms": 30.0}}], "Nova": rounds}, "command"
    )
