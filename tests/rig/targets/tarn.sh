#!/bin/bash
# Target adapter for Tarn's release binary; see tgt.sh for the verbs and the environment.
# Targets: T_IQN (a disk), T_IQN:chap (the same disk with CHAP, mutual if the initiator wants).
# At T_PORT6 the disk is an export of NBD, too.
set -e
root=$(cd "$(dirname "$0")/../../.." && pwd)
tarn=${TARN_BIN:-$root/target/release/tarn}

secret() {      # FILE SECRET
    (umask 077; printf '%s\n' "$2" >"$1")
}
listens() { (exec 3<>"/dev/tcp/127.0.0.1/$1") 2>/dev/null; }

case $1 in
start)
    secret "$T_DIR/chap.secret" "$CHAP_PASS"
    secret "$T_DIR/chap-in.secret" "$CHAP_PASS_IN"
    cat >"$T_DIR/tarn.toml" <<END
[[lun]]
id = "disk"
store = "file:$T_DIR/disk.img?size=${T_SIZE_MB}M"
[[user]]
name = "$CHAP_USER"
secret_file = "$T_DIR/chap.secret"
mutual = { name = "$CHAP_USER_IN", secret_file = "$T_DIR/chap-in.secret" }
[[target]]
name = "$T_IQN"
portals = ["127.0.0.1:$T_PORT", "127.0.0.1:$T_PORT2"]
luns = [{ lun = 0, id = "disk" }]
[[target]]
name = "$T_IQN:chap"
portals = ["127.0.0.1:$T_PORT", "127.0.0.1:$T_PORT2"]
auth = ["$CHAP_USER"]
luns = [{ lun = 0, id = "disk" }]
[[nbd]]
bind = "127.0.0.1:$T_PORT6"
luns = ["disk"]
END
    "$tarn" serve --config "$T_DIR/tarn.toml" --state "$T_DIR/state" >>"$T_DIR/tarn.out" 2>>"$T_DIR/tarn.log" &
    echo $! >"$T_DIR/pid"
    for _ in $(seq 200); do
        listens "$T_PORT" && listens "$T_PORT2" && exit 0
        kill -0 "$(cat "$T_DIR/pid")" 2>/dev/null || break
        sleep 0.1
    done
    tail -n 20 "$T_DIR/tarn.log" >&2
    exit 1
    ;;
kill)
    kill -KILL "$(cat "$T_DIR/pid")"
    while kill -0 "$(cat "$T_DIR/pid")" 2>/dev/null; do sleep 0.05; done
    ;;
stop)
    if grep -n "panicked at" "$T_DIR/tarn.log" 2>/dev/null; then exit 1; fi
    kill -TERM "$(cat "$T_DIR/pid")" 2>/dev/null || exit 0
    for _ in $(seq 150); do kill -0 "$(cat "$T_DIR/pid")" 2>/dev/null || exit 0; sleep 0.1; done
    echo "tarn.sh: still there 15 s after SIGTERM" >&2
    kill -KILL "$(cat "$T_DIR/pid")"
    exit 1
    ;;
*) echo "usage: $0 start|kill|stop" >&2; exit 2 ;;
esac
