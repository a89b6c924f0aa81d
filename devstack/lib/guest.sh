# The guest image that is built here: devstack/guest/build.sh makes its files. Sourced, never run.

GUEST=$PREFIX/guest
KERNEL_PACKAGE=linux-image-cloud-amd64

# A kernel for guests need not be one that this machine might boot: unless it is installed anyway, its package is
# only unpacked, under $GUEST/kernel.
fetch_kernel() {
    local package
    ! compgen -G '/boot/vmlinuz-*-cloud-amd64' >/dev/null || return 0
    ! compgen -G "$GUEST/kernel/boot/vmlinuz-*" >/dev/null || return 0
    [[ -n $(apt-cache pkgnames "$KERNEL_PACKAGE") ]] || apt_get update
    package=$(apt-cache depends --important "$KERNEL_PACKAGE" | sed -n 's/^  Depends: //p' | head -n 1)
    [[ -n $package ]] || die "the package $KERNEL_PACKAGE, for the guest's kernel, is not to be had here."
    rm -rf "$GUEST/download" "$GUEST/kernel.new"
    install -d "$GUEST/download"
    (cd "$GUEST/download" && apt_get -o APT::Sandbox::User=root download "$package")
    dpkg-deb --extract "$GUEST"/download/*.deb "$GUEST/kernel.new"
    mv "$GUEST/kernel.new" "$GUEST/kernel"
    rm -rf "$GUEST/download"
}

build_guest() {
    fetch_kernel
    if compgen -G "$GUEST/kernel/boot/vmlinuz-*" >/dev/null; then
        export KERNEL_ROOT=$GUEST/kernel
    fi
    "$TOP/devstack/guest/build.sh" "$GUEST/image"
}
