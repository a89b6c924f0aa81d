#!/bin/bash
# Test with the real Keystone and Glance, as root: stack this machine with AUTH=keystone and run the tests of a stacked
# cloud, those of the command line client among them. Unless it was stacked before, it is unstacked afterwards.
source "$(dirname "$(readlink -f "${BASH_SOURCE[0]}")")/lib/common.sh"
for component in packages python libvirt testing; do
    source "$TOP/devstack/lib/$component.sh"
done

need_root
LOG=$(mktemp /tmp/nova-lite-test.XXXXXX.log)
say "Testing $TOP with Keystone and Glance (preparations are logged in $LOG)"
step "Installing packages and the test environment" prepare_tests
cd "$TOP" || exit
export PATH=$TEST_VENV/bin:$PATH AUTH=keystone
test_stacked run_tests tests/integration/cloud || die "failed after $(clock)."
say "All of it passed."
