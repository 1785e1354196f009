# Sourced by the other scripts: finds a Python and keeps an environment with jaxprof in it.
# Needs nothing but a Python 3.11 to 3.13 with its venv module. JAXPROF_PYTHON names one to use.

repository=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)

# fit_python COMMAND [VERSION]: whether COMMAND runs, is of a version that jaxprof supports (or of VERSION) and can make environments.
fit_python() {
    "$1" -c '
import sys, venv, ensurepip
version = "%d.%d" % sys.version_info[:2]
sys.exit(version not in (sys.argv[1:] or ["3.11", "3.12", "3.13"]))' "${@:2}" >/dev/null 2>&1
}

# find_python: prints the newest fit Python, or says what to install.
find_python() {
    local candidate
    if [ -n "${JAXPROF_PYTHON:-}" ]; then
        fit_python "$JAXPROF_PYTHON" && { echo "$JAXPROF_PYTHON"; return; }
        echo "JAXPROF_PYTHON=$JAXPROF_PYTHON is not a Python 3.11 to 3.13 with its venv module" >&2
        return 2
    fi
    for candidate in python3.13 python3.12 python3.11 python3 python; do
        fit_python "$candidate" && { echo "$candidate"; return; }
    done
    echo "no Python 3.11, 3.12 or 3.13 with its venv module was found: install one (Debian: apt install python3-venv)," \
        "or name one in JAXPROF_PYTHON" >&2
    return 2
}

# find_other_python VERSION: prints a fit Python of another version than VERSION, or nothing.
# Versions that pyenv keeps are looked at too: it hides all but the chosen one.
find_other_python() {
    local version candidate
    for version in 3.11 3.12 3.13; do
        [ "$version" = "$1" ] && continue
        for candidate in "python$version" "${PYENV_ROOT:-$HOME/.pyenv}"/versions/"$version".*/bin/python; do
            fit_python "$candidate" "$version" && { echo "$candidate"; return; }
        done
    done
}

# python_version COMMAND: prints its version as in 3.12.
python_version() {
    "$1" -c 'import sys; print("%d.%d" % sys.version_info[:2])'
}

# make_environment DIRECTORY PYTHON [EXTRA]: makes DIRECTORY, or brings it up to date where pyproject.toml has changed.
make_environment() {
    local directory=$1 python=$2 extra=${3:-} stamp want
    stamp=$directory/.installed${extra:+-${extra//,/-}}
    want="$repository $(python_version "$python") $(cksum <"$repository/pyproject.toml")"
    [ -x "$directory/bin/python" ] && [ "$(cat "$stamp" 2>/dev/null)" = "$want" ] && return
    echo "installing jaxprof${extra:+ [$extra]} into $directory (minutes the first time) ..." >&2
    # An environment of another Python or of a clone that was moved cannot be mended.
    local clear=--clear
    fit_python "$directory/bin/python" "$(python_version "$python")" &&
        [ "$(cat "$directory/.made-for" 2>/dev/null)" = "$repository" ] && clear=
    "$python" -m venv $clear "$directory" || return
    echo "$repository" >"$directory/.made-for"
    "$directory/bin/python" -m pip install --quiet --quiet --disable-pip-version-check \
        --editable "$repository${extra:+[$extra]}" || return
    echo "$want" >"$stamp"
}
