# Every command of the project. `make` alone lists them.

SHELL         := bash
.SHELLFLAGS   := -euo pipefail -c
.DEFAULT_GOAL := help
.NOTPARALLEL:

TEST_TIMEOUT ?= 20m
COVER_FLOOR  ?= 95
FUZZTIME     ?= 30s
FUZZ         ?=
BENCH        ?= .
COUNT        ?= 6
QUICK        ?=
ONLY         ?=
UPDATE       ?=
FAIL         ?=
VERSION      ?=
PKG          ?=
N            ?= 200
TESTS        ?=
# A change is tested with the same draws everywhere, so that a newcomer's first
# `make test` is not the run that finds a rare defect. `make fresh` draws anew.
SEED         ?= 1

export TEST_TIMEOUT
export RETRYSAFE_SEED := $(SEED)
# Without the directory in what is compiled, a clone at any path has it from Go's cache:
# that is a fifth of the time of make test.
export GOFLAGS := $(filter-out -trimpath,$(shell go env GOFLAGS 2>/dev/null)) -trimpath
shuffle := $(if $(filter fresh,$(SEED)),on,$(SEED))
space   := $(subst ,, )

# Developer tools are pinned in tools/go.mod, away from the library's own.
tool   := go tool -modfile=tools/go.mod
# SQLite, which is C translated to Go, is not watched by the race detector: that
# would take most of the time of the tests that use it. All of ours is.
outside := -gcflags='modernc.org/...=-race=false'
# Tests run with -vet=off where lint, or go vet itself, has looked at the same packages:
# lint has all analyzers of go vet, and go test would run ten of them again.
# Many tests wait, for a lease to end or a server to be back: more of them at a time
# than there are cores. Most packages keep half a core busy, so half as many more of them
# run at a time too.
waiting := -parallel=6 -p=$(shell echo $$(($$(nproc) * 3 / 2)))
# The packages that take longest begin first: as the last ones they would have nothing
# beside them.
longest := ./store/pgstore ./store/dynamostore
# The tests of the proving tools and of the tree's rules compute for minutes under the race
# detector, on one goroutine or in child processes. The contract on further versions of
# PostgreSQL and behind PgBouncer is the one that TestContract holds under it, and what a
# query costs beside many rows is about the server. A change runs these without the
# detector, in plain; make fresh runs all tests with it.
tools      := $(addprefix cmd/retrysafe/internal/prove/,field linear model mutate sim) internal/test/tree
servers    := VersionsOfPostgreSQL|PgBouncer|BesideMany
versions   := ./store/pgstore ./cmd/retrysafe/internal/cli/prove ./internal/test/testservers
# Nor does the detector see what these packages test: a built command, whose processes have
# no detector, and moves between stores, each of which is tested under it.
processes  := cmd/retrysafe $(addprefix cmd/retrysafe/internal/,move gateway/e2e prove/wire) scripts/dist
undetected := $(if $(filter fresh,$(SEED)),,$(tools) $(processes))
# Modules of their own beside the root one. Some are linted and run like the root's: tests
# of the library that need a server which must not be in its go.mod, and what users import
# with frameworks that must not be there.
checked := internal/test/brokers internal/test/browser rpckey examples/rpc examples/web
# Adapters are used in other programs, so they are linted too.
adapters := frameworks/ginkey frameworks/echokey frameworks/fiberkey frameworks/recipes
nested  := bench deploy internal/test/peers $(adapters) $(checked)

##@ Every day

.PHONY: help
help: ## list the commands
	@awk 'BEGIN { FS = ":.*## " } \
		/^##@ / { printf "\n%s\n", substr($$0, 5) } \
		/^[a-z-]+:.*## / { printf "  make %-13s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

.PHONY: command
command:
	@mkdir -p out
	go build -o out/retrysafe ./cmd/retrysafe

.PHONY: run
run: command ## start the demo: a payment API on 127.0.0.1:8080 and a provider that fails
	@exec out/retrysafe demo

.PHONY: test
test: setup fmt vet lint race plain nested cover smoke prove ## everything a change must pass, set-up included
	@echo "test: all passed"

.PHONY: check
check: fmt vet lint arch ## the quick round: vet, lint, arrows, tests from the cache
	@for m in . $(checked); do (set -x; go -C $$m test -timeout=$(TEST_TIMEOUT) ./...); done

##@ One at a time

.PHONY: lint
lint: ## golangci-lint as pinned in tools/go.mod; the first run builds it
	$(tool) golangci-lint run ./...
	@for m in $(checked) $(adapters); do (set -x; go -C $$m tool -modfile='$(CURDIR)/tools/go.mod' golangci-lint run ./...); done

