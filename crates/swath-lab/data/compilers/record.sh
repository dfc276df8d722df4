#!/bin/sh
# Records 32-bit ARM compilers at work, as Debian 12 packages them for armhf: writes *.swtrace into
# the current directory. It takes half an hour.
# Usage: sh record.sh ZSTD
# ZSTD is the folder `zstd/lib` of the crate zstd-sys 2.1.2+zstd.1.5.7. Wants qemu-user, clang-14 (for its
# headers), a C compiler, and apt with the architecture armhf (dpkg --add-architecture armhf).
set -eu
zstd=$1
here=$(cd "$(dirname "$0")" && pwd)
room=${ROOM:-$(mktemp -d)}
root=$room/root

if [ ! -d "$root" ]; then
    mkdir -p "$room/packages" "$root"
    (cd "$room/packages" && apt-get download -qq $(printf '%s:armhf ' cpp-12 clang-14 libclang-cpp14 libllvm14 \
        binutils-arm-linux-gnueabihf libbinutils libctf0 libctf-nobfd0 libjansson4 libc6 libgcc-s1 libstdc++6 \
        zlib1g libzstd1 libgmp10 libmpfr6 libmpc3 libisl23 libffi8 libedit2 libz3-4 libtinfo6 libxml2 libbsd0 \
        libicu72 liblzma5 libmd0 libc6-dev linux-libc-dev))
    for package in "$room"/packages/*.deb; do dpkg -x "$package" "$root"; done
fi
cc -O2 -Wall -shared -fPIC -o "$room/record.so" "$here/record.c"
(cd "$here/../../../.." && cargo build -q --release -p swath-trace --example access_log)
access_log=${CARGO_TARGET_DIR:-$here/../../../../target}/release/examples/access_log

headers="-isystem $root/usr/include -isystem $root/usr/include/arm-linux-gnueabihf"
libraries=$root/lib/arm-linux-gnueabihf:$root/usr/lib/arm-linux-gnueabihf
gcc="$root/usr/lib/gcc/arm-linux-gnueabihf/12/cc1"
clang="$root/usr/lib/llvm-14/bin/clang"
as="$root/usr/bin/arm-linux-gnueabihf-as"
ld="$root/usr/bin/arm-linux-gnueabihf-ld.bfd"

# record NAME EVERY PROGRAM ARGUMENT…: 50,000 of every EVERY accesses.
record() {
    name=$1 every=$2
    shift 2
    qemu-arm -cpu cortex-a15 -L "$root" -E "LD_LIBRARY_PATH=$libraries" -B 0x100000000 \
        -plugin "file=$room/record.so,out=$room/log,base=100000000,burst=50000,every=$every" "$@"
    "$access_log" "${1##*/}" 50000 "$every" < "$room/log" > "$name.swtrace"
    rm "$room/log"
}
compile_gcc() {
    record "$1" "$2" "$gcc" -quiet -O -march=armv7-a -mfpu=vfpv3-d16 -mfloat-abi=hard -nostdinc -isystem /usr/lib/gcc/x86_64-linux-gnu/12/include $headers \
        -I"$zstd" "$zstd/$3" -o "$room/$1.s"
}
compile_clang() {
    record "$1" "$2" "$clang" --target=armv7-linux-gnueabihf -O -nostdinc \
        -isystem /usr/lib/llvm-14/lib/clang/14.0.6/include $headers -I"$zstd" -c "$zstd/$3" -o "$room/$1.o"
}

# A build of three of zstd's sources, drawn in proportion to their lines: those in which a sixth, a half and
# five sixths of all lines lie, from common/ to dictBuilder/ by name. Each is compiled (by GCC: and assembled), then
# they are linked.
n=0
for source in compress/zstd_compress.c compress/zstd_lazy.c decompress/zstd_decompress_block.c; do
    n=$((n + 1))
    compile_gcc "gcc-build-$n" 400000000 $source
    record "gcc-build-$n-as" 4000000 "$as" -o "$room/gcc-build-$n.o" "$room/gcc-build-$n.s"
    compile_clang "clang-build-$n" 400000000 $source
done
for compiler in gcc clang; do
    record "$compiler-build-ld" 2000000 "$ld" -r -o "$room/all.o" "$room/$compiler"-build-[123].o
done
