#!/bin/bash
# A gateway in the guest, whose far server dies after a write that no flush has covered and is there again: fsync of the
# disk fails, once. A kernel that took the error for one to repeat would never show it, because the next flush is good.
. /run/job/guest/lib.sh
[ -n "${TARN:-}" ] || skip "no Tarn to run in the guest"
home=$(mktemp -d /var/tmp/lost.XXXXXX); cd "$home" || exit 1
cat >far.toml <<END
[server]
state = "$home/far"
[admin]
socket = "$home/far.sock"
[[lun]]
id = "disk"
store = "mem:64M"
[[nbd]]
bind = "127.0.0.1:10811"
luns = ["disk"]
END
cat >near.toml <<END
[server]
state = "$home/near"
[admin]
socket = "$home/near.sock"
[[lun]]
id = "disk"
store = "nbd://127.0.0.1:10811/disk?retry=60"
[[target]]
name = "iqn.2026-11.example.lost:disk"
portals = ["127.0.0.1:3262"]
luns = [{ lun = 0, id = "disk" }]
END
iqn=iqn.2026-11.example.lost:disk
ip link set lo up
listens() { (exec 3<>"/dev/tcp/127.0.0.1/$1") 2>/dev/null; }
far() { "$TARN" serve --config far.toml >>far.out 2>&1 & far=$!; retry 60 listens 10811 || fail "no far server"; }
far
"$TARN" serve --config near.toml >near.out 2>&1 & near=$!
trap 'cat far.out near.out; kill $near $far' EXIT
retry 60 listens 3262 || fail "no gateway"
iscsi_start
login "$iqn" 127.0.0.1:3262 node.session.timeo.replacement_timeout=120 || fail "login"
disk=$(first_disk "$iqn") || fail "no disk"
[ "$(cat "/sys/block/$(basename "$disk")/queue/write_cache")" = "write back" ] || fail "the kernel knows of no write cache"
sync "$disk" || fail "the first fsync"
for n in 1 2; do
    say "a write that no flush covers, and the far server dies ($n)"
    dd if=/dev/urandom of="$disk" bs=4k count=1 oflag=direct status=none || fail "write"
    kill -KILL $far; wait $far 2>/dev/null
    far
    # The gateway is connected again when this is read.
    dd if="$disk" of=/dev/null bs=4k count=1 iflag=direct status=none || fail "read"
    ! sync "$disk" || fail "fsync is good although the write is lost"
    sync "$disk" || fail "the fsync after it"
done
dmesg | grep -E "Sense Key|Add. Sense|I/O error" | tail -n 6
logout "$iqn" 127.0.0.1:3262 || fail "logout"
kill -TERM $near; wait $near || fail "the gateway ended with $?"
