#!/bin/bash
# A node logs in while another initiator holds a Write Exclusive, Registrants Only
# reservation, registers, and writes: the kernel knows of the write cache, and flushes.
. /run/job/guest/lib.sh
[ -n "$PORTAL3" ] || skip "no relay"
iscsi_start
hostcall hold || fail "the initiator on the host cannot reserve"
login "$IQN" "$PORTAL3" || fail "login"
a=$(first_disk "$IQN") || fail "no disk"
cache=$(cat "/sys/block/$(basename "$a")/queue/write_cache")
say "the kernel takes the cache for: $cache"
sg_turs "$a"
sg_persist -n -o -G -S 0xb "$a" || fail "register"
mkfs.ext4 -q -F "$a" || fail "mkfs"
mount "$a" /mnt || fail "mount"
dd if=/dev/urandom of=/mnt/file bs=64k count=24 conv=fsync 2>/dev/null || fail "dd"
sync
umount /mnt || fail "umount"
[ "$cache" = "write back" ] || fail "the kernel believes in write through"
hostcall flushes || fail "no SYNCHRONIZE CACHE reached the target"
iscsiadm -m node -T "$IQN" --logout || fail "logout"
hostcall unhold || fail "the initiator on the host does not end"
