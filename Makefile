# make run    builds and runs shaper with shaper.toml
# make build  builds bin/shaper, with the playground at /play
# make playground  writes the playground as static files to bin/playground, for any web server
# make test   lint, and all tests: some 5 minutes, and 9 if all is built anew
# make race   all tests that have something to find for the race detector, with it; some 5 minutes
# make fuzz   runs each fuzz target with FUZZTIME inputs, for example FUZZTIME=1000000x
# make schedules  runs the random schedules of sessions, messages and fleets at full size, some 5 minutes
# make soak   as root: repeats all tests at full size for SOAK seconds, and prints their figures
# make lint   gofmt, vet, staticcheck
# make kernel as root: the tests of the kernel engine at full size, some 4 minutes
# make uml    as root: tests the kernel engine in user-mode Linux, whose kernel has fq_codel and flower
# make install, make uninstall  PREFIX=/usr/local, DESTDIR= for packages
# make deb, make rpm, make dist  packages, or a tar.gz with an SBOM, in OUT=dist, for ARCH=amd64 or arm64
# make image  a container image with nothing but the program, by CONTAINER=podman
# make test-packages  as root: checks, installs, upgrades and purges packages; some 10 minutes
# make bench  as root: measures shaper beside its peers, and writes docs/benchmarks.md
# make bench-go  Go benchmarks, for benchstat
# make instructions  counts how many instructions the hot paths take, and took at revision AGAINST; some 3 minutes
# make growth  measures what things cost as they become more, and writes docs/growth.md
# make demo-fleet   three shapers share one account of 20 messages/s; draws all departures to PICTURE
# make pictures     draws the pictures of the pages in docs/, with an hour of traffic
# make demo-kannel  Kannel and a provider of 20 messages/s, with shaper between them and without

GO         ?= go
FUZZTIME   ?= 20000x
SOAK       ?= 3600
STATICCHECK = honnef.co/go/tools/cmd/staticcheck@v0.8.2

# Debian packages with the programs that tests use as peers and judges. Behind each colon
# stands a command of the package, a Perl module or a file, by which `deps` knows that it is
# installed.
DEBIAN = iperf3:iperf3 prometheus:promtool systemd:systemd-analyze iproute2:ip procps:ps curl:curl openssl:openssl man-db:man \
         kannel:bearerbox hey:hey wrk:wrk libnet-smpp-perl:Net::SMPP nginx-light:nginx redis-server:redis-server gcc:gcc \
         netcat-openbsd:nc openssh-client:ssh openssh-server:sshd git:git proxychains4:proxychains4 nmap:nmap chromium:chromium nftables:nft \
         bind9-dnsutils:dig ldnsutils:drill dante-client:socksify nodejs:node tmux:tmux haproxy:haproxy socat:socat \
         libnginx-mod-stream:/usr/lib/nginx/modules/ngx_stream_module.so

VERSION    ?= $(shell packaging/version)

PREFIX     ?= /usr/local
MAN         = $(PREFIX)/share/man/man1/shaper.1
MAN5        = $(PREFIX)/share/man/man5/shaper.toml.5
BASH        = $(PREFIX)/share/bash-completion/completions/shaper
ZSH         = $(PREFIX)/share/zsh/site-functions/_shaper
FISH        = $(PREFIX)/share/fish/vendor_completions.d/shaper.fish
UNIT        = $(PREFIX)/lib/systemd/system/shaper.service
SYSUSERS    = $(PREFIX)/lib/sysusers.d/shaper.conf
TMPFILES    = $(PREFIX)/lib/tmpfiles.d/shaper.conf
INSTALLED   = $(PREFIX)/bin/shaper $(MAN) $(MAN5) $(BASH) $(ZSH) $(FISH) $(UNIT) $(SYSUSERS) $(TMPFILES)

MD2MAN      = $(GO) run github.com/cpuguy83/go-md2man/v2

# TALLY reads what `go test -json` prints. It shows failures, counts the tests that were skipped
# or could not be judged, and fails if a test failed.
TALLY = $(GO) run ./tests/tally

# The program of the playground is built anew each time, and laid over web/static while the program is
# built, so it is always that of the same sources. $(call program,DIR) builds it, and
# $(call build,ARGS) is `go build ARGS` with it: a static program, the same bytes wherever the tree
# stands.
program = GOOS=js GOARCH=wasm $(GO) build -trimpath -ldflags='-s -w' -o "$(1)/play.wasm" ./web/play && \
	cp "$$($(GO) env GOROOT)/lib/wasm/wasm_exec.js" "$(1)"
