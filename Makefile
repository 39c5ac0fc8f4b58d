# Every command a developer needs. Rust and Python 3.11 must be there; the rest is fetched by the commands themselves.

SHELL := /bin/bash
.SHELLFLAGS := -eu -o pipefail -c
.DEFAULT_GOAL := help

CARGO ?= cargo
PYTHON ?= python3
TARGET := $(or $(CARGO_TARGET_DIR),target)
VENV := .venv
VENV_READY := $(VENV)/.installed
FUZZ_SECONDS ?= 60
FUZZ_RUN := $(CARGO) fuzz run --sanitizer none
FUZZ_SEEDS := $(addprefix ../crates/graphmill-graph/tests/fixtures/v1/,whole assigned)

.PHONY: help
help: ## list the commands
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "make %-14s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

.PHONY: demo
demo: ## build, then generate, partition, inspect, sample and serve a small graph
	$(CARGO) build --release -p graphmill
	$(TARGET)/release/graphmill demo

.PHONY: test
test: $(VENV_READY) ## run all tests, Rust and Python
	@mkdir -p $(TARGET); failed=0; \
	$(CARGO) test --workspace --no-fail-fast 2>&1 | tee $(TARGET)/test-rust.log || failed=1; \
	$(MAKE) --no-print-directory develop || exit 1; \
	GRAPHMILL=$${GRAPHMILL:-$(abspath $(TARGET))/debug/graphmill} \
		$(VENV)/bin/python -m pytest tests/python -q -ra 2>&1 | tee $(TARGET)/test-python.log || failed=1; \
	$(VENV)/bin/python tests/python/summary.py $(TARGET)/test-rust.log $(TARGET)/test-python.log || failed=1; \
	exit $$failed

.PHONY: develop
develop: $(VENV_READY) ## build everything, and the Python package into the tests' environment
	$(CARGO) build --workspace
	install -m 755 $(TARGET)/debug/lib_graphmill.so python/graphmill/_graphmill.abi3.so
	echo $(abspath python) > $$($(VENV)/bin/python -c 'import site; print(site.getsitepackages()[0])')/graphmill.pth

.PHONY: lint
lint: ## check formatting and lints
	$(CARGO) fmt --all --check
	$(CARGO) clippy --workspace --all-targets -- -D warnings

.PHONY: deny
deny: cargo-deny ## check the licences and sources of all dependencies
	$(CARGO) deny check bans licenses sources

.PHONY: audit
audit: cargo-deny ## check the dependencies against the public advisory database, which is fetched
	$(CARGO) deny check advisories

.PHONY: bench
bench: $(VENV_READY) ## measure a graph of 1 M nodes and 20 M edges
	$(CARGO) build --release -p graphmill
	$(VENV)/bin/python bench/foundation.py $(TARGET)/release/graphmill

.PHONY: bench-sampling
bench-sampling: ## measure the sampling kernels, and count their instructions
	$(CARGO) build --release -p graphmill
	$(CARGO) bench -p graphmill --bench sampling
	if command -v valgrind > /dev/null; then $(PYTHON) bench/instructions.py $(TARGET)/release/graphmill; fi

.PHONY: bench-peers
bench-peers: ## measure sampling beside other libraries, which are installed
	$(CARGO) build --release -p graphmill
	$(PYTHON) bench/peers/run.py --graphmill $(TARGET)/release/graphmill

.PHONY: bench-serving
bench-serving: ## measure batches from a server beside GraphLearn, which is installed
	$(CARGO) build --release -p graphmill
	$(PYTHON) bench/peers/serving.py --graphmill $(TARGET)/release/graphmill

.PHONY: bench-python
bench-python: ## measure loaders from Python beside those of other libraries, which are installed
	$(CARGO) build --release -p graphmill
	$(PYTHON) bench/peers/python.py --graphmill $(TARGET)/release/graphmill

.PHONY: docs
docs: ## build the API documentation
	RUSTDOCFLAGS="-D warnings" $(CARGO) doc --no-deps --workspace

.PHONY: fuzz
fuzz: cargo-fuzz ## fuzz the readers, FUZZ_SECONDS for each target
	cd fuzz && mkdir -p corpus/manifest corpus/arrays corpus/frames corpus/connection
	cd fuzz && $(FUZZ_RUN) manifest corpus/manifest $(FUZZ_SEEDS) -- -max_total_time=$(FUZZ_SECONDS) -max_len=20000
	cd fuzz && $(FUZZ_RUN) arrays corpus/arrays -- -max_total_time=$(FUZZ_SECONDS) -max_len=256 -len_control=0
	cd fuzz && $(FUZZ_RUN) frames corpus/frames -- -max_total_time=$(FUZZ_SECONDS) -max_len=8192
	cd fuzz && $(FUZZ_RUN) connection corpus/connection -- -max_total_time=$(FUZZ_SECONDS) -max_len=40000

.PHONY: clean
clean: ## remove everything that was built
	$(CARGO) clean
	rm -rf $(VENV) fuzz/target python/graphmill/*.so

$(VENV_READY): tests/python/requirements.txt
	$(PYTHON) -m venv $(VENV)
	$(VENV)/bin/pip install --quiet --disable-pip-version-check $$(grep ^uv== $<)
	$(VENV)/bin/uv pip install --quiet --python $(VENV)/bin/python -r $<
	touch $@

.PHONY: cargo-deny cargo-fuzz
cargo-deny cargo-fuzz:
	@command -v $@ > /dev/null || $(CARGO) install $@ --locked
