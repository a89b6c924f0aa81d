"""The cloud in one process: its content, configuration and files. tests/functional/test_dev_cloud.py runs it."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest
import yaml

from nova_lite.base import exceptions
from nova_lite.cmd import dev
from nova_lite.cmd.dev import cloud, clouds_file, configuration, seed
from nova_lite.cmd.dev.cloud import Account
from nova_lite.virt import fake_rules
from tests.support.api_client import ROOT

ACCOUNTS = [Account("admin", "admin", "secret"), Account("demo", "demo", "other: 'secret'")]


def written(directory: Path) -> str:
    """Return the path of the configuration file of a cloud."""
    return configuration.write(str(directory), str(directory), "http://a:1", "fake", {"novnc": 2, "serial": 3})


def devstack(script: str) -> str:
    """Run a line of bash with devstack's definitions and return what it prints."""
    sources = "".join(f"source {ROOT}/devstack/lib/{name}.sh; " for name in ("common", "catalogue"))
    return subprocess.run(
        ["bash", "-c", f"{sources}{script}"], capture_output=True, text=True, check=True, env={"PATH": "/usr/bin:/bin"}
    ).stdout


def test_default_content_has_devstacks_flavors() -> None:
    rows = [line.split() for line in devstack('echo "$FLAVORS"').splitlines() if line]
    flavors = [(item.name, item.id, item.ram, item.vcpus, item.disk) for item in seed.load(cloud.DEFAULT_SEED).flavors]
    assert flavors == [(name, id, int(ram), int(vcpus), int(disk)) for name, id, ram, vcpus, disk in rows]


def test_default_content_has_devstacks_networks() -> None:
    names = ("NETWORK_CIDR", "NETWORK_BRIDGE", "FLOATING_CIDR")
    cidr, bridge, pool = devstack("".join(f"echo ${{DEFAULTS[{name}]}}; " for name in names)).split()
    content = seed.load(cloud.DEFAULT_SEED)
    assert [(item.name, item.cidr, item.bridge, item.default) for item in content.networks] == [
        ("private", cidr, bridge, True)
    ]
    assert [(item.name, item.cidr) for item in content.floating_pools] == [("public", pool)]


def test_default_content_has_devstacks_image() -> None:
    text = (ROOT / "devstack/lib/catalogue.sh").read_text()
    (line,) = re.findall(r'echo "(an image .*)" >"\$file"', text)
    (image,) = seed.load(cloud.DEFAULT_SEED).images
    assert image.content == f"{line}\n"
    assert seed.image_id(image.content.encode()) == devstack(f"printf '%s\\n' '{line}' | image_id").strip()
    (options,) = re.findall(r'import_command "\$\(image_id "\$file"\)" (\S+) "\$file" (.*?) \|', text)
    assert options == (image.name, f"--disk-format {image.disk_format} --container-format {image.container_format}")


def test_default_content_has_devstacks_user() -> None:
    text = (ROOT / "devstack/lib/users.sh").read_text()
    (created,) = re.findall(r"manage user create (\w+) --project (\w+) --role (\w+)", text)
    (user,) = seed.load(cloud.DEFAULT_SEED).users
    assert (user.name, user.project, *user.roles) == created


def test_flavors_of_faults_have_known_rules() -> None:
    specs = [flavor.extra_specs for flavor in seed.load(cloud.FAULTS_SEED).flavors]
    assert specs == [{fake_rules.FAIL: "build"}, {fake_rules.DELAY: "30"}]
    assert "build" in fake_rules.OPERATIONS


def test_enabled_api_without_a_path_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cloud, "load_apps", lambda *_: {"osapi_compute": None, "dns": None})
    with pytest.raises(exceptions.ConfigurationError, match="dev does not serve dns, but osapi_compute,"):
        cloud._load_apps(None, None)  # type: ignore[arg-type]


def test_configuration_path_that_would_be_changed_is_refused(tmp_path: Path) -> None:
    with pytest.raises(exceptions.ConfigurationError, match=r"must not have a \$"):
        written(tmp_path / "$dollar")


def test_configuration_is_valid(tmp_path: Path) -> None:
    directory = tmp_path / "with 100 % and space"
    directory.mkdir()
    conf = configuration.load([written(directory)], "host7")
    assert conf.state_path == str(directory)
    assert conf.host == "host7"
    assert conf.api.max_wait == 60
    assert conf.identity.image_endpoint == "http://a:1/image"
    assert conf.vnc.novncproxy_base_url == "http://a:2/vnc_lite.html"
    assert conf.serial_console.base_url == "ws://a:3/"
    assert Path(conf.api.paste_config).read_text() == (ROOT / "etc/nova-lite/api-paste.ini").read_text()


