#!/bin/sh
# Records a kernel that runs short of memory, in a virtual machine: writes
# fragmented.swpages and fragmented.swsnap into the current directory.
# Usage: sh fragmented.sh SWATH VMLINUZ [SEED]
# It takes about a minute and wants QEMU, cpio, a static busybox, and a C compiler with a static libc.
set -eu
swath=$1 vmlinuz=$2 seed=${3:-4}
here=$(dirname "$0")
room=$(mktemp -d)
trap 'rm -rf "$room"' EXIT
root=$room/root
for dir in bin proc sys dev t out; do mkdir -p "$root/$dir"; done
cp "$(command -v busybox)" "$root/bin/busybox"
for tool in sh mount base64 stty poweroff; do ln -s busybox "$root/bin/$tool"; done
strip -o "$root/bin/swath" "$swath"
for library in $(ldd "$swath" | grep -o '/[^ ]*'); do
    mkdir -p "$root$(dirname "$library")"
    cp "$library" "$root$library"
done
cc -O2 -Wall -static -s -o "$root/bin/fragment" "$here/fragmented.c"

# No kernel thread may move pages: no reclaim ahead, no compaction, no huge pages.
cat > "$root/init" <<'INIT'
#!/bin/sh
mount -t proc proc /proc
mount -t sysfs sysfs /sys
mount -t devtmpfs dev /dev
mount -t tracefs trace /sys/kernel/tracing
mount -t ramfs files /t
echo 0 > /proc/sys/vm/compaction_proactiveness
echo 0 > /proc/sys/vm/watermark_boost_factor
echo 1024 > /proc/sys/vm/min_free_kbytes
echo never > /sys/kernel/mm/transparent_hugepage/enabled
swath record pages --system --buffer-kib 2048 -o /out/r -- \
    sh -c "swath snapshot -o /out/s && fragment 34 22528 $SEED"
{
    stty raw -echo
    for file in r s; do
        echo "FILE $file"
        base64 /out/$file
    done
    stty raw # waits until all is out
} < /dev/ttyS1 > /dev/ttyS1
poweroff -f
INIT
chmod +x "$root/init"
(cd "$root" && find . | cpio -o -H newc --quiet | gzip -1) > "$room/initrd.gz"
qemu-system-x86_64 -accel tcg,thread=multi -cpu qemu64 -smp 2 -m 192M -nodefaults -no-reboot \
    -display none -serial stdio -serial "file:$room/files" -kernel "$vmlinuz" \
    -initrd "$room/initrd.gz" -append "console=ttyS0 panic=-1 loglevel=5 SEED=$seed" < /dev/null
grep -q '^FILE s' "$room/files" || { echo "no recording: run it again" >&2; exit 1; }
awk '/^FILE r/ { next } /^FILE s/ { exit } { print }' "$room/files" | base64 -d > fragmented.swpages
awk 'on { print } /^FILE s/ { on = 1 }' "$room/files" | base64 -d > fragmented.swsnap
