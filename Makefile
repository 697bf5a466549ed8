# Two commands do everything on a fresh machine: `make demo` and `make test`.
# Needs: Rust, gcc, make, CPython >= 3.11 with venv. Everything else comes from the package registries.
CARGO ?= cargo
PYTHON ?= python3

.PHONY: help build demo test test-rust test-python test-peer test-interleavings test-rdma lint bench wheel gate clean

help: ## show this list
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 14

build: ## the yuebing binary, optimised
	$(CARGO) build --release --locked -p yb-cli

demo: build ## an embedded pool stores and serves a trace, every byte checked (TRACE=file to use your own)
	scripts/demo.sh $(TRACE)

test: lint-licences test-rust test-python test-peer test-integrations-light ## all tests, and the proofs with what others wrote

test-rust: ## unit, property, vector and process tests
	peers=$$($(PYTHON) tests/peer/venvs.py) && YB_PEER_VENVS=$$peers $(CARGO) test --workspace --locked --no-fail-fast

test-python: wheel ## the mooncake package
	scripts/test_python.sh tests/python

test-peer: build wheel ## unmodified Mooncake wheels against our processes, and back
	scripts/test_python.sh tests/peer

test-integrations: wheel ## real engines and connectors (SGLang, vLLM, LMCache, ...) on our package (fetches 1 GB)
	scripts/test_integrations.sh full

.PHONY: test-integrations test-integrations-light
test-integrations-light: wheel ## the same without vLLM, and the tensor calls under torch (fetches 0.75 GB)
	scripts/test_integrations.sh light

test-interleavings: ## races of the catalog under a scheduler that tries interleavings, with planted faults (compiles apart)
	scripts/test_interleavings.sh

SEEDS ?= 1000
FIRST ?= 0
.PHONY: sim sim-faults
sim: ## a whole cluster from one seed each (SEEDS=10000; SEED=n replays one and says what happened)
	$(CARGO) run --locked --profile sim -p yb-sim -- $(if $(SEED),--seed $(SEED),$(SEEDS) $(FIRST))

sim-faults: ## planted faults, each of which the simulator must find within 1,000 seeds: which seed does
	$(CARGO) run --locked --profile sim -p yb-sim --features planted -- --faults

MINUTES ?= 30
SEED_OF_CHAOS = $(or $(SEED),1)
.PHONY: chaos chaos-peer
chaos: ## real processes, random kills, a history checker (MINUTES=30 SEED=n; CHAOS="--tcp --keep NEW_FOLDER")
	$(CARGO) test --release --locked -p yb-cli --test chaos -- --minutes $(MINUTES) --seed $(SEED_OF_CHAOS) $(CHAOS)

chaos-peer: ## the same with the master, nodes and clients of the peer's wheel (YB_PEER_VENVS)
	$(CARGO) test --release --locked -p yb-cli --test chaos -- --minutes $(MINUTES) --seed $(SEED_OF_CHAOS) $(CHAOS) \
		--peer $${YB_PEER_VENVS:-target/peer}/v0.3.13.post1 --script tests/peer/history_client.py

test-rdma: ## RDMA over soft-RoCE rails, a DAX device and an NVMe disk, in the machine that RDMA_VM names; skipped without one
	scripts/test_rdma.sh
	scripts/test_devices_vm.sh

lint: lint-licences ## formatting, clippy with warnings as errors, the tidy tests
	$(CARGO) fmt --all --check
	$(CARGO) clippy --workspace --all-targets --locked -- -D warnings
	$(CARGO) test --locked -p yb-tidy

.PHONY: lint-licences
lint-licences:
	$(CARGO) test --locked -q -p yb-tidy --test licences

.PHONY: test-aarch64
test-aarch64: ## the kernels for aarch64 (checksum, copies) under an emulator; skipped without its tools
	scripts/test_aarch64.sh

gate: ## instructions per operation against the recorded ceilings (needs valgrind)
	scripts/instruction_gate.sh

bench: build wheel ## the figures, side by side with Mooncake's wheel
	$(CARGO) build --release --locked -p yb-sched --example rerouting
	$(CARGO) build --release --locked -p yb-alloc -p yb-catalog -p yb-master --examples
	scripts/bench.sh

wheel: ## the Python wheel, with the commands in it, into dist/
	scripts/build_wheel.sh

.PHONY: wheels
wheels: ## that one, the one for CPython 3.10, and mooncake-transfer-engine without files (docs/packages.md)
	scripts/build_wheel.sh --all

.PHONY: docs
docs: ## the documentation as a site in target/book; needs mdbook (what its pages say is tried by make test-python, without it)
	@command -v mdbook >/dev/null || { echo "mdbook is not installed: cargo install mdbook"; exit 1; }
	mdbook build docs

.PHONY: names
names: ## docs/book/names.md anew, from the wheels of both projects (after make test-python)
	YB_OURS_PYTHON=$${YB_OURS_PYTHON:-$$PWD/target/peer/ours/bin/python} $(PYTHON) tests/python/names.py

.PHONY: capi
capi: ## the C library of engine and store with its headers (PREFIX=DIR copies them there)
	PREFIX="$(PREFIX)" scripts/build_capi.sh

clean: ## what the build left
	$(CARGO) clean
	rm -rf dist
