#!/bin/bash
# Target adapter for Debian's tgt: a peer to check the rig itself with, and the example for other adapters.
#   tgt.sh start   start the target, return when it serves; also after `kill`
#   tgt.sh kill    end it as a crash would (SIGKILL); its storage stays
#   tgt.sh stop    end it; exit code 0 if it ended well
# Environment: T_DIR (scratch directory that stays from start to stop), T_IQN, T_PORT,
# T_PORT2, T_SIZE_MB, CHAP_USER, CHAP_PASS, CHAP_USER_IN, CHAP_PASS_IN.
# Targets: T_IQN (a disk), T_IQN:chap (the same with CHAP; of the algorithms it has MD5 only).
set -e
export TGT_IPC_SOCKET=$T_DIR/tgtd.socket
ctl=$((T_PORT % 32768))
tgtadm() { command tgtadm -C $ctl --lld iscsi "$@"; }
target() {      # TID NAME
    tgtadm --mode target --op new --tid "$1" --targetname "$2"
    tgtadm --mode target --op bind --tid "$1" --initiator-address ALL
    tgtadm --mode target --op update --tid "$1" --name HeaderDigest --value CRC32C,None
    tgtadm --mode target --op update --tid "$1" --name DataDigest --value CRC32C,None
    tgtadm --mode logicalunit --op new --tid "$1" --lun 1 --backing-store "$T_DIR/disk"
}

case $1 in
start)
    truncate -s "${T_SIZE_MB}M" "$T_DIR/disk"
    tgtd -f -C $ctl --iscsi "portal=127.0.0.1:$T_PORT,portal=127.0.0.1:$T_PORT2" >"$T_DIR/tgtd.log" 2>&1 &
    echo $! >"$T_DIR/pid"
    for _ in $(seq 100); do tgtadm --mode sys --op show >/dev/null 2>&1 && break; sleep 0.1; done
    # Until all is configured no session may come in: a session that finds its disk
    # gone would have it removed instead of waiting for it.
    tgtadm --mode sys --op update --name State -v offline
    target 1 "$T_IQN"
    tgtadm --mode logicalunit --op update --tid 1 --lun 1 --params thin_provisioning=1
    target 2 "$T_IQN:chap"
    tgtadm --mode account --op new --user "$CHAP_USER" --password "$CHAP_PASS"
    tgtadm --mode account --op bind --tid 2 --user "$CHAP_USER"
    tgtadm --mode account --op new --user "$CHAP_USER_IN" --password "$CHAP_PASS_IN"
    tgtadm --mode account --op bind --tid 2 --user "$CHAP_USER_IN" --outgoing
    tgtadm --mode sys --op update --name State -v ready
    ;;
kill)
    kill -KILL "$(cat "$T_DIR/pid")"
    while kill -0 "$(cat "$T_DIR/pid")" 2>/dev/null; do sleep 0.05; done
    ;;
stop)
    kill -TERM "$(cat "$T_DIR/pid")" 2>/dev/null || exit 0
    sleep 0.2; kill -KILL "$(cat "$T_DIR/pid")" 2>/dev/null || true
    ;;
*) echo "usage: $0 start|kill|stop" >&2; exit 2 ;;
esac
