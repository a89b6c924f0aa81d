#!/bin/bash
# Loses hosts in random ways, as root, and measures until their protected guests run elsewhere (docs/howto/protect-servers.md).
#
#   failover.sh [--runs N] [--guests N] [--computes N] [--seed N]
#   failover.sh --guests real [--runs N] [--how TEXT] [--disks directory|rbd] [--parallel N] [--minutes N] [--results FILE]
#   failover.sh --page --results FILE           print the table of the results, and lose nothing
#   failover.sh --tenants [--computes N] [--how TEXT]    instead two projects with equal addresses lose a host with real guests
#   failover.sh --nemesis MINUTES [--seed N]    instead hosts are lost at random, with other faults at the same time
#   failover.sh --alarms MINUTES [--computes N] [--load N] [--seed N]    instead no host is lost, but none works well
#
# It uses real daemons on the machine's broker, fake hypervisors and the default times; a run takes about three minutes.
# With "--guests real" each host has a libvirtd of its own with two qemu guests, and all share one directory of disks; with
# "--disks rbd" the guests boot from volumes in a Ceph of one node, and the hosts share nothing else.
# "--how" chooses the losses of real guests whose name has the text: power, daemon, cut, kernel, full. "--parallel N" is the
# number of clouds at a time, with 1.5 GB of memory each. No run begins after "--minutes N". "--results FILE": a line of JSON
# for each run; what is there is not run again.
# With "--alarms", hosts stand still for 20 s, their links lose 30 % of all packets, and "--load N" other processes (50) want
# the CPUs. Its last line says how many guests stopped or moved, which no guest should.
# Otherwise its last line says how many guests came back, the worst time, and how many ran twice.
source "$(dirname "$(readlink -f "${BASH_SOURCE[0]}")")/lib/common.sh"
for component in packages python rabbitmq database config libvirt guest services testing; do
    source "$TOP/devstack/lib/$component.sh"
done

require_positive --runs --guests --computes --parallel --minutes --nemesis --alarms --load -- "$@"
need_root
LOG=$(mktemp /tmp/nova-lite-failover.XXXXXX.log)
say "Failover of protected guests (preparations are logged in $LOG)"
step "Installing packages and the test environment" prepare_tests
# "--disks rbd" may also be written "--disks=rbd".
[[ " $* " != *" --disks"[\ =]"rbd "* ]] || step "Installing Ceph" install_packages "${CEPH_PACKAGES[@]}"
step "Starting the broker" start_broker
cd "$TOP" || die "no checkout at $TOP"
exec "$TEST_VENV/bin/python" -W ignore -m tests.faults.failover "$@"
