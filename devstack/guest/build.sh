#!/bin/bash
# Build the test guest: a Debian cloud kernel with a busybox initramfs, in two forms.
#
#   build.sh [OUTPUT_DIR]        (default /var/lib/nova-lite/guest)
#
#   vmlinuz, initrd.img, root.img, cmdline   AMI style: kernel, ramdisk, an (empty) machine image, and the kernel's
#                                            command line for the image property os_command_line
#   disk.qcow2                               the same kernel and initramfs on a disk that a BIOS boots
#
# With ARCHITECTURE=aarch64 the guest is for that architecture, whose kernel is in $KERNEL_ROOT and whose busybox is $BUSYBOX;
# its disk is booted by UEFI.
#
# The kernel is the newest one in $KERNEL_ROOT, where a kernel's packages were unpacked; without KERNEL_ROOT it is
# the linux-image-cloud-amd64 of this machine. Besides it needs busybox-static, cpio, qemu-utils, syslinux and mtools (and
# zstd or xz if modules are compressed), but neither root's rights nor loop devices.
# Everything is built aside and moved into place at the end; unchanged inputs are not built again.
set -euo pipefail

here=$(dirname "$(readlink -f "$0")")
out=${1:-/var/lib/nova-lite/guest}
kernel_root=${KERNEL_ROOT:-}

die() {
    echo "build.sh: $*" >&2
    exit 1
}

for tool in busybox cpio qemu-img syslinux mformat mcopy mmd; do
    command -v "$tool" >/dev/null || die "$tool is not installed (packages: busybox-static cpio qemu-utils syslinux mtools)"
