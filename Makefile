# The front door. Everything real is in CMake; `make help` lists what there is.
.DEFAULT_GOAL := release
JOBS ?= $(shell nproc)
CMAKE ?= cmake
PREFIX ?= /usr/local
# $(call configure,PRESET OPTIONS). Where something was not found it points to `make setup`. Where
# the clone was moved or copied with its builds it says what to remove.
here = was=$$(sed -n 's/^CMAKE_HOME_DIRECTORY:INTERNAL=//p' build/$(1)/CMakeCache.txt 2>/dev/null); \
  [ -z "$$was" ] || [ "$$was" -ef . ] || { \
    echo "build/$(1) was made when this clone was $$was, and cannot go on from here:" \
      "remove it (rm -r build/$(1)) and run make again." >&2; exit 1; }
configure = $(call here,$(firstword $(1))); $(CMAKE) --preset $(1) $(if $(VERBOSE),,>/dev/null) || { \
  echo "Not configured. If something is missing: 'make setup' installs it (Debian)." >&2; exit 1; }

.PHONY: help setup setup-test release dev demo test check-slow check-long bench bench-all lint format docs site \
  install packages clean
help:             ## this list
	@grep -hE '^[a-z-]+:.*##' Makefile | sed -E 's/^([a-z-]+):.*## /  make \1\t/' | expand -t 18

setup:            ## install what is missing (Debian packages)
	@tools/setup

# What tests run with and skip without. TUTTI_PYTHON names another Python that has PyTorch.
setup-test:
	@tools/setup --test
	@[ -n "$$TUTTI_PYTHON" ] || tools/setup --python || \
	  echo "Going on without: the tests of the Python package are skipped." >&2

release:          ## build/release/bin/tutti and build/release/lib
	@$(call configure,release)
	@$(CMAKE) --build --preset release -j $(JOBS)

dev:              ## the build that tests run in
	@$(call configure,dev)
	@$(CMAKE) --build --preset dev -j $(JOBS)

demo: setup release ## train a convolutional network on MNIST with two workers and show what happened
	@tools/demo

# Two more than there are cores: tests compute for half of the time that they take, and else wait
# for a silence, a grace, a disk, or processes of theirs. docs/TESTING.md says which tests are slow,
# and which are long. $(call tests,OPTIONS OF CTEST). `ctest -N` empties the log of the last run, which
# tools/skipped reads, and .ci/run.
tests = ctest --preset dev $(1) -j $$(($(JOBS) + 2)); code=$$?; tools/skipped build/dev
left = echo "Left to make check-$(1):" \
  $$(ctest --preset dev -N -L '^$(1)$$' | sed -n 's/^ *Test *\#[0-9]*: //p')

test: setup-test dev ## set up, build, run the tests: 7 minutes on two cores
	@left=$$($(call left,slow); $(call left,long)); $(call tests,-LE '^(slow|long)$$'); \
	  echo "$$left"; exit $$code

check-slow: setup-test dev ## tests that make test leaves out, and a submission passes, too
	@$(CMAKE) --build --preset dev -j $(JOBS) --target mutants-some
	@$(call tests,-L '^slow$$'); exit $$code

check-long: setup-test dev ## and those that a release passes: further cases of what other tests show
	@$(CMAKE) --build --preset dev -j $(JOBS) --target mutants
	@$(call tests,-L '^long$$'); exit $$code

# AGAINST=BUILD: a build of the last release, measured in turn with this one.
bench: setup release ## at most 10 minutes: what a user meets first, with ratios to the last release
	@bench/quick $(if $(AGAINST),--against "$(AGAINST)")

bench-all: setup release ## hours: every figure, with ratios to peers; adds rows to bench/results
	@bench/run

lint: dev         ## clang-tidy, the house's own rules, ruff and mypy if they are there
	@tools/lint

format:           ## clang-format every C file in place
	@git ls-files '*.c' '*.h' | grep -vE '/(vectors.h|interface.c)$$' | xargs clang-format -i

docs: release     ## pages of headers, options and figures, in build/release/docs; and docs/rooms.svg
	@tools/rooms
	@echo "build/release/docs: api/README.md, OPTIONS.md, RESULTS.md, MISSED.md, LEDGER.md"

site: release     ## build/site: README, docs and all pages in one place to browse and search
	@tools/setup --site
	@tools/site/make

# Configured for its place, because that decides where libraries go and where the command looks for
# plug-ins.
install:          ## to $(PREFIX), libraries to $(LIBDIR) if given, all below $(DESTDIR) if given
	@$(call configure,release -DCMAKE_INSTALL_PREFIX="$(PREFIX)" \
	  $(if $(LIBDIR),-DCMAKE_INSTALL_LIBDIR="$(LIBDIR)"))
	@$(CMAKE) --build --preset release -j $(JOBS)
	@DESTDIR="$(DESTDIR)" $(CMAKE) --install build/release $(if $(VERBOSE),,>/dev/null)
	@echo "installed to $(DESTDIR)$(PREFIX)"

packages:         ## wheels (dist) and Debian's packages (build/deb) of HEAD, each tried in roots of its own
	@tools/packages

clean:            ## remove build/
	@rm -rf build
