#!/bin/bash
# The sg3-utils view of a disk.  INQUIRY, capacity, mode pages and a write/read must
# work; everything else is shown as supported or not, and must be supported if ALL_COMMANDS is set.
. /run/job/guest/lib.sh
iscsi_start
login "$IQN" "$PORTAL" || fail "login"
disk=$(first_disk "$IQN") || fail "no disk"
sg_inq "$disk" || fail "INQUIRY"
for page in 0x00 0x80 0x83; do sg_vpd -p $page "$disk" || fail "VPD page $page"; done
sg_readcap "$disk" || fail "READ CAPACITY(10)"
sg_luns "$disk" || fail "REPORT LUNS"
sg_modes -a "$disk" >/tmp/modes || fail "MODE SENSE"; grep -c "page" /tmp/modes | sed 's/$/ mode pages/'
sg_turs "$disk" || fail "TEST UNIT READY"
say "compare a sector written through WRITE(16) with one read through READ(10)"
head -c 4096 /dev/urandom >/tmp/w
sg_dd if=/tmp/w of="$disk" bs=512 count=8 seek=64 blk_sgio=1 cdbsz=16 2>/dev/null || fail "WRITE(16)"
sg_dd if="$disk" of=/tmp/r bs=512 count=8 skip=64 blk_sgio=1 cdbsz=10 2>/dev/null || fail "READ(10)"
cmp /tmp/w /tmp/r || fail "contents differ"
missing=0
optional() {    # TEXT COMMAND...
    local text=$1 rc; shift
    "$@" >/tmp/out 2>&1; rc=$?
    [ $rc -eq 0 ] || missing=$((missing + 1))
    case $rc in 0) rc=yes ;; 5|9) rc="no (not supported)" ;; *) rc="no (exit $rc)" ;; esac
    printf '%-44s %s\n' "$text" "$rc"
}
say "optional"
optional "READ CAPACITY(16)"                 sg_readcap -l "$disk"
optional "VPD B0h block limits"              sg_vpd -p bl "$disk"
optional "VPD B1h block device characteristics" sg_vpd -p bdc "$disk"
optional "VPD B2h logical block provisioning" sg_vpd -p lbpv "$disk"
optional "REPORT SUPPORTED OPERATION CODES"  sg_opcodes "$disk"; grep -c "^ [ 0-9a-f][0-9a-f] " /tmp/out
optional "REPORT SUPPORTED TASK MANAGEMENT"  sg_opcodes -t "$disk"
optional "PERSISTENT RESERVE IN, keys"       sg_persist -n -i -k "$disk"
optional "PERSISTENT RESERVE IN, capabilities" sg_persist -n -i -c "$disk"
optional "REPORT TARGET PORT GROUPS"         sg_rtpg "$disk"
optional "LOG SENSE"                         sg_logs "$disk"
optional "SYNCHRONIZE CACHE"                 sg_sync "$disk"
optional "VERIFY(10)"                        sg_verify -l 0 -c 8 "$disk"
optional "WRITE AND VERIFY(10)"              sg_write_verify -l 64 -n 1 -i /tmp/w "$disk"
optional "WRITE SAME(10)"                    sg_write_same -l 128 -n 8 "$disk"
optional "WRITE SAME(16) with UNMAP"         sg_write_same -S -U -l 128 -n 8 "$disk"
optional "UNMAP"                             sg_unmap -l 256 -n 8 "$disk"
optional "COMPARE AND WRITE"                 sg_compare_and_write -l 64 -n 1 -i /tmp/w --inw=/tmp/w "$disk"
optional "GET LBA STATUS"                    sg_get_lba_status -l 0 "$disk"
optional "START STOP UNIT"                   sg_start --start "$disk"
optional "REQUEST SENSE"                     sg_requests "$disk"
optional "logical unit reset"                sg_reset -d "$disk"
[ -z "$ALL_COMMANDS" ] || [ $missing -eq 0 ] || fail "$missing of these should be there"
logout "$IQN" "$PORTAL" || fail "logout"
