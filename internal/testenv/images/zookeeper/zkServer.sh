#!/bin/sh
# One ZooKeeper server in the foreground, configured by the same variables as the official image.
set -eu

mkdir -p /data /conf
cat >/conf/zoo.cfg <<EOF
dataDir=/data
clientPort=2181
tickTime=${ZOO_TICK_TIME:-2000}
maxClientCnxns=${ZOO_MAX_CLIENT_CNXNS:-60}
4lw.commands.whitelist=${ZOO_4LW_COMMANDS_WHITELIST:-srvr}
admin.enableServer=false
EOF
# shellcheck disable=SC2086 # JVMFLAGS is a list
exec java ${JVMFLAGS:--Xmx128m -XX:TieredStopAtLevel=1 -XX:+UseSerialGC} -cp /conf:/usr/share/java/zookeeper.jar \
	org.apache.zookeeper.server.quorum.QuorumPeerMain /conf/zoo.cfg
