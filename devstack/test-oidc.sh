#!/bin/bash
# Test log-ins by a real OpenID Connect provider (oidc-provider for Node.js), as root. It takes a minute beside the
# installation, and stacks nothing.
source "$(dirname "$(readlink -f "${BASH_SOURCE[0]}")")/lib/common.sh"
no_arguments "$@"
for component in packages python libvirt testing; do
    source "$TOP/devstack/lib/$component.sh"
done

need_root
LOG=$(mktemp /tmp/nova-lite-test.XXXXXX.log)
NOVA_LITE_OIDC_PROVIDER=$(mktemp --directory)
export NOVA_LITE_OIDC_PROVIDER
trap 'remove_tree "$NOVA_LITE_OIDC_PROVIDER"' EXIT

install_provider() {
    install_node
    cp "$TOP"/tests/integration/oidc/{package.json,package-lock.json,provider.mjs} "$NOVA_LITE_OIDC_PROVIDER"
    npm --prefix "$NOVA_LITE_OIDC_PROVIDER" ci --no-audit --no-fund
}

say "Testing $TOP with an OpenID Connect provider (preparations are logged in $LOG)"
step "Installing packages and the test environment" prepare_tests
step "Installing the provider" install_provider
cd "$TOP" || exit
export PATH=$TEST_VENV/bin:$PATH
run_tests tests/integration/oidc || die "failed after $(clock)."
say "All of it passed."
