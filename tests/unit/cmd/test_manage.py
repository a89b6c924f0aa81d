"""``nova-lite-manage`` as an operator calls it."""

from __future__ import annotations

import argparse
import datetime
import os
import struct
import subprocess
import sys
from pathlib import Path

import pytest
import sqlalchemy as sa
from oslo_config import cfg

from nova_lite.base import version
from nova_lite.cmd import manage
from nova_lite.db.core.engine import UnitOfWork
from nova_lite.db.core.models import ComputeNode, Instance, InstanceAction, PurgedInstance
from nova_lite.db.hosts import services as db_services
from nova_lite.db.image import images as db_images
from nova_lite.db.migrations import schema
from tests.support import exports, make
from tests.support.made_up_schemas import make_base, set_versions
from tests.support.manage import Tool, placed, report


@pytest.fixture
def guest(tmp_path: Path) -> Path:
    path = tmp_path / "guest.img"
    path.write_bytes(os.urandom(3_000_000))
    return path


# --- usage


@pytest.mark.parametrize(
    "arguments",
    [
        [],
        ["db"],
        ["nonsense"],
        ["flavor", "create"],
        ["flavor", "create", "x", "--ram", "0"],
        ["flavor", "create", "x", "--ram", "64", "--property", "novalue"],
        ["image", "import", "--name", "x", "--disk-format", "exe", "file"],
        ["image", "import", "--name", "x", "--disk-format", "raw", "--id", "../../etc", "file"],
        ["quota", "set", "p", "--cores", "many"],
        ["quota", "set", "p", "--cores", "-2"],
    ],
    ids=" ".join,
)
def test_wrong_usage(tool: Tool, arguments: list[str]) -> None:
    tool(*arguments, status=2)
    assert "usage:" in tool.error


def test_user_who_cannot_read_the_configuration_learns_that(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    known, missing = tmp_path / "nova-lite.conf", tmp_path / "manage.conf"
    known.write_text("")
    monkeypatch.setattr(manage, "CONFIG_FILES", (str(known), str(missing)))
    monkeypatch.setattr(manage.os, "access", lambda path, mode: False)
    cfg.CONF.reset()
    monkeypatch.setattr("nova_lite.conf.CONFIG_FILES", [])  # The machine may have a cloud.
    assert manage.main(["keys", "list"]) == 1
    (line,) = capsys.readouterr().err.splitlines()
    assert line.endswith(f"or say --directory. This user cannot read {known}: run it as root.")


@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        (["--no-such"], "unrecognized arguments: --no-such"),
        (["--no-such=x", "-z"], "unrecognized arguments: --no-such=x -z"),
        (["--no-such", "x"], "unrecognized arguments: --no-such"),
        (["--no-such", "flavor", "list"], "unrecognized arguments: --no-such"),
        (["flavor", "--no-such"], "unrecognized arguments: --no-such"),
        (["flavor", "create", "--no-such"], "unrecognized arguments: --no-such"),
        (["flavor", "list", "--no-such"], "unrecognized arguments: --no-such"),
        (["quota", "set", "--cores", "-1"], "the following arguments are required: project"),
        (["nonsense", "--cores", "2"], "argument NOUN: invalid choice: 'nonsense'"),
        ([], "the following arguments are required: NOUN"),
    ],
    ids=str,
)
def test_unknown_option_is_named_before_what_is_missing(tool: Tool, arguments: list[str], error: str) -> None:
    tool(*arguments, status=2)
    last = tool.error.strip().splitlines()[-1]
    assert last.partition(": error: ")[2].startswith(error)


def test_every_command_has_help(tool: Tool) -> None:
    tool("--help")
    assert "NOUN" in tool.text
    for noun in (
        "db",
        "flavor",
        "image",
        "network",
        "service",
        "host",
        "aggregate",
        "server-group",
        "scheduler",
        "quota",
        "config",
    ):
        tool(noun, "--help")
        assert "VERB" in tool.text
    tool("audit", "--help")
    assert "--fix" in tool.text


def test_manage_runs_as_a_program(tool: Tool) -> None:
    command = [sys.executable, "-m", "nova_lite.cmd.manage", "db", "version", "--config-file", str(tool.config)]
    assert subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip() == schema.head()


