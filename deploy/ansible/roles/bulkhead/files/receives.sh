#!/bin/sh
# receives.sh WAIT SETTLE INFO: see that the run that systemd has just called ready has an answer from the queue
# within WAIT seconds (its log says queue.answered; with INFO=no the log holds no such lines, and READY must do), and
# that it is still the same run SETTLE seconds later. Leaves with 1 and a sentence otherwise; prints what it saw.
set -eu
wait=$1 settle=$2 info=$3

run() { systemctl show bulkhead.service --property=ActiveState --property=InvocationID --property=NRestarts; }
began=$(run)
invocation=$(systemctl show bulkhead.service --property=InvocationID --value)

same() {
    now=$(run)
    case $now in
    *ActiveState=active*) [ "$now" = "$began" ] && return 0 ;;
    esac
    echo "it came up and did not stay: $(echo "$began" | tr '\n' ' ')then $(echo "$now" | tr '\n' ' ')" >&2
    return 1
}

answered() { journalctl --quiet --output=cat "_SYSTEMD_INVOCATION_ID=$invocation" | grep -q 'queue\.answered'; }

waited=0
until [ "$info" = no ] || answered; do
    same || exit 1
    if [ "$waited" -ge "$wait" ]; then
        echo "it is up, and the queue has not answered it for $wait s" >&2
        exit 1
    fi
    sleep 1
    waited=$((waited + 1))
done
waited=0
while [ "$waited" -lt "$settle" ]; do
    same || exit 1
    sleep 1
    waited=$((waited + 1))
done
same
echo "$began"
