"""The committed sample holds every option of ours as it is now.

Libraries' options are in it as well, but their texts change with their versions, so only ours are compared.
"""

from __future__ import annotations

import io
import pathlib

import pytest
from oslo_config import generator

TOP = pathlib.Path(__file__).parents[3]
SAMPLE = TOP / "etc/nova-lite/nova-lite.conf"
GENERATOR = TOP / "etc/nova-lite/config-generator.conf"


def generated(*namespaces: str) -> str:
    arguments = [f"--namespace={name}" for name in namespaces]
    conf = generator.cfg.ConfigOpts()
    generator.register_cli_opts(conf)
    conf(["--config-file", str(GENERATOR), *arguments], project="sample")
    conf.set_override("namespace", list(namespaces))
    output = io.StringIO()
    generator.generate(conf, output)
    return output.getvalue()


def entries(text: str) -> dict[tuple[str, str], str]:
    """Each option's block of help and default, by group and name."""
    found = {}
    group = ""
    for block in text.split("\n\n"):
        lines = block.strip().splitlines()
        if not lines:
            continue
        if lines[0].startswith("["):
            group = lines[0]
        last = lines[-1]
        if last.startswith("#") and "=" in last and not last.startswith("# "):
            found[group, last[1:].split("=")[0].strip()] = block.strip()
    return found


OURS = entries(generated("nova_lite"))


def test_there_are_options_to_compare() -> None:
    assert ("[DEFAULT]", "state_path") in OURS
    assert ("[api]", "port") in OURS
    assert len(OURS) > 40


@pytest.mark.parametrize("key", sorted(OURS), ids=" ".join)
def test_option_is_in_the_sample_as_it_is(key: tuple[str, str]) -> None:
    committed = entries(SAMPLE.read_text())
    assert committed.get(key) == OURS[key], (
        "run: oslo-config-generator --config-file etc/nova-lite/config-generator.conf"
    )


@pytest.mark.parametrize("line", ["#rabbit_qos_prefetch_count = 20", "#rpc_response_timeout = 20"])
def test_libraries_have_our_defaults_in_the_sample(line: str) -> None:
    assert line in SAMPLE.read_text().splitlines()


def test_the_sample_has_no_option_that_is_gone() -> None:
    our_groups = {group for group, _ in OURS} - {"[DEFAULT]"}
    committed = {key for key in entries(SAMPLE.read_text()) if key[0] in our_groups}
    assert committed == {key for key in OURS if key[0] in our_groups}


def test_the_sample_sets_nothing() -> None:
    assert [line for line in SAMPLE.read_text().splitlines() if line and line[0] not in "#["] == []
