"""Versions come from tags, a wheel has everything that a machine needs, and a newer one replaces an older one."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import zipfile
from email import message_from_bytes
from pathlib import Path

import pytest
from packaging.version import Version

from tests.support.code_versions import build_wheel, copy_sources

TOP = Path(__file__).resolve().parents[3]
NOBODY = 65534
AUTHOR = ("-c", "user.name=Author", "-c", "user.email=author@example.org")


def run(*command: str, where: Path = TOP, **environment: str) -> str:
    done = subprocess.run(
        command, cwd=where, env={**os.environ, **environment}, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout.strip()


def git(where: Path, *arguments: str) -> str:
    return run("git", *AUTHOR, *arguments, where=where)


def version_of(where: Path) -> str:
    return run(sys.executable, "-m", "setuptools_scm", where=where)


def commit(where: Path, text: str) -> None:
    (where / "file").write_text(text)
    git(where, "add", ".")
    git(where, "commit", "--quiet", "--message", text)


def test_version_comes_from_the_last_tag_and_the_commits_after_it(tmp_path: Path) -> None:
    shutil.copy(TOP / "pyproject.toml", tmp_path)
    git(tmp_path, "init", "--quiet", "--initial-branch", "main")
    versions = [Version("0.1.0")]
    commit(tmp_path, "before the first tag")
    versions.append(Version(version_of(tmp_path)))
    assert versions[-1].base_version == "0.2.0" and versions[-1].dev == 1
    assert f"+g{git(tmp_path, 'rev-parse', 'HEAD')[:7]}" in str(versions[-1])
    git(tmp_path, "tag", "v0.2.0")
    versions.append(Version(version_of(tmp_path)))
    assert str(versions[-1]) == "0.2.0"
    for text in ("one", "two"):
        commit(tmp_path, text)
        versions.append(Version(version_of(tmp_path)))
    assert versions[-1].base_version == "0.3.0" and versions[-1].dev == 2
    assert versions == sorted(versions)


@pytest.fixture(scope="module")
def sources(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return copy_sources(TOP, tmp_path_factory.mktemp("sources"))


@pytest.fixture(scope="module")
def wheel(sources: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build_wheel(sources, tmp_path_factory.mktemp("wheel"), "0.2.0.dev57")


def test_wheel_has_units_users_directories_and_settings(wheel: Path) -> None:
    tracked = git(TOP, "ls-files", "nova_lite", "etc").splitlines()
    wanted = {name for name in tracked if name.startswith("nova_lite/") and not (TOP / name).is_dir()}
    wanted |= {f"nova_lite/cmd/setup/{name}" for name in tracked if name.startswith("etc/")}
    with zipfile.ZipFile(wheel) as archive:
        assert wanted - set(archive.namelist()) == set()


def test_wheel_has_an_extra_for_each_role_and_sql_in_one_alone(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        (name,) = (name for name in archive.namelist() if name.endswith("/METADATA"))
        metadata = message_from_bytes(archive.read(name))
    assert {"api", "conductor", "scheduler", "compute", "console", "all"} <= set(metadata.get_all("Provides-Extra", []))
    found = [line for line in metadata.get_all("Requires-Dist", []) if line.lower().startswith("sqlalchemy")]
    assert len(found) == 1 and found[0].replace("'", '"').endswith('; extra == "conductor"')


def test_newer_wheel_replaces_an_older_one(sources: Path, wheel: Path, tmp_path: Path) -> None:
    newer = build_wheel(sources, tmp_path / "newer", "0.2.0.dev58+gabc")
    run(sys.executable, "-m", "venv", "--without-pip", str(tmp_path / "venv"))
    python = str(tmp_path / "venv/bin/python")
    versions = []
    for path in (wheel, newer):
        run(
            sys.executable,
            "-m",
            "pip",
            "--python",
            python,
            "install",
            "--quiet",
            "--no-deps",
            "--no-compile",
            str(path),
        )
        code = "from nova_lite.base import version; print(version.VERSION)"
        versions.append(run(python, "-c", code, where=tmp_path, PYTHONPATH=""))
    assert versions == ["0.2.0.dev57", "0.2.0.dev58+gabc"]


@pytest.mark.skipif(
    os.environ.get("NOVA_LITE_LONG") != "1", reason="NOVA_LITE_LONG=1 installs libraries from the index"
)
def test_compute_host_runs_its_daemon_and_cannot_import_sql(wheel: Path, tmp_path: Path) -> None:
    run(sys.executable, "-m", "venv", str(tmp_path / "venv"))
    python = str(tmp_path / "venv/bin/python")
    run(python, "-m", "pip", "install", "--quiet", f"{wheel}[compute]", where=tmp_path)
    code = (
        "import importlib.util, nova_lite.cmd.compute, nova_lite.cmd.manage, nova_lite.virt.fake;"
        "sql = ('sqlalchemy', 'alembic', 'psycopg', 'pymysql', 'MySQLdb');"
        "print({name for name in sql if importlib.util.find_spec(name)})"
    )
    assert run(python, "-W", "ignore", "-c", code, where=tmp_path, PYTHONPATH="") == "set()"


@pytest.mark.skipif(
    os.environ.get("NOVA_LITE_LONG") != "1", reason="NOVA_LITE_LONG=1 installs libraries from the index"
)
def test_extra_dev_installed_by_an_ordinary_user_runs_a_cloud_for_its_clients(wheel: Path) -> None:
    """Print the figures of docs/howto/test-against-a-cloud.md."""
    home = Path(tempfile.mkdtemp(prefix="nova-lite-test-wheel-"))
    user = ["setpriv", f"--reuid={NOBODY}", f"--regid={NOBODY}", "--clear-groups"] if os.geteuid() == 0 else []
    kept = {name: value for name, value in os.environ.items() if name.startswith(("PIP_", "PATH"))}
    environment = {**kept, "HOME": str(home), "TMPDIR": str(home)}
    try:
        shutil.copy(wheel, home)
        if user:
            os.chown(home, NOBODY, NOBODY)
        began = time.monotonic()
        for command in (
            [sys.executable, "-m", "venv", f"{home}/venv"],
            [f"{home}/venv/bin/pip", "install", "--quiet", "--no-cache-dir", f"{home}/{wheel.name}[dev]"],
        ):
            subprocess.run([*user, *command], cwd=home, env=environment, check=True)
        installed = time.monotonic() - began
        cloud = subprocess.Popen(
            [*user, f"{home}/venv/bin/nova-lite", "dev", "--port", "0", "--json"],
            cwd=home,
            env=environment,
            stdout=subprocess.PIPE,
            text=True,
        )
        try:
            assert cloud.stdout is not None
            ready = json.loads(cloud.stdout.readline())
            memory = int(Path(f"/proc/{cloud.pid}/status").read_text().partition("VmRSS:")[2].split()[0]) // 1024
            client = [*user, f"{home}/venv/bin/openstack", "--os-cloud", "nova-lite-dev-demo"]
            client += ["server", "create", "--image", "nova-lite-guest", "--flavor", "m1.nano", "--wait", "first"]
            variables = {**environment, "OS_CLIENT_CONFIG_FILE": ready["clouds_file"]}
            made = subprocess.run(
                [*client, "-f", "value", "-c", "status"], cwd=home, env=variables, stdout=subprocess.PIPE, text=True
            )
            assert made.stdout.strip() == "ACTIVE"
        finally:
            cloud.send_signal(signal.SIGINT)
            assert cloud.wait(60) == 0
        print(f"\ninstalled in {installed:.0f} s, ready after {ready['seconds']} s with {memory} MB")
        assert not Path(ready["clouds_file"]).exists()
    finally:
        shutil.rmtree(home)
