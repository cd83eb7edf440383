#!/bin/bash
# The daemon is replaced by another during verified writes, as an upgrade does it (SIGTERM) and after a crash (SIGKILL).
# Afterwards initiators and administrators must find everything as it was: identities, capacities, saved mode pages,
# persistent reservations, sessions, tokens, the history.
. /run/job/guest/lib.sh
[ -n "$PORTAL4" ] || skip "no daemon to replace"
iqn=$IQN_UPGRADE
iscsi_start
host() { hostcall "upgrade-$1" || fail "hostcall upgrade-$1"; }
# Tools see unit attentions, which come when a daemon or a session is new; this takes those of a disk.
attentions() { for _ in 1 2 3 4; do sg_turs -v "$1" 2>&1 | grep -i "additional sense" || return 0; done; fail "no end of unit attentions"; }
save() { sdparm -q --save "$1" "${a[2]}" || fail "sdparm --save $1"; }
pr() { sg_persist -n "$@" || fail "sg_persist $*"; }
can_write() { sg_dd if=/dev/zero of="$1" bs=512 seek=8 count=1 blk_sgio=1 >/dev/null 2>&1; }
reservations() { pr -i -k "$1"; pr -i -r "$1"; pr -i -s "$1"; }
# What an initiator knows of the disks; PRgeneration is left out, which is zero after every start (SPC-4).
view() {
    local disk
    for disk in "${a[@]}"; do
        echo "disk ${disk##*/}"
        { sg_vpd -p sn "$disk" && sg_vpd -p di "$disk" && sg_readcap -l "$disk"; } || fail "view of $disk"
    done
    sdparm -q --get=WCE,D_SENSE "${a[2]}" || fail "sdparm --get"
    { reservations "${a[0]}"; reservations "${b[1]}"; } | sed 's/PR generation=[0-9a-fx]*//'
}
log_in() {      # IFACE
    local p
    iscsiadm -m node -I "$1" -o new -T "$iqn" -p "$PORTAL4" >/dev/null || fail "node record"
    for p in auth.authmethod=CHAP auth.username="$CHAP_USER" auth.password="$CHAP_PASS" auth.username_in="$CHAP_USER_IN" \
        auth.password_in="$CHAP_PASS_IN" timeo.replacement_timeout=180; do
        iscsiadm -m node -I "$1" -T "$iqn" -p "$PORTAL4" -o update -n "node.session.${p%%=*}" -v "${p#*=}" || fail "$p"
    done
    iscsiadm -m node -I "$1" -T "$iqn" -p "$PORTAL4" --login || fail "login of $1"
}
seen() { [ "$(disks "$iqn" | wc -l)" = "$1" ]; }
is_busy() { awk '{ exit $1 + $2 == 0 }' "/sys/block/${a[0]##*/}/inflight"; }
recovered() { ! grep -vq LOGGED_IN /sys/class/iscsi_session/session*/state; }

say "the daemon of before"
host begin
iscsiadm -m iface -I second -o new >/dev/null
iscsiadm -m iface -I second -o update -n iface.transport_name -v tcp >/dev/null
iscsiadm -m iface -I second -o update -n iface.initiatorname -v iqn.1993-08.org.debian:01:vmrig-second >/dev/null
log_in default
retry 20 seen 3 || fail "not three disks"
mapfile -t a <<<"$(disks "$iqn")"
log_in second
retry 20 seen 6 || fail "not three disks more"
mapfile -t b <<<"$(disks "$iqn" | grep -vxF "$(printf '%s\n' "${a[@]}")")"
udevadm settle -t 30
for disk in "${a[@]}" "${b[@]}"; do attentions "$disk" >/dev/null; done
say "reservations and saved mode pages"
pr -o -G -S 0xa -Z "${a[0]}"; pr -o -G -S 0xb -Z "${b[0]}"; pr -o -R -T 5 -K 0xa "${a[0]}"
pr -o -G -S 0xb1 -Z "${b[1]}"; pr -o -R -T 3 -K 0xb1 "${b[1]}"
save --clear=WCE; save --set=D_SENSE
for disk in "${a[2]}" "${b[2]}"; do attentions "$disk" >/dev/null; done
view >/tmp/view || fail "view"
grep -E "Unit serial|reservation key|WCE|D_SENSE|Last LBA" /tmp/view

# Writes every block at the beginning of the disk once and reads them all back, again and again.
rm -f /tmp/enough
write_and_verify() {
    local pass
    for pass in $(seq 1000); do
        fio --name=v --filename="${a[0]}" --direct=1 --rw=randwrite --bs=4k --size=4M --ioengine=libaio --iodepth=16 \
            --rate_iops=150 --verify=crc32c --verify_fatal=1 --do_verify=1 --verify_backlog=256 --randseed="$pass" >/tmp/fio 2>&1 ||
            return 1
        [ ! -e /tmp/enough ] || break
    done
    say "fio: $pass passes without an error; the last:"
    grep -E "read:|write:|err=" /tmp/fio
}
write_and_verify &
fio=$!
for ends in $ENDS; do
    sleep 2
    host note
    dmesg --clear
    retry 20 is_busy || { cat /tmp/fio; fail "fio has nothing under way"; }
    say "replace the daemon, SIG$ends"
    host "$ends"
    retry 90 recovered || fail "no recovery"
    host compare
    for disk in "${a[@]}" "${b[@]}"; do attentions "$disk" & done | sort | uniq -c | tee /tmp/attentions
    grep -viE "power on|reset|nexus loss" /tmp/attentions && fail "not only the unit attentions of a new session"
    # udev looks at a disk after each tool, and may not read the one that the other initiator has for itself.
    dmesg | grep -v "dev ${a[1]##*/}," | grep -iE "(has|have|parameters) changed|I/O error|error, dev" &&
        fail "the kernel noticed more than a lost connection"
    view >/tmp/view.new
    diff /tmp/view /tmp/view.new || fail "not as it was"
    pr -i -k "${a[0]}" | grep -q "generation=0x0" || fail "PRgeneration after a start"
    say "the reservation of the quorum disk holds"
    can_write "${b[1]}" || fail "its holder cannot write"
    can_write "${a[1]}" && fail "another initiator can write"
    # The next daemon finds what this one has saved.
    pr -o -G -K 0xa -S 0xa0 -Z "${a[0]}"; pr -o -G -K 0xa0 -S 0xa -Z "${a[0]}"
    save --set=WCE; save --clear=WCE
    for disk in "${a[2]}" "${b[2]}"; do attentions "$disk" >/dev/null; done
done
say "back to a revision of before"
touch /tmp/enough
host rollback
iscsiadm -m session --rescan >/dev/null || fail "rescan"
retry 20 seen 8 || fail "the LUN of that revision is not there"
wait $fio || { cat /tmp/fio; dmesg | tail -n 20; fail "fio met errors"; }
logout "$iqn" "$PORTAL4" || fail "logout"
host end