# --- the schema


def test_schema(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    tool = Tool(tmp_path, capsys)
    assert tool("db", "version").startswith("none")
    assert "run nova-lite-manage db sync" in tool.fails("db", "check")
    assert "run nova-lite-manage db sync" in tool.fails("flavor", "list")
    assert tool("db", "sync") == f"The schema is {schema.head()} now."
    assert tool("db", "sync") == f"The schema is {schema.head()} already."
    assert tool("db", "version") == schema.head()
    assert tool("db", "check") == f"The schema is {schema.head()}, as it has to be."


def test_sync_of_an_older_database_says_which_conductors_still_run_on_it(tool: Tool, next_migration: str) -> None:
    (tool.path / "db.sqlite").unlink()
    make_base(make.conf(tool.database))
    assert tool("db", "sync").splitlines() == [
        f"The schema is {schema.head()} now.",
        f"Conductors from schema {schema.BASE} on run on it.",
    ]


def test_check_of_a_newer_schema_that_serves_this_program_succeeds(tool: Tool) -> None:
    set_versions(make.conf(tool.database), "9999", schema.BASE)
    assert tool("db", "check") == "The schema is 9999, newer than this program, which it still serves."
    assert tool("flavor", "list")


def test_contract_waits_for_daemons_of_other_versions(tool: Tool, contracts: Path) -> None:
    title = "Remove key_pairs, which code before made_up reads."
    database = tool.database_of()
    database.write(db_services.report, "h1", "nova-conductor", "conductor", version.VERSION)
    database.write(db_services.report, "h2", "nova-conductor", "conductor", "0.0.9")
    assert tool("db", "sync").splitlines()[-1].startswith("1 change(s) wait for nova-lite-manage db contract")
    assert "such as nova-conductor on h2 (0.0.9). Upgrade it, or delete its service" in tool.fails("db", "contract")
    assert title in tool("db", "contract", "--dry-run")
    assert sa.inspect(database.engine).has_table("key_pairs")
    database.write(db_services.report, "h2", "nova-conductor", "conductor", version.VERSION)
    assert tool("db", "contract").splitlines() == [title, "1 change(s) made."]
    assert not sa.inspect(database.engine).has_table("key_pairs")
    assert tool("db", "contract") == "There is nothing to contract."
    database.close()


def test_purge(tool: Tool) -> None:
    """The selection of rows is tested in tests/unit/db/upkeep/test_purge.py."""
    database = tool.database_of()

    def deleted(days: int) -> None:
        def write(uow: UnitOfWork) -> None:
            then = uow.now - datetime.timedelta(days=days)
            uuid = make.instance(uow, deleted=True, terminated_at=then)
            make.action(uow, uuid, finish_time=then)

        database.write(write)

    for days in (1, 20, 40, 60):
        deleted(days)
    assert "say how old" in tool.fails("db", "purge")
    assert "is yet to come" in tool.fails("db", "purge", "--before", "2999-01-01T00:00:00+01:00")
    for wrong in (["--before", "yesterday"], ["--older-than", "-1"], ["--older-than", "1", "--before", "2026-01-01"]):
        tool("db", "purge", *wrong, status=2)
    assert tool("db", "purge", "--older-than", "70").endswith("0 row(s) purged.")
    assert "4 row(s) would go." in tool("db", "purge", "--older-than", "30", "--dry-run")
    bounded = tool.json("db", "purge", "--older-than", "10", "--max-rows", "1", "--batch-size", "1")
    assert {item["table"]: item["rows"] for item in bounded if item["rows"]} == {"instances": 1, "instance_actions": 1}
    fortnight = datetime.datetime.now(datetime.UTC) - datetime.timedelta(days=14)
    assert "4 row(s) purged." in tool("db", "purge", "--before", fortnight.isoformat())
    assert "6 row(s) purged." in tool("db", "purge", "--older-than", "0", "--tombstones-older-than", "0")
    left = database.read(
        lambda uow: [
            uow.session.scalar(sa.select(sa.func.count()).select_from(table))
            for table in (Instance, InstanceAction, PurgedInstance)
        ]
    )
    assert left == [0, 0, 0]
    database.close()


@pytest.mark.parametrize(
    ("database", "message"),
    [
        ("mysql+pymysql://root:s3cret@127.0.0.1:1/x", "the database is unavailable"),
        ("postgresql+psycopg://root:s3cret@127.0.0.1:1/x", "the database is unavailable"),
        ("nonsense", "[database] connection is not a database URL"),
        ("sqlite:////proc/x/db.sqlite", "cannot be made"),
    ],
)
def test_database_that_cannot_be_used(tool: Tool, database: str, message: str) -> None:
    tool.configure(database=database)
    error = tool.fails("db", "sync")
    assert message in error and "s3cret" not in error


def test_configuration_file_that_is_not_there() -> None:
    cfg.CONF.reset()
    with pytest.raises(SystemExit, match="not found"):
        manage.main(["--config-file", "/nonexistent.conf", "db", "version"])


# --- flavors


def test_flavors(tool: Tool) -> None:
    assert tool("flavor", "create", "m1.nano", "--id", "42", "--ram", "128", "--disk", "1") == "42"
    generated = tool("flavor", "create", "gpu", "--ram", "64", "--private", "--property", "a:b=c=d", "--vcpus", "2")
    assert len(generated) == 36
    refused = tool.fails("flavor", "create", "tpm", "--ram", "64", "--property", "hw:tpm_secret_security=user")
    assert "it takes deployment, because the cloud keeps the keys of TPMs" in refused
    assert "Flavor with name gpu already exists" in tool.fails("flavor", "create", "gpu", "--ram", "1")
    flavors = {flavor["name"]: flavor for flavor in tool.json("flavor", "list")}
    assert flavors["m1.nano"] == {
        "id": "42",
        "name": "m1.nano",
        "ram": 128,
        "disk": 1,
        "ephemeral": 0,
        "swap": 0,
        "vcpus": 1,
        "public": True,
        "properties": {},
    }
    assert flavors["gpu"]["properties"] == {"a:b": "c=d"} and not flavors["gpu"]["public"]
    assert "m1.nano" in tool("flavor", "list")
    tool("flavor", "delete", "42")
    assert "Flavor 42 could not be found" in tool.fails("flavor", "delete", "42")


# --- images


def test_import(tool: Tool, guest: Path) -> None:
    arguments = ["image", "import", "--name", "guest", "--disk-format", "raw", str(guest)]
    image_id = tool(*arguments)
    copy = tool.path / "images" / image_id
    assert copy.read_bytes() == guest.read_bytes()
    assert copy.stat().st_mode & 0o777 == 0o640
    assert tool(*arguments) == image_id
    (image,) = tool.json("image", "list")
    assert (image["id"], image["size"], image["status"]) == (image_id, 3_000_000, "active")
    copy.unlink()
    assert tool(*arguments) == image_id
    assert copy.read_bytes() == guest.read_bytes()
    assert os.listdir(tool.path / "images") == [image_id]
    tool("image", "delete", image_id)
    assert os.listdir(tool.path / "images") == tool.json("image", "list") == []
    assert image_id in tool.fails("image", "delete", image_id)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root gives files away")
def test_root_imports_for_the_daemons(tool: Tool, guest: Path) -> None:
    os.chown(tool.path, 12345, 12346)
    image_id = tool("image", "import", "--name", "guest", "--disk-format", "raw", str(guest))
    for path in (tool.path / "images", tool.path / "images" / image_id):
        assert (path.stat().st_uid, path.stat().st_gid) == (12345, 12346)


def test_import_by_id(tool: Tool, guest: Path) -> None:
    image_id = "11111111-2222-4333-8444-555555555555"
    arguments = ["image", "import", "--id", image_id, "--name", "guest", "--disk-format", "raw"]
    assert tool(*arguments, str(guest)) == tool(*arguments, str(guest)) == image_id
    other = tool.path / "other.img"
    other.write_bytes(b"other")
    assert "already exists, with other bytes" in tool.fails(*arguments, str(other))
    assert (tool.path / "images" / image_id).read_bytes() == guest.read_bytes()


def test_images_of_another_backend_are_not_imported_here(tool: Tool, guest: Path) -> None:
    tool.configure("[image]\nbackend = glance\n")
    arguments = ["image", "import", "--name", "guest", "--disk-format", "raw", str(guest)]
    assert "[image] backend = glance: import images there." in tool.fails(*arguments)


def test_ami_style_image(tool: Tool, guest: Path) -> None:
    kernel, ramdisk = (
        tool("image", "import", "--name", kind, "--disk-format", kind, "--container-format", kind, str(guest))
        for kind in ("aki", "ari")
    )
    ami = ["image", "import", "--name", "ami", "--disk-format", "ami", "--container-format", "ami", str(guest)]
    image_id = tool(
        *ami, "--kernel-id", kernel, "--ramdisk-id", ramdisk, "--property", "os_command_line=root=/dev/vda quiet"
    )
    database = tool.database_of()
    image = database.read(db_images.by_id, image_id)
    database.close()
    assert image is not None and (image.kernel_id, image.ramdisk_id) == (kernel, ramdisk)
    assert image.properties["os_command_line"] == "root=/dev/vda quiet"
    assert "could not be found" in tool.fails(*ami, "--kernel-id", "nope")


def qcow2(version: int = 3, backing: int = 0, features: int = 0) -> bytes:
    return (
        struct.pack(">4sIQII", b"QFI\xfb", version, backing, 0, 16).ljust(72, b"\0")
        + struct.pack(">QQQII", features, 0, 0, 4, 104)
        + b"\0" * 512
    )


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"not a disk" * 20, "it was declared as qcow2"),
        (b"", "it was declared as qcow2"),
        (qcow2(backing=512), "backing file"),
        (qcow2(features=4), "another file"),
    ],
)
def test_image_that_would_read_the_hosts_files(tool: Tool, guest: Path, content: bytes, message: str) -> None:
    guest.write_bytes(content)
    assert message in tool.fails("image", "import", "--name", "x", "--disk-format", "qcow2", str(guest))
    assert tool.json("image", "list") == []


