#!/usr/bin/env bash
# The conformance kit on kernels that are built with sanitizers, one after the other, and on every instruction set of the
# machine: sanitize.sh BIN [ARGS of `statehal check cpu`]. SANITIZERS and ISAS choose fewer.
# BIN is the folder of Python's commands in the environment that has statehal; nothing is installed into it.
set -euo pipefail
bin=$(cd "$1" && pwd)
shift
here=$(cd "$(dirname "$0")" && pwd)
"$bin/python" -c 'import cmake' 2>/dev/null && cmake=$bin/cmake || cmake=cmake
[ -x "$bin/ninja" ] && ninja=$bin/ninja || ninja=$(command -v ninja)
isas=${ISAS:-$("$bin/python" -c 'from statehal_cpu import _native; print(*_native.usable_isas())')}
export ASAN_OPTIONS=detect_leaks=0 UBSAN_OPTIONS=print_stacktrace=1 OMP_NUM_THREADS=1
for sanitizer in ${SANITIZERS:-address undefined}; do
    build=$here/build/$sanitizer
    "$cmake" -S "$here" -B "$build" -G Ninja -DCMAKE_MAKE_PROGRAM="$ninja" -DCMAKE_BUILD_TYPE=Debug \
        -DSTATEHAL_SANITIZE=$sanitizer -DPython_EXECUTABLE="$bin/python" \
        -Dnanobind_DIR="$("$bin/python" -m nanobind --cmake_dir)" >/dev/null
    "$ninja" -C "$build"
    # a package of its own: the finder of an editable install would give the extension that is installed
    mkdir -p "$build/package/statehal_cpu"
    cp "$here"/src/statehal_cpu/*.py "$build"/_native.*.so "$build/package/statehal_cpu/"
    for isa in $isas; do
        echo "$sanitizer, $isa"
        STATEHAL_CPU_ISA=$isa LD_PRELOAD="$(c++ -print-file-name=libasan.so) $(c++ -print-file-name=libubsan.so)" \
            "$bin/python" -c '
import sys
sys.meta_path[:] = [finder for finder in sys.meta_path if "ScikitBuild" not in type(finder).__name__]
sys.path.insert(0, sys.argv.pop(1))
from statehal.cli import main
sys.exit(main(sys.argv[1:]))' "$build/package" check cpu --profile dev "$@"
    done
done
