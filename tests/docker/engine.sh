#!/usr/bin/env bash
# Start and stop a Docker engine of our own, beside any other, with everything it owns below one
# directory. Needs root.
#
#   engine.sh start STATE_DIRECTORY     the engine listens on STATE_DIRECTORY/docker.sock
#   engine.sh stop  STATE_DIRECTORY     images stay for the next start; links and rules are removed
set -euo pipefail
state=$(mkdir -p "$2" && cd "$2" && pwd)
pidfile=$state/docker.pid
rules=$state/iptables.before

running() { [[ -f $pidfile ]] && kill -0 "$(<"$pidfile")" 2>/dev/null; }

start() {
	running && return
	stop
	rm -f "$pidfile"
	iptables-save >"$rules"
	ip link show docker0 >/dev/null 2>&1 || touch "$state/docker0.is-ours"
	dockerd --data-root "$state/data" --exec-root "$state/exec" --pidfile "$pidfile" \
		-H "unix://$state/docker.sock" >"$state/dockerd.log" 2>&1 </dev/null &
	for _ in $(seq 100); do
		DOCKER_HOST=unix://$state/docker.sock docker info >/dev/null 2>&1 && return
		sleep 0.2
	done
	tail -20 "$state/dockerd.log" >&2
	return 1
}

stop() {
	if running; then
		pid=$(<"$pidfile")
		kill "$pid"
		for _ in $(seq 150); do
			kill -0 "$pid" 2>/dev/null || break
			sleep 0.2
		done
	fi
	# Also after an engine that ended without us: its rules outlive it.
	[[ -f $rules ]] || return 0
	if [[ -f $state/docker0.is-ours ]]; then
		ip link delete docker0 2>/dev/null || true
		rm "$state/docker0.is-ours"
	fi
	iptables-restore <"$rules"
	# A table that was not there before is not in that file, so restoring leaves it as it is.
	for table in filter nat; do
		grep -q "^\*$table" "$rules" && continue
		for chain in INPUT FORWARD OUTPUT; do
			iptables -t "$table" -P "$chain" ACCEPT 2>/dev/null || true
		done
		iptables -t "$table" -F
		iptables -t "$table" -X
	done
	rm "$rules"
}

"$1"
