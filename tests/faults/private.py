"""A broker and a database server of a test's own, on ports and in directories of their own, which it may kill.

Both are `Server`: ``with PrivateBroker(path) as broker: … broker.kill(); broker.start()``. What was on disk survives.
"""

from __future__ import annotations

import abc
import contextlib
import getpass
import os
import shutil
import signal
import subprocess
import threading
import time
import uuid
from pathlib import Path
from types import TracebackType
from typing import Self

import pytest

from tests.support.ports import free_port
from tests.support.waiting import wait_for

START_SECONDS = 180.0
RETRY_SECONDS = 5.0
RABBITMQ = Path("/usr/lib/rabbitmq/bin")


class Server(abc.ABC):
    """A process group in ``path``, listening on ``port`` of loopback."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.port = free_port()
        self._process: subprocess.Popen[bytes] | None = None
        self._over = False
        self._lock = threading.Lock()
        path.mkdir(parents=True, exist_ok=True)

    def __enter__(self) -> Self:
        try:
            self.start()
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(self, kind: type | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()

    def close(self) -> None:
        """Close it permanently. A later restart, in a thread that a failed test has left, fails."""
        with self._lock:
            self._over = True
        self.kill()

    def start(self) -> None:
        """Start it and wait until it serves. Raises `RuntimeError` once it is closed."""
        with self._lock, (self.path / "server.log").open("ab") as log:
            if self._over:
                raise RuntimeError(f"{type(self).__name__} is closed")
            self._process = subprocess.Popen(
                self.command(), stdout=log, stderr=log, env=self.environment(), start_new_session=True
            )
        wait_for(f"{type(self).__name__} serves", self.serves, START_SECONDS, 0.2)

    def kill(self) -> None:
        """Kill all its processes with SIGKILL."""
        with self._lock:
            if self._process is not None:
                with contextlib.suppress(ProcessLookupError):  # it has ended already; `serves` says why
                    os.killpg(self._process.pid, signal.SIGKILL)
                self._process.wait(30)
                self._process = None

    @property
    def pid(self) -> int:
        """Raises `AssertionError` while it does not run."""
        assert self._process is not None, f"{type(self).__name__} does not run"
        return self._process.pid

    def restart(self, away: float) -> None:
        """Kill it, wait for so many seconds, and start it again."""
        self.kill()
        time.sleep(away)
        self.start()

    def environment(self) -> dict[str, str]:
        return dict(os.environ)

    @abc.abstractmethod
    def command(self) -> list[str]: ...

    @abc.abstractmethod
    def serves(self) -> bool: ...


class PrivateDatabase(Server):
    """MariaDB; its root has no password and comes in over loopback only. ``buffer_pool`` is in MiB."""

    def __init__(self, path: Path, buffer_pool: int = 128) -> None:
        super().__init__(path)
        self._buffer_pool = buffer_pool
        if shutil.which("mariadb-install-db") is None:
            pytest.skip("mariadb-server is not installed (devstack/test.sh installs it)")
        (path / "tmp").mkdir(exist_ok=True)
        for last in (False, True):
            shutil.rmtree(path / "data", ignore_errors=True)
            if self._install(last):
                break

    def _install(self, last: bool) -> bool:
        """Create the empty databases and return whether that worked. It may fail while the server's packages are
        being changed, so it is tried twice; the last error contains the output.
        """
        command = [
            "mariadb-install-db",
            "--no-defaults",
            f"--user={getpass.getuser()}",
            f"--datadir={self.path / 'data'}",
            "--auth-root-authentication-method=normal",
            "--skip-test-db",
        ]
        made = subprocess.run(command, capture_output=True, text=True, timeout=120, env=self.environment())
        if made.returncode and last:
            raise RuntimeError(f"{' '.join(command)}: status {made.returncode}\n{made.stdout}{made.stderr}")
        if made.returncode:
            time.sleep(RETRY_SECONDS)
        return made.returncode == 0

    def environment(self) -> dict[str, str]:
        """Return an environment with a private directory for temporary tables: a starting server removes foreign
        ones.
        """
        return {**os.environ, "TMPDIR": str(self.path / "tmp")}

    @property
    def url(self) -> str:
        return f"mysql://root@127.0.0.1:{self.port}/nova_lite?charset=utf8mb4"

    def command(self) -> list[str]:
        return [
            shutil.which("mariadbd") or "/usr/sbin/mariadbd",
            "--no-defaults",
            f"--user={getpass.getuser()}",
            f"--datadir={self.path / 'data'}",
            f"--socket={self.path / 'socket'}",
            f"--pid-file={self.path / 'pid'}",
            f"--port={self.port}",
            "--bind-address=127.0.0.1",
            f"--innodb-buffer-pool-size={self._buffer_pool}M",
        ]

    def serves(self) -> bool:
        statement = "CREATE DATABASE IF NOT EXISTS nova_lite"
        # Clients of Debian 13 would demand TLS, which a test may have switched off.
        there = ["--no-defaults", "--skip-ssl", f"--socket={self.path / 'socket'}", "--user=root"]
        arguments = ["mariadb", *there, "-e", statement]
        return subprocess.run(arguments, capture_output=True, timeout=30).returncode == 0


class PrivatePostgresql(Server):
    """PostgreSQL as its package's user, whose superuser comes in over loopback only. ``path`` has to be open to it."""

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        found = sorted(Path("/usr/lib/postgresql").glob("*/bin"), key=lambda found: float(found.parent.name))
        if not found:
            pytest.skip("postgresql is not installed (devstack/test.sh installs it)")
        self._programs = found[-1]
        shutil.chown(path, "postgres", "postgres")
        self._run("initdb", "--auth=trust", "--encoding=UTF8", "--locale=C.UTF-8", f"--pgdata={self._data}")

    @property
    def _data(self) -> Path:
        return self.path / "data"

    def _as_its_user(self, program: str, *arguments: str) -> list[str]:
        user = ["setpriv", "--reuid=postgres", "--regid=postgres", "--clear-groups"]
        return [*user, str(self._programs / program), *arguments]

    def _run(self, program: str, *arguments: str) -> bool:
        command = self._as_its_user(program, *arguments)
        return subprocess.run(command, capture_output=True, timeout=120, cwd=self.path).returncode == 0

    @property
    def url(self) -> str:
        return f"postgresql+psycopg://postgres@127.0.0.1:{self.port}/nova_lite"

    def command(self) -> list[str]:
        listens = ("-h", "127.0.0.1", "-p", str(self.port), "-k", "")
        return self._as_its_user("postgres", "-D", str(self._data), *listens, "-c", "max_connections=300")

    def serves(self) -> bool:
        there = ("--host=127.0.0.1", f"--port={self.port}")
        listed = ("--quiet", "--dbname=nova_lite", "--command=SELECT 1")
        return self._run("psql", *there, *listed) or (self._run("createdb", *there, "nova_lite") and False)


