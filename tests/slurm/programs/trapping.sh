#!/bin/bash
# Counts on from what it saved, and leaves for the next segment when it has saved: trapping.sh [ATTEMPT]
# That attempt, or the second, has nothing more to do after 3 steps; the others would go on for ever.
n=$(cat "$PHALANX_OUTPUTS/n" 2>/dev/null || echo 0)
trap 'echo $n >"$PHALANX_OUTPUTS/n"; echo "saved $n"; exit 85' USR1
echo "begins at $n"
[ "$PHALANX_ATTEMPT" = "${1:-2}" ] && until=$((n + 3))
while [ $n -lt "${until:-100000}" ]; do
  n=$((n + 1))
  sleep 0.5
done
echo "done at $n"
