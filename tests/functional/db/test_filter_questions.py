"""The tests of filter queries and member versions in tests/unit/conductor, on each kind of database."""

from tests.unit.conductor.network.test_filter_queries import *  # noqa: F403
from tests.unit.conductor.network.test_member_versions import *  # noqa: F403
