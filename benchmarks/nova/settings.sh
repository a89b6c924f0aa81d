# shellcheck shell=bash
# Settings of a real Nova with Placement, Glance and Neutron, for comparisons. Sourced by up.sh and down.sh.
ROOT=${NOVA_REFERENCE:-/opt/nova-reference}
# From PyPI; all other packages are what these need.
PACKAGES=(nova==34.0.0 openstack-placement==16.0.0 glance==33.0.0 neutron==29.0.0 uWSGI==2.0.31 PyMySQL==1.2.4 cotyledon==2.2.0
    python-memcached==1.62)
BIN=$ROOT/venv/bin
ETC=$ROOT/etc
STATE=$ROOT/state
RUN=$ROOT/run
LOGS=$ROOT/log
HOSTS=(ref-1 ref-2 ref-3 ref-4)
DATABASES=(api cell0 cell1 placement glance neutron)
PASSWORD=novaref
NOVA_PORT=28774 PLACEMENT_PORT=28778 GLANCE_PORT=29292 NEUTRON_PORT=29696
TOKEN=admin:demo
