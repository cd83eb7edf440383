#!/bin/bash
# The kernel's NBD client has the disk by two connections, an iSCSI initiator has it as well: a file system, its content after
# a reconnect, flushes and FUA, TRIM, one content for both, and reservations of the initiator, which hold against the client.
. /run/job/guest/lib.sh
[ -n "${NBD:-}" ] || skip "no NBD server"
modprobe nbd max_part=0 || fail "no module nbd"
nbd=/dev/nbd0
# The guest's kernel receives with one work item for each connection. Where it cannot make a thread within 10 ms it gives all items that
# wait to its rescuer, and the first ends with its connection only: the other connection is not read. No server can help that.
connect() {
    for _ in 1 2 3 4 5; do
        nbd-client "${NBD%:*}" "${NBD##*:}" -N disk -C 2 "$nbd" || fail "nbd-client"
        retry 20 is_connected || fail "no size of $nbd"
        retry 5 receives || ! has_rescuer || [ "$(connections)" != 2 ] || { echo "a rescuer has both connections"; disconnect; continue; }
        udevadm settle -t 10 || { standing; udevadm settle -t 60; }
        return
    done
    fail "a rescuer has both connections five times"
}
connections() { ss -Htn state established dst "${NBD%:*}" dport = ":${NBD##*:}" | wc -l; }
receives() { [ "$(cat /proc/[0-9]*/stack 2>/dev/null | grep -c recv_work)" = 2 ]; }
has_rescuer() {
    for task in /proc/[0-9]*; do
        case $(cat "$task/stack" 2>/dev/null) in *recv_work*rescuer_thread*) return 0 ;; esac
    done
    return 1
}
# What this end knows of a request that stands.
standing() {
    ss -tanmi
    for task in /proc/[0-9]*; do
        ! grep -q nbd "$task/stack" 2>/dev/null || { cat "$task/comm" "$task/stack"; }
    done
}
is_connected() { [ "$(blockdev --getsize64 "$nbd")" -gt 0 ]; }
is_gone() { ! nbd-client -c "$nbd" >/dev/null; }
disconnect() { nbd-client -d "$nbd" || fail "nbd-client -d"; retry 20 is_gone || fail "$nbd stays connected"; }
queue() { cat "/sys/block/nbd0/queue/$1"; }
flushes() { awk '{ print $16 }' /sys/block/nbd0/stat; }
sum() { dd if="$1" bs=1M count="$2" skip="${3:-0}" iflag=direct status=none | sha256sum; }
writes() { dd if=/dev/urandom of="$nbd" bs=4k count=1 oflag=direct status=none 2>/dev/null; }
reads() { dd if="$nbd" of=/dev/null bs=4k count=1 iflag=direct status=none 2>/dev/null; }

say "two connections"
connect
[ "$(connections)" = 2 ] || { ss -tanmi; fail "not two connections"; }
echo "cache: $(queue write_cache), fua: $(queue fua), discard: $(queue discard_max_bytes), blocks: $(queue logical_block_size)"
[ "$(queue write_cache)" = "write back" ] || fail "the client knows of no cache, so it never flushes"
[ "$(queue fua)" = 1 ] || fail "no FUA"
[ "$(queue discard_max_bytes)" -gt 0 ] || fail "no TRIM"
fio --filename="$nbd" --direct=1 --bs=4k --ioengine=libaio --iodepth=8 --size=4M --offset_increment=4M --numjobs=2 \
    --group_reporting --rw=randrw --verify=crc32c --verify_fatal=1 --do_verify=1 --verify_backlog=256 --fdatasync=64 --name=v >/tmp/fio 2>&1 ||
    { cat /tmp/fio; fail "fio met errors"; }
grep -E "read:|write:|err=" /tmp/fio

say "a file system, before and after a reconnect"
mkfs.ext4 -q -F -E lazy_itable_init=0,lazy_journal_init=0 "$nbd" || fail "mkfs"
mkdir -p /mnt/t; mount "$nbd" /mnt/t || fail "mount"
for n in 1 2 3 4; do dd if=/dev/urandom of="/mnt/t/$n" bs=1M count=4 conv=fsync status=none || fail "write"; done
rm /mnt/t/4
before=$(flushes)
echo durable >/mnt/t/small && sync /mnt/t/small || fail "sync"
[ "$(flushes)" -gt "$before" ] || fail "sync has sent no flush"
(cd /mnt/t && sha256sum 1 2 3 small) >/tmp/sums
umount /mnt/t
disconnect
connect
e2fsck -fn "$nbd" || fail "e2fsck"
mount "$nbd" /mnt/t || fail "mount after the reconnect"
(cd /mnt/t && sha256sum --quiet -c /tmp/sums) || fail "checksums after the reconnect"

say "TRIM"
fstrim -v /mnt/t || fail "fstrim"
(cd /mnt/t && echo 3 >/proc/sys/vm/drop_caches && sha256sum --quiet -c /tmp/sums) || fail "checksums after fstrim"
umount /mnt/t
dd if=/dev/urandom of="$nbd" bs=1M count=4 seek=64 oflag=direct status=none || fail "write"
blkdiscard -f -o 65M -l 2M "$nbd" || fail "blkdiscard"
[ "$(sum "$nbd" 2 65)" = "$(dd if=/dev/zero bs=1M count=2 status=none | sha256sum)" ] || fail "what was trimmed is not zero"
for at in 64 67; do
    [ "$(sum "$nbd" 1 $at)" != "$(dd if=/dev/zero bs=1M count=1 status=none | sha256sum)" ] || fail "MiB $at was trimmed, too"
done

say "the same disk by iSCSI"
iscsi_start
login "$IQN" "$PORTAL" || fail "login"
disk=$(first_disk "$IQN") || fail "no disk"
[ "$(blockdev --getsize64 "$disk")" = "$(blockdev --getsize64 "$nbd")" ] || fail "another size"
for at in 0 32 64; do
    [ "$(sum "$disk" 8 $at)" = "$(sum "$nbd" 8 $at)" ] || fail "another content"
done
dd if=/dev/urandom of="$disk" bs=1M count=1 seek=70 oflag=direct status=none || fail "write by iSCSI"
[ "$(sum "$disk" 1 70)" = "$(sum "$nbd" 1 70)" ] || fail "the NBD client does not see what the initiator wrote"

say "reservations of the initiator hold against the client"
sg_turs "$disk"
pr() { sg_persist -n "$@" "$disk" || fail "sg_persist $*"; }
pr -o -G -S 0xa; pr -o -R -T 1 -K 0xa
mark=$(sum "$disk" 1)
writes && fail "the client writes to what is reserved Write Exclusive"
[ "$(sum "$disk" 1)" = "$mark" ] || fail "a write that was refused has changed the disk"
reads || fail "the client cannot read what is reserved Write Exclusive"
pr -o -L -T 1 -K 0xa; pr -o -R -T 3 -K 0xa
reads && fail "the client reads what is reserved Exclusive Access"
dd if="$disk" of=/dev/null bs=4k count=1 iflag=direct status=none || fail "the holder cannot read"
pr -o -L -T 3 -K 0xa; pr -o -G -K 0xa -S 0
writes || fail "the client cannot write after the release"
logout "$IQN" || fail "logout"
disconnect