.PHONY: race
race: ## the tests under the race detector, in shuffled order, never from the cache
	@mkdir -p out
	@detect() { (set -x; go -C $$1 test -race -vet=off $(outside) $(waiting) -shuffle=$(shuffle) -count=1 -timeout=$(TEST_TIMEOUT) $(if $(undetected),-skip='$(servers)') \
			$$([[ $$1 != . ]] || echo $(longest)) $$(go -C $$1 list ./... | grep -vE '/($(subst $(space),|,$(or $(undetected),none)))$$')); }; \
	trap 'kill 0' INT; \
	(for m in $(checked); do detect $$m || exit; done) > out/race-nested.txt 2>&1 & \
	failed=0; detect . || failed=1; wait $$! || failed=1; cat out/race-nested.txt; exit $$failed

.PHONY: prove
prove: command ## put the promises to the test, at the size of a change; the report is out/prove.json
	out/retrysafe prove all --jobs=3 $(if $(filter fresh,$(SEED)),,--seed=$(SEED)) --format=json --output=out/prove.json

.PHONY: fresh
fresh: ## what a scheduled run does: the tests and the proof with new seeds, and the fuzzing engine
	$(MAKE) race prove SEED=fresh
	scripts/hammer
	FUZZ_SOME=8 scripts/fuzz 2s

.PHONY: prove-full
prove-full: command ## the same at the size of a release, hours; docs/guarantees.md gets the figures
	out/retrysafe prove all --full --jobs=2 --format=json --output=out/prove-full.json
	go test -tags=failpoint -count=1 -run=Failpoints -timeout=$(TEST_TIMEOUT) ./cmd/retrysafe/internal/prove/sweep
	for round in {1..10}; do scripts/hammer 400000; done
	scripts/fuzz 30s
	go test -run='^TestDocsProof$$' ./cmd/retrysafe/internal/prove -proof=$(CURDIR)/out/prove-full.json

.PHONY: model
model: command ## the protocol in every order of events, by Spin (docs/model.md)
	out/retrysafe prove model

.PHONY: versions
versions: ## what could differ between versions of PostgreSQL, on 14 to 18
	scripts/postgres
	RETRYSAFE_POSTGRES_VERSIONS='14 15 16 17 18' go test -count=1 -run=VersionsOfPostgreSQL -timeout=$(TEST_TIMEOUT) $(versions)

.PHONY: mutants
mutants: command ## plant every known bug, and see that its test finds it
	out/retrysafe prove mutants --full

.PHONY: mutate
mutate: ## plant small bugs in a package, at random, and list those that no test notices (PKG=./httpkey N=200 TESTS=./a,./b)
	go run ./internal/test/mutation -pkg '$(PKG)' -n '$(N)' $(if $(TESTS),-tests '$(TESTS)')

.PHONY: windows
windows: ## every failure window has a test that carries its number, or a reason (docs/windows.md)
	go test -run='^TestDocs(Windows|Lists)' ./internal/test/tree

.PHONY: checklist
checklist: ## every line of checklist, threat model and guarantees has tests that exist
	go test -run='^TestDocs(Checklist|ThreatModel|Guarantees|Lists)' ./internal/test/tree

.PHONY: cover
cover: ## coverage of the root package, with its floor (COVER_FLOOR=95)
	@scripts/cover $(COVER_FLOOR)

.PHONY: fuzz
fuzz: ## fuzz each target (FUZZTIME=30s, FUZZ=FuzzName for one)
	@scripts/fuzz $(FUZZTIME) $(FUZZ)

.PHONY: bench
bench: bench-durable ## side-by-side benchmarks as tables (BENCH=regexp COUNT=6)
	cd bench && go test -run=Ratios -ratios -v -timeout=60m ./... | grep -v '^=== '
	for m in $(filter-out %recipes,$(adapters)); do go -C $$m test -run='^TestCost$$' -count=1 -ratios -v -timeout=60m . | grep '|'; done
	cd bench && go test -run='^$$' -bench='$(BENCH)' -benchmem -count=$(COUNT) -timeout=60m ./... | tee ../out/bench.txt
	@$(tool) benchstat -col /impl out/bench.txt # .../impl=ours and .../impl=theirs stand side by side

.PHONY: bench-durable
bench-durable: ## durable stores, half an hour (QUICK=1 for a look, ONLY=regexp of scenarios); the whole writes docs/
	@mkdir -p out
	cd bench && go test -run='^TestDurable$$' -count=1 -v -timeout=60m . -durable $(if $(QUICK),-durable.quick) \
		$(if $(ONLY),-durable.only='$(ONLY)') $(if $(QUICK)$(ONLY),,-durable.docs=../docs) | grep -v '^=== ' | tee ../out/bench-durable.txt

