"""Names, passwords and roles."""

from __future__ import annotations

import pytest

from nova_lite.api.identity import directory, passwords
from nova_lite.api.identity.content import Content
from nova_lite.api.identity.records import User
from nova_lite.base import exceptions


def test_password_hash_matches_its_password_only() -> None:
    stored = passwords.hashed("pässword")
    assert "pässword" not in stored
    assert passwords.matches("pässword", stored)
    assert not passwords.matches("password", stored)
    assert not passwords.matches("pässword", None)
    assert not passwords.matches("\ud800", stored)
    assert passwords.hashed("pässword") != stored
    for wrong in ("", "secret", "scrypt$1$2$3$x$y", stored.replace("scrypt", "plain"), stored[:-9]):
        assert not passwords.is_hash(wrong)


@pytest.mark.parametrize("name", ["", " a", "a ", "a/b", "a\nb", "x" * 256])
def test_invalid_name_is_refused(name: str) -> None:
    with pytest.raises(exceptions.InvalidInput):
        directory.add_project(Content(), name)


def test_role_implies_lower_roles() -> None:
    assert Content().with_implied(["admin"]) == ["admin", "manager", "member", "reader"]
    assert Content().with_implied(["reader", "member"]) == ["member", "reader"]
    assert Content().with_implied(["service"]) == ["service"]
    assert Content().with_implied(["service", "reader"]) == ["reader", "service"]
    assert Content().with_implied([]) == []


def test_roles_are_granted_and_revoked() -> None:
    content = Content()
    project = directory.add_project(content, "demo")
    user = User(id="u", name="u", password="")
    content.users.append(user)
    directory.grant(user, project, "reader")
    directory.grant(user, project, "reader")
    assert user.roles == {project.id: ["reader"]}
    with pytest.raises(exceptions.NotFound):
        directory.revoke(content, user, project, "admin")
    directory.revoke(content, user, project, "reader")
    assert user.roles == {}
