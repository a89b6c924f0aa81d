"""Results of devstack/clients.sh, and the page that is made of them."""

from __future__ import annotations

import json
import pathlib
from typing import Any

import pytest
import yaml

from tests.unit.deployment.scripts import load

ROOT = pathlib.Path(__file__).parents[3]


@pytest.fixture(scope="module")
def script() -> Any:
    return load("clients")


def test_page_of_client_suites_is_that_of_the_stored_results(script: Any) -> None:
    """``devstack/clients.sh --page`` makes it."""
    suites, programs = script.stored_in(script.RESULTS), script.stored_in(script.PROGRAMS)
    assert suites and programs
    assert (ROOT / "docs/reference/clients.md").read_text() == script.page(suites, programs)


def test_every_known_cause_has_a_kind(script: Any) -> None:
    assert {cause["kind"] for cause in script.causes()} <= script.KINDS.keys()


def test_failures_with_a_known_reason_are_not_applicable(script: Any) -> None:
    run = {
        "suite": "gophercloud",
        "version": "v2.9",
        "date": "2026-11-26",
        "passed": ["a.TestA", "a.TestB", "a.TestC"],
        "failed": {"a.TestD": "404 GET /image/v2/tasks", "a.TestE": "no known reason at all"},
        "skipped": {"a.TestF": "needs 2.99"},
    }
    page = script.page([run], [])
    assert "| gophercloud | v2.9 | 2026-11-26 | 3 | 2 | 1 | 60.0 % | 4 | 75.0 % |" in page
    assert "| 1 | not supported | tasks of the image API | `a.TestD` |" in page
    assert "| 1 | unknown | Not examined. | `a.TestE` |" in page
    assert "| 1 | needs N |" in page


def test_results_of_go_have_the_message_of_the_failure(script: Any) -> None:
    def event(action: str, test: str | None, output: str = "") -> str:
        made = {"Action": action, "Package": "example/internal/acceptance/openstack/compute/v2", "Output": output}
        return json.dumps(made if test is None else made | {"Test": test})

    output = "\n".join(
        [
            event("output", "TestA", "=== RUN   TestA\n"),
            event(
                "output", "TestA", "    servers.go:7: \x1b[1;31mFailure in servers_test.go, line 7: got 400\x1b[0m\n"
            ),
            event("output", "TestA", "    servers.go:9: Deleted server: b\n"),
            event("pass", "TestA/part"),
            event("fail", "TestA"),
            event("output", "TestB", "    conditions.go:1: must be a non-admin\n"),
            event("skip", "TestB"),
            event("pass", "TestC"),
            event("fail", None),
            "a line of the compiler",
        ]
    )
    assert script.go_results(output) == [
        {"test": "compute/v2.TestA", "status": "failed", "cause": "Failure in servers_test.go, line 7: got 400"},
        {"test": "compute/v2.TestB", "status": "skipped", "cause": "must be a non-admin"},
        {"test": "compute/v2.TestC", "status": "passed", "cause": ""},
    ]


def test_stored_messages_have_no_ids_addresses_or_places(script: Any) -> None:
    message = "404 http://127.0.0.1:4711/v3/users/0123456789abcdef0123456789abcdef in /opt/a/b/lib/site-packages/x.py"
    assert script.plain(message) == "404 /v3/users/ID in x.py"


def test_failed_set_up_of_a_class_counts_for_each_of_its_tests(script: Any) -> None:
    found = [
        {"test": "a.B.setUpClass", "status": "skipped", "cause": "no agents"},
        {"test": "a.C.test_one", "status": "passed", "cause": ""},
        {"test": "a.C.tearDownClass", "status": "failed", "cause": "in use"},
        {"test": "a.D.setUpClass", "status": "failed", "cause": "the class has no tests"},
    ]
    results = script.without_fixtures(found, ["a.B.test_one[id-1]", "a.B.test_two", "a.C.test_one", "a log line"])
    assert [(result["test"], result["status"]) for result in results] == [
        ("a.B.test_one", "skipped"),
        ("a.B.test_two", "skipped"),
        ("a.C.tearDownClass", "failed"),
        ("a.C.test_one", "passed"),
        ("a.D.setUpClass", "failed"),
    ]
    assert {result["cause"] for result in results if result["status"] == "skipped"} == {"no agents"}


def test_group_of_the_subset_has_a_fault_for_each_test_that_has_not_passed(script: Any) -> None:
    group = {"group": "one", "tests": ["a.A", "a.B.test_b", "a.Other"]}
    found = [
        {"test": "suite.a.A.test_one", "status": "passed", "cause": ""},
        {"test": "suite.a.A.test_two", "status": "skipped", "cause": "no agents"},
        {"test": "suite.a.Another.test_one", "status": "failed", "cause": "of no group"},
        {"test": "suite.a.B.test_b", "status": "failed", "cause": "404"},
    ]
    assert script.faults_of(group, "suite", found) == [
        "one: suite.a.A.test_two skipped: no agents",
        "one: suite.a.B.test_b failed: 404",
        "one: suite.a.Other has not run: its name or its module is wrong.",
    ]


def test_groups_of_the_subset_have_suites_reasons_and_tests_of_their_own(script: Any) -> None:
    groups = yaml.safe_load(script.SUBSET.read_text())
    assert {group["suite"] for group in groups} == script.SELECTABLE.keys()
    assert all(group["reason"] for group in groups)
    names = [group["group"] for group in groups]
    tests = [(group["suite"], test) for group in groups for test in group["tests"]]
    assert len(set(names)) == len(names) and len(set(tests)) == len(tests)


def test_page_has_a_row_for_each_program(script: Any) -> None:
    result = {
        "program": "rally",
        "versions": {"rally": "5.1", "rally-openstack": "4.1"},
        "date": "2026-11-26",
        "status": "failed",
        "text": "task start\nfailed",
        "seconds": 12,
    }
    row = "| rally | rally 5.1, rally-openstack 4.1 | 2026-11-26 | failed: task start failed | 12 s |"
    assert row in script.page([], [result])


def test_targets_count_all_tests_of_a_suite_and_why_they_have_not_passed(script: Any) -> None:
    run = {
        "suite": "tempest-image",
        "version": "47",
        "date": "2026-11-26",
        "passed": [f"a.B.test_{number}" for number in range(60)],
        "failed": {"a.C.test_a": "404 GET /image/v2/tasks", "a.C.test_b": "no known reason", "a.C.tearDownClass": "x"},
        "skipped": {"a.D.test_c": "no stores"},
    }
    page = script.page([run], [])
    assert "| tempest-image | 60 | 63 | 60 | 0 | 1 | 0 | 1 | 1 | yes |" in page
    assert "| tempest-volume | 150 | 0 | 0 | 0 | 0 | 0 | 0 | 0 | no |" in page
