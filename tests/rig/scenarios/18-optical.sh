#!/bin/bash
# A CD drive of a Tarn in the guest: the disc is mounted, looked at by cd-info and dvd+rw-mediainfo, ejected, and exchanged while
# the drive is open; the RESERVE of the drive outlives the exchange.
. /run/job/guest/lib.sh
[ -n "${TARN:-}" ] || skip "no Tarn to run in the guest"
home=$(mktemp -d /var/tmp/optical.XXXXXX); cd "$home" || exit 1
for disc in one two; do
    mkdir $disc; echo "disc $disc" >$disc/marker; head -c 3M /dev/urandom >$disc/data
    xorriso -as mkisofs -quiet -V "DISC_$disc" -o $disc.iso $disc || fail "xorriso"
done
cat >tarn.toml <<END
[server]
state = "$home/state"
[admin]
socket = "$home/tarn.sock"
[[lun]]
id = "cd"
store = "cdrom:$home/one.iso"
[[target]]
name = "iqn.2026-11.example.optical:cd"
portals = ["127.0.0.1:3263"]
luns = [{ lun = 0, id = "cd" }]
END
iqn=iqn.2026-11.example.optical:cd
export TARN_SOCKET=$home/tarn.sock
ip link set lo up
is_out() { "$TARN" lun show cd --json | grep -q '"loaded": *false'; }
# udev keeps a new disc in, and ejects it a moment after it is asked to. It is asked once: another wish would eject the next disc.
wish() { "$TARN" lun eject cd; retry 60 is_out || fail "udev does not hear of the wish for an eject"; }
listens() { (exec 3<>"/dev/tcp/127.0.0.1/$1") 2>/dev/null; }
"$TARN" serve --config tarn.toml >tarn.out 2>&1 & tarn=$!
trap 'cat tarn.out; umount /mnt/cd 2>/dev/null; kill $tarn' EXIT
retry 60 listens 3263 || fail "no Tarn"
modprobe -a sr_mod isofs || fail "no module sr_mod"
iscsi_start
login "$iqn" 127.0.0.1:3263 || fail "login"
has_drive() { drive=$(for d in $(devices "$iqn" 5); do ls "$d/block" 2>/dev/null; done | head -n1); [ -n "$drive" ]; }
retry 20 has_drive || fail "no drive"
drive=/dev/$drive
marker() { mount -o ro "$drive" /mnt/cd && cat /mnt/cd/marker && (cd /mnt/cd && cmp data "$home/$1/data"); }
mkdir -p /mnt/cd

# The wish for an eject reaches udev as well, whose rule unlocks the tray and ejects, mounted or not, a moment later.
rules=/etc/udev/rules.d/60-cdrom_id.rules
sed /DISK_EJECT_REQUEST/d /usr/lib/udev/rules.d/60-cdrom_id.rules >$rules && udevadm control --reload || fail "udev's rules"
say "a disc is mounted"
[ "$(marker one)" = "disc one" ] || fail "mount"
say "the tray is locked while it is"
! "$TARN" lun eject cd || fail "a mounted disc was ejected"
umount /mnt/cd
say "cd-info"
cd-info --no-cddb --no-device-info "$drive" >info 2>&1 || { cat info; fail "cd-info"; }
grep -q "ISO 9660" info && grep -q "DISC_one" info || { cat info; fail "cd-info finds no file system"; }
say "sg3-utils"
sg_inq "$drive" && sg_readcap "$drive" && sg_turs "$drive" || fail "sg3-utils"
sg_modes -a "$drive" >/dev/null && sg_opcodes "$drive" >/dev/null && sg_logs "$drive" >/dev/null || fail "sg3-utils: pages"
say "eject, and load by the initiator"
eject "$drive" || fail "eject"
[ "$("$TARN" lun show cd --json | grep -c '"loaded": *false')" = 1 ] || fail "the medium is not out"
eject -t "$drive" || fail "eject -t"
retry 20 sg_turs "$drive" || fail "not ready after the load"
[ "$(marker one)" = "disc one" ] || fail "mount after the load"
umount /mnt/cd
say "another disc while the drive is open and reserved"
exec 9<"$drive"
sg_raw "$drive" 16 0 0 0 0 0 || fail "RESERVE"
"$TARN" lun load cd "$home/two.iso" --force || fail "load"
exec 9<&-
retry 20 sg_turs "$drive" || fail "not ready with the other disc"
"$TARN" lun reservation show cd | grep -q "RESERVE\|reserved by" || fail "the reservation is gone"
sg_raw "$drive" 17 0 0 0 0 0 || fail "RELEASE"
[ "$(marker two)" = "disc two" ] || fail "mount of the other disc"
umount /mnt/cd
say "a DVD: dvd+rw-mediainfo"
cp one.iso dvd.iso; truncate -s 1000M dvd.iso
rm $rules && udevadm control --reload || fail "udev's rules"
wish
"$TARN" lun load cd "$home/dvd.iso" || fail "load of a DVD"
retry 20 sg_turs "$drive" || fail "not ready with the DVD"
dvd+rw-mediainfo "$drive" >media 2>&1; cat media
grep -q "Mounted Media: *10h, DVD-ROM" media || fail "dvd+rw-mediainfo finds no DVD"
wish
"$TARN" lun load cd "$home/two.iso" || fail "load"
retry 20 sg_turs "$drive" || fail "not ready with the disc of before"
say "it outlives a restart of Tarn, ejected"
wish
kill -TERM $tarn; wait $tarn || fail "Tarn ended with $?"
"$TARN" serve --config tarn.toml >>tarn.out 2>&1 & tarn=$!
retry 60 listens 3263 || fail "no Tarn after the restart"
retry 20 is_out || fail "the medium is in after a restart"
"$TARN" lun load cd || fail "load"
retry 60 sg_turs "$drive" || fail "not ready after the restart"
[ "$(marker two)" = "disc two" ] || fail "mount after the restart"
umount /mnt/cd
logout "$iqn" 127.0.0.1:3263 || fail "logout"
kill -TERM $tarn; wait $tarn || fail "Tarn ended with $?"
trap - EXIT