overlaid = "$(CURDIR)/web/static/$(1)": "'"$$play"'/$(1)"
build = play=$$(mktemp -d) && trap 'rm -rf "$$play"' EXIT && $(call program,$$play) && gzip -9n "$$play/play.wasm" && \
	echo '{"Replace": {$(call overlaid,play.wasm.gz), $(call overlaid,wasm_exec.js)}}' >"$$play/overlay.json" && \
	CGO_ENABLED=0 $(GO) build -trimpath -buildvcs=false -ldflags '-s -w -X main.version=$(VERSION)' -overlay "$$play/overlay.json" $(1)

.PHONY: schedules build playground install uninstall deb rpm dist image test-packages run test race soak kernel uml demo-kannel demo-fleet pictures bench bench-go instructions growth lint fuzz deps

run:
	$(GO) run ./cmd/shaper run

BIN ?= bin/shaper
build:
	$(call build,-o "$(BIN)" ./cmd/shaper)

PLAYGROUND ?= bin/playground
playground:
	install -d "$(PLAYGROUND)"
	$(call program,$(PLAYGROUND))
	cd web/static && cp play*.js *.css dom.js format.js curve.js table.js icon.svg uPlot*.js uPlot.LICENSE "$(abspath $(PLAYGROUND))"
	sed '/class="dashboard"/d' web/static/play.html >"$(PLAYGROUND)/index.html"

# Tests of the whole program that judge times are QUIET: they run last, when nothing else does.
# tests/goroutine_test.go holds that they are all listed. Some packages mostly wait, so twice as many as
# there are processors run side by side, and eight of their parallel tests. With -trimpath the build
# cache serves the copies of this tree that tests build. Lint vets what GOTEST does not. Nobody debugs
# the test binaries, so they have no DWARF.
QUIET  = DatagramsAreSpacedAndCounted Fleet(Faults|On(Cluster|Sentinel)|PausesTogether|Shares(Datagrams|OneAccount)|SlowStore|TLS|WithoutItsStore) \
         HalfAPacketPerSecond IdleDaemonTakesNoTime Iperf3ThroughLeakyClasses Kannel(ByRecipient)? \
         Kernel(LeakyHasNoBursts|ManyRules|RateChangesUnderTheFlow|Rates) NameMovesInDNS NewRateReachesOpenConnection OpenPageTakesLittle \
         PagesArePainted PasscodesGoFirst (Provider|Server)Throttles ReadmeInACleanClone ReloadsUnderLoad SecondSignalStopsAtOnce \
         SmallWritesRunAtTheFullRate StalledReaderCostsTheOthersNothing StopEndsByTheDeadline TLSCarries(Lines|SMPP) Throughput \
         TokenClassHoldsInEveryWindow TokensOfAModel TopTakesLittle Tree(IsReloadedInFlight|SharesEqualHTB) TwoSourceAddresses \
         UrgentWaitsForOneItem WithoutDescriptors
quiet  = ^Test($(call either,$(QUIET)))$$
# either A B is the pattern A|B, and others A B all packages but A, B and tests.
either = $(subst $() ,|,$(strip $(1)))
others = $$($(GO) list ./... | grep -vE '^shaper/($(call either,$(1) tests))$$')
GOTEST = $(GO) test -json -vet=off -ldflags=-w -timeout 20m -p $$((2*$$(nproc))) -parallel 8
test: export GOFLAGS += -trimpath
test: deps lint
	@{ $(GOTEST) $(call others) & \
	   $(GOTEST) -count=1 -skip '$(quiet)' ./tests; \
	   wait; \
	   $(GOTEST) -count=1 -run '$(quiet)' ./tests; } | $(TALLY)

# The same tests with the race detector, which takes several times as long. It allocates, so tests of
# allocations are left out. It has nothing to find in the SINGLE packages, which have one goroutine
# (tests/goroutine_test.go holds that), nor in the LONG tests of machines without goroutines, and it delays what
# QUIET tests judge. Tests of the whole program run a program that has it too.
LONG   = AStallCosts Again(AfterItsShare|InAWindow) AllReadTheSameRules AnswersAreHeldWithinBounds AnyPlanFollows ApplyUndoes \
         BashCompletes Complet(ions|ingAValue) CrashesGiveNoBudget Debt(AfterALoss|IsPaid) FleetUsesTheLimit FlowsAfterAnAbsence \
         Forecast(BeforeQuietHours|OfARandom(Path|Tree)|OfBucketsBeneath|OfRandomBuckets|WhileSharesOfShortWindows) GreedyAndIdle Guests.*Bounded \
         IdleMemberTells Keys(AreRemembered|Beneath(AreAs|ComeAndGo)|Flood|HaveTheirLimit|LeaveTheCommonBucket|Memory) LanguageModel LateCallsOfManyLeavers LateDepartures \
         Learn(Finds|Forgets|GoesUp|Ignores|InTheShadow|Survives) LeasesCostLittle LineOfTheGone ListsKeepTheOrder LogHoldsForWhen LostOfAWindow \
         ManyKeys MutantsAreFound NewClassAfterALargeItem NothingIsEarly OwingEnds Patience Pause(OfAKey|Outlasts) PingsOnly \
         QuotaOfACalendarDay RateChanges RefusalForTheSilent Retry(HidesRefusals|KeepsWithinBounds|Properties) \
         Rule(Shares|StarvesNobody|WastesNoTime) ScriptAndModelAgree ShadowCountsWhat ShadowIsBounded ShadowOfTrains \
         Share(AfterTheShortest|EndsWithTheHold|ForgetsKeys|InTheLast|IsTold|OfANewcomer|OfTheWindow|OneByOne) \
         Simulated(Fleet|Pages|Schedules|Trees) Slept SlowStore \
         SoonestLosesNothing Spending Stalls(Keep|Take) Store(BeforeTheDisk|Lost) SumDoesNotOverflow SuspendedMachine TLSBackpressure Test(Amend|Owe) \
         Tree(IsNaive|NeverAbove|Shares) UrgentAmongBulk WaitsOfManyBuckets WhyCopies \
         Windows(AfterAnEmptyRestart|AreUsedInFull|CountWhatHasLeft)
