#!/bin/sh
# Cross-compile the kernel for 64-bit ARM and run its tests in an ARM Python under qemu-user. Nothing outside of build/aarch64 is written.
# Needs a Debian or Ubuntu machine with: apt-get install g++-aarch64-linux-gnu qemu-user-static cmake ninja-build
# Usage: tools/aarch64.sh PYTHON [pytest arguments]; without pytest arguments, the tests that reach the kernel.
set -eu
python=$1
shift
top=$PWD/build/aarch64
root=$top/root
release=bookworm # its Python is 3.11
version=3.11

for tool in aarch64-linux-gnu-g++ qemu-aarch64-static apt-get dpkg; do
    command -v $tool >/dev/null || { echo "$tool is missing: apt-get install g++-aarch64-linux-gnu qemu-user-static" >&2; exit 2; }
done

# 1. Debian's Python for ARM, unpacked, not installed: apt with its own folders needs no root and leaves the system alone.
if [ ! -e "$top/.root" ]; then
    rm -rf "$root" "$top/apt"
    mkdir -p "$root" "$top/apt/state/lists/partial" "$top/apt/cache/archives/partial"
    : >"$top/apt/status"
    echo "deb [signed-by=/usr/share/keyrings/debian-archive-keyring.gpg] http://deb.debian.org/debian $release main" >"$top/apt/sources.list"
    cat >"$top/apt/apt.conf" <<END
Dir::State "$top/apt/state";
Dir::State::status "$top/apt/status";
Dir::Cache "$top/apt/cache";
Dir::Etc::sourceparts "-";
Dir::Etc::sourcelist "$top/apt/sources.list";
APT::Architecture "arm64";
APT::Architectures { "arm64"; };
APT::Install-Recommends "false";
END
    export APT_CONFIG="$top/apt/apt.conf"
    apt-get -qq update
    apt-get -qq -y install --download-only python$version libpython$version-dev libstdc++6 libgomp1 >/dev/null
    for package in "$top"/apt/cache/archives/*.deb; do dpkg -x "$package" "$root"; done
    touch "$top/.root"
fi

# 2. A Python that starts itself again: processes that a test starts are emulated as well, without binfmt_misc.
cat >"$top/python" <<END
#!/bin/sh
export PYTHONPATH="$top/site\${PYTHONPATH:+:\$PYTHONPATH}" SHOAL_PYTHON="$top/python"
exec qemu-aarch64-static -L "$root" "$root/usr/bin/python$version" "\$@"
END
chmod +x "$top/python"

# 3. Libraries for ARM. Markers of requirements are read as if for this machine, so PyTorch's are listed.
if [ ! -e "$top/.site" ]; then
    rm -rf "$top/site"
    "$python" -m pip install --disable-pip-version-check -q --only-binary :all: --no-deps --target "$top/site" \
        --python-version $version --implementation cp \
        --platform manylinux_2_28_aarch64 --platform manylinux_2_27_aarch64 --platform manylinux_2_17_aarch64 --platform manylinux2014_aarch64 \
        "numpy>=2" scipy scikit-learn joblib threadpoolctl narwhals typer rich click shellingham annotated-doc markdown-it-py mdurl pygments \
        safetensors psutil pandas python-dateutil pytz tzdata six cloudpickle pytest pluggy iniconfig packaging hypothesis sortedcontainers attrs \
        "torch==2.7.*" filelock typing-extensions sympy mpmath networkx jinja2 markupsafe fsspec
    echo 'import os, sys; sys.executable = os.environ.get("SHOAL_PYTHON", sys.executable)' >"$top/site/sitecustomize.py"
    touch "$top/.site"
fi

# 4. The kernel, compiled here for there.
mkdir -p "$top/headers/aarch64-linux-gnu"
ln -sfn "$root/usr/include/aarch64-linux-gnu/python$version" "$top/headers/aarch64-linux-gnu/python$version"
cmake -S . -B "$top/cmake" -G Ninja -DCMAKE_BUILD_TYPE=Release -DCMAKE_SYSTEM_NAME=Linux -DCMAKE_SYSTEM_PROCESSOR=aarch64 \
    -DCMAKE_CXX_COMPILER=aarch64-linux-gnu-g++ "-DCMAKE_CXX_FLAGS=-isystem $top/headers" \
    -DPython_EXECUTABLE="$top/python" -DPython_INCLUDE_DIR="$root/usr/include/python$version" \
    -Dnanobind_DIR="$("$python" -m nanobind --cmake_dir)" >"$top/cmake.log"
cmake --build "$top/cmake" >>"$top/cmake.log"
rm -rf "$top/site/shoal"
cp -R src/shoal "$top/site/shoal"
cp "$top"/cmake/_native*.so "$top/site/shoal/"

# 5. The tests.
if [ $# -eq 0 ]; then
    set -- -k "not grouped and not reference" tests/population
fi
"$top/python" -c "import platform, shoal; from shoal import _native; print(shoal.__version__, platform.machine(), _native.instruction_sets())"
exec "$top/python" -m pytest -p no:cacheprovider "$@"
