#!/usr/bin/env bash
# Runs check.py with its schemas, and with Debian's kustomize if this machine has none.
set -euo pipefail
cd "$(dirname "$0")"
venv=../../target/kubernetes
[ -x $venv/bin/python ] || python3 -m venv $venv
$venv/bin/pip install --quiet --disable-pip-version-check -r requirements.txt
if ! command -v kustomize >/dev/null && ! command -v kubectl >/dev/null; then
    PATH=$(cd ../compose && python3 -c 'import tools; print(tools.unpacked())' | tail -n 1)/usr/bin:$PATH
fi
exec $venv/bin/python check.py
