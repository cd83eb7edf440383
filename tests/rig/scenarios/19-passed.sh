#!/bin/bash
# Devices of others behind a Tarn in the guest, for two initiators: a tape of tgt over iSCSI; a disk of scsi_debug and the CD
# drive of this machine by their generic nodes. What one does is reported to the other, and to nobody else.
. /run/job/guest/lib.sh
[ -n "${TARN:-}" ] || skip "no Tarn to run in the guest"
home=$(mktemp -d /var/tmp/passed.XXXXXX); cd "$home" || exit 1
ip link set lo up
listens() { (exec 3<>"/dev/tcp/127.0.0.1/$1") 2>/dev/null; }
# A device of another host, by what is behind its sessions; of this machine, by its model.
generic() { local d; for d in /sys/class/scsi_generic/*; do grep -q "$1" "$d/device/model" && [ ! -e "$d/device/../../../iscsi_session" ] && echo "/dev/${d##*/}" && return; done; return 1; }

say "the devices"
tgtimg --op new --device-type tape --barcode=TARN01 --size=64 --type=data --file="$home/tape.img" --thin-provisioning >/dev/null || fail "tgtimg"
TGT_IPC_SOCKET=$home/tgt.sock tgtd -f --iscsi portal=127.0.0.1:3264 >tgt.out 2>&1 & tgtd=$!
tgt() { TGT_IPC_SOCKET=$home/tgt.sock tgtadm --lld iscsi "$@"; }
retry 20 tgt --op new --mode target --tid 1 -T iqn.2026-11.example.tgt:tape >/dev/null 2>&1 || { cat tgt.out; fail "tgtd"; }
tgt --op new --mode logicalunit --tid 1 --lun 1 --device-type tape -b "$home/tape.img" || fail "tgt has no tape"
tgt --op bind --mode target --tid 1 -I ALL || fail "tgt lets nobody in"
modprobe -a sg st sr_mod isofs virtio_scsi || fail "no modules"
modprobe scsi_debug dev_size_mb=64 removable=1 || fail "no scsi_debug"
retry 20 generic scsi_debug >/dev/null || fail "no disk of scsi_debug"
debug=$(generic scsi_debug)
kernel_disk=/dev/$(ls "/sys/class/scsi_generic/${debug##*/}/device/block")
drive=$(generic "QEMU CD-ROM") || drive=

say "a disk that this machine has mounted is refused"
mkdir -p /mnt/t
mkfs.ext4 -q "$kernel_disk" && mount "$kernel_disk" /mnt/t || fail "ext4 on the disk itself"
timeout 10 "$TARN" serve "scsi:$debug" --listen 127.0.0.1:3263 --state "$home/other" >refused 2>&1
grep -q "in use by this host" refused || { cat refused; fail "a mounted disk is served"; }
umount /mnt/t || fail "umount"

cat >tarn.toml <<END
[server]
state = "$home/state"
[admin]
socket = "$home/tarn.sock"
[[lun]]
id = "tape"
store = "scsi:iscsi://127.0.0.1:3264/iqn.2026-11.example.tgt:tape/1"
[[lun]]
id = "disk"
store = "scsi:$debug"
END
luns='{ lun = 0, id = "tape" }, { lun = 1, id = "disk" }'
if [ -n "$drive" ]; then
    printf '[[lun]]\nid = "cd"\nstore = "scsi:%s"\n' "$drive" >>tarn.toml
    luns="$luns, { lun = 2, id = \"cd\" }"
fi
iqn=iqn.2026-11.example.tarn:passed
printf '[[target]]\nname = "%s"\nportals = ["127.0.0.1:3263"]\nluns = [%s]\n' "$iqn" "$luns" >>tarn.toml
export TARN_SOCKET=$home/tarn.sock
"$TARN" serve --config tarn.toml >tarn.out 2>&1 & tarn=$!
trap 'cat tarn.out; umount /mnt/t 2>/dev/null; kill $tarn; kill -KILL $tgtd' EXIT
retry 60 listens 3263 || fail "no Tarn"
"$TARN" lun list
mount "$kernel_disk" /mnt/t 2>/dev/null && fail "what is served can be mounted"

