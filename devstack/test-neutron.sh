#!/bin/bash
# Test with the real Neutron, as root: stack this machine with AUTH=keystone NETWORK=neutron and run
# tests/integration/neutron: real guests whose ports are made, connected, filtered, attached and detached.
# Unless the machine was stacked before, it is unstacked afterwards.
source "$(dirname "$(readlink -f "${BASH_SOURCE[0]}")")/lib/common.sh"
no_arguments "$@"
for component in packages python libvirt testing; do
    source "$TOP/devstack/lib/$component.sh"
done

export AUTH=keystone NETWORK=neutron
test_with Neutron tests/integration/neutron
