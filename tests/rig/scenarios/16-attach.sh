#!/bin/bash
# `tarn attach` in a guest: a device of a Tarn in the same guest, over UDP, becomes a disk of the kernel by its NBD client, and
# by ublk, which finds the file system that the other form has left. By ublk also: what it
# says of itself, verified I/O, discard and zeros, SIGTERM under a mount, read-only, and both processes killed under load.
. /run/job/guest/lib.sh
[ -n "${TARN:-}" ] || skip "no Tarn to run in the guest"
modprobe nbd || fail "modules"
home=$(mktemp -d /var/tmp/attach.XXXXXX); cd "$home" || exit 1
(umask 077; echo "rig password" >password)
cat >tarn.toml <<END
[server]
state = "$home/state"
[admin]
socket = "$home/tarn.sock"
[[lun]]
id = "disk"
store = "file:$home/disk.img?size=256M&thin"
[[hyperscsi.group]]
name = "rig"
udp = "127.0.0.1:5674"
password_file = "$home/password"
[[hyperscsi.group.device]]
id = "disk"
END
ip link set lo up
"$TARN" serve --config tarn.toml >serve.out 2>&1 & serve=$!
trap 'cat serve.out attach.out 2>/dev/null; kill $serve' EXIT
is_found() { "$TARN" discover hyperscsi --udp 127.0.0.1 --group rig >/dev/null 2>&1; }
retry 60 is_found || fail "no server"

# attach FORM [OPTION]: in the background; $disk is what it says.
attach() {
    XDG_RUNTIME_DIR=$home "$TARN" attach --udp 127.0.0.1 --password-file password --retry 10 --as "$1" \
        "hyperscsi://rig/disk${2:-}" >attach.out 2>&1 & attached=$!
}
is_attached() { disk=$(awk '/ until / { print $3 }' attach.out); [ -n "$disk" ] || ! kill -0 $attached 2>/dev/null; }
attached() { retry 60 is_attached && [ -n "$disk" ] || fail "attach"; }
detach() { kill -TERM $attached; wait $attached || fail "attach ended with $?"; }
# Makes a file system where there is none, looks at what is in it, and writes more.
file_system() {
    say "a file system by $2"
    if [ -e sums ]; then e2fsck -fn "$1" || fail "e2fsck before"; else
        mkfs.ext4 -q -F -E lazy_itable_init=0,lazy_journal_init=0 "$1" || fail "mkfs"; fi
    mkdir -p mount; mount "$1" mount || fail "mount"
    [ ! -e sums ] || (cd mount && sha256sum --quiet -c ../sums) || fail "other contents"
    mkdir "mount/$2" && dd if=/dev/urandom of="mount/$2/large" bs=1M count=6 status=none && cp /etc/passwd "mount/$2/" || fail "write"
    (cd mount && find . -type f -exec sha256sum {} +) >sums
    fstrim mount || fail "fstrim"
    umount mount || fail "umount"
    e2fsck -fn "$1" || fail "e2fsck"
}

attach nbd:127.0.0.1:10810
is_connected() { nbd-client 127.0.0.1 10810 /dev/nbd1 >nbd.out 2>&1; }
retry 60 is_connected || { cat nbd.out; fail "nbd-client"; }
file_system /dev/nbd1 nbd
nbd-client -d /dev/nbd1 >/dev/null || fail "nbd-client -d"
detach

if ! modprobe ublk_drv; then
    [ -z "${WANTS_UBLK:-}" ] || fail "no ublk in this kernel"
    say "no ublk in this kernel"
    exit 0