SINGLE = buffer calendar fleet/limits frame human leaky limit metrics metrics/grafana nft packaging/sbom policy simulate systemd tests/growth tests/instructions tests/order tests/tally unit web/play
race: export GOFLAGS += -trimpath
race: deps
	@{ $(GOTEST) -race -skip '$(call either,Allocate $(LONG))' $(call others,$(SINGLE)) & \
	   $(GOTEST) -race -count=1 -skip '$(quiet)' ./tests; \
	   wait; } | $(TALLY)

# Random schedules look for what nobody has thought of: the more, the better. `make test` runs some of them.
schedules: export GOFLAGS += -trimpath
schedules:
	@FULL=1 $(GOTEST) -run RandomSchedules $$(grep -rl --include='*_test.go' '^func TestRandomSchedules' . | xargs -n 1 dirname | sort -u) | $(TALLY)

# Repeats all tests at full size until SOAK seconds have passed or a test fails. Packages run
# one after the other, and QUIET tests without the others of theirs, so that the machine is quiet
# while tests judge times.
SOAKED = FULL=1 $(GO) test -json -p 1 -count=1 -timeout 2h
soak: deps
	@until=$$(($$(date +%s) + $(SOAK))); \
	while $(SOAKED) $$($(GO) list ./... | grep -v '^shaper/tests$$') && $(SOAKED) -skip '$(quiet)' ./tests && $(SOAKED) -run '$(quiet)' ./tests && \
	  [ $$(date +%s) -lt $$until ]; do :; done | $(TALLY)

kernel: deps
	@FULL=1 $(GO) test -json -count=1 -timeout 30m -run TestKernel ./tests | $(TALLY)

uml: DEBIAN = user-mode-linux:linux.uml kmod:modprobe iproute2:ip
uml: deps
	FULL=1 $(GO) test -count=1 -run TestUserModeLinux -v ./tests

