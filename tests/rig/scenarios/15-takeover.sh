#!/bin/bash
# Two gateways on the host have one image of a Ceph cluster; dm-multipath has paths to both. The one that serves is killed
# during verified writes and the other one takes the image: no write is lost, no error seen, and reservations with APTPL hold.
. /run/job/guest/lib.sh
[ -n "${GATEWAYS:-}" ] || skip "no gateways"
read -r one two <<<"$GATEWAYS"
iqn=$IQN_GATEWAYS
hostcall gateways-begin; case $? in 0) ;; 77) skip "Ceph cannot be installed" ;; *) fail "hostcall gateways-begin" ;; esac
iscsi_start
modprobe -a dm_multipath dm_round_robin
cat >/etc/multipath.conf <<END
defaults {
    find_multipaths no
    user_friendly_names yes
    path_checker tur
    no_path_retry 60
    detect_prio no
    prio const
    polling_interval 1
    max_polling_interval 2
    reservation_key 0xabc
}
blacklist {
    devnode "^(vd|nbd|loop)"
}
END
mkdir -p /run/udev /etc/multipath; multipathd || fail "multipathd"
t="node.session.timeo.replacement_timeout=3 node.conn[0].timeo.noop_out_interval=2 node.conn[0].timeo.noop_out_timeout=2"
say "a path that serves, and one that waits"
two_disks() { [ "$(disks "$iqn" | wc -l)" = 2 ]; }
three_disks() { [ "$(disks "$iqn" | wc -l)" = 3 ]; }
login "$iqn" "$one" $t || fail "login at $one"
has_map() { multipathd show maps raw format "%n" 2>/dev/null | grep -q .; }
retry 30 has_map || { multipathd show paths; fail "no map"; }
map=/dev/mapper/$(multipathd show maps raw format "%n" | awk 'NR == 1 { print $1 }')
a=$(first_disk "$iqn")
# The path that waits refuses the partition table at once (04h/03h), and tur takes it for down until it serves.
iscsiadm -m node -o new -T "$iqn" -p "$two" >/dev/null && iscsiadm -m node -T "$iqn" -p "$two" --login || fail "login at $two"
retry 20 two_disks || fail "no disk at $two"
b=$(disks "$iqn" | grep -vx "$a")
multipath -ll "$map"

say "a reservation with APTPL"
persist() { mpathpersist "$@" "$map" || fail "mpathpersist $*"; }
persist --out --register --param-aptpl --param-sark=0xabc
persist --out --reserve --prout-type=5 --param-rk=0xabc
sg_persist -n -i -r "$a"
say "load, then the end of the one that serves"
fio --name=v --filename="$map" --direct=1 --rw=randrw --bs=4k --size=8M --ioengine=libaio --iodepth=8 --rate_iops=150 \
    --verify=crc32c --verify_fatal=1 --verify_backlog=64 --do_verify=1 >/tmp/fio 2>&1 &
fio=$!
sleep 5
kill -0 $fio 2>/dev/null || { cat /tmp/fio; fail "fio ended before the gateway did"; }
hostcall gateways-takeover || fail "hostcall gateways-takeover"
served() { multipathd show paths raw format "%d %t %T" 2>/dev/null | grep -q "^${b##*/} active *ready"; }
retry 60 served || { multipath -ll; dmesg | tail -n 20; fail "the other path does not come up"; }
multipath -ll "$map"
wait $fio || { cat /tmp/fio; dmesg | tail -n 20; fail "fio met errors"; }
grep -E "read:|write:|err=" /tmp/fio

say "the reservation at the other one"
sg_persist -n -i -r "$b" | tee /tmp/held
grep -q "type: Write Exclusive, registrants only" /tmp/held || fail "the reservation is lost"
sg_persist -n -i -k "$b" | grep -q 0xabc || fail "the registration is lost"
iscsiadm -m iface -I stranger -o new >/dev/null
iscsiadm -m iface -I stranger -o update -n iface.transport_name -v tcp >/dev/null
iscsiadm -m iface -I stranger -o update -n iface.initiatorname -v iqn.1993-08.org.debian:01:vmrig-stranger >/dev/null
multipathd shutdown >/dev/null 2>&1
iscsiadm -m node -I stranger -o new -T "$iqn" -p "$two" >/dev/null && iscsiadm -m node -I stranger -T "$iqn" -p "$two" --login ||
    fail "login of a stranger"
retry 20 three_disks || fail "no disk of the stranger"
c=$(disks "$iqn" | grep -vxF "$(printf '%s\n' "$a" "$b")")
sg_turs "$c"; sg_turs "$c"
sg_dd if="$c" of=/dev/null bs=512 count=1 blk_sgio=1 2>/dev/null || fail "the stranger cannot read"
sg_dd if=/dev/zero of="$c" bs=512 count=1 blk_sgio=1 2>/dev/null && fail "the stranger can write"
multipath -F
iscsiadm -m node -T "$iqn" --logout >/dev/null 2>&1
hostcall gateways-end || fail "hostcall gateways-end"
