# pagelab: every target does its own set-up; see README.md.
VENV   ?= .venv
PY     := $(VENV)/bin/python
STAMP  := $(VENV)/.pagelab-installed
SOURCES := $(shell find crates src -type f \( -name '*.rs' -o -name '*.py' -o -name '*.toml' -o -name '*.h' -o -name '*.j2' \) 2>/dev/null) Cargo.toml Cargo.lock pyproject.toml

.PHONY: dev
# An editable install for working on pagelab: Rust parts are copied beside the Python sources.
dev: $(VENV)/bin/python
	cargo build --release
	cp -f target/release/lib_native.so src/pagelab/_native.abi3.so
	cp -f target/release/libpagelab.so src/pagelab/libpagelab.abi3.so
	cp -f target/release/pagelab-launch target/release/pagelab-workload $(VENV)/bin/

$(VENV)/bin/python:
	python3 -m venv $(VENV)
