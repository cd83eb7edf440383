#!/bin/bash
# The power fails while a Tarn in this guest writes to a unit with a log device: whatever of the last writes has reached the
# store, the log and the state directory, nothing is lost that was answered as durable. See tests/rig/powercut.
. /run/job/guest/lib.sh
[ -n "${CUT:-}" ] || skip "no Tarn to run in the guest"
modprobe -a loop dm_log_writes || fail "no dm-log-writes"
say "record"
ip link set lo up
python3 /run/tests/rig/powercut record "$CUT" "$TARN" /run/powercut/log || { tail -n 20 "$CUT/tarn.log"; fail "record"; }
say "replay on the host"
hostcall replay || fail "something durable was lost"
rm -r "$CUT"
