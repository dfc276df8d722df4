#!/bin/sh
# Records the pages that each thread of face.c references: writes THREADS.swtrace into this directory.
# Usage: sh record.sh; needs clang 14 or newer and zstd.
set -eu
here=$(cd "$(dirname "$0")" && pwd)
room=$(mktemp -d)
trap 'rm -rf "$room"' EXIT
cd "$room"
# Instructions for a hundred accesses. Without hooks, one frame of `face 1 1 FILE 21 23 5` takes 332,241,097 instructions
# in face.c's functions by callgrind; with them it counts 152,271,629 accesses.
clang -O2 -Wall -Wextra -DACCESS_INSTRUCTIONS_PERCENT=218 -c "$here/pages.c" "$here/mesh.c"
clang -O2 -Wall -Wextra -fsanitize-coverage=func,trace-loads,trace-stores -c "$here/face.c"
clang -o face face.o mesh.o pages.o -lm -pthread
# Three frames, of facesim's hundred, for each of the paper's numbers of threads.
for threads in 1 4 8 16; do
    ./face "$threads" 3 "$threads.content"
    { printf 'SWTRAC\r\n\003'; zstd -q -19 --check -c "$threads.content"; } > "$here/$threads.swtrace"
done
