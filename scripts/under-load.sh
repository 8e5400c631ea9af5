#!/usr/bin/env bash
# Runs a command while N processes keep the processors busy. They end when the
# command ends or is interrupted.
#
#   scripts/under-load.sh N COMMAND [ARGUMENT...]      such as: scripts/under-load.sh 4 make test
set -euo pipefail

die() { echo "under-load.sh: $*" >&2; exit 64; }
[ $# -ge 2 ] || die "usage: scripts/under-load.sh N COMMAND [ARGUMENT...]"
[[ $1 =~ ^[0-9]+$ ]] || die "$1 is no number of processes"

# Keeps one processor busy. It ends with this script, even if the script is killed.
burn() { while kill -0 $$ 2>/dev/null; do for ((i = 0; i < 10000; i++)); do :; done; done; }

busy=()
end_load() { [ ${#busy[@]} = 0 ] || kill "${busy[@]}" 2>/dev/null || true; }
trap end_load EXIT
trap 'exit 130' INT
trap 'exit 143' TERM
for ((n = 0; n < $1; n++)); do
	burn &
	busy+=($!)
done
shift
"$@"
