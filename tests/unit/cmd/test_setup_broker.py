"""Accounts at the broker: which calls of rabbitmqctl ``nova-lite-setup`` and the registrar make for them."""

from __future__ import annotations

import json
from collections.abc import Collection
from typing import Any

import pytest

from nova_lite.base import exceptions
from nova_lite.cmd.manage import programs
from nova_lite.cmd.setup import broker, machine
from nova_lite.rpc.broker import Account, definitions, permissions

ROLES = ("conductor", "scheduler", "api", "console", "manage")
ACCOUNTS = [Account(user=f"nova-lite-{role}", password=f"secret of {role}", role=role, host="ctl") for role in ROLES]
NO_VHOST, NO_USER = 65, 67


class Rabbit:
    """A broker in memory. ``calls``: of rabbitmqctl, each of which takes a second or more of a real machine."""

    def __init__(self, *users: str, vhosts: Collection[str] = ()) -> None:
        self.users, self.vhosts = [*users], [*vhosts]
        self.made: dict[str, Any] = {}
        self.calls: list[tuple[str, ...]] = []

    def run(self, *command: str, given: str = "", user: str, accepted: Collection[int] = (0,)) -> str:
        assert command[:2] == ("rabbitmqctl", "--quiet") and user == "rabbitmq"
        self.calls.append(command[2:])
        status, output = self._answer(*command[2:], given=given)
        if status not in accepted:
            raise exceptions.ConfigurationError(reason=f"rabbitmqctl failed: {status}")
        return output

    def _answer(self, name: str, *arguments: str, given: str) -> tuple[int, str]:
        if name == "list_users":
            return 0, "".join(f"{user}\t[]\n" for user in self.users)
        if name == "delete_user":
            (user,) = arguments
            if user not in self.users:
                return NO_USER, ""
            self.users.remove(user)
            return 0, ""
        assert name == "import_definitions"
        self.made = json.loads(given)
        self.vhosts += [found["name"] for found in self.made.get("vhosts", ())]
        if any(found["vhost"] not in self.vhosts for found in self.made["permissions"]):
            return NO_VHOST, ""
        self.users += [found["name"] for found in self.made["users"] if found["name"] not in self.users]
        return 0, ""


@pytest.fixture
def rabbit(monkeypatch: pytest.MonkeyPatch) -> Rabbit:
    made = Rabbit("guest")
    monkeypatch.setattr(machine, "run", made.run)
    return made


def test_accounts_of_a_new_broker_need_two_calls_and_one_when_repeated(rabbit: Rabbit) -> None:
    for calls in (2, 3):
        broker.provide_accounts(ACCOUNTS)
        assert len(rabbit.calls) == calls
    assert rabbit.vhosts == ["nova-lite"], "a virtual host that exists is not imported again"
    assert rabbit.users == ["guest", *(account.user for account in ACCOUNTS)]


def test_imported_accounts_have_the_permissions_of_their_roles_and_no_argument_a_password(rabbit: Rabbit) -> None:
    broker.provide_accounts(ACCOUNTS)
    expected = definitions("nova-lite", ACCOUNTS)
    assert {key: rabbit.made[key] for key in ("permissions", "topic_permissions")} == {
        key: expected[key] for key in ("permissions", "topic_permissions")
    }
    assert rabbit.made["permissions"][0]["write"] == permissions("conductor", "ctl").write
    assert set(rabbit.calls) == {("import_definitions", programs.INPUT)}
    assert "secret" not in json.dumps(rabbit.made)


def test_accounts_of_a_broker_that_refuses_them_end_with_its_error(
    rabbit: Rabbit, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rabbit, "_answer", lambda *_, **__: (69, ""))
    with pytest.raises(exceptions.ConfigurationError, match="rabbitmqctl failed: 69"):
        broker.provide_accounts(ACCOUNTS)


def test_account_of_a_host_is_removed_by_one_call_and_again_without_an_error(rabbit: Rabbit) -> None:
    rabbit.users.append("nova-lite-compute.h1")
    for calls in (1, 2):
        broker.remove_host("h1")
        assert len(rabbit.calls) == calls and rabbit.users == ["guest"]


def test_accounts_that_exist_are_removed_and_others_stay(rabbit: Rabbit) -> None:
    rabbit.users += ["nova-lite", "nova-lite-api"]
    broker.remove_accounts(["nova-lite", "nova-lite-compute-1", "nova-lite-compute-2"])
    assert rabbit.users == ["guest", "nova-lite-api"]
    assert [call[0] for call in rabbit.calls] == ["list_users", "delete_user"]