@pytest.mark.parametrize("content", [qcow2(), qcow2(version=2), qcow2(features=1)])
def test_honest_qcow2(tool: Tool, guest: Path, content: bytes) -> None:
    guest.write_bytes(content)
    tool("image", "import", "--name", "x", "--disk-format", "qcow2", str(guest))


def test_import_of_an_archive_makes_an_image_of_each_disk(tool: Tool, guest: Path) -> None:
    disks = {"a.vmdk": exports.stream_optimized(b"one" * 512), "b.vmdk": exports.stream_optimized(b"other" * 512)}
    text = exports.ovf(list(disks))
    sums = exports.manifest({"vm.ovf": text, **disks})
    guest.write_bytes(exports.ova({"vm.ovf": text, "vm.mf": sums, **disks}))
    arguments = ["image", "import", "--name", "vm", "--disk-format", "vmdk", "--container-format", "ova", str(guest)]
    ids = tool(*arguments).split()
    assert tool(*arguments).split() == ids
    rows = {row["id"]: (row["name"], row["disk_format"], row["container_format"]) for row in tool.json("image", "list")}
    assert [rows[image_id] for image_id in ids] == [("vm", "vmdk", "bare"), ("vm-2", "vmdk", "bare")]
    assert [(tool.path / "images" / image_id).read_bytes() for image_id in ids] == list(disks.values())
    database = tool.database_of()
    sizes = [image.virtual_size for i in ids if (image := database.read(db_images.by_id, i)) is not None]
    database.close()
    assert sizes == [3 * 512, 5 * 512]


