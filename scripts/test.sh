#!/usr/bin/env bash
# Runs all tests against real servers, with the race detector. At the end it prints a table of the
# servers and their tests.
#
#   scripts/test.sh [--install] [arguments of go test, such as -run or -timeout]
#
# With Docker, missing images are pulled, or built if no registry answers. Without Docker the
# servers' programs must be installed; --install installs them with apt-get.
set -euo pipefail
cd "$(dirname "$0")/.."

die() { echo "test.sh: $*" >&2; exit 1; }
as_root() { if [ "$(id -u)" = 0 ]; then "$@"; else sudo "$@"; fi; }

# Installs packages without starting the services in them.
install() {
	command -v apt-get >/dev/null || die "--install needs apt-get"
	local policy=/usr/sbin/policy-rc.d
	if [ ! -e "$policy" ]; then
		trap 'as_root rm -f /usr/sbin/policy-rc.d' EXIT
		printf '#!/bin/sh\nexit 101\n' | as_root tee "$policy" >/dev/null
		as_root chmod +x "$policy"
	fi
	as_root apt-get -qq update
	as_root env DEBIAN_FRONTEND=noninteractive apt-get -qq install --no-install-recommends "$@"
}

# Without Docker the tests need the program of each server that is not given by URL.
need_programs() {
	local missing list
	list=$(go run ./internal/testenv/packages)
	if [ -z "$list" ]; then return; fi
	mapfile -t missing <<<"$list"
	if [ -n "$may_install" ]; then
		install "${missing[@]}"
	elif [ "${DLOCK_TEST_ALLOW_SKIP-}" != 1 ]; then
		die "no Docker images and no programs to test with. Start Docker, or install ${missing[*]}
(scripts/test.sh --install does it), or set URLs such as DLOCK_TEST_REDIS_URL,
or skip with DLOCK_TEST_ALLOW_SKIP=1"
	fi
}

may_install=
if [ "${1-}" = --install ]; then may_install=1; shift; fi
command -v go >/dev/null || die "Go is not installed; go.mod has the required version"
# With -race, so that it compiles for the tests. On a new machine that takes as long as the images.
go vet -race ./... &
vet=$!
if ! timeout 30 docker info >/dev/null 2>&1 || ! scripts/images.sh --pull; then
	need_programs
fi
wait "$vet"

# -count=1, because a cached result proves nothing about a server. The cases mostly wait, so several
# run at a time on any machine. The longest packages come first, and three at a time: a package that
# only waits leaves the processor to the next one. The report fails if a test has failed, so go test
# need not. The code was vetted above.
long=(redisbackend mysqlbackend pgbackend etcdbackend conformance command zkbackend
	internal/campaign memcachedbackend internal/testenv filebackend membackend bench)
mapfile -t packages < <(
	printf './%s\n' "${long[@]}"
	go list ./... | grep -vE "/($(IFS='|'; echo "${long[*]}"))$"
)
flags=(-race -count=1 -timeout=45m -vet=off -p=3 -parallel=4 -json)
{ go test "${flags[@]}" "$@" "${packages[@]}" || true; } |
	go run ./internal/testenv/report
