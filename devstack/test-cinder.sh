#!/bin/bash
# Test with the real Cinder, on a Ceph of one node, as root: stack this machine with AUTH=keystone VOLUMES=cinder and run
# tests/integration/cinder: volumes made, booted from, attached to real guests, written, detached and read elsewhere.
# Unless the machine was stacked before, it is unstacked afterwards.
source "$(dirname "$(readlink -f "${BASH_SOURCE[0]}")")/lib/common.sh"
no_arguments "$@"
for component in packages python libvirt testing; do
    source "$TOP/devstack/lib/$component.sh"
done

export AUTH=keystone VOLUMES=cinder
test_with Cinder tests/integration/cinder
