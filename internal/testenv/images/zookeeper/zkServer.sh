#!/bin/sh
# Runs one ZooKeeper server in the foreground. The variables of the official image configure it.
set -eu

mkdir -p /data /conf
{
	cat <<EOF
dataDir=/data
tickTime=${ZOO_TICK_TIME:-2000}
initLimit=${ZOO_INIT_LIMIT:-5}
syncLimit=${ZOO_SYNC_LIMIT:-2}
maxClientCnxns=${ZOO_MAX_CLIENT_CNXNS:-60}
4lw.commands.whitelist=${ZOO_4LW_COMMANDS_WHITELIST:-srvr}
admin.enableServer=false
EOF
	if [ -z "${ZOO_SERVERS-}" ]; then echo clientPort=2181; fi
	for line in ${ZOO_SERVERS-} ${ZOO_CFG_EXTRA-}; do echo "$line"; done
} >/conf/zoo.cfg
if [ -n "${ZOO_SERVERS-}" ]; then echo "${ZOO_MY_ID:-1}" >/data/myid; fi
# Debian's zookeeper.jar does not name all archives that TLS needs.
jars=/usr/share/java
# shellcheck disable=SC2086 # JVMFLAGS is a list
exec java ${JVMFLAGS:--Xmx128m -XX:TieredStopAtLevel=1 -XX:+UseSerialGC} \
	-cp "/conf:$jars/zookeeper.jar:$jars/netty-codec.jar:$jars/netty-resolver.jar" \
	org.apache.zookeeper.server.quorum.QuorumPeerMain /conf/zoo.cfg
