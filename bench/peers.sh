#!/bin/bash
# peers.sh - start and stop Tarn, the packaged iSCSI targets (Debian: tgt, istgt) and NBD servers
# (nbdkit, qemu-nbd) for comparison runs. Loopback only. Run as root.
#
#   peers.sh start tarn|wall|tgt|istgt|nbdkit|qemu-nbd     prints one target line for compare.py, per LUN
#   peers.sh stop  tarn|wall|tgt|istgt|nbdkit|qemu-nbd
#
# Settings by environment: DIR (work folder), RAM (a file on tmpfs), FILE (a file on disk), MB,
# CPU (core the target is pinned to), PRE (a command prefix, such as "chrt -f 10"),
# TGT_THREADS (tgtd -t), ISTGT_QD (istgt QueueDepth), *_PORT.
set -eu
DIR=${DIR:-${TMPDIR:-/tmp}/iscsi-bench}; mkdir -p "$DIR"
RAM=${RAM:-/dev/shm/iscsi-bench.img}; FILE=${FILE:-$DIR/file.img}; MB=${MB:-1024}
CPU=${CPU:-0}; PRE=${PRE:-}
TARN_PORT=${TARN_PORT:-3300}; TGT_PORT=${TGT_PORT:-3301}; ISTGT_PORT=${ISTGT_PORT:-3302}; NBD_PORT=${NBD_PORT:-3304}; QNBD_PORT=${QNBD_PORT:-3305}
TGT_CTL=${TGT_CTL:-71}; TGT_THREADS=${TGT_THREADS:-1}; ISTGT_QD=${ISTGT_QD:-64}
for f in "$RAM" "$FILE"; do
  [ -s "$f" ] || dd if=/dev/urandom of="$f" bs=1M count="$MB" status=none
done
pin() { $PRE taskset -c "$CPU" "$@"; }
wait_port() { for _ in $(seq 100); do (exec 3<>/dev/tcp/127.0.0.1/"$1") 2>/dev/null && return; sleep 0.1; done; echo "no listener on $1" >&2; exit 1; }
line() { # name proto port iqn lun pid
  printf '{"name":"%s","proto":"%s","host":"127.0.0.1","port":%s,"iqn":"%s","lun":%s,"pid":%s}\n' "$@"; }

start_tarn() { # null, memory, and a file on disk through the page cache
  local here iqn=iqn.2026-11.example.tarn:bench pid; here=$(cd "$(dirname "$0")/.." && pwd)
  (exec $PRE taskset -c "$CPU" "$here/target/release/tarn" serve --cores 1 --listen "127.0.0.1:$TARN_PORT" --target $iqn \
    --state "$DIR/tarn" "null:${MB}M" "mem:${MB}M" "$FILE") >"$DIR/tarn.log" 2>&1 &
  pid=$!; echo "$pid" >"$DIR/tarn.pid"; wait_port "$TARN_PORT"
  local lun=0; for n in null mem file; do line "tarn-$n" iscsi "$TARN_PORT" $iqn $lun "$pid"; lun=$((lun + 1)); done
}
stop_tarn() { kill "$(cat "$DIR/tarn.pid")" 2>/dev/null || true; }

start_tgt() {
  pin tgtd -f -C "$TGT_CTL" -t "$TGT_THREADS" --iscsi portal=127.0.0.1:"$TGT_PORT",nop_interval=0 >"$DIR/tgt.log" 2>&1 &
  sleep 0.5; wait_port "$TGT_PORT"
  local pid; pid=$(pgrep -f -- "^tgtd -f -C $TGT_CTL ") ; echo "$pid" >"$DIR/tgt.pid"
  local a="tgtadm -C $TGT_CTL --lld iscsi" tid=0
  for spec in null:null:"$RAM" ram:rdwr:"$RAM" file:rdwr:"$FILE" aio:aio:"$FILE"; do
    IFS=: read -r n bs path <<<"$spec"; tid=$((tid + 1)); iqn=iqn.2024-01.bench:tgt-$n
    $a --op new --mode target --tid $tid -T "$iqn"
    # big segments and bursts, no R2T for the first burst: what an initiator asks for by default
    for kv in MaxRecvDataSegmentLength=262144 MaxXmitDataSegmentLength=262144 FirstBurstLength=262144 \
              MaxBurstLength=16776192 InitialR2T=No ImmediateData=Yes MaxOutstandingR2T=16; do
      $a --op update --mode target --tid $tid -n "${kv%%=*}" -v "${kv#*=}" || echo "tgt: $kv refused" >&2
    done
    $a --op new --mode logicalunit --tid $tid --lun 1 -b "$path" --bstype "$bs" || { echo "tgt: no $n" >&2; continue; }
    $a --op bind --mode target --tid $tid -I ALL
    line "tgt-$n" iscsi "$TGT_PORT" "$iqn" 1 "$pid"
  done
}
stop_tgt() { # it ignores SIGTERM while it has targets
  tgtadm -C "$TGT_CTL" --op delete --mode system 2>/dev/null || true; kill -KILL "$(cat "$DIR/tgt.pid")" 2>/dev/null || true; }

