"""``nova-lite-manage config check`` logs in at a real broker with the account of the configuration."""

from __future__ import annotations

from pathlib import Path

import pytest
from oslo_config import cfg

from nova_lite.cmd import manage


@pytest.mark.parametrize(
    ("url", "reason"),
    [
        ("rabbit://nobody:x@127.0.0.1:5672/", "127.0.0.1 refuses the user nobody or its password"),
        ("rabbit://guest:guest@127.0.0.1:5672/none", "vhost none not found"),
        ("rabbit://guest:guest@127.0.0.1:5672/", None),
    ],
    ids=["password", "vhost", "right"],
)
def test_account_that_the_broker_refuses_is_reported(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], url: str, reason: str | None
) -> None:
    file = tmp_path / "scheduler.conf"
    file.write_text(f"[DEFAULT]\ntransport_url = {url}\n")
    file.chmod(0o600)
    cfg.CONF.reset()
    status = manage.main(["config", "check", "--config-file", str(file)])
    said = capsys.readouterr().out
    assert status == (1 if reason else 0)
    assert (reason or "The configuration can work.") in said