def test_configuration_later_file_wins(tmp_path: Path) -> None:
    own = tmp_path / "own.conf"
    own.write_text("[quota]\ninstances = 3\n[fake]\nvcpus = 2\n")
    conf = configuration.load([written(tmp_path), str(own)])
    assert (conf.quota.instances, conf.fake.vcpus) == (3, 2)


@pytest.mark.parametrize("text", ["[quota]\ninstances = many\n", "[quota\n"])
def test_configuration_mistake_is_one_error(tmp_path: Path, text: str) -> None:
    (tmp_path / "own.conf").write_text(text)
    with pytest.raises(exceptions.ConfigurationError):
        configuration.load([str(tmp_path / "own.conf")])


def test_clouds_file_has_each_account(tmp_path: Path) -> None:
    path = tmp_path / "clouds.yaml"
    clouds_file.write(str(path), "http://a:1", ACCOUNTS)
    clouds = yaml.safe_load(path.read_text())["clouds"]
    assert list(clouds) == ["nova-lite-dev", "nova-lite-dev-demo"]
    assert clouds["nova-lite-dev-demo"]["auth"]["password"] == "other: 'secret'"
    assert clouds["nova-lite-dev"]["auth"]["auth_url"] == "http://a:1/identity/v3"
    clouds_file.check(str(path))
    clouds_file.remove(str(path))
    assert not path.exists()
    clouds_file.remove(str(path))


def test_clouds_file_of_somebody_else_stays(tmp_path: Path) -> None:
    path = tmp_path / "clouds.yaml"
    path.write_text("clouds: {}\n")
    with pytest.raises(exceptions.ConfigurationError, match="exists and is not from nova-lite dev"):
        clouds_file.check(str(path))
    clouds_file.remove(str(path))
    assert path.exists()


@pytest.mark.parametrize(
    "arguments", [["--port", "70000"], ["--hosts", "0"], ["--hosts", "x"], ["--url", "cloud:8774"], ["--listen"]]
)
def test_wrong_argument_is_refused(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        dev.parser().parse_args(["dev", *arguments])
    assert ended.value.code == 2
    assert arguments[0] in capsys.readouterr().err


def test_page_lists_every_option_and_operation() -> None:
    page = (ROOT / "docs/howto/test-against-a-cloud.md").read_text()
    (commands,) = [action for action in dev.parser()._actions if action.dest == "command"]
    options = {
        name for action in commands.choices["dev"]._actions for name in action.option_strings if name[:2] == "--"
    }
    assert options - {"--help"} == set(re.findall(r"^\| `(--[a-z-]+)` \|", page, re.MULTILINE))
    (sentence,) = re.findall(r"The operations are (.*?)\.", page, re.DOTALL)
    assert re.findall(r"`([a-z-]+)`", sentence) == list(fake_rules.OPERATIONS)


def test_seed_of_the_page_is_valid(tmp_path: Path) -> None:
    page = (ROOT / "docs/howto/test-against-a-cloud.md").read_text()
    examples = [text for text in re.findall(r"```yaml\n(.*?)```", page, re.DOTALL) if "clouds:" not in text]
    assert len(examples) == 2
    for text in examples:
        (tmp_path / "seed.yaml").write_text(text)
        seed.load(str(tmp_path / "seed.yaml"))


def test_container_has_all_requirements_except_libvirt() -> None:
    recipe = (ROOT / "devstack/container/Containerfile").read_text()
    (expression,) = re.findall(r"sed -i '([^']+)' stack.txt", recipe)
    listed = ROOT / "devstack/requirements/stack.txt"
    rest = subprocess.run(["sed", expression, listed], capture_output=True, text=True, check=True).stdout

    def names(text: str) -> list[str]:
        return re.findall(r"^([a-z0-9.\[\]-]+)==", text, re.MULTILINE)

    assert [name for name in names(listed.read_text()) if name not in names(rest)] == ["libvirt-python"]
    assert rest.count("--hash") == listed.read_text().count("--hash") - 1
    for line in re.findall(r"^COPY (.*) \S+$", recipe, re.MULTILINE):
        assert all((ROOT / path).exists() for path in line.split()), line
