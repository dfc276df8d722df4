#!/bin/sh
# Records the page requests of each program of programs.c, and of a quarter of the face in ../face, with 16 threads: writes
# PROGRAM.swpages into this directory. Prints the milliseconds of all processors that each took.
# Usage, as root: sh record.sh SWATH
set -eu
swath=$(realpath "$1")
here=$(cd "$(dirname "$0")" && pwd)
room=$(mktemp -d)
trap 'rm -rf "$room"' EXIT
cd "$room"
cc -O2 -Wall -Wextra -o programs "$here/programs.c" "$here/media.c" -lm -pthread
cc -O2 -Wall -Wextra -DACCESS_INSTRUCTIONS_PERCENT=218 -o face "$here"/../face/*.c -lm -pthread
while read -r program; do
    case $program in
    facesim) set -- ./face 16 1 content 43 45 11 ;;
    *) set -- ./programs "$program" ;;
    esac
    "$swath" record pages -o "$here/$program.swpages" -- "$@"
done <<'END'
blackscholes
bodytrack
canneal
dedup
facesim
ferret
fluidanimate
freqmine
streamcluster
swaptions
vips
x264
END
