#!/bin/bash
# Build the web page from its sources, and test it in headless Chromium against clouds of `nova-lite dev`:
#
#   page.sh [--screenshots DIRECTORY] [--build | --firefox | --real]
#
# It checks types, style, accessibility rules and pure functions, as the stage lint does, compares a fresh build with the
# files in nova_lite/api/page/static, and runs the tests of the page, with accessibility (axe-core) and 1,000 servers.
# --build replaces the files in the repository by the fresh build, and tests nothing. --firefox drives the journeys in
# Debian's Firefox (package firefox-esr) instead. --real, as root, makes this machine a cloud of two hosts, and takes the
# journeys of a newcomer and of an operator with its real guests. --screenshots also saves pictures of each view. It
# installs nodejs and npm if they are missing. It needs chromium and the checkout's .venv, which devstack/test.sh makes,
# or another Python as PYTHON.
set -eu
TOP=$(dirname "$(dirname "$(readlink -f "${BASH_SOURCE[0]}")")")

build="" shots="" browser="" real=""
while (($#)); do
    case $1 in
    --build) build=1 ;;
    --firefox) browser=firefox-esr ;;
    --real) real=1 ;;
    --screenshots)
        (($# > 1)) || { echo "--screenshots needs a directory." >&2 && exit 2; }
        shots=$(realpath -m "$2")
        shift
        ;;
    *)
        sed -n '2,12s/^# \{0,1\}//p' "$TOP/devstack/page.sh" >&2
        exit 2
        ;;
    esac
    shift
done

for component in common packages testing; do
    source "$TOP/devstack/lib/$component.sh"
done
cd "$TOP"
export PYTHON=${PYTHON:-$TOP/.venv/bin/python} NOVA_LITE_LONG=1 NOVA_LITE_SCREENSHOTS=$shots
if [[ -n $browser ]]; then
    command -v "$browser" >/dev/null || { echo "$browser is not installed: apt-get install $browser" >&2 && exit 1; }
    NOVA_LITE_BROWSER=$browser exec "$PYTHON" -m pytest -q tests/functional/test_page.py
fi
if [[ -n $real ]]; then
    need_root
    is_stacked || export COMPUTES=${COMPUTES:-2}
    test_stacked "$PYTHON" -m pytest -q tests/integration/cloud/test_page.py
    exit
fi

install_page_tools
cd "$TOP/tools/page"
npm run check
if [[ -n $build ]]; then
    npm run build
    exit
fi
fresh=$(mktemp -d)
trap 'rm -rf "$fresh"' EXIT
node build.mjs "$fresh"
diff -r "$fresh" "$TOP/nova_lite/api/page/static" ||
    { echo "The built files are not those of the sources: run devstack/page.sh --build." >&2 && exit 1; }

cd "$TOP"
export NOVA_LITE_AXE=$TOP/tools/page/node_modules/axe-core/axe.min.js
"$PYTHON" -m pytest -q tests/unit/api/page tests/functional/test_page.py tests/functional/test_page_quality.py
