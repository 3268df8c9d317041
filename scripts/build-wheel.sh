#!/usr/bin/env bash
# Makes a wheel of the module for Python that brings libginnel.so along, for `pip install` into any
# Python 3: scripts/build-wheel.sh TO. setuptools comes from PyPI, unless OFFLINE is set.
#   TO        a folder that is to have the wheel
#   LIBRARY   the library, for instance target/portable/libginnel.so (scripts/portable.sh); by default
#             it is built, and serves this machine's C library and later ones
#   PLATFORM  what that is for, in pip's words: manylinux_2_17_x86_64 for the portable one; by default
#             linux and this processor
#   PYTHON    the interpreter by which it is made: python3 by default
#   OFFLINE   set: by the setuptools and wheel that are installed for that interpreter (Debian's
#             python3-setuptools and python3-wheel), without a network
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

[[ $# -eq 1 ]] || { echo "usage: $0 TO" >&2; exit 2; }
mkdir -p "$1"
to=$(realpath "$1")
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cp -r crates/capi/python "$work/python"
rm -rf "$work"/python/{build,*.egg-info} "$work/python/ginnel/__pycache__"
library=${LIBRARY:-}
if [[ -z $library ]]; then
    scripts/build-capi.sh "$work/capi"
    library=$work/capi/lib/libginnel.so.0
fi
install -m 755 "$library" "$work/python/ginnel/libginnel.so.0"
python=${PYTHON:-python3}
"$python" -m venv ${OFFLINE:+--system-site-packages} "$work/venv" ||
    { echo "$python cannot make a virtual environment: install python3-venv" >&2; exit 1; }
rm -f "$to"/ginnel-*.whl
GINNEL_WHEEL_PLATFORM=${PLATFORM:-linux_$(uname -m)} "$work/venv/bin/pip" wheel --quiet \
    ${OFFLINE:+--no-index --no-build-isolation} \
    --disable-pip-version-check --no-deps --wheel-dir "$to" "$work/python"
ls "$to"/ginnel-*.whl
