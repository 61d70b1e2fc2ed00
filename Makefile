GO      ?= go
FLAGS   ?=
# The race detector is for Go. SQLite's C code, translated into one package, would take five times as
# long under it; with the C library and the allocator that it calls, tests on SQLite take half as long again.
RACE    := -race $(foreach p,sqlite/lib libc memory,-gcflags=modernc.org/$(p)=-race=false)
# A process with the race detector waits a second at its end, unless it is told not to.
export GORACE ?= atexit_sleep_ms=50
# Packages run in this order. The longest begin, so that none of them runs alone at the end.
LONGEST := ./test/sites ./refdb/postgres ./refdb/spanner ./site ./cmd/refdbctl ./test ./refdb/sqlite ./migrations ./site/check \
	./site/install ./internal/gitrepo ./site/catchup ./examples/work ./examples/archive
# What goroutines share is in these packages: make test has the race detector for them, and spares the others the time.
RACED   := ./refdb ./refdb/memory ./lease ./site/wire ./site/packs ./site/sessions ./heartbeat ./refdb/internal/... ./refdb/postgres/internal/... \
	./site/claims ./site/follow ./site/hooks ./site/internal/... ./site/modes ./site/moves ./site/moving ./site/objects ./site/policy \
	./site/readers ./site/serving ./service/...
# Many tests wait: two packages more at a time than there are processors keep these busy.
AT_ONCE := $(shell echo $$(($$(getconf _NPROCESSORS_ONLN) + 2)))
# Without the tables of debuggers a program is linked in half the time.
TEST    := $(GO) test -ldflags="-s -w"
# Tests leave go vet to make lint. With files in memory those of the short form take a quarter less; make test-all has them on the disk.
SHORT   := ./scripts/in-memory.sh $(TEST) -vet=off -short
# Only a test that hangs reaches it, however busy the machine is.
LIMIT   := 3h
# Modules of their own, so that their peers, tools and types stay out of this one.
MODULES := bench chaos deploy/test/kubernetes
TOOLS   := $(MODULES) tools tools/proto # modules without programs: what releases are made with; what generates the API's code

.DEFAULT_GOAL := help
.PHONY: help demo test test-all test-one test-versions api generate generated lint check check-all fmt build deps deps-all bench chaos chaos-git chaos-sites chaos-rewind model gerrit gerrit-versions gerrit-test gerrit-ci \
	containers-test packages packages-test python vulncheck release-check

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  %-16s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

demo: build ## two sites, real pushes, a crash: on a temporary SQLite file or on REFDB_URL
	@$(GO) build -o bin/ ./demo/gitserver && ./demo/run.sh bin

test: deps ## the tests on real databases, without the long ones; the race detector where goroutines share state
	@others=$$($(GO) list ./... | grep -vxF "$$($(GO) list $(RACED))") && status=0 && \
	{ $(SHORT) -p $(AT_ONCE) -timeout $(LIMIT) $(FLAGS) $(LONGEST) $$others || status=1; } && \
	{ $(SHORT) $(RACE) -p $(AT_ONCE) -timeout $(LIMIT) $(FLAGS) $(RACED) || status=1; } && exit $$status

test-all: deps-all ## all tests with the race detector: more rounds, more faults, more forms of each database
	$(TEST) -vet=off $(RACE) -p $(AT_ONCE) -timeout $(LIMIT) $(FLAGS) $(LONGEST) ./refdb/memory ./service/server ./...

test-one: ## the tests of PKG=./refdb/sqlite whose names match RUN=TestConformance/Beat
	$(GO) test $(RACE) -run '$(RUN)' $(FLAGS) $(or $(PKG),$(error PKG= names a package))

test-versions: deps ## the driver, its faults and sites with pushes on PostgreSQL 14 to 18 (Maven); VERSIONS='14 18' for less
	@GO=$(GO) ./scripts/test-versions.sh $(VERSIONS)

bench: deps ## measure the speed beside the peers'; FLAGS='-run W1,W4 -o json' for less, or for machines
	cd bench && $(GO) run . $(FLAGS)

chaos: deps ## ten minutes of sites under load and faults; FLAGS='-d 1m -db postgres' for less
	cd chaos && $(GO) run . $(FLAGS)

chaos-git: ## pushes to two sites for a minute, under faults
	REFDB_TEST_LONG=1 $(GO) test $(RACE) -count=1 -timeout 20m -v -run 'UnderChaos|WithoutTheDatabase' $(FLAGS) ./test/sites/

chaos-sites: ## ten minutes of pushes to three sites that lose disks, or whose database loses pushes; REFDB_TEST_TIME=1m for less
	REFDB_TEST_LONG=1 $(GO) test $(RACE) -count=1 -timeout 1h -v -run 'ThreeSites' $(FLAGS) ./test/sites/

