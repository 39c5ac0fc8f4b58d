# Every command a developer needs. Rust and Python 3.11 must be there; the rest is fetched by the commands themselves.

SHELL := /bin/bash
.SHELLFLAGS := -eu -o pipefail -c
.DEFAULT_GOAL := help

CARGO ?= cargo
PYTHON3 ?= python3
# 0 keeps `make demo` to Rust.
PYTHON ?= 1
# What `make develop` builds. After `cargo test` it names the tests too: without them features of dependencies differ, and
# half of the dependencies would be compiled once more.
BUILD :=
TARGET := $(or $(CARGO_TARGET_DIR),target)
VENV := .venv
VENV_READY := $(VENV)/.installed
FUZZ_SECONDS ?= 60
MINUTES ?= 5
FUZZ_TARGETS := manifest arrays frames connection objects rendezvous control coordinator texts
FUZZ_manifest := -max_len=20000
FUZZ_arrays := -max_len=256 -len_control=0
FUZZ_frames := -max_len=8192
FUZZ_connection := -max_len=40000
FUZZ_objects := -max_len=8192
FUZZ_rendezvous := -max_len=8192
FUZZ_control := -max_len=4096
FUZZ_coordinator := -max_len=4096
FUZZ_texts := -max_len=2048
# What a target begins with, beside what it puts into its corpus itself.
fuzz_inputs = corpus/$(1) $(patsubst fuzz/%,%,$(wildcard fuzz/seeds/$(1))) $(FUZZ_SEEDS_$(1))
FUZZ_SEEDS_manifest := $(addprefix ../crates/graphmill-graph/tests/fixtures/v1/,whole assigned)

# Puts the Python module of a profile where the environment finds it.
define install
	install -m 755 $(TARGET)/$(1)/lib_graphmill.so python/graphmill/_graphmill.abi3.so
	$(VENV)/bin/python tests/python/develop.py
endef

.PHONY: help
help: ## list the commands
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "make %-16s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

.PHONY: demo
ifeq ($(PYTHON),0)
demo:
	$(CARGO) build --release -p graphmill
	$(TARGET)/release/graphmill demo
else
demo: $(VENV_READY) ## build, then make, serve and train on a small graph; PYTHON=0: without training
	$(CARGO) build --release -p graphmill -p graphmill-py
	$(call install,release)
	OMP_NUM_THREADS=1 PYTHONWARNINGS=ignore $(TARGET)/release/graphmill demo -- \
		$(VENV)/bin/torchrun --standalone --nproc-per-node 2 examples/ddp.py
endif

# Both kinds of tests wait more than they compute, so they run beside each other; what the Rust tests say is shown after the others.
.PHONY: test
test: $(VENV_READY) services ## run all tests, Rust and Python
	$(CARGO) test --workspace --no-run
	@$(MAKE) --no-print-directory develop BUILD="--lib --bins --tests"
	@failed=0; \
	$(CARGO) test --workspace --no-fail-fast > $(TARGET)/test-rust.log 2>&1 & rust=$$!; trap 'kill $$rust' INT TERM; \
	GRAPHMILL=$${GRAPHMILL:-$(abspath $(TARGET))/debug/graphmill} \
		$(VENV)/bin/python -m pytest tests/python -q -ra -n 2 --dist worksteal 2>&1 | tee $(TARGET)/test-python.log || failed=1; \
	wait $$rust || failed=1; \
	cat $(TARGET)/test-rust.log; \
	$(VENV)/bin/python tests/python/summary.py $(TARGET)/test-rust.log $(TARGET)/test-python.log || failed=1; \
	exit $$failed

