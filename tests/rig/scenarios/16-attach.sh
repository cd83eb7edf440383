#!/bin/bash
# `tarn attach` in a guest: a device of a Tarn in the same guest, over UDP, becomes a disk of the kernel by its NBD client, and by
# a loop device over FUSE, which finds the file system that the other one has left.
. /run/job/guest/lib.sh
[ -n "${TARN:-}" ] || skip "no Tarn to run in the guest"
modprobe -a loop fuse nbd || fail "modules"
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

mkdir -p fuse; attach "fuse:$home/fuse"; attached
loop=$(losetup --find --show --direct-io=on "$disk") || fail "losetup"
[ "$(cat "/sys/block/${loop#/dev/}/loop/dio")" = 1 ] || fail "no direct I/O"
file_system "$loop" fuse
losetup --detach "$loop" || fail "losetup --detach"
detach

kill $serve; wait $serve || fail "serve ended with $?"
trap - EXIT
cd /; rm -r "$home"
