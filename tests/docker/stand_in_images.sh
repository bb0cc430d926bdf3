#!/usr/bin/env bash
# Stand-ins for images that cannot be pulled, tagged with the very names our files use: so the
# Dockerfiles and the compose file are tested as they are, on a machine that reaches a Debian mirror
# and a package index but no image registry. Needs root and debootstrap.
#
#   stand_in_images.sh base       IMAGE    Debian with its Python where the official image has it
#   stand_in_images.sh prometheus IMAGE    the same with Debian's Prometheus, laid out as upstream's
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
kind=$1 image=$2
root=$(mktemp -d -p "${TMPDIR:-/var/tmp}")
trap 'rm -rf "$root"' EXIT

debian() { # the packages to include
	debootstrap --variant=minbase --include="$1" bookworm "$root" "$("$here/mirror.sh")" >/dev/null
	# Certificates this machine trusts beyond Debian's, so that a proxy between it and the index is
	# trusted in there too.
	if compgen -G '/usr/local/share/ca-certificates/*.crt' >/dev/null; then
		cp /usr/local/share/ca-certificates/*.crt "$root/usr/local/share/ca-certificates/"
		chroot "$root" update-ca-certificates >/dev/null 2>&1
	fi
	rm -rf "$root"/var/cache/apt/archives/*.deb "$root"/var/lib/apt/lists/*
}

case $kind in
base)
	debian python3,python3-pip,python3-venv,ca-certificates
	rm -f "$root"/usr/lib/python3*/EXTERNALLY-MANAGED
	ln -s /usr/bin/python3 "$root/usr/local/bin/python3"
	ln -s /usr/bin/python3 "$root/usr/local/bin/python"
	ln -s /usr/bin/pip3 "$root/usr/local/bin/pip"
	# pip brings certificates of its own; Debian's are the ones that were added to above.
	tar -C "$root" -c . | docker import \
		--change 'ENV PIP_CERT=/etc/ssl/certs/ca-certificates.crt' \
		--change 'CMD ["python3"]' - "$image" >/dev/null
	;;
prometheus)
	debian prometheus,ca-certificates
	mkdir -p "$root/prometheus"
	chown nobody:nogroup "$root/prometheus"
	tar -C "$root" -c . | docker import \
		--change 'WORKDIR /prometheus' --change 'USER nobody' --change 'EXPOSE 9090' \
		--change 'ENTRYPOINT ["/bin/prometheus"]' \
		--change 'CMD ["--config.file=/etc/prometheus/prometheus.yml", "--storage.tsdb.path=/prometheus"]' \
		- "$image" >/dev/null
	;;
*)
	echo "unknown kind: $kind" >&2
	exit 2
	;;
esac
docker image inspect --format '{{.Size}}' "$image"
