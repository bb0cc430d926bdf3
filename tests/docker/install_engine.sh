#!/usr/bin/env bash
# Install a container engine with compose and buildx on Debian. For a machine that has none; needs
# root. Compose and buildx are younger than Debian 12, so they come from the next release's suite of
# the mirror that the machine's own apt sources name.
#
#   install_engine.sh STATE_DIRECTORY
set -euo pipefail
state=$(mkdir -p "$1" && cd "$1" && pwd)
here=$(cd "$(dirname "$0")" && pwd)
export DEBIAN_FRONTEND=noninteractive

missing=()
command -v dockerd >/dev/null || missing+=(docker.io)
command -v containerd >/dev/null || missing+=(containerd)
command -v runc >/dev/null || missing+=(runc)
command -v iptables >/dev/null || missing+=(iptables)
command -v debootstrap >/dev/null || missing+=(debootstrap)
if ((${#missing[@]})); then
	apt-get update -qq </dev/null
	apt-get install -y -qq --no-install-recommends "${missing[@]}" </dev/null
fi

plugins=$state/config/cli-plugins
if [[ ! -x $plugins/docker-compose || ! -x $plugins/docker-buildx ]]; then
	mkdir -p "$plugins" "$state"/apt/{lists/partial,cache/archives/partial,download}
	echo "deb [signed-by=/usr/share/keyrings/debian-archive-keyring.gpg] $("$here/mirror.sh") trixie main" \
		>"$state/apt/sources.list"
	cat >"$state/apt/apt.conf" <<-CONF
		Dir::Etc::SourceList "$state/apt/sources.list";
		Dir::Etc::SourceParts "/dev/null";
		Dir::State::Lists "$state/apt/lists";
		Dir::Cache "$state/apt/cache";
		APT::Sandbox::User "root";
	CONF
	(
		cd "$state/apt/download"
		export APT_CONFIG=$state/apt/apt.conf
		apt-get update -qq </dev/null
		apt-get download -qq docker-compose docker-buildx </dev/null
		for package in *.deb; do dpkg-deb -x "$package" unpacked; done
		find unpacked -path '*/cli-plugins/*' -type f -exec cp {} "$plugins/" \;
		find unpacked -path '*/bin/docker-compose' -type f -exec cp {} "$plugins/docker-compose" \;
	)
	rm -rf "$state/apt"
fi
ls "$plugins"
