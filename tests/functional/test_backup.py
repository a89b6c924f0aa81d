"""A backup has the accounts of the cloud's virtual host at a real broker, and no others."""

from __future__ import annotations

import json
import subprocess
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest
from oslo_config import cfg

from nova_lite.cmd import manage
from nova_lite.cmd.manage import backup
from tests.support import make
from tests.support.migrated import migrate

NAME = f"nova-lite-test-{uuid.uuid4().hex[:8]}"


def ctl(*arguments: str) -> str:
    command = ["rabbitmqctl", "--quiet", *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=True, timeout=60).stdout


@pytest.fixture
def account() -> Iterator[None]:
    ctl("add_vhost", NAME)
    ctl("add_user", NAME, "secret")
    ctl("set_permissions", "--vhost", NAME, NAME, "^conf$", "^write$", "^read$")
    yield
    ctl("delete_user", NAME)
    ctl("delete_vhost", NAME)


def test_account_that_was_deleted_comes_back_with_its_permissions(
    tmp_path: Path, account: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(backup, "CONFIGURATION", str(tmp_path / "none"))
    url = f"sqlite:///{tmp_path}/db.sqlite"
    migrate(make.conf(url))
    file, archive = tmp_path / "manage.conf", tmp_path / "backup"
    file.write_text(
        f"[DEFAULT]\ntransport_url = rabbit://{NAME}:secret@127.0.0.1:5672/{NAME}\n[database]\nconnection = {url}\n"
    )

    def run(*arguments: str) -> None:
        cfg.CONF.reset()
        assert manage.main(["--config-file", str(file), "backup", *arguments]) == 0

    run("create", str(archive))
    ctl("delete_user", NAME)
    run("restore", str(archive), "--only", "broker")
    (found,) = json.loads(ctl("list_user_permissions", NAME, "--formatter", "json"))
    assert (found["vhost"], found["configure"], found["write"], found["read"]) == (NAME, "^conf$", "^write$", "^read$")
    ctl("authenticate_user", NAME, "secret")
