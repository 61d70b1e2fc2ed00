#!/bin/sh
# Prints what other modules can import: each exported declaration, without comments.
set -eu

go=${GO:-go}
for package in $($go list ./refdb/... ./heartbeat ./lease ./migrations | grep -v /internal); do
	printf '\n# %s\n' "${package#*/*/*/}"
	$go doc -all "$package" | awk '
		/^(const|func|type|var) / { show = 1 }
		/^(    |[A-Z])/ { show = 0 }
		{ sub(/[ \t]+\/\/ .*/, "") }
		show && NF && !/^[ \t]*\/\//'
done