start_istgt() {
  mkdir -p "$DIR/istgt"; echo >"$DIR/istgt/auth.conf"
  cat >"$DIR/istgt/istgt.conf" <<CONF
[Global]
  NodeBase "iqn.2024-01.bench"
  PidFile $DIR/istgt/istgt.pid
  AuthFile $DIR/istgt/auth.conf
  MediaDirectory $DIR/istgt
  LogFacility "local7"
  Timeout 30
  NopInInterval 0
  DiscoveryAuthMethod None
  MaxSessions 32
  MaxConnections 4
  MaxR2T 32
  MaxOutstandingR2T 16
  DefaultTime2Wait 2
  DefaultTime2Retain 60
  FirstBurstLength 262144
  MaxBurstLength 1048576
  MaxRecvDataSegmentLength 262144
  InitialR2T Yes
  ImmediateData Yes
  DataPDUInOrder Yes
  DataSequenceInOrder Yes
  ErrorRecoveryLevel 0
[UnitControl]
  AuthMethod None
  AuthGroup None
  Portal UC1 127.0.0.1:$((ISTGT_PORT + 1000))
  Netmask 127.0.0.1
[PortalGroup1]
  Portal DA1 127.0.0.1:$ISTGT_PORT
[InitiatorGroup1]
  InitiatorName "ALL"
  Netmask 127.0.0.0/8
[LogicalUnit1]
  TargetName istgt-ram
  Mapping PortalGroup1 InitiatorGroup1
  AuthMethod None
  AuthGroup None
  UseDigest Auto
  UnitType Disk
  QueueDepth $ISTGT_QD
  LUN0 Storage $RAM ${MB}MB
[LogicalUnit2]
  TargetName istgt-file
  Mapping PortalGroup1 InitiatorGroup1
  AuthMethod None
  AuthGroup None
  UseDigest Auto
  UnitType Disk
  QueueDepth $ISTGT_QD
  LUN0 Storage $FILE ${MB}MB
CONF
  pin istgt -D -c "$DIR/istgt/istgt.conf" -p "$DIR/istgt/istgt.pid" >"$DIR/istgt.log" 2>&1 &
  sleep 0.5; wait_port "$ISTGT_PORT"
  local pid; pid=$(pgrep -f -- "^istgt -D -c $DIR/istgt/istgt.conf"); echo "$pid" >"$DIR/istgt.pid"
  for n in ram file; do line "istgt-$n" iscsi "$ISTGT_PORT" "iqn.2024-01.bench:istgt-$n" 0 "$pid"; done
}
stop_istgt() { kill "$(cat "$DIR/istgt.pid")" 2>/dev/null || true; }

start_nbdkit() { # one process per backend
  pin nbdkit -f -i 127.0.0.1 -p "$NBD_PORT" -t "${NBD_THREADS:-16}" memory "${MB}M" >"$DIR/nbdkit.log" 2>&1 &
  pin nbdkit -f -i 127.0.0.1 -p $((NBD_PORT + 10)) -t "${NBD_THREADS:-16}" file "$FILE" >"$DIR/nbdkit2.log" 2>&1 &
  wait_port "$NBD_PORT"; wait_port $((NBD_PORT + 10))
  local a b; a=$(pgrep -f -- "nbdkit -f -i 127.0.0.1 -p $NBD_PORT "); b=$(pgrep -f -- "nbdkit -f -i 127.0.0.1 -p $((NBD_PORT + 10)) ")
  echo "$a $b" >"$DIR/nbdkit.pid"
  line nbdkit-mem nbd "$NBD_PORT" "" 0 "$a"; line nbdkit-file nbd $((NBD_PORT + 10)) "" 0 "$b"
}
stop_nbdkit() { # shellcheck disable=SC2046  # several
  kill $(cat "$DIR/nbdkit.pid") 2>/dev/null || true; }
start_wall() { # the walls: memory read, memory written (--store), file in the page cache copied and mapped, io_uring
  local here n p opt pid pids=; here=$(cd "$(dirname "$0")" && pwd); p=${WALL_PORT:-3310}
  cc -O2 -march=native -o "$DIR/wall" "$here/wall.c" -luring -lpthread
  for n in blk: uring:--mode=uring store:--store "file-copy:--file=$FILE --how=2" "file-map:--file=$FILE"; do
    opt=${n#*:}; p=$((p + 1))
    (exec $PRE taskset -c "$CPU" "$DIR/wall" --port "$p" --mem "$MB" $opt) >"$DIR/wall.log" 2>&1 & pid=$!
    wait_port "$p"; pids="$pids $pid"; line "wall-${n%%:*}" iscsi "$p" iqn.2024-01.bench:wall 0 "$pid"
  done
  echo "$pids" >"$DIR/wall.pid"
}
stop_wall() { # shellcheck disable=SC2046  # several
  kill $(cat "$DIR/wall.pid") 2>/dev/null || true; }
start_qemu-nbd() {
  pin qemu-nbd -f raw -t -e 64 -b 127.0.0.1 -p "$QNBD_PORT" --cache=writeback --aio=threads -x bench "$FILE" >"$DIR/qnbd.log" 2>&1 &
  wait_port "$QNBD_PORT"; local p; p=$(pgrep -f -- "^qemu-nbd .* -p $QNBD_PORT "); echo "$p" >"$DIR/qnbd.pid"
  line qemu-nbd-file nbd "$QNBD_PORT" bench 0 "$p"
}
stop_qemu-nbd() { kill "$(cat "$DIR/qnbd.pid")" 2>/dev/null || true; }
"$1_$2"
