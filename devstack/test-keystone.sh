#!/bin/bash
# Test with the real Keystone and Glance, as root: stack this machine with AUTH=keystone and run the tests of a stacked
# cloud, those of the command line client among them. Unless it was stacked before, it is unstacked afterwards.
source "$(dirname "$(readlink -f "${BASH_SOURCE[0]}")")/lib/common.sh"
no_arguments "$@"
for component in packages python libvirt testing; do
    source "$TOP/devstack/lib/$component.sh"
done

export AUTH=keystone
test_with "Keystone and Glance" tests/integration/cloud
