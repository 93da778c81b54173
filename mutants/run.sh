#!/usr/bin/env bash
# Applies each patch of this folder to a temporary copy of the tree and expects the tests it names to
# fail. A patch removes the guard of one promise (docs/guarantees.md); a mutant that survives means
# that the promise is not tested.
#
# The head of a patch, above the diff, says:
#   # promise: P1
#   # test: go test ./arbiter -run '^TestNeverOverGrant$'
# Several "# test:" lines: each of them must fail.
#
# The promise is a number of docs/guarantees.md, or the part of the gateway that the guard belongs to: meter, classify,
# estimate, route, lease, refuse, safety, identity (docs/gateway.md), ladder, ramp, price.
#
# usage: run.sh [PATCH_FOLDER [TREE [NAMES]]]     exits 0 only if every mutant was killed
# NAMES is a pattern for the names of the patches: run.sh mutants . 'p1-*'
set -euo pipefail

here=$(cd "$(dirname "$0")" && pwd)
patches=$(cd "${1:-$here}" && pwd)
tree=${2:-$here/..}
names=${3:-*}
limit=${MUTANT_TIMEOUT:-300} # seconds for one test command

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
mkdir "$work/tree"
tar -C "$tree" --exclude=./.git --exclude=./bin -cf - . | tar -C "$work/tree" -xf -
cd "$work/tree"
export GOFLAGS="-vet=off ${GOFLAGS:-}" # judged elsewhere
export GIT_CEILING_DIRECTORIES=$work # git apply must not find a repository around the copy

table="" bad=0 seen=0
row() { # verdict, promise, patch, detail
	local line
	line=$(printf '%-14s %-8s %-36s %s' "$1" "$2" "$3" "$4")
	echo "$line"
	table+="$line"$'\n'
	[ "$1" = killed ] || bad=1
}

# A test command is trusted only if it passes on the tree as it is and runs at least one test.
# Its verdict is remembered: several patches may name the same command.
declare -A sound
sound_test() {
	if [ -z "${sound[$1]:-}" ]; then
		if ! timeout "$limit" bash -c "$1" >"$work/out" 2>&1; then
			sound[$1]="fails without the patch"
			cat "$work/out"
		elif grep -qE 'no tests to run|no test files' "$work/out"; then
			sound[$1]="runs no test"
		else
			sound[$1]=yes
		fi
	fi
	[ "${sound[$1]}" = yes ]
}

shopt -s nullglob
for patch in "$patches"/*.patch; do
	name=$(basename "$patch" .patch)
	# shellcheck disable=SC2053 # a pattern
	[[ $name == $names ]] || continue
	seen=$((seen + 1))
	promise=$(sed -n 's/^# promise: *//p' "$patch" | head -n 1)
	mapfile -t tests < <(sed -n 's/^# test: *//p' "$patch")
	if [ -z "$promise" ] || [ ${#tests[@]} -eq 0 ]; then
		row "BAD HEADER" "${promise:--}" "$name" 'needs "# promise: P1" and "# test: go test ..."'
		continue
	fi

	unsound=""
	for t in "${tests[@]}"; do
		sound_test "$t" || unsound="$t: ${sound[$t]}"
	done
	if [ -n "$unsound" ]; then
		row "BAD TEST" "$promise" "$name" "$unsound"
		continue
	fi

	if ! git apply "$patch" >"$work/out" 2>&1; then
		cat "$work/out"
		row "DOES NOT APPLY" "$promise" "$name" "the guarded code has moved: renew the patch"
		continue
	fi

	verdict=killed detail=""
	for t in "${tests[@]}"; do
		code=0
		timeout "$limit" bash -c "$t" >"$work/out" 2>&1 || code=$?
		case $code in
		0) verdict=SURVIVED detail="$t" ;;
		124) verdict="TIMED OUT" detail="$t" ;;
		*)
			detail="${detail:+$detail; }$t"
			# A mutant that does not compile proves nothing about the tests.
			if grep -qE '\[(build|setup) failed\]' "$work/out"; then
				verdict="DOES NOT BUILD" detail="$t"
				cat "$work/out"
			fi
			;;
		esac
		[ "$verdict" = killed ] || break
	done
	git apply --reverse "$patch"
	row "$verdict" "$promise" "$name" "$detail"
done

echo
echo "verdict        promise  mutant                               tests"
printf '%s' "$table"
if [ "$seen" -eq 0 ]; then
	echo "no patch $names in $patches" >&2
	exit 1
fi
exit "$bad"
