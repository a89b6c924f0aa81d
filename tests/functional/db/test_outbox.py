"""The outbox of notifications, on each kind of database."""

from __future__ import annotations

from tests.unit.conductor.notifications.test_outbox import (  # noqa: F401
    test_excess_is_dropped_from_the_oldest_on,
    test_failed_notification_holds_up_the_later_ones,
    test_leased_notifications_are_not_leased_again,
    test_notifications_of_a_lost_lease_stay_with_their_new_holder,
    test_old_notifications_are_dropped,
    test_outbox_returns_what_was_written_in_its_order,
    test_settled_notifications_are_gone_and_the_others_are_free,
)
