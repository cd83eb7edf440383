#!/bin/bash
# CHAP, one way and mutual: the right secret opens, wrong or no secret does not.  Then each algorithm
# of CHAP_ALGORITHMS alone, so that a login proves that this very one was used.
. /run/job/guest/lib.sh
[ -n "$IQN_CHAP" ] || skip "no target with CHAP"
iscsi_start
chap() {        # SECRET [SECRET-OF-TARGET [ALGORITHM]]
    login "$IQN_CHAP" "$PORTAL" node.session.initial_login_retry_max=1 node.session.auth.authmethod=CHAP \
        node.session.auth.username="$CHAP_USER" node.session.auth.password="$1" \
        ${2:+node.session.auth.username_in="$CHAP_USER_IN" node.session.auth.password_in="$2"} \
        ${3:+node.session.auth.chap_algs="$3"}
}
forget() { iscsiadm -m node -T "$IQN_CHAP" -o delete; }
say "no authentication: must fail"
login "$IQN_CHAP" "$PORTAL" node.session.initial_login_retry_max=1 && fail "logged in without CHAP"
forget
say "wrong secret: must fail"
chap "wrong-${CHAP_PASS}" && fail "logged in with a wrong secret"
forget
say "one way"
chap "$CHAP_PASS" || fail "CHAP login"
first_disk "$IQN_CHAP" || fail "no disk"
logout "$IQN_CHAP" "$PORTAL" || fail "logout"
[ -n "$CHAP_PASS_IN" ] || exit 0
say "mutual"
chap "$CHAP_PASS" "$CHAP_PASS_IN" || fail "mutual CHAP login"
first_disk "$IQN_CHAP" || fail "no disk"
logout "$IQN_CHAP" "$PORTAL" || fail "logout"
say "mutual, the target's secret is not the expected one: must fail"
chap "$CHAP_PASS" "wrong-$CHAP_PASS_IN" && fail "a target with the wrong secret was accepted"
forget
for algorithm in $CHAP_ALGORITHMS; do
    say "$algorithm alone, mutual"
    chap "$CHAP_PASS" "$CHAP_PASS_IN" "$algorithm" || fail "CHAP login with $algorithm"
    iscsiadm -m node -T "$IQN_CHAP" -p "$PORTAL" | grep "auth.chap_algs = $algorithm\$" || fail "the initiator was not told $algorithm"
    logout "$IQN_CHAP" "$PORTAL" || fail "logout"
done