@pytest.mark.parametrize("what", ["disk", "sum"])
def test_import_of_an_archive_with_a_bad_disk_makes_no_image(tool: Tool, guest: Path, what: str) -> None:
    first, second = exports.stream_optimized(b"one" * 512), exports.stream_optimized(b"other" * 512)
    text = exports.ovf(["a.vmdk", "b.vmdk"])
    files = {"vm.ovf": text, "a.vmdk": first, "b.vmdk": b"no disk" * 512 if what == "disk" else second}
    sums = exports.manifest({"vm.ovf": text, "a.vmdk": b"another", "b.vmdk": files["b.vmdk"]})
    guest.write_bytes(exports.ova({**files, "vm.mf": sums} if what == "sum" else files))
    error = tool.fails("image", "import", "--name", "vm", "--disk-format=vmdk", "--container-format=ova", str(guest))
    assert "declared as vmdk" in error if what == "disk" else "a.vmdk does not have the sum" in error
    assert tool.json("image", "list") == []


def test_import_of_nothing(tool: Tool) -> None:
    error = tool.fails("image", "import", "--name", "x", "--disk-format", "raw", "/nonexistent/file")
    assert "/nonexistent/file: No such file or directory" in error


# --- networks


def test_floating_pools(tool: Tool) -> None:
    created = tool("floating-pool", "create", "public", "192.0.2.0/28")
    assert tool.json("floating-pool", "list") == [{"id": created, "name": "public", "cidr": "192.0.2.0/28"}]
    assert "overlaps" in tool.fails("floating-pool", "create", "more", "192.0.2.8/29")
    assert "overlap" in tool.fails("network", "create", "lan", "192.0.2.0/24", "--bridge", "br0")
    tool("network", "create", "private", "192.0.2.0/24")
    assert "no pool more" in tool.fails("floating-pool", "delete", "more")
    tool("floating-pool", "delete", "public")
    assert tool.json("floating-pool", "list") == []


