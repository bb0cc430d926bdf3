#!/usr/bin/env bash
# The Debian mirror that this machine's apt sources name for its own release.
set -euo pipefail
# shellcheck source=/dev/null
release=$(. /etc/os-release && echo "$VERSION_CODENAME")
apt-get indextargets --format '$(RELEASE) $(REPO_URI)' "Identifier: Packages" |
	awk -v release="$release" '$1 == release { print $2; exit }'
