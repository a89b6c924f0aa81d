"""Editing a clouds.yaml that others write to as well."""

from __future__ import annotations

import pathlib
import subprocess
import sys

import pytest
import yaml

SCRIPT = pathlib.Path(__file__).parents[3] / "nova_lite/cmd/setup/clouds.py"
URL = "http://127.0.0.1:8774/v2.1"

OTHERS = """\
# my clouds
cache:
  expiration_time: 10
clouds:
    # the big one
    big:
        region_name: north   # cold
        auth: {auth_url: "http://big.example/v3"}

    small: {profile: vexxhost}
"""


def run(
    verb: str, path: pathlib.Path, *arguments: str, name: str = "nova-lite", stdin: str = ""
) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, str(SCRIPT), verb, str(path), name, *arguments],
        capture_output=True,
        input=stdin,
        text=True,
        check=False,
    )


def add(path: pathlib.Path, url: str = URL) -> None:
    result = run("add", path, url)
    assert result.returncode == 0, result.stderr


def test_a_new_file_holds_the_cloud(tmp_path: pathlib.Path) -> None:
    path = tmp_path / "openstack" / "clouds.yaml"
    add(path)
    cloud = yaml.safe_load(path.read_text())["clouds"]["nova-lite"]
    assert cloud["auth_type"] == "admin_token"
    assert cloud["auth"] == {"endpoint": URL, "token": "admin:admin"}
    assert cloud["compute_endpoint_override"] == URL
    assert cloud["floating_ip_source"] == "none"
    assert path.stat().st_mode & 0o777 == 0o644


def test_removing_the_only_cloud_removes_the_file(tmp_path: pathlib.Path) -> None:
    path = tmp_path / "clouds.yaml"
    add(path)
    assert run("remove", path).returncode == 0
    assert not path.exists()


def test_others_are_kept_to_the_letter(tmp_path: pathlib.Path) -> None:
    path = tmp_path / "clouds.yaml"
    path.write_text(OTHERS)
    path.chmod(0o600)
    add(path)
    merged = yaml.safe_load(path.read_text())
    assert list(merged["clouds"]) == ["nova-lite", "big", "small"]
    assert {**merged, "clouds": {k: v for k, v in merged["clouds"].items() if k != "nova-lite"}} == yaml.safe_load(
        OTHERS
    )
    assert path.stat().st_mode & 0o777 == 0o600
    assert run("remove", path).returncode == 0
    assert path.read_text() == OTHERS


def test_adding_again_replaces(tmp_path: pathlib.Path) -> None:
    path = tmp_path / "clouds.yaml"
    path.write_text(OTHERS)
    add(path)
    once = path.read_text()
    add(path)
    assert path.read_text() == once
    add(path, "http://127.0.0.1:9999/v2.1")
    assert path.read_text() == once.replace("8774", "9999")


def test_a_file_without_clouds_gets_them(tmp_path: pathlib.Path) -> None:
    path = tmp_path / "clouds.yaml"
    path.write_text("cache:\n  expiration_time: 10")
    add(path)
    assert yaml.safe_load(path.read_text())["cache"] == {"expiration_time": 10}
    assert list(yaml.safe_load(path.read_text())["clouds"]) == ["nova-lite"]


@pytest.mark.parametrize(
    "text",
    ["clouds: {big: {profile: vexxhost}}\n", "clouds:\n  nova-lite: {profile: vexxhost}\n"],
    ids=["flow style", "own name taken"],
)
def test_clouds_file_that_cannot_be_parsed_is_left_alone(tmp_path: pathlib.Path, text: str) -> None:
    path = tmp_path / "clouds.yaml"
    path.write_text(text)
    result = run("add", path, URL)
    assert result.returncode == 1
    assert len(result.stderr.splitlines()) == 1
    assert path.read_text() == text


def test_removing_what_is_not_there_is_quiet(tmp_path: pathlib.Path) -> None:
    assert run("remove", tmp_path / "none.yaml").returncode == 0
    path = tmp_path / "clouds.yaml"
    path.write_text(OTHERS)
    assert run("remove", path).returncode == 0
    assert path.read_text() == OTHERS


AUTH_URL = "http://127.0.0.1:5000/v3"


def add_user(path: pathlib.Path, password: str = "pass: word") -> None:
    result = run("add-user", path, AUTH_URL, "demo", stdin=password)
    assert result.returncode == 0, result.stderr


def test_a_password_is_for_its_owner_only(tmp_path: pathlib.Path) -> None:
    path, secure = tmp_path / "clouds.yaml", tmp_path / "secure.yaml"
    path.write_text(OTHERS)
    secure.write_text(OTHERS)
    secure.chmod(0o644)
    add_user(path)
    assert "pass: word" not in path.read_text()
    cloud = yaml.safe_load(path.read_text())["clouds"]["nova-lite"]
    assert cloud["auth_type"] == "password"
    assert (cloud["auth"]["auth_url"], cloud["auth"]["username"]) == (AUTH_URL, "demo")
    assert yaml.safe_load(secure.read_text())["clouds"]["nova-lite"] == {"auth": {"password": "pass: word"}}
    assert secure.stat().st_mode & 0o777 == 0o600
    assert run("remove", path).returncode == 0
    assert path.read_text() == secure.read_text() == OTHERS


def test_the_client_library_puts_both_files_together(tmp_path: pathlib.Path) -> None:
    from openstack.config import loader

    path = tmp_path / "clouds.yaml"
    add_user(path)
    config = loader.OpenStackConfig(
        config_files=[str(path)], secure_files=[str(tmp_path / "secure.yaml")], load_envvars=False
    )
    auth = config.get_one("nova-lite").config["auth"]
    assert (auth["username"], auth["password"], auth["project_name"]) == ("demo", "pass: word", "demo")


def test_without_users_no_password_is_left(tmp_path: pathlib.Path) -> None:
    path = tmp_path / "clouds.yaml"
    add_user(path)
    add(path)
    assert [file.name for file in tmp_path.iterdir()] == ["clouds.yaml"]
    assert yaml.safe_load(path.read_text())["clouds"]["nova-lite"]["auth_type"] == "admin_token"


def test_password_that_nobody_said_is_not_stored(tmp_path: pathlib.Path) -> None:
    path = tmp_path / "clouds.yaml"
    result = run("add-user", path, "http://127.0.0.1:5000/v3", "admin", stdin="")
    assert result.returncode == 1 and "there is no password for admin" in result.stderr
    assert not path.exists() and not (tmp_path / "secure.yaml").exists()
