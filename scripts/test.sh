#!/usr/bin/env bash
# Runs all tests against real servers, with the race detector, and ends with a table of what was tested against what.
#
#   scripts/test.sh [--install] [arguments of go test, such as -run or -timeout]
#
# With Docker, images that are missing are pulled, or built where no registry answers. Without Docker the servers'
# programs are needed; --install installs them with apt-get.
set -euo pipefail
cd "$(dirname "$0")/.."

# What the tests need, by the names of internal/testenv/images; without Docker the program that runs each, and the package
# that has it.
servers=(redis valkey memcached zookeeper etcd mysql mariadb)
declare -A program=(
	[redis]=redis-server [valkey]=valkey-server [memcached]=memcached [zookeeper]=/usr/share/java/zookeeper.jar
	[etcd]=etcd [mysql]=mysqld [mariadb]=mariadbd
)
declare -A package=(
	[redis]=redis-server [valkey]=valkey-server [memcached]=memcached [zookeeper]=zookeeper
	[etcd]=etcd-server [mysql]=mysql-server-core [mariadb]=mariadb-server-core
)

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

# The packages of the servers that are neither given by URL nor installed.
missing_packages() {
	local name url
	for name in "${servers[@]}"; do
		url=DLOCK_TEST_${name^^}_URL
		[ -n "${!url-}" ] || [ -e "${program[$name]}" ] || PATH=$PATH:/usr/sbin command -v "${program[$name]}" >/dev/null ||
			echo "${package[$name]}"
	done
}

need_programs() {
	local missing
	mapfile -t missing < <(missing_packages)
	if [ ${#missing[@]} = 0 ]; then return; fi
	if [ -n "$may_install" ]; then
		install "${missing[@]}"
	elif [ "${DLOCK_TEST_ALLOW_SKIP-}" != 1 ]; then
		die "no Docker images and no programs to test with. Start Docker, or install ${missing[*]}
(scripts/test.sh --install does it), or set DLOCK_TEST_REDIS_URL and its like, or skip with DLOCK_TEST_ALLOW_SKIP=1"
	fi
}

may_install=
if [ "${1-}" = --install ]; then may_install=1; shift; fi
command -v go >/dev/null || die "Go is not installed; go.mod says which version is needed"
if ! timeout 30 docker info >/dev/null 2>&1 || ! scripts/images.sh --pull "${servers[@]}"; then
	need_programs
fi

go vet ./...
# A cached result says nothing about servers: -count=1. The cases mostly wait: several at a time, whatever the machine has.
# The longest packages come first: those that keep the processors busy, and between them those that wait.
long=(redisbackend command etcdbackend conformance zkbackend mysqlbackend)
mapfile -t packages < <(printf './%s\n' "${long[@]}"; go list ./... | grep -vE "/($(IFS='|'; echo "${long[*]}"))$")
{ go test -race -count=1 -timeout=20m -p=2 -parallel=6 -json "$@" "${packages[@]}" || true; } | # the report tells
	go run ./internal/testenv/report