.PHONY: bench-quick
bench-quick: ## six ratios beside the committed ones of bench/quick.json, three minutes; warns (FAIL=1 fails) if one has fallen, UPDATE=1 writes them
	@mkdir -p out
	cd bench && go test -run='^TestQuick$$' -count=1 -v -timeout=10m . -quick $(if $(UPDATE),-quick.update) $(if $(FAIL),-quick.fail) \
		| grep -v '^=== ' | tee ../out/bench-quick.txt

.PHONY: bench-gateway
bench-gateway: ## the gateway beside a bare reverse proxy, and nginx if there is one (QUICK=1 for a look); writes docs/
	@mkdir -p out
	cd bench && go test -run='^TestGateway$$' -count=1 -v -timeout=30m . -gateway $(if $(QUICK),-gateway.quick) \
		$(if $(ONLY),-gateway.only='$(ONLY)') $(if $(QUICK)$(ONLY),,-gateway.docs=../docs) | grep -v '^=== ' | tee ../out/bench-gateway.txt
	$(MAKE) bench-restate QUICK='$(QUICK)'

.PHONY: bench-restate
bench-restate: ## the gateway beside Restate, a minute (QUICK=1 for a look); the first run fetches 200 MB from npm; writes docs/
	@mkdir -p out
	server=$$(scripts/restate) && cd bench && go test -tags=restate -run='^TestRestate$$' -count=1 -v -timeout=30m . -restate="$$server" \
		$(if $(QUICK),-restate.quick,-restate.docs=../docs) | grep -v '^=== ' | tee ../out/bench-restate.txt

.PHONY: bench-stores
bench-stores: ## retrysafe bench on every store that can be started here, two minutes; writes docs/choosing-a-store.md
	@mkdir -p out
	go test -run='^TestBenchStores$$' -count=1 -v -timeout=30m ./cmd/retrysafe/internal/cli/bench -stores -stores.doc='$(CURDIR)/docs/choosing-a-store.md' \
		| grep -v '^=== ' | tee out/bench-stores.txt

.PHONY: bench-attack
bench-attack: ## ten honest tenants beside a hostile one with 2,000 connections, two minutes (QUICK=1 for a look)
	@mkdir -p out
	go test -run='^TestAttack$$' -count=1 -v -timeout=10m ./cmd/retrysafe/internal/gateway/e2e -attack \
		$(if $(QUICK),-attack.lasts=10s -attack.connections=300) | grep -v '^=== ' | tee out/bench-attack.txt

.PHONY: matrix
matrix: ## the verifier on our gateway and middleware, and on others beside them; writes docs/matrix.md
	@scripts/matrix

.PHONY: release
release: ## archives, checksums and SBOMs of a tagged version (VERSION=v1.2.3); docs/releasing.md is the checklist
	@scripts/release '$(VERSION)'

.PHONY: reproduce
reproduce: ## build the release of this tree in two directories, and compare every byte
	go test -count=1 -run='^TestW86' ./scripts/dist

.PHONY: tidy
tidy: ## format the code and tidy every go.mod
	gofmt -w .
	@for m in . $(nested) tools; do (set -x; go -C $$m mod tidy); done

# The steps below are parts of test and check.

.PHONY: setup
setup:
	@scripts/setup

.PHONY: fmt
fmt:
	@unformatted=$$(gofmt -l .); [[ -z $$unformatted ]] || \
		{ echo "fmt: not as gofmt has it, run make tidy:" $$unformatted >&2; exit 1; }

.PHONY: vet
vet: # lint has the rest of it
	go vet -tags=failpoint ./internal/failpoint ./cmd/retrysafe/internal/prove/sweep

.PHONY: arch
arch:
	go test -run='^TestArch' ./internal/test/tree

# What the race detector would watch for minutes.
.PHONY: plain
plain:
	@mkdir -p out
	@trap 'kill 0' INT; set -x; \
	(go test -vet=off -run=Million -count=1 -timeout=$(TEST_TIMEOUT) ./cmd/retrysafe/internal/ledger && \
	go test -vet=off $(waiting) -run='$(servers)' -count=1 -timeout=$(TEST_TIMEOUT) $(versions)) > out/plain-versions.txt 2>&1 & \
	failed=0; \
	go test -vet=off $(waiting) -shuffle=$(shuffle) -count=1 -timeout=$(TEST_TIMEOUT) $(addprefix ./,$(tools) $(processes)) || failed=1; \
	wait $$! || failed=1; cat out/plain-versions.txt; exit $$failed

.PHONY: nested
nested:
	@for m in $(filter-out $(checked),$(nested)); do (set -x; go -C $$m vet ./... && go -C $$m test -vet=off -timeout=$(TEST_TIMEOUT) ./...); done

.PHONY: smoke
smoke:
	@scripts/hammer 40000 $(if $(filter fresh,$(SEED)),,$(SEED))