# `make test` runs the seeds and the inputs in testdata; this looks for new ones. go test takes
# one fuzz target at a time. FUZZTIME is a number of inputs: if it is a duration, and that ends
# while the machine is busy, go test fails with "context deadline exceeded" (golang/go#75804).
fuzz:
	@for pkg in $$(grep -rl --include='*_test.go' '^func Fuzz' . | xargs -n 1 dirname | sort -u); do \
	  for target in $$(grep -ho '^func Fuzz[A-Za-z0-9_]*' $$pkg/*_test.go | cut -c6-); do \
	    $(GO) test -run '^$$' -fuzz "^$$target$$" -fuzztime $(FUZZTIME) -fuzzminimizetime 20x $$pkg || exit 1; \
	  done; \
	done

# BENCH="-only bulk,rtt -rounds 1" measures less, and writes no page. BENCH="-against HEAD~5"
# compares with an earlier revision, and lists what has become worse.
bench: DEBIAN = build-essential:g++ iproute2:ip kannel:bearerbox
bench: deps
	$(GO) run ./tests/bench $(BENCH)

AGAINST ?= HEAD
instructions: DEBIAN = valgrind:valgrind
instructions: deps
	$(GO) run ./tests/instructions -against $(AGAINST)

bench-go:
	$(GO) test -run '^$$' -bench . -benchmem ./...

growth:
	$(GO) test -run '^$$' -bench '^BenchmarkGrowth$$' -cpu 1,2 -benchtime 50ms -count 3 -timeout 30m ./conn ./daemon ./policy ./shaper | $(GO) run ./tests/growth

demo-kannel: DEBIAN = kannel:bearerbox
demo-kannel: deps
	FULL=1 $(GO) test -count=1 -v -run '^TestKannel$$' ./tests

# Some 15 seconds with building. It needs redis-server, and no root.
PICTURE ?= $(or $(TMPDIR),/tmp)/shaper-fleet.svg
demo-fleet: DEBIAN = redis-server:redis-server
demo-fleet: deps
	SHAPER_TEST_PICTURE=$(abspath $(PICTURE)) $(GO) test -count=1 -v -run '^TestFleetSharesOneAccount$$/^all_greedy$$' ./tests

# The pictures of the pages in docs/, with traffic of TRAFFIC.
TRAFFIC ?= 1h
pictures: DEBIAN = chromium:chromium
pictures: deps
	SHAPER_TEST_PICTURES='$(CURDIR)/docs' SHAPER_TEST_PICTURES_AFTER=$(TRAFFIC) $(GO) test -count=1 -timeout 2h -v -run '^TestPictures$$' ./tests

# The program prints its own manual and completions. They come from a build for this machine, so
# that `make install` can cross-compile. PROGRAM installs a program that is built already.
SELF = $(if $(GOOS)$(GOARCH),GOOS= GOARCH= $(GO) run -ldflags '-X main.version=$(VERSION)' ./cmd/shaper,"$(DESTDIR)$(PREFIX)/bin/shaper")
install:
	$(if $(word 2,$(DESTDIR)$(PREFIX)),$(error DESTDIR and PREFIX cannot have blanks))
	install -d $(foreach file,$(INSTALLED),"$(DESTDIR)$(dir $(file))")
	$(if $(PROGRAM),install "$(PROGRAM)" "$(DESTDIR)$(PREFIX)/bin/shaper",$(call build,-o "$(DESTDIR)$(PREFIX)/bin/shaper" ./cmd/shaper))
	chmod 0755 "$(DESTDIR)$(PREFIX)/bin/shaper"
	$(SELF) man >"$(DESTDIR)$(MAN)"
	packaging/man5 '$(VERSION)' | GOOS= GOARCH= $(MD2MAN) >"$(DESTDIR)$(MAN5)"
	$(SELF) completion bash >"$(DESTDIR)$(BASH)"
	$(SELF) completion zsh >"$(DESTDIR)$(ZSH)"
	$(SELF) completion fish >"$(DESTDIR)$(FISH)"
	sed 's|/usr/bin/shaper|$(PREFIX)/bin/shaper|' systemd/shaper.service >"$(DESTDIR)$(UNIT)"
	cp systemd/shaper.sysusers "$(DESTDIR)$(SYSUSERS)"
	cp systemd/shaper.tmpfiles "$(DESTDIR)$(TMPFILES)"
	chmod 0644 $(foreach file,$(wordlist 2,99,$(INSTALLED)),"$(DESTDIR)$(file)")

uninstall:
	$(if $(word 2,$(DESTDIR)$(PREFIX)),$(error DESTDIR and PREFIX cannot have blanks))
	rm -f $(foreach file,$(INSTALLED),"$(DESTDIR)$(file)")

deb rpm dist image:
	@GO='$(GO)' VERSION='$(VERSION)' packaging/build $@

test-packages: DEBIAN = lintian:lintian rpm:rpm mmdebstrap:mmdebstrap user-mode-linux:linux.uml e2fsprogs:mke2fs git:git
test-packages: deps
	FULL=1 $(GO) test -count=1 -timeout 60m -run '^TestPackage' -v ./tests

lint:
	@test -z "$$(gofmt -l .)" || { gofmt -l .; echo "not formatted: run gofmt -w ."; exit 1; }
	$(GO) vet ./...
	$(GO) run $(STATICCHECK) ./...

# As root, this installs the packages that are missing. For other users, the tests that need
# them are skipped and say so; with CI=true they fail.
deps:
	@missing=; \
	for pair in $(DEBIAN); do \
	  case $${pair#*:} in \
	    *::*) perl -M$${pair#*:} -e 1 2>/dev/null ;; \
	    /*) [ -e "$${pair#*:}" ] ;; \
	    *) PATH="$$PATH:/usr/sbin:/sbin" command -v $${pair#*:} >/dev/null ;; \
	  esac || missing="$$missing $${pair%%:*}"; \
	done; \
	if [ -z "$$missing" ]; then exit 0; fi; \
	if [ "$$(id -u)" != 0 ] || ! command -v apt-get >/dev/null; then \
	  echo "not installed, and what needs them is skipped:$$missing"; exit 0; fi; \
	echo "make installs with apt-get what tests need, since you are root:$$missing"; \
	apt-get update -q && DEBIAN_FRONTEND=noninteractive apt-get install -qy --no-install-recommends $$missing
