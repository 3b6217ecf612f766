#!/bin/sh
# Build the kernel with sanitizers beside the normal one, and run the tests that reach it. Any finding ends the run.
set -eu
python=$1
site=build/sanitize/site
rm -rf "$site"
"$python" -m pip install --disable-pip-version-check -q --no-deps --target "$site" \
    -C cmake.define.SHOAL_SANITIZE=ON -C cmake.define.SHOAL_WIDE=ON -C build-dir=build/sanitize/cmake .
preload=$(${CXX:-g++} -print-file-name=libasan.so):$(${CXX:-g++} -print-file-name=libubsan.so):$(${CXX:-g++} -print-file-name=libstdc++.so)
# Python itself never frees some memory: leaks are not looked for.
PYTHONPATH=$site LD_PRELOAD=$preload ASAN_OPTIONS=detect_leaks=0,allocator_may_return_null=1 UBSAN_OPTIONS=print_stacktrace=1 \
    "$python" -m pytest -p no:xdist -p no:cacheprovider -k "not grouped and not reference" \
    tests/population/engines tests/population/test_population.py
