#!/usr/bin/env bash
# Builds YCSB's binding to ginnel-cache's client: benchmarks/ycsb/build.sh DIRECTORY [PRODUCT]
#   DIRECTORY  where it goes: *.jar of YCSB (from Maven Central, the first time), classes, the JNI library
#   PRODUCT    where libginnel_cache_client.so lies (target/release)
# Needs a JDK, Maven and a C compiler: scripts/install-deps.sh ycsb.
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
[[ $# -ge 1 ]] || { echo "usage: $0 DIRECTORY [PRODUCT]" >&2; exit 2; }
product=$(realpath "${2:-$here/../../target/release}")
mkdir -p "$1"
out=$(realpath "$1")

if [[ ! -e $out/jars/.whole || $here/pom.xml -nt $out/jars/.whole ]]; then
    rm -rf "$out/jars"
    # -C: a file whose checksum is not Maven Central's fails the build.
    mvn -q -B -C -f "$here/pom.xml" dependency:copy-dependencies -DoutputDirectory="$out/jars" >&2
    touch "$out/jars/.whole"
fi

mkdir -p "$out/classes" "$out/headers" "$out/lib"
javac -Xlint:all -Werror -proc:none -cp "$out/jars/*" -h "$out/headers" -d "$out/classes" "$here"/ginnel/*.java

javac=$(realpath "$(command -v javac)")
jdk=${javac%/bin/javac}
# Programs ask for the client's library by the name that stays from version to version.
ln -sf "$product/libginnel_cache_client.so" "$out/lib/libginnel_cache_client.so.0"
"${CC:-cc}" -std=c11 -O2 -Wall -Wextra -Werror -shared -fPIC -o "$out/lib/libginnel_ycsb.so" "$here/native.c" \
    -I"$out/headers" -I"$jdk/include" -I"$jdk/include/linux" -I"$here/../../crates/cache-capi/include" \
    "$out/lib/libginnel_cache_client.so.0" -Wl,-rpath,'$ORIGIN'
