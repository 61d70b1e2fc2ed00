#!/usr/bin/env bash
# Prints what the .deb, the .rpm and the archive of this machine's platform hold: the format, the mode, the owner, the path.
# The manual pages are one line, and directories that other packages have too are left out. deploy/packages/contents.txt is
# what it must print.
#
#     scripts/packages-contents.sh DIST
set -euo pipefail
shopt -s nullglob

deb=("$1"/*_amd64.deb "$1"/*_arm64.deb) rpm=("$1"/*.x86_64.rpm "$1"/*.aarch64.rpm) archive=("$1"/*_linux_*.tar.gz)

list() { # FORMAT: the output of tar --list --verbose --numeric-owner
	awk -v format="$1" '{ path = $6; sub(/^\.?\//, "", path); if (format == "archive") sub(/^[^\/]*\//, "", path) }
		/^d/ && path != "etc/refdb/" { next }
		path ~ /man1?\/.*\.1\.gz$/ { sub(/[^\/]*$/, "*.1.gz", path) }
		path != "" { print format, $1, $2, path }' | sort -u
}
dpkg-deb --fsys-tarfile "${deb[0]}" | tar --list --absolute-names --verbose --numeric-owner | list deb
bsdtar -cf - --format=gnutar "@${rpm[0]}" | tar --list --absolute-names --verbose --numeric-owner | list rpm
tar --list --verbose --numeric-owner --file "${archive[0]}" | list archive
