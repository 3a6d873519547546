# make run    the shaper of this tree, with shaper.toml
# make test   everything that must pass: lint, tests, fuzzing
# make lint   gofmt, vet, staticcheck
# make kernel as root: the kernel engine's tests at their full length, some 4 minutes
# make uml    as root: the same in a kernel that has fq_codel and flower, in user-mode Linux
# make install, make uninstall  PREFIX=/usr/local, DESTDIR= for packages
# make bench  as root: shaper beside its peers, into docs/benchmarks.md
# make bench-go  Go benchmarks, for benchstat
# make demo-kannel  Kannel and a provider of 20 messages/s, with shaper between and without

GO         ?= go
FUZZTIME   ?= 3s
STATICCHECK = honnef.co/go/tools/cmd/staticcheck@v0.8.2

# Packages of Debian that the tests use as peers and judges, and a command of each, or
# a module of Perl.
DEBIAN = iperf3:iperf3 prometheus:promtool systemd:systemd-analyze iproute2:ip procps:ps curl:curl openssl:openssl man-db:man \
         kannel:bearerbox hey:hey wrk:wrk libnet-smpp-perl:Net::SMPP

PREFIX     ?= /usr/local
MAN         = $(PREFIX)/share/man/man1/shaper.1
BASH        = $(PREFIX)/share/bash-completion/completions/shaper
ZSH         = $(PREFIX)/share/zsh/site-functions/_shaper
FISH        = $(PREFIX)/share/fish/vendor_completions.d/shaper.fish
UNIT        = $(PREFIX)/lib/systemd/system/shaper.service
SYSUSERS    = $(PREFIX)/lib/sysusers.d/shaper.conf
INSTALLED   = $(PREFIX)/bin/shaper $(MAN) $(BASH) $(ZSH) $(FISH) $(UNIT) $(SYSUSERS)

.PHONY: install uninstall run test kernel uml demo-kannel bench bench-go lint unit whole fuzz deps

run:
	$(GO) run ./cmd/shaper run

test: deps lint unit whole fuzz

# The race detector allocates, so what must not allocate is tested without. The
# tests that measure rates have the machine to themselves: they come last.
unit:
	$(GO) test -race $$($(GO) list ./... | grep -v /tests$$)
	$(GO) test -run Allocate ./...

whole:
	$(GO) test -race -count=1 -timeout 8m ./tests

# 1,000 random policies, 200 kills, 10 s at 1 Gbit/s; `make test` has fewer of each.
kernel: deps
	FULL=1 $(GO) test -count=1 -timeout 15m -run TestKernel -v ./tests

uml: DEBIAN = user-mode-linux:linux.uml kmod:modprobe iproute2:ip
uml: deps
	FULL=1 $(GO) test -count=1 -run TestUserModeLinux -v ./tests

# Each fuzz target for FUZZTIME, to see that it runs, on its corpus and a little more; give
# it longer after a change. go test takes one target at a time.
fuzz:
	@for pkg in unit policy simulate frame; do \
	  for target in $$(grep -ho '^func Fuzz[A-Za-z0-9]*' $$pkg/*_test.go | cut -c6-); do \
	    $(GO) test -run '^$$' -fuzz "^$$target$$" -fuzztime $(FUZZTIME) ./$$pkg || exit 1; \
	  done; \
	done

# BENCH="-only bulk,rtt -rounds 1" for less, which writes nothing.
bench: DEBIAN = build-essential:g++ iproute2:ip
bench: deps
	$(GO) run ./tests/bench $(BENCH)

bench-go:
	$(GO) test -run '^$$' -bench . -benchmem ./...

demo-kannel: DEBIAN = kannel:bearerbox
demo-kannel: deps
	$(GO) test -count=1 -v -run '^TestKannel$$' ./tests

# The manual and the completions come from the program itself, built for this machine.
install:
	install -d $(foreach file,$(INSTALLED),"$(DESTDIR)$(dir $(file))")
	$(GO) build -o "$(DESTDIR)$(PREFIX)/bin/shaper" ./cmd/shaper
	GOOS= GOARCH= $(GO) run ./cmd/shaper man >"$(DESTDIR)$(MAN)"
	GOOS= GOARCH= $(GO) run ./cmd/shaper completion bash >"$(DESTDIR)$(BASH)"
	GOOS= GOARCH= $(GO) run ./cmd/shaper completion zsh >"$(DESTDIR)$(ZSH)"
	GOOS= GOARCH= $(GO) run ./cmd/shaper completion fish >"$(DESTDIR)$(FISH)"
	sed 's|/usr/bin/shaper|$(PREFIX)/bin/shaper|' systemd/shaper.service >"$(DESTDIR)$(UNIT)"
	install -m 0644 systemd/shaper.sysusers "$(DESTDIR)$(SYSUSERS)"
	chmod 0755 "$(DESTDIR)$(PREFIX)/bin/shaper"
	chmod 0644 $(foreach file,$(MAN) $(BASH) $(ZSH) $(FISH) $(UNIT),"$(DESTDIR)$(file)")

uninstall:
	rm -f $(foreach file,$(INSTALLED),"$(DESTDIR)$(file)")

lint:
	@test -z "$$(gofmt -l .)" || { gofmt -l .; echo "not formatted: run gofmt -w ."; exit 1; }
	$(GO) vet ./...
	$(GO) run $(STATICCHECK) ./...

# As root, what is missing is installed. For others the tests that need it are
# skipped, and say so; with CI=true they fail.
deps:
	@missing=; \
	for pair in $(DEBIAN); do \
	  case $${pair#*:} in \
	    *::*) perl -M$${pair#*:} -e 1 2>/dev/null ;; \
	    *) PATH="$$PATH:/usr/sbin:/sbin" command -v $${pair#*:} >/dev/null ;; \
	  esac || missing="$$missing $${pair%%:*}"; \
	done; \
	if [ -z "$$missing" ]; then exit 0; fi; \
	if [ "$$(id -u)" != 0 ] || ! command -v apt-get >/dev/null; then \
	  echo "not installed, and what needs them is skipped:$$missing"; exit 0; fi; \
	apt-get update -q && DEBIAN_FRONTEND=noninteractive apt-get install -qy --no-install-recommends $$missing
