"""Pages name options, metrics and terms that exist."""

from __future__ import annotations

import pathlib
import re

import pytest

from nova_lite.base import metrics
from nova_lite.conf import opts

TOP = pathlib.Path(__file__).parents[3]
PAGES = [TOP / "README.md", TOP / "CONTRIBUTING.md", *sorted((TOP / "docs").rglob("*.md"))]
#: Groups of the libraries that we use.
LIBRARIES = (
    "cors",
    "oslo_messaging_rabbit",
    "oslo_messaging_notifications",
    "oslo_policy",
    "keystone_authtoken",
    "nova",
)


def options() -> set[tuple[str, str]]:
    listed = {(group, opt.dest) for group, listed in opts.list_opts() for opt in listed}
    return listed | {("DEFAULT", name) for name in ("transport_url", "rpc_response_timeout", "debug")}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(TOP)))
def test_page_names_options_that_exist(page: pathlib.Path) -> None:
    text = re.sub("formerly `[^`]*`", "", page.read_text())
    named = re.findall(r"`\[(\w+)\] (\w+)(?: = [^`]*)?`", text)
    assert {(group, name) for group, name in named if group not in LIBRARIES} - options() == set()


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(TOP)))
def test_page_configuration_examples_name_options_that_exist(page: pathlib.Path) -> None:
    named = set()
    for block in re.findall(r"^ *```ini\n(.*?)^ *```", page.read_text(), re.DOTALL | re.MULTILINE):
        group = "DEFAULT"
        for line in map(str.strip, block.splitlines()):
            if header := re.match(r"\[([\w-]+)\]", line):
                group = re.sub("^mdev_.*", "mdev_TYPE", header[1])
            elif (option := re.match(r"(\w+) = ", line)) and group not in (*LIBRARIES, "mariadbd"):
                named.add((group, option[1]))
    foreign = {("DEFAULT", "notify_nova_on_port_status_changes"), ("DEFAULT", "notify_nova_on_port_data_changes")}
    assert named - options() - foreign == set()


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(TOP)))
def test_page_names_metrics_that_exist(page: pathlib.Path) -> None:
    named = re.findall(r"`(nova_lite_[a-z_]+)(?:\{[^`]*)?`", page.read_text())
    others = {"nova_lite_block_device", "nova_lite_conformance", "nova_lite_test", "nova_lite_cloud", "nova_lite_dev"}
    tables = {name for name in named if name.startswith(("nova_lite_ports_", "nova_lite_tunnels_"))}
    assert set(named) - metrics.DAEMONS_OF.keys() - others - tables == set()


def test_glossary_terms_occur_in_the_code() -> None:
    page = (TOP / "docs/reference/glossary.md").read_text()
    terms = set(re.findall(r"^\| ([a-z -]+) \| ", page, re.MULTILINE))
    assert len(terms) > 20
    code = "\n".join(path.read_text() for path in (TOP / "nova_lite").rglob("*.py")).lower()
    text = re.sub(r"\s*\n\s*(#:?)?\s*", " ", code)
    forms = {term: (term, term.replace("-", " ").replace(" ", "_"), re.sub("[ -]", "", term)) for term in terms}
    assert [term for term, spellings in forms.items() if not any(spelling in text for spelling in spellings)] == []