fi
queue() { cat "/sys/block/${disk#/dev/}/queue/$1"; }
left() { ls /sys/class/ublk-char | wc -l; }
attach block; attached
echo "cache: $(queue write_cache), fua: $(queue fua), discard: $(queue discard_max_bytes), zeros: $(queue write_zeroes_max_bytes)"
[ "$(queue write_cache)" = "write back" ] && [ "$(queue fua)" = 1 ] || fail "no cache or no FUA"
[ "$(queue discard_max_bytes)" = 1073741824 ] && [ "$(queue write_zeroes_max_bytes)" = 1073741824 ] || fail "no discard or no zeros"
[ "$(blockdev --getsize64 "$disk")" = $((256 << 20)) ] && [ "$(queue logical_block_size)" = 512 ] || fail "another size"
file_system "$disk" ublk
say "SIGTERM under a mount"
mount "$disk" mount || fail "mount"
dd if=/dev/urandom of=mount/late bs=1M count=4 status=none && (cd mount && sha256sum late) >>sums
detach
umount mount
[ ! -e "$disk" ] || fail "$disk is still there"
attach block; attached
mount "$disk" mount && (cd mount && sha256sum --quiet -c ../sums) || fail "what was written before SIGTERM is lost"
umount mount; e2fsck -fn "$disk" || fail "e2fsck"

say "verified I/O, discard, zeros"
fio --filename="$disk" --direct=1 --bs=4k --ioengine=libaio --iodepth=16 --size=3M --offset_increment=4M --numjobs=2 --group_reporting \
    --rw=randrw --verify=crc32c --verify_fatal=1 --do_verify=1 --verify_backlog=256 --fdatasync=64 --name=v >fio.out 2>&1 ||
    { cat fio.out; fail "fio met errors"; }
is_zero() { [ "$(dd if="$disk" bs=1M count=1 skip="$1" iflag=direct status=none | tr -d '\0' | wc -c)" = 0 ]; }
dd if=/dev/urandom of="$disk" bs=1M count=4 seek=64 oflag=direct,dsync status=none || fail "write"
blkdiscard -f -o 65M -l 1M "$disk" || fail "discard"
blkdiscard -f -z -o 66M -l 1M "$disk" || fail "zeros"
is_zero 65 && is_zero 66 || fail "what was discarded or made zero is not"
{ is_zero 64 || is_zero 67; } && fail "what is beside was taken, too"
detach

say "read-only"
attach block "?readonly"; attached
[ "$(blockdev --getro "$disk")" = 1 ] && ! is_zero 64 || fail "it is not read-only, or reads nothing"
dd if=/dev/zero of="$disk" bs=4k count=1 oflag=direct status=none 2>/dev/null && fail "it was written"
detach

load() { fio --filename="$disk" --direct=1 --bs=4k --ioengine=libaio --iodepth=16 --rw=randrw --time_based --runtime=60 --name=l >load.out 2>&1 & load=$!; }
moves() { [ "$(awk '{ print $1 + $5 }' "/sys/block/${disk#/dev/}/stat")" -gt 500 ]; }
has_gone() { [ ! -e "$disk" ]; }
say "the process that has the device is killed"
attach block; attached; load
retry 60 moves || fail "no I/O"
kill -KILL $attached; wait $attached
wait $load && fail "fio saw nothing"
retry 30 has_gone || fail "$disk is still there"
is_alone() { ! pgrep -f -- --serve-for >/dev/null; }
retry 60 is_alone || fail "the process that has the devices goes on"
echo "left: $(left)"
say "the process that has the devices is killed"
attach block; attached; load
[ "$(left)" = 1 ] || fail "what was left is still there"
retry 60 moves || fail "no I/O"
pkill -KILL -f -- --serve-for
wait $load && fail "fio saw nothing"
wait $attached; [ $? = 1 ] || fail "attach did not end with 1"
has_gone || fail "$disk is still there"
[ "$(left)" = 0 ] || fail "something was left"
say "no ublk"
retry 20 modprobe -r ublk_drv || fail "modprobe -r"
attach block; wait $attached; [ $? = 2 ] && grep -q "modprobe ublk_drv" attach.out || fail "no remedy"
kill $serve; wait $serve || fail "serve ended with $?"
trap - EXIT
cd /; rm -r "$home"
