#!/bin/sh
# Records the page requests of each test of operations.c: writes TEST.swpages into this directory.
# Usage, as root: sh record.sh SWATH
set -eu
swath=$(realpath "$1")
here=$(cd "$(dirname "$0")" && pwd)
room=$(mktemp -d)
trap 'rm -rf "$room"' EXIT
cc -O2 -Wall -o "$room/operations" "$here/operations.c"
cd "$room"
while read -r test count; do
    "$swath" record pages -o "$here/$test.swpages" -- ./operations "$test" "$count"
done <<'END'
creat-clo 20000
page_test 20480
brk_test 102400
exec_test 200
fork_test 300
link_test 20000
disk_rr 50000
disk_rw 50000
disk_wrt 20480
disk_src 100000
shared_memory 100000
tcp_test 20000
udp_test 20000
fifo_test 100000
stream_pipe 50000
dgram_pipe 50000
pipe_cpy 100000
END
