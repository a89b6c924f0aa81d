#!/bin/bash
# Build an image of a whole Debian or Ubuntu with the real cloud-init and an SSH server, as root:
#
#   cloud-image.sh [OUTPUT_DIR]        (default /opt/nova-lite/guest/cloud-image)
#
#   vmlinuz, initrd.img, root.img, cmdline   AMI style: kernel, ramdisk, a machine image of one ext4 file system, and the
#                                            kernel's command line for the image property os_command_line
#
# The system is this machine's own release, from its own package sources; nobody's key or password is in it. It takes some
# minutes and 1 GiB, and is built once: remove the directory to have it built anew. Needs debootstrap, e2fsprogs and gpg.
set -euo pipefail

out=${1:-/opt/nova-lite/guest/cloud-image}
size=1536M

die() {
    echo "cloud-image.sh: $*" >&2
    exit 1
}

((EUID == 0)) || die "run this as root."
for tool in debootstrap mke2fs; do
    command -v "$tool" >/dev/null || die "$tool is not installed (packages: debootstrap e2fsprogs)"
done
source /etc/os-release
case $ID in
debian) kernel=linux-image-cloud-amd64 components=main ;;
ubuntu) kernel=linux-image-virtual components=main,universe ;;
*) die "$ID is neither Debian nor Ubuntu." ;;
esac
mirror=${MIRROR:-$(apt-get indextargets --format '$(SITE)' 'Created-By: Packages' | grep -v security | head -n 1)}
[[ -n $mirror ]] || die "this machine has no package sources; name one as MIRROR."
fingerprint=$(sha256sum "$(readlink -f "${BASH_SOURCE[0]}")" | cut -d' ' -f1)-$VERSION_CODENAME
if [[ $(cat "$out/.fingerprint" 2>/dev/null) == "$fingerprint" ]]; then
    echo "The image in $out is up to date."
    exit 0
fi

mkdir -p "$out"
rm -f "$out/.fingerprint"
work=$(mktemp -d "$out/.build-XXXXXX")
trap 'umount --lazy "$work/root/proc" 2>/dev/null || true; rm -rf --one-file-system "$work"' EXIT
root=$work/root

debootstrap --variant=minbase --components="$components" "$VERSION_CODENAME" "$root" "$mirror" >&2
# apt knows what debootstrap does not: packages that others stand for. Nothing is started here, and the kernel's initial
# file system has the drivers of all machines, as it is to boot on another one.
mount -t proc proc "$root/proc"
cp -L /etc/resolv.conf "$root/etc/resolv.conf"
printf '#!/bin/sh\nexit 101\n' >"$root/usr/sbin/policy-rc.d"
chmod 755 "$root/usr/sbin/policy-rc.d"
echo 'Acquire::Languages "none";' >"$root/etc/apt/apt.conf.d/90languages"
chroot "$root" env -i DEBIAN_FRONTEND=noninteractive LANG=C.UTF-8 PATH=/usr/sbin:/usr/bin:/sbin:/bin \
    apt-get --quiet --yes --no-install-recommends install systemd-sysv dbus udev ifupdown isc-dhcp-client iproute2 \
    openssh-server sudo cloud-init initramfs-tools zstd e2fsprogs "$kernel" >&2
umount "$root/proc"

# A clone makes its own host keys and machine id.
rm -f "$root"/etc/ssh/ssh_host_* "$root/usr/sbin/policy-rc.d" "$root/etc/resolv.conf"
: >"$root/etc/machine-id"
echo "/dev/vda / ext4 defaults 0 1" >"$root/etc/fstab"
printf 'auto lo\niface lo inet loopback\nsource /etc/network/interfaces.d/*\n' >"$root/etc/network/interfaces"
echo "locale: false" >"$root/etc/cloud/cloud.cfg.d/50-image.cfg" # it has none but C.UTF-8
rm -rf "$root"/var/cache/apt/*.bin "$root"/var/cache/apt/archives/*.deb "$root"/var/lib/apt/lists/*

cp -L "$root/vmlinuz" "$work/vmlinuz" 2>/dev/null || cp -L "$root/boot/vmlinuz" "$work/vmlinuz"
cp -L "$root/initrd.img" "$work/initrd.img" 2>/dev/null || cp -L "$root/boot/initrd.img" "$work/initrd.img"
echo "root=/dev/vda ro console=ttyS0 net.ifnames=0 mitigations=off" >"$work/cmdline"
truncate -s "$size" "$work/root.img"
mke2fs -q -t ext4 -L cloudimg-rootfs -d "$root" "$work/root.img"
for file in vmlinuz initrd.img root.img cmdline; do
    chmod 644 "$work/$file"
    mv "$work/$file" "$out/$file"
done
echo "$fingerprint" >"$out/.fingerprint"
echo "Built the image of $PRETTY_NAME in $out."
