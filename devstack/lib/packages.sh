# Debian and Ubuntu packages. Sourced, never run.

# For the virtual environment (the Python bindings of libvirt and MariaDB are compiled) and the scripts themselves.
BASE_PACKAGES=(ca-certificates curl gcc git iproute2 libc6-dev libmariadb-dev libvirt-dev logrotate pkg-config procps python3 python3-dev
    python3-venv rabbitmq-server util-linux)
LIBVIRT_PACKAGES=(dnsmasq-base dnsmasq-utils e2fsprogs iptables libvirt-clients libvirt-daemon-system nftables ovmf
    qemu-system-x86 qemu-utils swtpm swtpm-tools)
# noVNC's pages, for consoles.
CONSOLE_PACKAGES=(novnc)
# With SPICE=yes: the pages of its client, and qemu's SPICE, which is in a package of its own after Debian 12.
SPICE_PACKAGES=(spice-html5)
[[ $(source /etc/os-release && echo "${VERSION_ID-}") == 12 ]] || SPICE_PACKAGES+=(qemu-system-modules-spice)
# What devstack/guest/build.sh needs, except for a kernel (see guest.sh).
GUEST_PACKAGES=(busybox-static cpio mtools qemu-utils syslinux syslinux-common xz-utils zstd)

# For VOLUMES=rbd and VOLUMES=cinder: a Ceph of one node, its Python bindings, and qemu's way to open its images.
CEPH_PACKAGES=(ceph-common ceph-mgr ceph-mon ceph-osd python3-rados python3-rbd qemu-block-extra uuid-runtime)

database_packages() {
    case $1 in
    mariadb) echo mariadb-server ;;
    postgresql) echo postgresql ;;
    esac
}

missing_packages() {
    local package
    for package; do
        dpkg-query --show --showformat='${db:Status-Abbrev}' "$package" 2>/dev/null | grep '^.i' >/dev/null || echo "$package"
    done
}

# Install those of the named packages that are missing. Services may be kept from starting by the machine's policy
# (policy-rc.d): each component starts its own afterwards.
install_packages() {
    local missing
    mapfile -t missing < <(missing_packages "$@")
    if ((${#missing[@]} == 0)); then
        echo "All packages are installed."
        return
    fi
    apt_get update
    apt_get install --yes --no-install-recommends "${missing[@]}"
}

# Packages of Node.js from elsewhere bring npm, and conflict with the distribution's.
install_node() {
    command -v node >/dev/null || install_packages nodejs
    command -v npm >/dev/null || install_packages npm
}

apt_get() {
    DEBIAN_FRONTEND=noninteractive NEEDRESTART_MODE=l apt-get --quiet -o DPkg::Lock::Timeout=300 \
        -o Dpkg::Options::=--force-confdef -o Dpkg::Options::=--force-confold -o Dpkg::Use-Pty=0 "$@"
}

require_supported_system() {
    command -v apt-get >/dev/null || die "this needs Debian 12 or later, or Ubuntu 24.04 or later (no apt-get here)."
    [[ $(uname -m) == x86_64 ]] || die "this needs an x86_64 machine (this one is $(uname -m))."
}