chaos-rewind: ## promotions with a lost tail, copies that are put back, and restarts while a site is dead, 25 times each, under pushes
	REFDB_TEST_LONG=1 $(GO) test $(RACE) -count=1 -timeout 6h -v -run 'BeforeItIsRecovered|SilentSite' $(FLAGS) ./test/sites/

model: ## check the model of the protocol, and that it catches seeded mistakes
	@./docs/model/run.sh

gerrit: ## build gerrit/target/*/globalrefdb-gerrit-*.jar, the guard in Gerrit (Maven; JDKs 17 and 21 or later)
	@./gerrit/build.sh

gerrit-versions: ## compile and test the guard for each series of Gerrit
	@./gerrit/test/versions.sh

gerrit-test: gerrit build ## run Gerrits with the guard and the site daemons of bin/; WITH=/other/bin, CHAPTERS='1 2 6 11', REFDB_URL=postgres
	@GO=$(GO) ./gerrit/test/run.sh $(or $(WITH),bin) $(CHAPTERS)

gerrit-ci: gerrit build ## its short form: two sites, what users do, 20 s of clients at both
	@GO=$(GO) REFDB_URL=$(or $(REFDB_URL),postgres) GERRIT_TEST_ROUNDS=3 GERRIT_TEST_SECONDS=20 ./gerrit/test/run.sh bin 1 2 6 14 15 10

containers-test: ## build the images, run the commands of README.md and docs/CONTAINERS.md (podman, as root)
	@GO=$(GO) ./deploy/test/run.sh

api: ## write api.txt: what other modules can import
	@GO=$(GO) ./scripts/api.sh > api.txt

generate: ## generate the code and the OpenAPI document of refdb-server's API from proto/; the first time it compiles buf for some minutes
	@GO=$(GO) ./scripts/generate.sh

generated: # whether that code is current
	@dir=$$(mktemp -d) && trap 'rm -rf "$$dir"' EXIT && GO=$(GO) ./scripts/generate.sh "$$dir" && cd proto && \
		find . \( -name '*.go' -o -name openapi.yaml \) -exec diff -u {} "$$dir/{}" \; | { ! grep .; } || { echo "the code of the API is not current: make generate"; exit 1; }

lint: ## gofmt, vet, staticcheck, and whether api.txt is current
	@files=$$(gofmt -l .); [ -z "$$files" ] || { echo "not formatted (make fmt):" $$files; exit 1; }
	@staticcheck=$$($(GO) tool -n staticcheck) && for m in . $(MODULES); do \
		echo "vet and staticcheck in $$m" && (cd $$m && $(GO) vet ./... && $$staticcheck ./...) || exit 1; done
	@GO=$(GO) ./scripts/api.sh | diff -u api.txt - || { echo "what other modules can import has changed: make api"; exit 1; }

check: lint ## what to run before a commit: lint, go.mod, the tests
	# -e: a proxy may hold back what only the tests of a dependency need.
	@for m in . $(TOOLS); do echo "$(GO) mod tidy in $$m" && (cd $$m && $(GO) mod tidy -e -diff) || exit 1; done
	$(MAKE) test

check-all: lint generated ## lint, the API's code, all tests, and those of bench and chaos
	@for m in $(MODULES); do echo "$(GO) test ./$$m/..." && (cd $$m && $(GO) test -timeout $(LIMIT) ./...) || exit 1; done
	$(MAKE) test-all

packages: ## make in dist/ what a release holds: .deb, .rpm, archives, SBOMs; PLATFORM=here for this machine alone
	@GO=$(GO) ./scripts/packages.sh $(PLATFORM)

packages-test: ## install the .deb at two sites, upgrade it under pushes, remove it: as root on Debian
	@GO=$(GO) ./scripts/packages-test.sh

python: ## check the Python client, with a server, in an environment that this installs from PyPI
	@GO=$(GO) ./scripts/build.sh bin refdbctl refdb-server && REFDB_TEST_BIN=$(CURDIR)/bin ./clients/python/check.sh

vulncheck: ## look for known vulnerabilities in what the programs call
	@govulncheck=$$(cd tools && $(GO) tool -n govulncheck) && $$govulncheck ./...

release-check: ## what has to hold before VERSION=vX.Y.Z is tagged: CHANGELOG.md, go.mod, api.txt, vulnerabilities
	@GO=$(GO) ./scripts/release-check.sh $(VERSION)
	$(MAKE) lint vulncheck

fmt: ## format the code
	gofmt -w .

build: ## build bin/refdbctl, bin/refdb-hook and bin/refdb-server
	@GO=$(GO) ./scripts/build.sh bin

deps: ## install the databases that the tests need, if they are missing
	@./scripts/deps.sh

deps-all: ## and Chromium, for the test of the page
	@./scripts/deps.sh chromium
