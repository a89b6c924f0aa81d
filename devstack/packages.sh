#!/bin/bash
# Build the Debian packages nova-lite-common, nova-lite-controller, nova-lite-compute and nova-lite, as root:
#
#   packages.sh [--suite SUITE] DIRECTORY
#
# They are written into DIRECTORY. The suite is one of devstack/releases, by default this machine's. The packages of another one
# are built in a tree that debootstrap makes and that is removed afterwards. That needs the keyring of its distribution, which
# KEYRING names if it is not in /usr/share/keyrings. What the build needs is installed. lintian checks the packages; an error of
# its ends the script with status 1.
source "$(dirname "$(readlink -f "${BASH_SOURCE[0]}")")/lib/common.sh"
source "$TOP/devstack/lib/packages.sh"
source "$TOP/devstack/lib/python.sh"

BUILD_PACKAGES=(build-essential ca-certificates debhelper dpkg-dev fakeroot libmariadb-dev libvirt-dev lintian pkg-config python3-dev python3-venv)

usage() {
    sed -n '2,/^source/{/^#/s/^# \{0,1\}//p}' "$TOP/devstack/packages.sh" >&2
    exit 2
}

# debian_version VERSION: a development version or a candidate comes before its release.
debian_version() {
    sed -E 's/^([0-9.]+)(rc|a|b)/\1~\2/; s/\.dev/~~dev/' <<<"$1"
}

# write_sources DIRECTORY: what is built, with a changelog of the version.
write_sources() {
    local directory=$1
    tar -C "$TOP" --dereference --exclude=__pycache__ -cf - setup.cfg pyproject.toml README.md LICENSE etc nova_lite \
        devstack/packaging devstack/requirements | tar -C "$directory" -xf -
    mv "$directory/devstack/packaging/debian" "$directory/debian"
    cat >"$directory/debian/changelog" <<CHANGELOG
nova-lite ($(debian_version "$VERSION")~$MARK) $SUITE; urgency=medium

  * Version $VERSION. The changes are in CHANGELOG.md of the sources.

 -- nova_lite maintainers <maintainers@nova-lite.invalid>  $(date --rfc-email --date="@$(changed_at)")
CHANGELOG
}

# The time of the last commit, so that the same sources make the same packages.
changed_at() {
    git -c safe.directory="$TOP" -C "$TOP" log -1 --format=%ct 2>/dev/null || stat -c %Y "$TOP/setup.cfg"
}

# run_build [COMMAND...]: build and check, by COMMAND in the tree of another suite. $WORK is mounted there at the same place.
run_build() {
    "$@" env SETUPTOOLS_SCM_PRETEND_VERSION_FOR_NOVA_LITE="$VERSION" LC_ALL=C.UTF-8 bash -euc '
        cd "$1/sources"
        dpkg-buildpackage --unsigned-source --unsigned-changes --build=binary
        # Some lintian has no tag that our overrides name for another one.
        lintian --fail-on error --display-level error --suppress-tags bad-distribution-in-changes-file,alien-tag ../*.changes
    ' build "$WORK"
}

# make_tree: the packages of the suite that the build needs, and nothing else.
make_tree() {
    install_packages debootstrap systemd-container
    # Debian's debootstrap does not know every release of Ubuntu, whose script has the name of an old one.
    debootstrap --variant=minbase --keyring="$KEYRING" "$SUITE" "$WORK/tree" "$MIRROR" "/usr/share/debootstrap/scripts/$SCRIPT"
    echo "deb $MIRROR $SUITE ${COMPONENTS//,/ }" >"$WORK/tree/etc/apt/sources.list"
    in_tree bash -euc 'apt-get -q update; DEBIAN_FRONTEND=noninteractive apt-get -q install --yes --no-install-recommends -o Dpkg::Options::=--force-unsafe-io "$@"' install "${BUILD_PACKAGES[@]}"
}

# in_tree COMMAND...: with this machine's network, and its settings of pip and their certificates.
in_tree() {
    local name options=()
    for name in $(compgen -e PIP_); do
        options+=(--setenv="$name=${!name}")
    done
    [[ ! -r /etc/ssl/certs/ca-certificates.crt ]] ||
        options+=(--bind-ro=/etc/ssl/certs/ca-certificates.crt:/run/certificates.crt --setenv=PIP_CERT=/run/certificates.crt)
    systemd-nspawn --quiet --directory="$WORK/tree" --register=no --keep-unit --as-pid2 --resolv-conf=copy-host --pipe \
        --bind="$WORK/sources" "${options[@]}" --bind="$WORK" "$@"
}

build() {
    if [[ $SUITE == "$(here)" ]]; then
        install_packages "${BUILD_PACKAGES[@]}"
        run_build
    else
        make_tree
        run_build in_tree
    fi
}

# release SUITE: its other columns in devstack/releases.
release() {
    awk -v suite="$1" '$1 == suite { print $2, $3, $4, $5, $6 }' "$TOP/devstack/releases"
}

# here: the suite of this machine.
here() {
    (source /etc/os-release && echo "${VERSION_CODENAME:-}")
}

find_version() {
    make_venv "$WORK/tools"
    "$WORK/tools/bin/pip" install --quiet --require-hashes -r "$TOP/devstack/requirements/build.txt"
    checkout_version "$WORK/tools" >"$WORK/version"
}

need_root
SUITE=$(here)
directory=
while (($#)); do
    case $1 in
    --suite)
        (($# > 1)) || usage
        SUITE=$2
        shift
        ;;
    -*) usage ;;
    *)
        [[ -z $directory ]] || usage
        directory=$1
        ;;
    esac
    shift
done
[[ -n $directory ]] || usage
read -r MARK MIRROR COMPONENTS KEYRING_NAME SCRIPT < <(release "$SUITE") ||
    die "--suite $SUITE: must be one of $(awk '!/^#/ { print $1 }' "$TOP/devstack/releases" | xargs)."
KEYRING=${KEYRING:-/usr/share/keyrings/$KEYRING_NAME.gpg}
[[ $SUITE == "$(here)" || -r $KEYRING ]] ||
    die "$KEYRING is missing: copy that file from a machine with $SUITE, or name it by KEYRING."
directory=$(cd "$OLDPWD" && realpath "$directory")

WORK=$(mktemp --directory /var/tmp/nova-lite-packages.XXXXXX)
trap 'remove_tree "$WORK"' EXIT
chmod 0755 "$WORK"
LOG=$WORK/build.log
install -d "$directory" "$WORK/sources"
VERSION=${SETUPTOOLS_SCM_PRETEND_VERSION_FOR_NOVA_LITE:-}
if [[ -z $VERSION ]]; then
    step "Finding the version" find_version
    VERSION=$(cat "$WORK/version")
fi
step "Copying the sources of $VERSION" write_sources "$WORK/sources"
step "Building for $SUITE (log: $LOG)" build
cp "$WORK"/*.deb "$directory"
for name in "$WORK"/*.deb; do
    say "$directory/$(basename "$name")"
done