say "one disk by two nodes"
{ cat tarn.toml; printf '[[lun]]\nid = "twice"\nstore = "%s"\n' "$kernel_disk"; } >twice.toml
"$TARN" check twice.toml >twice 2>&1 && { cat twice; fail "a disk is served by both of its nodes"; }
grep -q "already used" twice || { cat twice; fail "the mistake is another one"; }

say "the disk is removed, and added again at once"
"$TARN" target unmap "$iqn" 1 --yes && "$TARN" lun rm disk --yes && "$TARN" lun add disk "scsi:$debug" --target "$iqn" --lun 1 || fail "it is still in use"

say "two initiators"
iscsi_start
iscsiadm -m iface -I second -o new >/dev/null
iscsiadm -m iface -I second -o update -n iface.transport_name -v tcp >/dev/null
iscsiadm -m iface -I second -o update -n iface.initiatorname -v iqn.1993-08.org.debian:01:vmrig-second >/dev/null
for iface in default second; do
    iscsiadm -m node -I $iface -o new -T "$iqn" -p 127.0.0.1:3263 >/dev/null || fail "node record"
    iscsiadm -m node -I $iface -T "$iqn" -p 127.0.0.1:3263 --login || fail "login of $iface"
done
# of TYPE KIND: the nodes of a kind, one of each initiator.
of() { local d; for d in $(devices "$iqn" "$1"); do ls "$d/$2" 2>/dev/null; done; }
two() { [ "$(of "$1" scsi_generic | wc -l)" = 2 ]; }
retry 30 two 1 || fail "not two tapes"
retry 30 two 0 || fail "not two disks"
udevadm settle -t 30
mapfile -t tapes <<<"$(of 1 scsi_generic | sed 's,^,/dev/,')"
mapfile -t disks <<<"$(of 0 scsi_generic | sed 's,^,/dev/,')"
st=/dev/n$(of 1 scsi_tape | grep -x 'st[0-9]*' | head -n1)
# Takes what is to be reported, and prints it.
attentions() { for _ in 1 2 3 4 5; do sg_turs -v "$1" 2>&1 | grep -i "additional sense" || return 0; done; }
for node in "${tapes[@]}" "${disks[@]}"; do attentions "$node" >/dev/null; done

say "a tape: mt, tar, positions"
mt -f "$st" status || fail "mt status"
mkdir in out; head -c 5M /dev/urandom >in/data; echo text >in/text
mt -f "$st" rewind && tar -C in -cf "$st" . && tar -C in -cf "$st" text || fail "tar to the tape"
mt -f "$st" rewind && tar -C out -xf "$st" && diff -r in out || fail "tar from the tape"
mt -f "$st" rewind && mt -f "$st" fsf 1 && [ "$(tar -tf "$st")" = text ] || fail "the second file"
say "its reservation"
sg_raw "${tapes[0]}" 16 0 0 0 0 0 || fail "RESERVE"
sg_raw "${tapes[1]}" 01 0 0 0 0 0 2>&1 | grep -qi "reservation conflict" || fail "the other one rewinds a reserved tape"
sg_raw "${tapes[0]}" 17 0 0 0 0 0 || fail "RELEASE"
sg_raw "${tapes[1]}" 01 0 0 0 0 0 || fail "REWIND after the release"
say "its prevention"
sg_prevent --prevent=1 "${tapes[0]}" || fail "PREVENT"
sg_raw "${tapes[1]}" 1b 0 0 0 0 0 2>&1 | grep -qi "removal prevented" || fail "the other one unloads a tape that is kept in"
sg_prevent --allow "${tapes[0]}" || fail "ALLOW"
say "its reset by one is reported to the other, once"
sg_reset -d "${tapes[0]}" || fail "reset"
attentions "${tapes[1]}" | tee told
[ "$(grep -ci "reset" told)" = 1 ] || fail "the reset was not reported once"
attentions "${tapes[0]}" >/dev/null

