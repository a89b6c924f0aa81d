# The guest image that is built here: devstack/guest/build.sh makes its files. Sourced, never run.

GUEST=$PREFIX/guest
# Debian's kernel for guests, and Ubuntu's.
KERNEL_PACKAGES=(linux-image-cloud-amd64 linux-image-virtual)

# A kernel for guests need not be one that this machine might boot: unless it is installed anyway, its packages are
# only unpacked, under $GUEST/kernel.
fetch_kernel() {
    local image modules deb
    ! compgen -G '/boot/vmlinuz-*-cloud-amd64' >/dev/null || return 0
    ! compgen -G "$GUEST/kernel/boot/vmlinuz-*" >/dev/null || return 0
    image=$(kernel_image_package)
    if [[ -z $image ]]; then
        apt_get update
        image=$(kernel_image_package)
    fi
    [[ -n $image ]] || die "there is no package of a kernel for guests here (looked for ${KERNEL_PACKAGES[*]})."
    # Debian's modules are in the same package, Ubuntu's in one of their own.
    modules=$(apt-cache pkgnames "${image/linux-image/linux-modules}" | grep -x "${image/linux-image/linux-modules}" || true)
    remove_tree "$GUEST/download" "$GUEST/kernel.new"
    install -d "$GUEST/download"
    (cd "$GUEST/download" && apt_get -o APT::Sandbox::User=root download "$image" $modules)
    for deb in "$GUEST"/download/*.deb; do
        dpkg-deb --extract "$deb" "$GUEST/kernel.new"
    done
    mv "$GUEST/kernel.new" "$GUEST/kernel"
    remove_tree "$GUEST/download"
}

# The package with a release in its name that the first known one of KERNEL_PACKAGES stands for; nothing if none is known.
kernel_image_package() {
    local package image
    for package in "${KERNEL_PACKAGES[@]}"; do
        image=$(apt-cache depends --important "$package" 2>/dev/null | sed -n 's/^  Depends: \(linux-image-.*\)/\1/p') || continue
        [[ -n $image ]] || continue
        echo "$image"
        return
    done
}

# The kernel and the busybox of another architecture (arm64) in $GUEST/$1. apt has lists of its own for it, so this machine
# gets no foreign packages.
fetch_parts_of() {
    local architecture=$1 lists=$GUEST/lists-$1 options image deb
    ! compgen -G "$GUEST/$architecture/boot/vmlinuz-*" >/dev/null || return 0
    options=(-o APT::Sandbox::User=root -o Dir::State::Lists="$lists" -o Dir::State::status=/dev/null
        -o Dir::Cache="$lists/cache" -o APT::Architecture="$architecture" -o APT::Architectures="$architecture")
    remove_tree "$lists" "$GUEST/$architecture.new"
    install -d "$lists/partial" "$lists/cache/archives/partial"
    apt_get "${options[@]}" update
    image=$(apt-cache "${options[@]}" depends --important "linux-image-cloud-$architecture" | sed -n 's/^  Depends: \(linux-image-.*\)/\1/p')
    [[ -n $image ]] || die "there is no package of a kernel for guests of $architecture here."
    (cd "$lists" && apt_get "${options[@]}" download "$image" busybox-static)
    for deb in "$lists"/*.deb; do
        dpkg-deb --extract "$deb" "$GUEST/$architecture.new"
    done
    mv "$GUEST/$architecture.new" "$GUEST/$architecture"
    remove_tree "$lists"
}

build_guest() {
    fetch_kernel
    if compgen -G "$GUEST/kernel/boot/vmlinuz-*" >/dev/null; then
        export KERNEL_ROOT=$GUEST/kernel
    fi
    "$TOP/devstack/guest/build.sh" "$GUEST/image"
}
