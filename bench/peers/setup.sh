#!/bin/sh
# Creates Python environments of the benchmarks, by default those of `--only peers`: VENV_DIR/reverb, VENV_DIR/trees, and
# VENV_DIR/quiver for Quiver's client. The benchmarks of the learner need VENV_DIR/torch alone.
# The peers need two because dm-reverb requires tensorflow 2.15 with an old numpy and torchrl a recent torch.
# An existing environment with the same versions is kept.
set -eu

[ $# -ge 1 ] || { echo "usage: $0 VENV_DIR [reverb] [trees] [quiver] [torch]" >&2; exit 2; }
mkdir -p "$1"
root=$(cd "$1" && pwd)
python=${PYTHON:-python3}
shift
[ $# -gt 0 ] || set -- reverb trees quiver

# needs_python WHAT LOW HIGH: that a version of Python 3 with wheels of WHAT is at hand.
needs_python() {
    "$python" -c "import sys; sys.exit(not (3, $2) <= sys.version_info[:2] <= (3, $3))" || {
        echo "peers: $python is $("$python" -V 2>&1); $1 needs 3.$2 to 3.$3 (set PYTHON)" >&2
        exit 1
    }
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

for name; do
    case $name in
        reverb)
            needs_python 'dm-reverb 0.14.0' 9 11
            install reverb dm-reverb==0.14.0 tensorflow-cpu==2.15.1 'numpy<2' 'setuptools<80'
            ;;
        trees) install trees cpprb==11.0.0 torchrl==0.14.0 torch==2.14.1 'numpy<2' ;;
        quiver)
            install quiver numpy
            # Quiver's client is reinstalled each time because it may have changed.
            pip_install quiver --no-deps --force-reinstall "$(dirname "$0")/../../clients/python"
            ;;
        torch)
            needs_python 'torch 2.13.0' 10 14
            install torch torch==2.13.0 numpy ale-py==0.12.1 opencv-python-headless==5.0.0.93
            ;;
        *) echo "peers: there is no environment '$name'" >&2; exit 2 ;;
    esac
done
