#!/bin/sh
# Build a wheel, install it into an empty environment, and train with it there, with no compiler to be found.
set -eu
python=$1
rm -rf dist build/wheel-test
"$python" -m pip wheel --disable-pip-version-check -q --no-deps -w dist .
wheel=$(ls dist/*.whl)
"$python" -m venv build/wheel-test
build/wheel-test/bin/python -m pip install --disable-pip-version-check -q --only-binary :all: "$wheel"
cp tools/smoke.py build/wheel-test/
cd build/wheel-test
PATH="$PWD/bin" CC=/nonexistent CXX=/nonexistent bin/python smoke.py
echo "$wheel installs and works without a compiler"
