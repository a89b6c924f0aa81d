#!/bin/bash
# Sends a running cloud requests made from its own OpenAPI document, and says which answers contradict it or are 5xx
# (501 is an answer: a part of the API that is not there).
#
#   NOVA_LITE_TOKEN=TOKEN fuzz.sh URL [--max-examples N] [--seed N] [any other option of "schemathesis run"]
#
# URL is where the compute API is, as http://127.0.0.1:8774. It changes and deletes what the token may: not for a cloud
# that is needed. N requests are sent to each operation and, besides, those that go to the limits of every schema.
# Schemathesis gets a venv of its own, .venv-fuzz. No root needed.
source "$(dirname "$(readlink -f "${BASH_SOURCE[0]}")")/lib/common.sh"
source "$TOP/devstack/lib/python.sh"

FUZZ_VENV=$TOP/.venv-fuzz

[[ $# -ge 1 && $1 == http*://* ]] || die "usage: NOVA_LITE_TOKEN=TOKEN fuzz.sh URL [options]"
[[ -n ${NOVA_LITE_TOKEN-} ]] || die "NOVA_LITE_TOKEN is not set. Try: openstack --os-cloud $CLOUD token issue -f value -c id"
export NOVA_LITE_TOKEN
export NOVA_LITE_URL=${1%/}
shift

if [[ ! -x $FUZZ_VENV/bin/schemathesis ]]; then
    make_venv "$FUZZ_VENV"
    "$FUZZ_VENV/bin/pip" install --quiet 'schemathesis>=4.30'
fi
cd "$FUZZ_VENV" || die "no venv at $FUZZ_VENV" # where schemathesis leaves what it remembers
export PYTHONPATH=$TOP/devstack/lib PYTHONDONTWRITEBYTECODE=1 SCHEMATHESIS_HOOKS=fuzzing
exec "$FUZZ_VENV/bin/schemathesis" --config-file "$TOP/devstack/lib/fuzzing.toml" run \
    "$NOVA_LITE_URL/openapi.json" --url "$NOVA_LITE_URL/v2.1" --phases coverage,fuzzing --continue-on-failure \
    --checks not_a_server_error,status_code_conformance,content_type_conformance,response_schema_conformance \
    --suppress-health-check all --warnings off --no-shrink "$@"
