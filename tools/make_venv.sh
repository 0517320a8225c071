#!/usr/bin/env bash
# Usage: make_venv.sh FOLDER EXTRA...
#        make_venv.sh FOLDER -r FILE -r FILE ...
# Makes the virtual environment FOLDER, or mends it, and installs this project into it, editable, with the extras; or
# the pins of the requirements files, these and nothing else. PYTHON chooses the interpreter. Uses uv where it is on PATH, else venv and pip.
set -euo pipefail
cd "$(dirname "$0")/.."
venv=$1
shift
extras=$(IFS=,; echo "$*")

recent_enough() { "$1" -c 'import sys; sys.exit(sys.version_info < (3, 11))' >/dev/null 2>&1; }

find_python() {
    local candidate
    if [ -n "${PYTHON:-}" ]; then
        recent_enough "$PYTHON" && echo "$PYTHON" && return
        echo "PYTHON=$PYTHON is not a Python of version 3.11 or newer." >&2
        return 1
    fi
    for candidate in python3 python3.14 python3.13 python3.12 python3.11; do
        recent_enough "$candidate" && echo "$candidate" && return
    done
    echo "agl-streams needs Python 3.11 or newer; none of python3, python3.14 … python3.11 on PATH is one." >&2
    echo "Install one (Debian, Ubuntu: apt-get install python3), or name it: make PYTHON=/path/to/python3.12 …" >&2
    return 1
}

usable() { # an interrupted run may leave a folder without pip
    recent_enough "$venv/bin/python" && { command -v uv >/dev/null || "$venv/bin/python" -c 'import pip' 2>/dev/null; }
}

if ! usable; then
    python=$(find_python)
    if command -v uv >/dev/null; then
        uv venv --quiet --clear --python "$python" "$venv"
    elif "$python" -c 'import ensurepip' 2>/dev/null; then
        "$python" -m venv --clear "$venv"
    else
        version=$("$python" -c 'import sys; print("%d.%d" % sys.version_info[:2])')
        echo "$python has no ensurepip, so it cannot make a virtual environment." >&2
        echo "Debian, Ubuntu: apt-get install python$version-venv (or python3-venv). Or install uv." >&2
        exit 1
    fi
fi

if [ "${1:-}" = "-r" ]; then
    what=(--no-deps "$@")
else
    what=(--editable ".[$extras]")
fi
echo "installing into $venv: ${what[*]}" >&2
if command -v uv >/dev/null; then
    uv pip install --quiet --python "$venv/bin/python" "${what[@]}"
else
    "$venv/bin/python" -m pip install --quiet --disable-pip-version-check "${what[@]}"
fi
if [ "${1:-}" = "-r" ]; then
    touch "$venv/.ready-pins"
else
    for extra in "$@"; do touch "$venv/.ready-$extra"; done
fi