say "a disk of this machine: file system, the same data below"
disk=/dev/$(of 0 block | head -n1)
mkfs.ext4 -q "$disk" && mount "$disk" /mnt/t && cp in/data /mnt/t && umount /mnt/t || fail "ext4"
for node in "$kernel_disk" "$disk"; do dd if="$node" bs=1M iflag=direct status=none | sha256sum; done | uniq | wc -l | grep -qx 1 || fail "other data than below"
say "identity is Tarn's, pages are the device's"
sg_inq "$disk" | grep -q scsi_debug || fail "INQUIRY is not of the device"
[ "$(sg_vpd -p sn -q "$disk")" != "$(sg_vpd -p sn -q "$kernel_disk")" ] || fail "the serial number is not Tarn's"
for disk_node in "${disks[@]}"; do
    sg_inq "$disk_node" && sg_vpd -a "$disk_node" && sg_modes -a "$disk_node" && sg_logs -a "$disk_node" && sg_opcodes "$disk_node"
done >pages 2>&1 || { cat pages; fail "sg3-utils"; }
say "persistent reservation"
sg_persist -n -o -G -S 0xa "${disks[0]}" && sg_persist -n -o -R -T 3 -K 0xa "${disks[0]}" || fail "RESERVE"
sg_dd if=/dev/zero of="${disks[1]}" bs=512 count=1 >/dev/null 2>&1 && fail "the other one writes to a reserved disk"
sg_persist -n -o -C -K 0xa "${disks[0]}" || fail "CLEAR"
attentions "${disks[1]}" >/dev/null
say "eject and load by one is reported to the other"
sg_start --eject "${disks[0]}" || fail "eject"
sg_turs "${disks[1]}" 2>/dev/null && fail "a stopped disk is ready"
sg_start --load "${disks[0]}" || sg_start --start "${disks[0]}" || fail "load"
attentions "${disks[1]}"

if [ -n "$drive" ]; then
    say "the CD drive of this machine"
    mapfile -t drives <<<"$(of 5 scsi_generic | sed 's,^,/dev/,')"
    for node in "${drives[@]}"; do attentions "$node" >/dev/null; done
    cd_of() { mount -o ro "/dev/$(of 5 block | sed -n "$1p")" /mnt/t && cat /mnt/t/marker && umount /mnt/t; }
    [ "$(cd_of 1)" = "disc of QEMU" ] && [ "$(cd_of 2)" = "disc of QEMU" ] || fail "mount"
    # udev keeps the disc in for both; what one allows, the other still prevents.
    sg_prevent --prevent=1 "${drives[1]}" && sg_prevent --allow "${drives[0]}" || fail "PREVENT, ALLOW"
    sg_start --eject "${drives[0]}" 2>/dev/null && fail "the disc that the other one keeps in was ejected"
    sg_prevent --allow "${drives[1]}" && sg_start --eject "${drives[0]}" || fail "eject"
    sg_turs "${drives[1]}" 2>/dev/null && fail "an open drive is ready"
    sg_start --load "${drives[0]}" || fail "load"
    attentions "${drives[1]}" | tee told
    grep -qi "may have changed" told || fail "the load was not reported to the other one"
fi
say "a device that is gone"
echo 1 >"/sys/class/scsi_generic/${debug##*/}/device/delete"
sg_turs "${disks[0]}" 2>/dev/null && fail "a device that is gone is ready"
sg_inq "${disks[1]}" >/dev/null || fail "INQUIRY of a device that is gone"
sg_turs "${tapes[0]}" || sg_turs "${tapes[0]}" || fail "the tape beside it is not ready"
is_named() { "$TARN" doctor >findings; grep -q "store-lost" findings; }
retry 30 is_named || { cat findings; fail "the doctor does not name it"; }
cat findings
say "the end"
iscsiadm -m node -T "$iqn" --logout && iscsiadm -m node -T "$iqn" -o delete || fail "logout"
kill -TERM $tarn; wait $tarn || fail "Tarn ended with $?"
trap - EXIT
kill -KILL $tgtd; wait $tgtd
rmmod scsi_debug || true
