#!/usr/bin/env bash
# Makes in dist/ what a release holds: for Linux on amd64 and arm64 a .deb, an .rpm and an archive; for macOS, archives of
# refdbctl; a list of the modules in each program (SBOM); the jars of the guard in Gerrit, if make gerrit has built them;
# and the checksums of all. The same commit and the same Go give the same bytes. Without a tag vX.Y.Z at this commit it is
# a snapshot, whose version is between the last release and the next.
#
#     scripts/packages.sh [PLATFORM …]     such as linux/amd64; here is the platform of this machine
#
# DIST names another directory than dist/.
set -euo pipefail
cd "$(dirname "$0")/.."

go=${GO:-go}
here=$($go env GOHOSTOS)/$($go env GOHOSTARCH)
if [[ $# -eq 0 ]]; then set -- linux/amd64 linux/arm64 darwin/amd64 darwin/arm64; fi
platforms=("${@/#here/$here}")

if tag=$(git describe --exact-match --match 'v[0-9]*' 2>/dev/null) && [[ -z $(git status --porcelain) ]]; then
	VERSION=${tag#v}
else
	last=$(git describe --abbrev=0 --match 'v[0-9]*' 2>/dev/null || echo v0.0.0)
	last=${last#v} last=${last%%-*}
	VERSION=${last%.*}.$((${last##*.} + 1))-snapshot.$(git rev-list --count HEAD).g$(git rev-parse --short HEAD)
fi
SOURCE_DATE_EPOCH=$(git log -1 --format=%ct)
# The programs say of which version they are.
GOFLAGS="$($go env GOFLAGS | sed s,-buildvcs=false,,) -buildvcs=true"
export VERSION SOURCE_DATE_EPOCH GOFLAGS

dist=${DIST:-dist}
rm -rf "$dist"
mkdir -p "$dist/share/completions"
nfpm=$(cd tools && $go tool -n nfpm)
sbom=$(cd tools && $go tool -n cyclonedx-gomod)

share=$dist/share
./scripts/build.sh "$share/bin" refdbctl
"$share/bin/refdbctl" manual "$share/man"
gzip -9n "$share"/man/*
for shell in bash zsh fish; do
	"$share/bin/refdbctl" completion $shell >"$share/completions/refdbctl.$shell"
done

archive() { # NAME DIR: of the files in DIR
	tar --create --sort=name --owner=0 --group=0 --numeric-owner --mtime="@$SOURCE_DATE_EPOCH" --mode=u+rw,go+r-w \
		--directory "$dist" --transform "s,^$2,$1," "$2" | gzip -9n >"$dist/$1.tar.gz"
}

for platform in "${platforms[@]}"; do
	os=${platform%/*} ARCH=${platform#*/}
	programs=(refdbctl)
	if [[ $os == linux ]]; then programs+=(refdb-hook refdb-server); fi # the daemon that the hook asks needs Linux
	name=globalrefdb_${VERSION}_${os}_$ARCH
	files=$dist/$os-$ARCH
	GOOS=$os GOARCH=$ARCH ./scripts/build.sh "$files" "${programs[@]}"
	for program in "${programs[@]}"; do
		"$sbom" bin -json -noserial -notimestamp -std -version "v$VERSION" -output "$dist/$program${name#globalrefdb}.cdx.json" "$files/$program"
	done
	if [[ $os == linux ]]; then
		for format in deb rpm; do
			ARCH=$ARCH BIN=$files SHARE=$share "$nfpm" package --config deploy/packages/nfpm.yaml --packager "$format" --target "$dist/"
		done
	fi
	cp -r LICENSE README.md CHANGELOG.md "$share/completions" "$share/man" "$files"
	if [[ $os == linux ]]; then cp -r deploy/systemd deploy/site.config.example docs/INSTALL.md "$files"; fi
	archive "$name" "$os-$ARCH"
	rm -r "$files"
done
rm -r "$share"
for jar in gerrit/target/3.*/globalrefdb-gerrit-3.*.jar; do
	if [[ -e $jar ]]; then cp "$jar" "$dist/"; fi
done
(cd "$dist" && sha256sum -- * >checksums.txt)
ls -l "$dist"
