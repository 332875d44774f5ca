#!/usr/bin/env bash
# Runs check.py with its schemas, and with Debian's kustomize if this machine has none.
set -euo pipefail
cd "$(dirname "$0")"
# Not a virtual environment, which Debian packages apart from Python.
packages=../../target/kubernetes/$(sha256sum requirements.txt | cut -c1-12)
if [ ! -d "$packages" ]; then
    rm -rf "$packages.part"
    python3 -m pip install --quiet --disable-pip-version-check --target "$packages.part" -r requirements.txt
    mv "$packages.part" "$packages"
fi
if ! command -v kustomize >/dev/null && ! command -v kubectl >/dev/null; then
    PATH=$(cd ../compose && python3 -c 'import tools; print(tools.unpacked())' | tail -n 1)/usr/bin:$PATH
fi
PYTHONPATH=$packages exec python3 check.py
