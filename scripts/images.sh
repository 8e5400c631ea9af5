#!/usr/bin/env bash
# Builds the server images of the tests, for machines without a registry: one image dlock-test/NAME
# per folder of internal/testenv/images, from the packages of Debian sid.
#
#   scripts/images.sh [--pull] [NAME...]    default: all of them
#
# Four images are pulled and built at a time, or DLOCK_TEST_IMAGE_JOBS. With --pull an image is
# built only if the official image is not available and cannot be pulled. An image that was built
# from the present files is not built again. The packages come from the Debian mirror of this
# machine's apt, or from DLOCK_TEST_DEBIAN_MIRROR.
set -euo pipefail
cd "$(dirname "$0")/../internal/testenv/images"

base=dlock-test/base
jobs=${DLOCK_TEST_IMAGE_JOBS:-4} # at a time: a build downloads as much as it computes
die() { echo "images.sh: $*" >&2; exit 1; }
as_root() { if [ "$(id -u)" = 0 ]; then "$@"; else sudo "$@"; fi; }
have() { docker image inspect "$1" >/dev/null 2>&1; }

work=$(mktemp -d)
clean_up() {
	as_root rm -rf "$work"
	for label in stage recipe; do # builder stages, and images replaced by newer ones
		docker image prune -f --filter "label=dlock.test.$label" >/dev/null 2>&1 || true
	done
}

# Runs a command silently. If it fails, its last lines of output are printed.
quiet() {
	local log=$work/$BASHPID.log
	"$@" >"$log" 2>&1 || { tail -n 40 "$log" >&2; die "failed: $*"; }
}

# Runs a function for each name, $jobs at a time. Waits for all, and fails if one fails.
each() {
	local run=$1 name running=0
	shift
	for name; do
		if ((running == jobs)); then wait -n || true; running=$((running - 1)); fi
		{ "$run" "$name" && touch "$work/$run.$name"; } &
		running=$((running + 1))
	done
	wait
	for name; do [ -e "$work/$run.$name" ] || return 1; done
}

# Prints the first Debian archive in apt's configuration.
mirror() {
	# shellcheck disable=SC2016 # apt expands the $(…)
	apt-get indextargets --format '$(REPO_URI)' 'Created-By: Packages' 'Label: Debian' 2>/dev/null |
		head -n 1
}

need_debootstrap() {
	command -v debootstrap >/dev/null && return
	command -v apt-get >/dev/null || die "building images needs debootstrap"
	quiet as_root apt-get -qq update
	quiet as_root apt-get -qq install --no-install-recommends debootstrap
}

build_base() {
	have "$base" && return
	local from=${DLOCK_TEST_DEBIAN_MIRROR:-$(mirror)}
	[ -n "$from" ] || die "no Debian mirror in apt's configuration: set DLOCK_TEST_DEBIAN_MIRROR"
	need_debootstrap
	quiet as_root debootstrap --variant=minbase --include=busybox-static sid "$work/base" "$from"
	# The Release file of sid on a frozen mirror counts as expired after a week.
	echo 'Acquire::Check-Valid-Until "false";' |
		as_root tee "$work/base/etc/apt/apt.conf.d/99frozen" >/dev/null
	as_root tar -C "$work/base" \
		--exclude='./var/cache/apt/*' --exclude='./var/lib/apt/lists/*' -c . |
		quiet docker import - "$base"
	echo "$base: built"
}

# Prints a hash of the files from which the image is built.
recipe() { cat collect fetch "$1"/* | sha256sum | cut -c 1-16; }

up_to_date() {
	[ "$(docker image inspect -f '{{index .Config.Labels "dlock.test.recipe"}}' \
		"dlock-test/$1" 2>/dev/null)" = "$(recipe "$1")" ]
}

# Builds an image. Prints the time that the build took, or the end of its log.
build() {
	local name=$1 image=dlock-test/$1 log=$work/$1.log begun=$SECONDS
	if docker build --force-rm -t "$image" -f "$name/Dockerfile" \
		--label "dlock.test.recipe=$(recipe "$name")" . >"$log" 2>&1; then
		echo "$image: built in $((SECONDS - begun)) s"
		return
	fi
	{
		echo "images.sh: $image: docker build failed after $((SECONDS - begun)) s; its log ends:"
		tail -n 40 "$log" | sed "s|^|  $name: |"
	} >&2
	return 1
}

# Succeeds if the official image is on this machine or a registry answers soon.
official() {
	local image
	image=$(cat "$1/official")
	have "$image" || timeout 120 docker pull -q "$image" >/dev/null 2>&1 || return 1
	echo "$image: available"
}

command -v docker >/dev/null || die "there is no docker command"
timeout 30 docker info >/dev/null 2>&1 ||
	die "Docker does not answer (is the engine installed and running, and may this user use it?)"
trap clean_up EXIT
if command -v flock >/dev/null; then # otherwise two runs would prune each other's stages
	exec 9<.
	flock 9
fi
pull=
if [ "${1-}" = --pull ]; then pull=1; shift; fi
[ $# -gt 0 ] || set -- */
names=()
for name; do
	name=${name%/}
	[ -f "$name/Dockerfile" ] || die "no image named $name; there are: $(printf '%s ' */ | tr -d /)"
	if up_to_date "$name"; then echo "dlock-test/$name: up to date"; else names+=("$name"); fi
done
if [ -n "$pull" ] && [ ${#names[@]} -gt 0 ]; then
	absent=() wanted=("${names[@]}") names=()
	for name in "${wanted[@]}"; do
		if have "dlock-test/$name"; then names+=("$name"); else absent+=("$name"); fi
	done
	each official "${absent[@]}" || true
	for name in "${absent[@]}"; do [ -e "$work/official.$name" ] || names+=("$name"); done
fi
if [ ${#names[@]} -gt 0 ]; then
	build_base
	each build "${names[@]}" || die "not all images could be built"
fi