def test_shares(tool: Tool) -> None:
    made = tool("share", "create", "data", "--project", "p1", "--protocol", "nfs")
    tool("share", "create", "plain", "--project", "p1")
    (data, plain) = tool.json("share", "list")
    assert data == {"id": made, "name": "data", "project": "p1", "location": "nfs/data"}
    assert plain["location"] == "directory/plain"
    assert "a share data already" in tool.fails("share", "create", "data", "--project", "p1")
    for wrong in ("../etc", "a/b", "", ".", "x" * 65):
        assert "is no name of a share" in tool.fails("share", "create", wrong, "--project", "p1")
    assert "no share more" in tool.fails("share", "delete", "more")
    tool("share", "delete", "data")
    assert [share["name"] for share in tool.json("share", "list")] == ["plain"]


def test_mtu_of_a_network_has_the_limits_of_the_network_api(tool: Tool) -> None:
    """`tests/unit/api/network` has the same numbers."""
    for mtu in ("67", "9217"):
        tool("network", "create", "private", "10.20.0.0/24", "--mtu", mtu, status=2)
        assert f"'{mtu}' is not a number from 68 to 9216" in tool.error
    tool("network", "create", "private", "10.20.0.0/24", "--mtu", "9216")
    assert [network["mtu"] for network in tool.json("network", "list")] == [9216]


def test_networks(tool: Tool) -> None:
    created = tool("network", "create", "private", "10.20.0.0/24", "--default", "--dns", "9.9.9.9", "--bridge", "br0")
    (network,) = tool.json("network", "list")
    assert network["id"] == created
    assert (network["gateway"], network["start"], network["end"]) == ("10.20.0.1", "10.20.0.2", "10.20.0.254")
    assert (network["default"], network["dns"], network["bridge"]) == (True, ["9.9.9.9"], "br0")
    assert "already exists" in tool.fails("network", "create", "private", "10.21.0.0/24")
    assert "overlap" in tool.fails("network", "create", "other", "10.20.0.128/25", "--bridge", "br1")
    tool("network", "create", "same", "10.20.0.0/24")
    assert "bridge br0" in tool.fails("network", "create", "other", "10.21.0.0/24", "--bridge", "br0")
    assert "not an IPv4 network" in tool.fails("network", "create", "other", "10.21.0.7/24")
    tool("network", "delete", "private")
    assert "could not be found" in tool.fails("network", "delete", "private")


# --- quotas, hosts


def test_quotas(tool: Tool) -> None:
    def limits() -> dict[str, int]:
        return {row["resource"]: row["limit"] for row in tool.json("quota", "show", "p")}

    assert limits()["cores"] == 20
    tool("quota", "set", "p", "--cores", "40", "--ram", "-1", "--key-pairs", "3")
    assert (limits()["cores"], limits()["ram"], limits()["key_pairs"], limits()["instances"]) == (40, -1, 3, 10)
    tool("quota", "set", "p", "--cores", "default")
    assert limits()["cores"] == 20