class PrivateBroker(Server):
    """RabbitMQ with user guest; `control` is its ``rabbitmqctl``. A kill loses the messages of queues that are not
    durable, and these queues."""

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        if not (RABBITMQ / "rabbitmq-server").exists():
            pytest.skip("rabbitmq-server is not installed (devstack/test.sh installs it)")
        self.node = f"nova-lite-{uuid.uuid4().hex[:8]}@localhost"
        self.distribution_port = free_port()
        (path / "enabled_plugins").write_text("[].\n")
        (path / "environment").touch()
        (path / "conf.d").mkdir(exist_ok=True)

    def environment(self) -> dict[str, str]:
        """Return an environment with this node's own home, which has its cookie, and without the machine's
        configuration: another broker's listeners are in it.
        """
        return {
            **os.environ,
            "HOME": str(self.path),
            "RABBITMQ_NODENAME": self.node,
            "RABBITMQ_NODE_IP_ADDRESS": "127.0.0.1",
            "RABBITMQ_NODE_PORT": str(self.port),
            "RABBITMQ_DIST_PORT": str(self.distribution_port),
            "RABBITMQ_MNESIA_BASE": str(self.path / "mnesia"),
            "RABBITMQ_LOG_BASE": str(self.path / "log"),
            "RABBITMQ_PID_FILE": str(self.path / "pid"),
            "RABBITMQ_ENABLED_PLUGINS_FILE": str(self.path / "enabled_plugins"),
            "RABBITMQ_CONF_ENV_FILE": str(self.path / "environment"),
            "RABBITMQ_CONFIG_FILE": str(self.path / "rabbitmq"),
            "RABBITMQ_CONFIG_FILES": str(self.path / "conf.d"),
            "RABBITMQ_ADVANCED_CONFIG_FILE": str(self.path / "advanced"),
        }

    def command(self) -> list[str]:
        return [str(RABBITMQ / "rabbitmq-server")]

    def serves(self) -> bool:
        log = self.path / "server.log"
        assert self._process is not None and self._process.poll() is None, log.read_text(errors="replace")
        return self._control("await_startup", "--timeout", "5").returncode == 0

    def control(self, *arguments: str) -> str:
        result = self._control(*arguments)
        assert result.returncode == 0, result.stderr
        return result.stdout

    def _control(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        command = [str(RABBITMQ / "rabbitmqctl"), "-q", "-n", self.node, *arguments]
        return subprocess.run(command, capture_output=True, text=True, timeout=60, env=self.environment())
