# Helpers for the scripts that run in the guest:  . /run/job/guest/lib.sh
#
# What a scenario gets (see `check`):
#   PORTAL, PORTAL2    two portals of the target, address:port
#   IQN                target with a disk         IQN_CHAP  the same, CHAP wanted
#   CHAP_ALGORITHMS    those to try one by one, as open-iscsi names them
#   CHAP_USER, CHAP_PASS, CHAP_USER_IN, CHAP_PASS_IN
#   PORTAL3            a relay to PORTAL that counts flushes, served between hold and unhold
#   hostcall kill | start   ends the target abruptly / starts it again
#   PORTAL4, IQN_UPGRADE  a daemon of its own, to be replaced by another; ENDS the signals that end it, one after another
#   hostcall upgrade-VERB   a verb of `upgrade host`: begin note TERM KILL compare rollback end
#   hostcall hold | unhold  another initiator reserves the disk (Write Exclusive, Registrants Only) / lets it go
#   hostcall flushes        whether a SYNCHRONIZE CACHE went through PORTAL3
#   NBD                 an NBD server with the export "disk", which is the disk of IQN
#   TARN, CUT           Tarn's binary, for a daemon in the guest, and its directory; hostcall replay looks at what was recorded
#   GATEWAYS, IQN_GATEWAYS  two gateways of one image; hostcall gateways-begin | gateways-takeover | gateways-end

say()  { echo "--- $*"; }
# What the kernel said last often names the reason.
fail() { echo "FAIL: $*"; dmesg | tail -n 20; exit 1; }
skip() { echo "SKIP: $*"; exit 77; }

# hostcall NAME: run the command that the host has for NAME, return its exit code.
hostcall() {
    local f="/run/job/call/$1.$(cat /proc/sys/kernel/random/uuid)"
    : >"$f.req"
    until [ -e "$f.rc" ]; do sleep 0.1; done
    return "$(cat "$f.rc")"
}

# retry SECONDS COMMAND...: until it succeeds.
retry() {
    local end=$(($(date +%s) + $1)); shift
    until "$@"; do [ "$(date +%s)" -lt "$end" ] || return 1; sleep 0.2; done
}

iscsi_start() {
    modprobe -a iscsi_tcp sd_mod sg
    pidof iscsid >/dev/null || { iscsid || fail "iscsid does not start"; }
    retry 20 iscsiadm -m session -P 0 >/dev/null 2>&1 || iscsiadm -m session 2>&1 | grep -q "No active" ||
        fail "iscsid does not answer"
}

# local_portals PORT...: let 127.0.0.1:PORT lead to the host.  A target that listens
# on the host's loopback names that address in its answer to SendTargets; so the
# discovered portals work as they are.
local_portals() {
    modprobe -a nft_nat nft_masq nft_chain_nat 2>/dev/null
    echo 1 >/proc/sys/net/ipv4/conf/all/route_localnet
    nft -f - <<EOF
table ip vmrig {
  chain out { type nat hook output priority -100; ip daddr 127.0.0.1 tcp dport { $(echo "$@" | tr ' ' ',') } dnat to 10.0.2.2; }
  chain post { type nat hook postrouting priority 100; oifname "eth0" ip saddr 127.0.0.1 masquerade; }
}
EOF
}

# login IQN PORTAL [NAME=VALUE...]: make a node record by hand (no discovery), set
# its parameters, log in and wait for the devices.
login() {
    local iqn=$1 portal=$2 p; shift 2
    iscsiadm -m node -o new -T "$iqn" -p "$portal" >/dev/null || return
    for p in "$@"; do
        iscsiadm -m node -T "$iqn" -p "$portal" -o update -n "${p%%=*}" -v "${p#*=}" || return
    done
    iscsiadm -m node -T "$iqn" -p "$portal" --login || return
    udevadm settle -t 30
}

logout() {
    iscsiadm -m node -T "$1" ${2:+-p "$2"} --logout && iscsiadm -m node -T "$1" ${2:+-p "$2"} -o delete
}

# devices IQN [TYPE]: sysfs directories of the logical units of all sessions with this
# target; TYPE is the peripheral device type (0 disk, 1 tape, 5 CD-ROM, 8 changer).
devices() {
    local s d
    for s in /sys/class/iscsi_session/session*; do
        [ "$(cat "$s/targetname" 2>/dev/null)" = "$1" ] || continue
        for d in "$s"/device/target*/*:*:*:*; do
            [ -e "$d/type" ] && [ "$(cat "$d/type")" = "${2:-0}" ] && echo "$d"
        done
    done
}

# disks IQN: /dev/sdX of each disk, one a line.
disks() { local d; for d in $(devices "$1" 0); do ls "$d/block" 2>/dev/null | sed 's,^,/dev/,'; done; }

# first_disk IQN: wait for it, print its name.
first_disk() { retry 20 has_disk "$1" && disks "$1" | head -n1; }
has_disk() { [ -n "$(disks "$1")" ]; }

# negotiated IQN NAME: a value that login has negotiated, as the kernel has it.
negotiated() {
    local s c
    for s in /sys/class/iscsi_session/session*; do
        [ "$(cat "$s/targetname" 2>/dev/null)" = "$1" ] || continue
        for c in "$s"/device/connection*/iscsi_connection/*; do cat "$s/$2" 2>/dev/null || cat "$c/$2" 2>/dev/null; done
    done | head -n1
}