done
architecture=${ARCHITECTURE:-x86_64}
busybox=${BUSYBOX:-$(command -v busybox)}
flavour=${KERNEL_ROOT:+*}
kernel=$(ls -1v "$kernel_root"/boot/vmlinuz-*${flavour:-cloud-amd64} 2>/dev/null | tail -n 1 || true)
[ -n "$kernel" ] || die "no kernel for guests in $kernel_root/boot (package: linux-image-cloud-amd64)"
release=${kernel#"$kernel_root"/boot/vmlinuz-}
# Unpacked packages of newer releases have no /lib.
drivers=$(ls -1d "$kernel_root"{,/usr}"/lib/modules/$release/kernel" 2>/dev/null | head -n 1 || true)
[ -n "$drivers" ] || die "no modules of $release in $kernel_root"
mbr=$(ls /usr/lib/SYSLINUX/mbr.bin /usr/lib/syslinux/mbr/mbr.bin 2>/dev/null | head -n 1 || true)
[ -n "$mbr" ] || die "syslinux's mbr.bin is not installed (package: syslinux-common)"

# What init loads, in the order of dependence.
modules="
    drivers/virtio/virtio_ring drivers/virtio/virtio net/core/failover drivers/net/net_failover drivers/net/virtio_net
    drivers/virtio/virtio_pci_modern_dev drivers/virtio/virtio_pci_legacy_dev drivers/virtio/virtio_pci
    drivers/block/virtio_blk drivers/virtio/virtio_balloon drivers/virtio/virtio_mem drivers/char/hw_random/virtio-rng
    drivers/acpi/button drivers/input/evdev drivers/misc/pvpanic/pvpanic drivers/misc/pvpanic/pvpanic-mmio
    drivers/cdrom/cdrom drivers/scsi/scsi_common drivers/scsi/scsi_mod drivers/scsi/sr_mod
    drivers/scsi/virtio_scsi drivers/scsi/sd_mod drivers/net/vmxnet3/vmxnet3
    drivers/ata/libata drivers/ata/ata_piix fs/isofs/isofs
    fs/fuse/fuse fs/fuse/virtiofs
"
console=ttyS0
[ "$architecture" = x86_64 ] || console=ttyAMA0
cmdline="console=$console quiet panic=5 no_timer_check mitigations=off nokaslr"

fingerprint=$({
    cat "$here/build.sh" "$here/init" "$here/dhcp" "$busybox"
    echo "$release $architecture"
    sha256sum "$kernel"
} | sha256sum | cut -d' ' -f1)
if [ "$(cat "$out/.fingerprint" 2>/dev/null)" = "$fingerprint" ]; then
    echo "The guest image in $out is up to date."
    exit 0
fi

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
root=$work/root
mkdir -p "$root"/{bin,lib,dev,proc,sys,run,config,etc,tmp}
ln -s ../run/resolv.conf "$root/etc/resolv.conf"
cp "$busybox" "$root/bin/busybox"
for applet in $(busybox --list); do
    [ "$applet" = busybox ] || ln -s busybox "$root/bin/$applet"
done
for module in $modules; do
    # Some are built into other releases' kernels, and some releases compress them.
    target=$root/lib/${module##*/}.ko
    if [ -e "$drivers/$module.ko" ]; then
        cp "$drivers/$module.ko" "$target"
    elif [ -e "$drivers/$module.ko.zst" ]; then
        zstd --quiet --decompress "$drivers/$module.ko.zst" -o "$target"
    elif [ -e "$drivers/$module.ko.xz" ]; then
        xz --decompress --stdout "$drivers/$module.ko.xz" >"$target"
    fi
done
install -m 755 "$here/init" "$root/init"
install -m 755 "$here/dhcp" "$root/lib/dhcp"
find "$root" -exec touch -h -d @0 {} +
(cd "$root" && find . -print0 | LC_ALL=C sort -z | cpio --null --quiet --create --format=newc --owner=0:0 --reproducible) \
    >"$work/initrd.img"
cp "$kernel" "$work/vmlinuz"
echo "$cmdline" >"$work/cmdline"
truncate -s 1M "$work/root.img"

# One FAT partition from sector 2048 on, made active in a hand-written partition table.
sectors=65536
start=2048
partition="$work/disk.raw@@$((start * 512))"
truncate -s $(((start + sectors) * 512)) "$work/disk.raw"
dd if="$mbr" of="$work/disk.raw" conv=notrunc bs=440 count=1 status=none
le32() { printf '\\x%02x\\x%02x\\x%02x\\x%02x' $(($1 & 255)) $(($1 >> 8 & 255)) $(($1 >> 16 & 255)) $(($1 >> 24 & 255)); }
printf "\\x80\\xfe\\xff\\xff\\x0e\\xfe\\xff\\xff$(le32 $start)$(le32 $sectors)" |
    dd of="$work/disk.raw" conv=notrunc bs=1 seek=446 status=none
printf '\x55\xaa' | dd of="$work/disk.raw" conv=notrunc bs=1 seek=510 status=none
mformat -i "$partition" -T $sectors -h 255 -s 63 -H $start -c 8 -v NOVALITE ::
if [ "$architecture" = x86_64 ]; then
    cat >"$work/syslinux.cfg" <<CONFIG
DEFAULT guest
PROMPT 0
TIMEOUT 0
LABEL guest
  KERNEL /vmlinuz
  INITRD /initrd.img
  APPEND $cmdline
CONFIG
    mcopy -i "$partition" "$work/vmlinuz" "$work/initrd.img" "$work/syslinux.cfg" ::/
    syslinux --install --offset $((start * 512)) "$work/disk.raw"
else
    # UEFI's shell starts the kernel, which is a program of UEFI.
    echo "vmlinuz initrd=\\initrd.img $cmdline" >"$work/startup.nsh"
    mcopy -i "$partition" "$work/vmlinuz" "$work/initrd.img" "$work/startup.nsh" ::/
fi
qemu-img convert -q -f raw -O qcow2 "$work/disk.raw" "$work/disk.qcow2"

mkdir -p "$out"
rm -f "$out/.fingerprint"
for file in vmlinuz initrd.img root.img cmdline disk.qcow2; do
    cp "$work/$file" "$out/.$file.new"
    chmod 644 "$out/.$file.new"
    mv "$out/.$file.new" "$out/$file"
done
echo "$fingerprint" >"$out/.fingerprint"
echo "Built the guest image in $out (kernel $release)."
