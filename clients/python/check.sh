#!/usr/bin/env bash
# Checks the Python client: its types, its tests, and that the package is built and can be installed.
#
#     clients/python/check.sh          with the programs of REFDB_TEST_BIN, or without the tests that need them
#     clients/python/check.sh install  only installs what the checks need into .venv, unless it is there
set -euo pipefail
cd "$(dirname "$0")"

# The environment is for these requirements.
current() { [[ -x .venv/bin/python ]] && cmp --silent requirements-dev.txt .venv/installed && .venv/bin/python --version >/dev/null 2>&1; }
if ! current; then
	rm -rf .venv
	"${PYTHON:-python3}" -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { echo "the Python client needs Python 3.11 or later: set PYTHON" >&2 && exit 1; }
	"${PYTHON:-python3}" -m venv .venv
	.venv/bin/pip install --quiet --disable-pip-version-check --require-hashes --only-binary :all: -r requirements-dev.txt
	cp requirements-dev.txt .venv/installed
fi
if [[ ${1-} == install ]]; then exit; fi

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
.venv/bin/mypy --cache-dir "$work/mypy"
PYTHONPATH=src PYTHONDONTWRITEBYTECODE=1 .venv/bin/python -m unittest discover --start-directory tests --top-level-directory .
# The package has what users need, and is imported as they install it. Its dependencies are there already.
.venv/bin/python -m build --no-isolation --outdir "$work/dist" . >"$work/build" || { cat "$work/build"; exit 1; }
.venv/bin/pip install --quiet --disable-pip-version-check --no-deps --no-index --target "$work/installed" "$work"/dist/*.whl
cmp LICENSE "$(echo "$work"/installed/refdb_client-*/licenses/LICENSE)"
[[ -e $work/installed/refdb_client/py.typed && ! -e $work/installed/tests ]] || { echo "the package has other files" >&2; exit 1; }
(cd "$work" && PYTHONPATH=$work/installed "$OLDPWD/.venv/bin/python" -c 'import refdb_client; print(refdb_client.__file__)')
