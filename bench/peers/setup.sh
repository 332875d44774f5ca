#!/bin/sh
# Makes the Python environments of the peer benchmarks: VENV_DIR/reverb and VENV_DIR/trees.
# They are two because dm-reverb wants tensorflow 2.15 with an old numpy and torchrl a recent torch.
# What is already there with the same versions is left alone.
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

# install NAME REQUIREMENT...: an environment with exactly these requirements.
install() {
    name=$1
    shift
    dir=$root/$name
    stamp=$dir/.installed
    wanted=$("$python" -V 2>&1; printf '%s\n' "$@")
    if [ -f "$stamp" ] && [ "$(cat "$stamp")" = "$wanted" ]; then
        return
    fi
    echo "peers: installing $name into $dir" >&2
    rm -rf "$dir"
    log=$root/$name.log
    if "$python" -c 'import ensurepip' 2>/dev/null; then
        "$python" -m venv "$dir"
        set -- "$dir/bin/python" -m pip install "$@"
    else
        # No ensurepip: the pip of the machine installs into an environment that has none.
        "$python" -m venv --without-pip "$dir"
        set -- "$python" -m pip --python "$dir/bin/python" install "$@"
    fi
    if ! PIP_DISABLE_PIP_VERSION_CHECK=1 "$@" >"$log" 2>&1; then
        tail -n 20 "$log" >&2
        echo "peers: pip could not install $name; the whole log is $log" >&2
        exit 1
    fi
    printf '%s\n' "$wanted" >"$stamp"
}

install reverb dm-reverb==0.14.0 tensorflow-cpu==2.15.1 'numpy<2' 'setuptools<80'
install trees cpprb==11.0.0 torchrl==0.14.0 torch==2.14.1 'numpy<2'