def test_quotas_of_users(tool: Tool) -> None:
    def limit(*of: str) -> int:
        (found,) = (row["limit"] for row in tool.json("quota", "show", "p", *of) if row["resource"] == "cores")
        return int(found)

    tool("quota", "set", "p", "--user", "u", "--cores", "4")
    assert (limit("--user", "u"), limit("--user", "v"), limit()) == (4, 20, 20)
    tool("quota", "set", "p", "--user", "u", "--cores", "default")
    assert limit("--user", "u") == 20


def fill_host(tool: Tool) -> None:
    from nova_lite.db.hosts import hosts

    database = tool.database_of()
    database.write(hosts.record, make.conf(tool.database), make.report())
    database.close()


def test_services_and_hosts(tool: Tool) -> None:
    assert tool.json("service", "list") == tool.json("host", "list") == []
    fill_host(tool)
    (service,) = tool.json("service", "list")
    assert (service["binary"], service["host"], service["status"], service["state"]) == (
        "nova-compute",
        "h1",
        "enabled",
        "up",
    )
    (host,) = tool.json("host", "list")
    assert (host["host"], host["vcpus"], host["ram"], host["servers"]) == ("h1", 16, 1024, 0)
    assert "nova-compute" in tool("service", "list")


# --- audit


def test_audit(tool: Tool) -> None:
    fill_host(tool)
    assert tool("audit") == "Nothing is wrong."
    assert tool.json("audit") == []
    database = tool.database_of()
    database.write(lambda uow: uow.change(sa.update(ComputeNode).values(vcpus_used=3)))
    database.close()
    (problem,) = tool.json("audit", status=1)
    assert (problem["check"], problem["subject"]) == ("used", "host h1, node n1")
    assert "1 problem(s)." in tool("audit", status=1)
    assert "1 problem(s) mended." in tool("audit", "--fix")
    assert tool("audit", "--fix") == "Nothing is wrong."


def test_audit_of_traces_names_the_servers_that_are_wrong(tool: Tool) -> None:
    assert tool.json("audit", "--trace") == []
    database = tool.database_of()
    whole = database.write(make.instance)
    wrong = database.write(lambda uow: make.instance(uow, host="h1", node="n1", generation=2))
    database.close()
    (row,) = tool.json("audit", "--trace", status=1)
    assert (row["server"], row["time"], row["action"]) == (wrong, "now", None)
    assert row["first_step_that_no_operation_makes"] == "it has no claim at host h1, generation 2"
    assert "1 server(s): a path. 0: a path as far as it is recorded. 1: no path." in tool("audit", "--trace", status=1)
    assert "1 server(s): a path." in tool("audit", "--trace", "--server", whole)
    assert "0 server(s): a path." in tool("audit", "--trace", "--since", "2100-01-01")
    assert "1 server(s): a path." in tool("audit", "--trace", "--since", "2100-01-01", "--server", whole)


def test_audit_of_traces_refuses_what_it_cannot_do(tool: Tool) -> None:
    tool("audit", "--since", "2026-01-01", status=1)
    assert "--since and --server belong to --trace." in tool.error
    tool("audit", "--trace", "--server", "6ba7b810-9dad-41d1-80b4-00c04fd430c8", status=1)
    assert "Instance 6ba7b810-9dad-41d1-80b4-00c04fd430c8 could not be found" in tool.error
    tool("audit", "--trace", "--fix", status=2)


# --- configuration


def test_configuration_check(tool: Tool) -> None:
    good = "transport_url = fake:/\n"
    tool.configure(good)
    assert tool("config", "check") == "The configuration can work."
    tool.configure(good + "service_down_time = 10\nreport_interval = 10\ncompute_driver = vmware\n")
    tool("config", "check", status=1)
    assert "service_down_time" in tool.text and "vmware is unknown; there are fake, fake-rules, libvirt" in tool.text
    tool.configure("transport_url = rabbbit://\n", database="sqlite:////proc/none/db.sqlite")
    tool("config", "check", status=1)
    assert "transport_url" in tool.text and "[database] connection" in tool.text


def test_configuration_check_of_glance(tool: Tool) -> None:
    """The command runs in its own process: keystoneauth leaves its plugin's options in the global configuration."""
    tool.configure("[image]\nbackend = glance\n[glance]\nauth_type = password\n")
    command = [sys.executable, "-m", "nova_lite.cmd.manage", "config", "check", "--config-file", str(tool.config)]
    result = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (result.returncode, "[glance]: " in result.stdout, "auth_url" in result.stdout) == (1, True, True)


