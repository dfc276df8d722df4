#!/bin/sh
# Breaks the memory of a small machine up: files (movable), pipes (unmovable)
# and empty files (reclaimable) by turns grow into what the others left. /t and
# /p are to be empty file systems in memory. Of BusyBox's shell only what it
# does by itself makes files, so that few processes are recorded.
D=/t
P=/p
x=0123456789abcdef
while [ ${#x} -lt 4096 ]; do x=$x$x; done

# files DIR FIRST LAST: files of 1 to 6 pages, from the shell itself.
files() {
    mkdir -p $D/$1
    i=$2
    while [ $i -le $3 ]; do
        case $((i * 7 % 10)) in
        0) printf %s "$x$x$x$x$x$x" ;;
        1 | 2) printf %s "$x$x$x" ;;
        3 | 4 | 5) printf %s "$x$x" ;;
        *) printf %s "$x" ;;
        esac > $D/$1/$i
        i=$((i + 1))
    done
}

# names DIR COUNT: empty files, an inode and a name each.
names() {
    mkdir -p $D/$1
    i=0
    while [ $i -lt $2 ]; do
        : > $D/$1/$i
        i=$((i + 1))
    done
}

# pipes COUNT: processes that hold seven full pipes of 16 pages each. Their
# numbers go to $held.
pipes() {
    n=0
    while [ $n -lt $1 ]; do
        (
            for fd in 3 4 5 6 7 8 9; do
                rm -f $P/$n-$fd
                mkfifo $P/$n-$fd
            done
            exec 3<>$P/$n-3 4<>$P/$n-4 5<>$P/$n-5 6<>$P/$n-6 7<>$P/$n-7 8<>$P/$n-8 9<>$P/$n-9
            for k in 0 1 2 3 4 5 6 7 8 9 a b c d e f; do
                for fd in 3 4 5 6 7 8 9; do printf %s "$x" >&$fd; done
            done
            exec sleep 100000
        ) &
        held="$held $!"
        n=$((n + 1))
    done
}

# thin DIR NTH: deletes the files whose number ends in NTH.
thin() { rm -f $D/$1/*$2; }

drop() { for p in $held; do kill $p; done; wait; held=; }

mkdir -p $D $P
files a 1 ${1:-6000}
thin a 3
pipes 24
thin a 7
names n 12000
thin a 1
thin a 5
drop
files b 1 3500
rm -rf $D/n
echo 2 > /proc/sys/vm/drop_caches
files c 1 2000
thin b 2
thin c 4
names m 14000
thin b 8
pipes 16
rm -rf $D/m
echo 2 > /proc/sys/vm/drop_caches
thin a 9
drop
files d 1 3000
thin d 6
thin c 0
pipes 10
names k 6000
drop
