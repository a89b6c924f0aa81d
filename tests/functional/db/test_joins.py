"""Tests of tests/unit/db/hosts/test_joins.py whose statements differ between kinds of databases."""

from tests.unit.db.hosts.test_joins import (
    test_address_of_another_host_is_refused_whoever_signs,
    test_host_replaces_its_key_with_its_key,
    test_older_list_of_keys_does_not_replace_a_newer_one,
    test_removed_host_needs_another_token,
    test_second_host_of_the_same_name_is_refused,
    test_strangers_get_the_same_answer_whatever_the_token_is,
)

__all__ = [
    "test_address_of_another_host_is_refused_whoever_signs",
    "test_host_replaces_its_key_with_its_key",
    "test_older_list_of_keys_does_not_replace_a_newer_one",
    "test_removed_host_needs_another_token",
    "test_second_host_of_the_same_name_is_refused",
    "test_strangers_get_the_same_answer_whatever_the_token_is",
]