def test_configuration_with_a_wrong_value(tool: Tool) -> None:
    tool.configure("report_interval = often\n")
    cfg.CONF.reset()
    with pytest.raises(SystemExit, match="report_interval"):
        manage.main(["--config-file", str(tool.config), "db", "version"])


# --- placement


def test_aggregates(tool: Tool) -> None:
    report(tool, "h1")
    number = tool("aggregate", "create", "fast", "--zone", "east", "--property", "ssd=true")
    assert tool.json("aggregate", "add-host", "fast", "h1")[0]["hosts"] == ["h1"]
    assert "already has host h1" in tool.fails("aggregate", "add-host", number, "h1")
    assert tool.json("host", "list")[0]["zone"] == "east"
    tool("aggregate", "set", "fast", "--name", "faster", "--property", "cpu_allocation_ratio=1", "--remove", "ssd")
    (found,) = tool.json("aggregate", "list")
    assert (found["name"], found["properties"]) == (
        "faster",
        {"availability_zone": "east", "cpu_allocation_ratio": "1"},
    )
    assert tool.json("host", "list")[0]["vcpus"] == 4
    assert "still has hosts" in tool.fails("aggregate", "delete", "faster")
    tool("aggregate", "remove-host", "faster", "h1")
    tool("aggregate", "delete", "faster")
    assert tool.json("aggregate", "list") == []


def test_server_groups(tool: Tool) -> None:
    create = ("server-group", "create", "g", "--project", "p1", "--policy")
    group = tool(*create, "anti-affinity", "--max-per-host", "2")
    assert "the only rule" in tool.fails(*create, "affinity", "--max-per-host", "2")
    (found,) = tool.json("server-group", "list")
    assert (found["id"], found["rules"], found["project"]) == (group, {"max_server_per_host": 2}, "p1")
    tool("server-group", "delete", group)
    assert "could not be found" in tool.fails("server-group", "delete", group)


def test_a_dry_run_says_where_or_why_not(tool: Tool) -> None:
    flavor = tool("flavor", "create", "m1", "--ram", "512", "--disk", "1")
    dry_run = ("scheduler", "explain", "--flavor", flavor)
    assert "There are no compute hosts" in tool.json(*dry_run, status=1)[0]["why"]
    report(tool, "h1", "h2")
    places = tool.json(*dry_run, "--count", "3")
    assert [place["fits"] for place in places] == [True] * 3
    assert {place["host"] for place in places} == {"h1", "h2"}
    refused = tool.json(*dry_run, "--count", "5", status=1)
    assert "There is room for 4 of the 5 servers requested" in refused[0]["why"]
    assert refused[1]["why"].startswith("RamFilter took out 2 of 2 hosts: h1 (512 MB requested, 0 MB free)")
    assert refused[0]["why"].endswith("Least change: ask for 4 instead of 5 servers.")
    assert "Least change: add 512 MB of memory to h1, or ask for 4 instead of 5 servers." in refused[2]["why"]
    server = placed(tool, "h1")
    assert (
        f"delete server {server} on h1 or move it, or add" in tool.json(*dry_run, "--count", "4", status=1)[-1]["why"]
    )
    assert "not in availability zone west" in tool.json(*dry_run, "--az", "west", status=1)[0]["why"]
    group = tool("server-group", "create", "g", "--project", "p1", "--policy", "anti-affinity")
    assert tool.json(*dry_run, "--hint", f"group={group}", "--count", "3", status=1)
    assert {place["host"] for place in tool.json(*dry_run, "--host", "h2", "--count", "2")} == {"h2"}
    assert "Of 1 requested host" in tool.json(*dry_run, "--node", "h2", "--count", "3", status=1)[0]["why"]
    assert "does not exist" in tool.json(*dry_run, "--host", "none", status=1)[0]["why"]
    assert "Instance group none could not be found" in tool.fails(*dry_run, "--hint", "group=none")
    assert "name either a server, or a flavor" in tool.fails("scheduler", "explain")


