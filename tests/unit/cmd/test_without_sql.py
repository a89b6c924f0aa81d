"""Daemons other than the conductor, and what an operator runs on compute hosts, work without SQLAlchemy."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

SQL = ("sqlalchemy", "alembic", "mako", "psycopg", "pymysql", "MySQLdb")
#: None makes the import of a module fail, and hides it from `importlib.util.find_spec`.
BLOCK = f"import sys; sys.modules.update(dict.fromkeys({SQL!r}));"


def run_without_sql(code: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-W", "ignore", "-c", BLOCK + code, *arguments],
        capture_output=True, text=True, check=False,
    )  # fmt: skip


def test_blocked_conductor_does_not_load() -> None:
    """The conductor needs SQL, so the block of the other tests blocks something."""
    done = run_without_sql("import nova_lite.cmd.conductor")
    assert done.returncode == 1 and "import of sqlalchemy halted" in done.stderr


@pytest.mark.parametrize(
    "daemon",
    ["api", "compute", "novncproxy", "registrar", "scheduler", "serialproxy", "spicehtml5proxy", "send_disks", "setup"],
)
def test_program_without_sql_loads(daemon: str) -> None:
    done = run_without_sql(f"import nova_lite.cmd.{daemon} as module; print(module.main.__module__)")
    assert done.stdout.startswith(f"nova_lite.cmd.{daemon}"), done.stderr


def test_compute_daemon_without_sql_starts(tmp_path: Path) -> None:
    """Start the daemon as far as it gets without a broker: it waits for that."""
    (tmp_path / "compute.conf").write_text(
        f"[DEFAULT]\nhost = host-1\nstate_path = {tmp_path}\ncompute_driver = fake\n"
        "transport_url = rabbit://user:password@127.0.0.1:1/\n[metrics]\nenabled = false\n"
    )
    code = "from nova_lite.cmd.compute import main; sys.exit(main())"
    daemon = subprocess.Popen(
        [sys.executable, "-W", "ignore", "-c", BLOCK + code, "--config-file", str(tmp_path / "compute.conf")],
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
    )  # fmt: skip
    try:
        assert daemon.stdout is not None
        lines = []
        for line in daemon.stdout:
            lines.append(line)
            if "nova-lite-compute cannot start yet: The message broker cannot be reached" in line:
                break
        else:
            raise AssertionError("".join(lines))
        daemon.terminate()
        daemon.communicate(timeout=60)
        assert daemon.returncode == 0
    finally:
        daemon.kill()


def test_manage_without_sql_makes_keys_of_hosts(tmp_path: Path) -> None:
    code = "from nova_lite.cmd.manage import main; sys.exit(main(sys.argv[1:]))"
    arguments = ("keys", "create", "compute", "host-1", "--directory", str(tmp_path))
    done = run_without_sql(code, "--format", "json", *arguments)
    assert done.returncode == 0 and '"host-1"' in done.stdout, done.stderr


def test_manage_without_sql_says_where_commands_on_the_database_work() -> None:
    code = "from nova_lite.cmd.manage import main; sys.exit(main(sys.argv[1:]))"
    done = run_without_sql(code, "db", "sync")
    assert done.returncode == 2
    assert "run this on a conductor's machine, or install nova_lite[conductor]." in done.stderr.splitlines()[-1]
    assert "Traceback" not in done.stderr


def test_setup_of_a_controller_without_sql_says_what_to_install() -> None:
    code = (
        "from nova_lite.cmd.setup import controller, settings;"
        "from nova_lite.base import exceptions;"
        "settings.has_systemd = settings.is_local = lambda *_: True;"
        "controller.DAEMONS = {};"
        "wanted = settings.Settings('127.0.0.1', 'sqlite', 'r', 'c', '10.64.0.0/10', 'h')\n"
        "try: controller._check_machine(wanted)\n"
        "except exceptions.ConfigurationError as error: print(error.message)"
    )
    assert "install nova_lite[conductor]" in run_without_sql(code).stdout