# Debian's packages, where there are any; the tests of what is missing say that they are skipped.
.PHONY: services
services:
	@for service in etcd:etcd-server etcdctl:etcd-client redis-server:redis-server; do \
		program=$${service%%:*} package=$${service##*:}; \
		command -v $$program > /dev/null || { \
			[ "$$(id -u)" = 0 ] && command -v apt-get > /dev/null && \
			(apt-get install -qq -y $$package || (apt-get update -qq && apt-get install -qq -y $$package)) > /dev/null; \
		} || echo "$$program is not installed: its tests are skipped"; \
	done

.PHONY: develop
develop: $(VENV_READY) ## build everything, and the Python package into the tests' environment
	$(CARGO) build --workspace $(BUILD)
	$(call install,debug)

.PHONY: package
package: $(VENV_READY) ## install the Python package into an empty environment, as users do, and run README's quick start there
	rm -rf $(TARGET)/package
	$(VENV)/bin/uv venv --quiet --python $(VENV)/bin/python $(TARGET)/package
	$(VENV)/bin/uv pip install --quiet --python $(TARGET)/package/bin/python -c tests/python/requirements.txt ".[pyg]"
	awk '/^```python/ { on = 1; next } /^```/ { on = 0 } on' README.md > $(TARGET)/package/quick_start.py
	cd $(TARGET)/package && bin/python quick_start.py

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
	if command -v valgrind > /dev/null; then $(PYTHON3) bench/instructions.py $(TARGET)/release/graphmill; fi

.PHONY: bench-peers
bench-peers: ## measure sampling beside other libraries, which are installed
	$(CARGO) build --release -p graphmill
	$(PYTHON3) bench/peers/run.py --graphmill $(TARGET)/release/graphmill

.PHONY: bench-serving
bench-serving: ## measure batches from a server beside GraphLearn, which is installed
	$(CARGO) build --release -p graphmill
	$(PYTHON3) bench/peers/serving.py --graphmill $(TARGET)/release/graphmill

.PHONY: bench-rendezvous
bench-rendezvous: develop ## measure how fast members of a run find each other, beside torch's c10d backend
	$(CARGO) build --release -p graphmill
	$(VENV)/bin/python bench/peers/rendezvous.py --graphmill $(TARGET)/release/graphmill

.PHONY: bench-python
bench-python: ## measure loaders from Python beside those of other libraries, which are installed
	$(CARGO) build --release -p graphmill
	$(PYTHON3) bench/peers/python.py --graphmill $(TARGET)/release/graphmill

.PHONY: bench-objects
bench-objects: services ## measure the object store from Python beside ProxyStore's connectors and Redis, which are installed
	$(CARGO) build --release -p graphmill-py
	$(PYTHON3) bench/peers/objects.py --module $(TARGET)/release/lib_graphmill.so

.PHONY: docs
docs: develop ## build the API documentation, of Rust and of Python
	RUSTDOCFLAGS="-D warnings" $(CARGO) doc --no-deps --workspace
	$(VENV)/bin/pdoc --docformat google --output-directory $(TARGET)/doc/python graphmill

FUZZES := $(addprefix fuzz-,$(FUZZ_TARGETS))
.PHONY: fuzz $(FUZZES)
fuzz: $(FUZZES) ## fuzz the readers, FUZZ_SECONDS for each target; one alone: make fuzz-NAME
$(FUZZES): fuzz-%: cargo-fuzz
	cd fuzz && mkdir -p corpus/$* && $(CARGO) fuzz run --sanitizer none $* $(call fuzz_inputs,$*) -- \
		-max_total_time=$(FUZZ_SECONDS) $(FUZZ_$*)

.PHONY: fuzz-coverage
fuzz-coverage: cargo-fuzz ## measure which lines of the readers the corpora reach
	cd fuzz && mkdir -p $(addprefix corpus/,$(FUZZ_TARGETS))
	cd fuzz && RUSTFLAGS=-Cinstrument-coverage $(CARGO) fuzz build --sanitizer none --target-dir target/coverage
	$(PYTHON3) fuzz/coverage.py --build $$(dirname $$(find fuzz/target/coverage -path '*/release/manifest')) \
		$(foreach target,$(FUZZ_TARGETS),"$(target)=$(strip $(call fuzz_inputs,$(target)))")


.PHONY: soak
soak: ## faults for long: the whole matrix, failover, then MINUTES of kills and cuts
	MINUTES=$(MINUTES) $(CARGO) test --release -p graphmill --test chaos -- --ignored --nocapture --test-threads 1

.PHONY: clean
clean: ## remove everything that was built
	$(CARGO) clean
	rm -rf $(VENV) fuzz/target python/graphmill/*.so

$(VENV_READY): tests/python/requirements.txt
	$(PYTHON3) -m venv $(VENV)
	$(VENV)/bin/pip install --quiet --disable-pip-version-check $$(grep ^uv== $<)
# Compiled once: where Python may not keep what it compiled, each of the tests' processes would do that anew, for seconds.
	$(VENV)/bin/uv pip install --quiet --compile-bytecode --python $(VENV)/bin/python -r $<
	touch $@

.PHONY: cargo-deny cargo-fuzz
cargo-deny cargo-fuzz:
	@command -v $@ > /dev/null || $(CARGO) install $@ --locked