def test_a_server_is_explained(tool: Tool) -> None:
    report(tool, "h1")
    there = placed(tool, "h1")
    (found,) = tool.json("scheduler", "explain", there)
    assert (found["host"], found["placed_by"]) == ("h1", None)
    assert found["now"] == "number 1 of 1 hosts that fit"
    report(tool, "h2")
    assert tool.json("scheduler", "explain", there)[0]["now"].endswith(" of 2 hosts that fit")
    tool("aggregate", "create", "full", "--property", "reserved_host_memory_mb=99999")
    tool("aggregate", "add-host", "full", "h1")
    found = tool.json("scheduler", "explain", there)[0]
    assert found["now"].startswith("the host would not be chosen: No valid host was found. Of 1 host, 1 failed Ram")
    nowhere = placed(tool, None, vm_state="error", fault={"message": "No valid host was found.", "details": "because"})
    tool("scheduler", "explain", nowhere)
    assert "because" in tool.text
    assert "Fits" in tool.text
    assert "could not be found" in tool.fails("scheduler", "explain", "none")


def test_a_drain_is_planned_and_nothing_changes(tool: Tool) -> None:
    report(tool, "h1", "h2")
    servers = {placed(tool, "h1", display_name=f"vm{number}") for number in range(2)}
    before = tool.json("host", "list")
    moves = tool.json("host", "drain", "h1", "--dry-run")
    assert {(move["server"], move["to"]) for move in moves} == {(uuid, "h2") for uuid in servers}
    placed(tool, "h2")
    moves = tool.json("host", "drain", "h1", "--dry-run", status=1)
    assert sorted(str(move["to"]) for move in moves) == ["None", "h2"]
    assert any("failed RamFilter" in move["why_not"] for move in moves)
    assert tool.json("host", "list")[0] == before[0]
    assert "could not be found" in tool.fails("host", "drain", "none", "--dry-run")


def test_a_rebalance_is_planned_and_nothing_changes(tool: Tool) -> None:
    report(tool, "h1", "h2")
    servers = [placed(tool, "h1", display_name=f"vm{number}") for number in range(2)]
    before = tool.json("host", "list")
    (move,) = tool.json("host", "rebalance", "--dry-run")
    assert move["server"] in servers
    assert (move["from"], move["to"], move["spread_before"], move["spread_after"]) == ("h1", "h2", 0.5, 0.0)
    tool("aggregate", "create", "some")
    tool("aggregate", "add-host", "some", "h1")
    (nothing,) = tool.json("host", "rebalance", "--dry-run", "--aggregate", "some")
    assert (nothing["server"], nothing["spread_before"], nothing["spread_after"]) == (None, 0.0, 0.0)
    assert tool.json("host", "rebalance", "--dry-run", "--az", "nova", "--max-moves", "1")[0]["to"] == "h2"
    assert tool.json("host", "rebalance", "--dry-run", "--az", "none")[0]["server"] is None
    assert tool.json("host", "list") == before


def test_a_server_that_is_at_work_is_not_moved(tool: Tool) -> None:
    report(tool, "h1", "h2")
    for _ in range(2):
        placed(tool, "h1", task_state="rebooting")
    assert tool.json("host", "rebalance", "--dry-run")[0]["server"] is None


def test_command_loads_the_module_of_its_noun_only() -> None:
    code = (
        "import sys; from nova_lite.cmd import manage as m; m.main(sys.argv[1:]); print(*sys.modules, file=sys.stderr)"
    )
    command = [sys.executable, "-W", "ignore", "-c", code, "--format", "json", "policy", "list"]
    loaded = subprocess.run(command, capture_output=True, text=True, check=True).stderr.split()
    assert "nova_lite.cmd.manage.policy" in loaded
    assert {"nova_lite.cmd.manage.hosts", "sqlalchemy", "oslo_messaging"}.isdisjoint(loaded)


def test_each_noun_is_registered_by_the_module_of_its_row() -> None:
    for noun, module in manage.NOUNS.items():
        assert noun in _nouns(manage.parser(noun)), module
    assert _nouns(manage.parser()) == set(manage.NOUNS)


def _nouns(parser: argparse.ArgumentParser) -> set[str]:
    (nouns,) = [action for action in parser._actions if isinstance(action, argparse._SubParsersAction)]
    return set(nouns.choices)
