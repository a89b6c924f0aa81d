#!/bin/bash
# Choose the versions of all Python packages that devstack installs, and write them, with the hashes of their files, into
# devstack/requirements/*.txt: from the *.in beside them and from setup.cfg. Nothing else changes them.
#
#   lock.sh [NAME]...      build, stack, compute, controller, tests, openstack, neutron, tempest, fuzz, clients, heat, programs, ansible, rally, horizon,
#                          octavia, skyline; without names all
#
# Versions stay as they are where they still fit; UPGRADE=1 takes the newest.
source "$(dirname "$(readlink -f "${BASH_SOURCE[0]}")")/lib/common.sh"
source "$TOP/devstack/lib/python.sh"

names=("$@")
((${#names[@]})) || names=(build stack compute controller tests openstack neutron tempest fuzz clients heat programs ansible rally horizon octavia skyline)
LOG=$(mktemp /tmp/nova-lite-lock.XXXXXX.log)
tools=$(mktemp -d)
trap 'remove_tree "$tools"' EXIT
install_uv() {
    make_venv "$tools/venv"
    "$tools/venv/bin/pip" install --quiet uv
}
step "Installing uv" install_uv
cd "$TOP" || die "no checkout at $TOP"
for name in "${names[@]}"; do
    [[ -f devstack/requirements/$name.in ]] || die "$name: there is no devstack/requirements/$name.in."
    options=()
    [[ $name != stack ]] || options=(setup.cfg --extra all --extra libvirt --extra mariadb --extra ldap --extra oidc)
    # Debian packages (devstack/packages.sh) have the versions of the stack, with which the tests run.
    [[ $name != compute ]] || options=(setup.cfg --extra compute --extra libvirt --constraints devstack/requirements/stack.txt)
    [[ $name != controller ]] ||
        options=(setup.cfg --extra api --extra conductor --extra scheduler --extra console --extra mariadb --extra ldap --extra oidc
            --constraints devstack/requirements/stack.txt)
    [[ $name != tests ]] || options=(setup.cfg --extra test --extra libvirt --extra mariadb --extra ldap --extra oidc)
    [[ ${UPGRADE:-} != 1 ]] || options+=(--upgrade)
    step "Choosing versions: $name" "$tools/venv/bin/uv" pip compile --quiet --universal --python-version 3.11 --generate-hashes \
        --no-annotate --custom-compile-command devstack/lock.sh \
        --output-file "devstack/requirements/$name.txt" "devstack/requirements/$name.in" "${options[@]}"
done
