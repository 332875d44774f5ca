#!/bin/sh
# Creates the Python environments of the peer benchmarks: VENV_DIR/reverb, VENV_DIR/trees, and VENV_DIR/quiver for Quiver's
# client.
# The peers need two because dm-reverb requires tensorflow 2.15 with an old numpy and torchrl a recent torch.
# An existing environment with the same versions is kept.
set -eu

[ $# -eq 1 ] || { echo "usage: $0 VENV_DIR" >&2; exit 2; }
mkdir -p "$1"
root=$(cd "$1" && pwd)
python=${PYTHON:-python3}

# dm-reverb 0.14.0 has wheels for Python 3.8 to 3.11.
"$python" -c 'import sys; sys.exit(not (3, 9) <= sys.version_info[:2] <= (3, 11))' || {
    echo "peers: $python is $("$python" -V 2>&1); dm-reverb 0.14.0 needs 3.9 to 3.11 (set PYTHON)" >&2
    exit 1
}

# pip_install NAME ARGUMENT...: into the environment of that name. Without ensurepip the machine's pip does it.
pip_install() {
    name=$1
    shift
    log=$root/$name.log
    if [ -e "$root/$name/bin/pip" ]; then
        set -- "$root/$name/bin/python" -m pip install "$@"
    else
        set -- "$python" -m pip --python "$root/$name/bin/python" install "$@"
    fi
    if ! PIP_DISABLE_PIP_VERSION_CHECK=1 "$@" >"$log" 2>&1; then
        tail -n 20 "$log" >&2
        echo "peers: pip could not install $name; the complete log is in $log" >&2
        exit 1
    fi
}

# install NAME REQUIREMENT...: an environment with exactly these requirements.
install() {
    name=$1
    shift
    dir=$root/$name
    wanted=$("$python" -V 2>&1; printf '%s\n' "$@")
    if [ -f "$dir/.installed" ] && [ "$(cat "$dir/.installed")" = "$wanted" ]; then
        return
    fi
    echo "peers: installing $name into $dir" >&2
    rm -rf "$dir"
    "$python" -m venv "$dir" 2>/dev/null || "$python" -m venv --without-pip "$dir"
    pip_install "$name" "$@"
    printf '%s\n' "$wanted" >"$dir/.installed"
}

install reverb dm-reverb==0.14.0 tensorflow-cpu==2.15.1 'numpy<2' 'setuptools<80'
install trees cpprb==11.0.0 torchrl==0.14.0 torch==2.14.1 'numpy<2'
install quiver numpy
# Quiver's client is reinstalled each time because it may have changed.
pip_install quiver --no-deps --force-reinstall "$(dirname "$0")/../../clients/python"
