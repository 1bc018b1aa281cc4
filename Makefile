# The developer's index. `scripts/target.sh` prints where everything is built.
export CARGO_TARGET_DIR := $(or $(CARGO_TARGET_DIR),$(shell scripts/target.sh))
SHELL := /bin/bash
.DEFAULT_GOAL := help
PREFIX ?= $(HOME)/.local
# What `island dev` starts, and so what a demonstration needs.
DEMO := --package island-cli --package island-coordinator --package island-agent --package island-runtimes-llmcpp --bins

# What decides on the result of each check that is left out while that is as it was when it passed (scripts/unchanged.sh). What a folder's
# tests contain is in no package.
ENGINES := container coreml diffusers llmcpp onnx wasm
MACOS := crate:island-agent crate:island-runtimes-coreml docs/owners.md packaging/debian/settings scripts/macos.sh
PARITY := crate:island-runtimes-onnx tools/parity tools/onnx-fixtures scripts/parity.sh scripts/setup.sh scripts/onnxruntime.txt \
	env:SEED env:ORT_DYLIB_PATH env:ISLAND_PARITY_PYTHON
PACKAGES := crate:island-agent crate:island-update crate:island-coordinator crate:island-cli $(ENGINES:%=crate:island-runtimes-%) \
	cargos packaging systemd docs scripts LICENSE-APACHE ':!*/tests/*' env:ISLAND_NATS_SERVER tool:dpkg-deb
COMPOSE := packaging scripts/packages.sh Cargo.toml tool:docker
KUBERNETES := crate:island-coordinator cargos packaging docs scripts/packages.sh scripts/nats-server.txt ':!*/tests/*' tool:.tools/bin/nats-server

.PHONY: help setup cargos demo console-shots install test check check-all fmt lint doc macos bench sim fuzz soak chaos upgrade detection parity vulkan gpu-check deb deb-cuda deb-test images images-test

help: ## Show these targets
	@awk -F':.*## ' '/^[a-z-]+:.*## /{printf "  make %-8s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

setup: ## Install or fetch what is missing to build and run
	@scripts/setup.sh

cargos: ## Build the programs that wasm and container Cargos run
	@scripts/setup.sh cargos
	@scripts/cargos.sh

demo: setup ## Build, start a network, stream a reply from its model, print a link to its console, stop
	cargo build --locked $(DEMO)
	@scripts/vulkan.sh if-gpu
	@scripts/demo.sh

console-shots: ## Pictures of every page of the console in both themes and two widths, to look at
	@scripts/setup.sh test
	cargo build --locked --workspace --bins
	@scripts/console-shots.sh

install: setup ## Build the programs and link them into PREFIX/bin (~/.local/bin)
	cargo build --locked --workspace --bins
	@scripts/vulkan.sh if-gpu
	@scripts/install.sh "$(PREFIX)"

test: ## Install or fetch what is missing, build everything, run every test
	@scripts/setup.sh test
	@scripts/cargos.sh test
	cargo build --locked --workspace --all-targets
	@scripts/vulkan.sh module
	@scripts/unchanged.sh macos $(MACOS) -- scripts/macos.sh
	@scripts/target.sh built
	@scripts/test.sh

check: export ISLAND_STRICT = 1
check: ## What a change must pass; a test that cannot run here fails; parity, packages and macOS only if what they depend on changed
	@scripts/setup.sh check
	@$(MAKE) --no-print-directory fmt lint doc test
	@scripts/unchanged.sh parity $(PARITY) -- scripts/parity.sh sample
	@scripts/unchanged.sh packages $(PACKAGES) -- env PROFILE=dev packaging/debian/contents.sh
	@scripts/unchanged.sh compose $(COMPOSE) -- packaging/compose/test.sh config
	@scripts/unchanged.sh kubernetes $(KUBERNETES) -- env PROFILE=dev packaging/kubernetes/validate.sh

check-all: export ISLAND_CHECK_ALL = 1
check-all: check ## The same with everything, changed or not

SEEDS ?= 100000
sim: ## Simulate SEEDS networks in virtual time from SEED on, and search for rare defects that are put back
	SEED=$(SEED) SEEDS=$(SEEDS) RARE_SEEDS=100000 cargo test --locked --workspace --lib -- simulation --nocapture

fuzz: ## Pass inputs that are changed at random to the readers of untrusted input, SECONDS=600 each
	ISLAND_FUZZ_SECONDS=$(or $(SECONDS),600) cargo test --locked --workspace --test fuzz -- --nocapture

STRIKES ?= 3000
SEED ?= 1
chaos: ## Kill, freeze and cut a whole network STRIKES times by the plan of SEED, and check that no promise is broken
	@scripts/setup.sh test
	cargo build --locked --workspace --all-targets
	ISLAND_STRICT=1 ISLAND_CHAOS_STRIKES=$(STRIKES) ISLAND_CHAOS_SEED=$(SEED) cargo test --locked --workspace --test endurance -- chaos --nocapture

upgrade: ## Upgrade a network of the previous version (PREVIOUS=commit) part by part under load
	@scripts/setup.sh test
	scripts/upgrade.sh

detection: ## Kill and freeze workers, agents and coordinators under streams: how soon is it noticed, how soon do the streams go on?
	@scripts/setup.sh test
	cargo build --locked --workspace --all-targets
	ISLAND_STRICT=1 cargo test --locked --workspace --test detection -- --nocapture

parity: ## Answers of small random models against their Python libraries, FAMILY=name for a part; REPORT=file writes the tables (6 GB of PyTorch)
	@scripts/setup.sh check
	@scripts/parity.sh install
	cargo build --locked --workspace --example onnx_parity --example coreml_parity --example diffusers_parity --example llmcpp_parity
	SEED=$(if $(filter command line,$(origin SEED)),$(SEED),0) REPORT=$(REPORT) scripts/parity.sh all $(FAMILY)

fmt: ## Formatting of both workspaces
	cargo fmt --all --check
	cargo fmt --all --check --manifest-path cargos/programs/Cargo.toml

lint: ## Clippy of both workspaces, wording, dependency rules, unused dependencies
	@scripts/lint.sh

doc: ## API documentation, with broken links denied
	cargo doc --locked --workspace --no-deps --document-private-items

macos: ## Types of what runs on macOS alone, checked on any system
	@scripts/macos.sh

deb: setup cargos ## Debian packages of the agent and its updates, the coordinator, NATS, the utility Cargos and the command line
	cargo build --locked --workspace --bins --release
	cargo build --locked --package island-agent --bins --profile resident
	@packaging/debian/build.sh

vulkan: setup ## Build llama.cpp's Vulkan module beside what is built, for GPUs of every maker
	@scripts/vulkan.sh module

gpu-check: ## Pack what measures this build on a machine with a GPU, see tools/gpu-check
	@tools/gpu-check/pack.sh

deb-cuda: ## Debian package with llama.cpp's CUDA module, for NVIDIA GPUs; an hour and a half on two cores
	@packaging/debian/build.sh cuda

deb-test: ## Install, join, run, upgrade, update, remove and purge what `make deb` made, in a clean Debian that boots (root)
	@packaging/debian/test.sh
	@packaging/debian/network.sh
	@tests=$$(cargo test --locked --workspace --test hostile --test sandboxes --no-run --message-format=json 2>/dev/null); \
		of() { printf '%s\n' "$$tests" | jq -r "select(.executable and (.manifest_path | endswith(\"$$1/Cargo.toml\"))).executable"; }; \
		HOSTILE=$$(of runtimes/worker) SANDBOXES=$$(of integration) packaging/debian/boot.sh

images: ## Container images made from the packages, without a registry, loaded into the Docker Engine; PROFILE=dev takes what the tests run
	@if [ "$(PROFILE)" != dev ]; then $(MAKE) --no-print-directory deb; fi
	@PROFILE=$(PROFILE) packaging/images/build.sh

images-test: ## Run jobs in the network of packaging/compose and kill parts of it, and start the pods of packaging/kubernetes in Docker (root); PROFILE=dev as above
	@PROFILE=$(PROFILE) packaging/compose/test.sh
	@packaging/kubernetes/test.sh

soak: setup ## Small jobs of every engine: what grows with them? JOBS=100000 MODELS=36 SLOW_JOBS=10000
	cargo build --locked --workspace --all-targets
	ISLAND_SOAK_JOBS=$(or $(JOBS),100000) ISLAND_SOAK_MODELS=$(or $(MODELS),36) ISLAND_SOAK_SLOW_JOBS=$(or $(SLOW_JOBS),10000) \
		cargo test --locked --workspace --no-fail-fast --test endurance -- soak --nocapture

bench: setup ## Every claim of speed, each against a peer in the same run
	@benches/peers.sh
	cargo build --locked --workspace --bins --release
	$(CARGO_TARGET_DIR)/release/island-bench decode --model .tools/bench/qwen2.5-0.5b-q8_0.gguf --llama-server .tools/bench/llama-server
	$(CARGO_TARGET_DIR)/release/island-bench --rounds 3 chats --model .tools/bench/qwen2.5-0.5b-q8_0.gguf --llama-server .tools/bench/llama-server
	$(CARGO_TARGET_DIR)/release/island-bench overhead
	$(CARGO_TARGET_DIR)/release/island-bench gateway --litellm .tools/bench/venv/bin/litellm
	$(CARGO_TARGET_DIR)/release/island-bench wasm
	ORT_DISABLE_TELEMETRY=1 $(CARGO_TARGET_DIR)/release/island-bench onnx --models .tools/bench/onnx --python .tools/bench/onnx-venv/bin/python
	$(CARGO_TARGET_DIR)/release/island-bench --rounds 4 diffusers --model .tools/bench/diffusers --python .tools/bench/diffusers-venv/bin/python
	$(CARGO_TARGET_DIR)/release/island-bench --rounds 31 containers
	@if command -v prometheus-node-exporter >/dev/null && command -v boinc >/dev/null; then \
		cargo build --locked --package island-agent --bins --profile resident && \
		$(CARGO_TARGET_DIR)/release/island-bench footprint --agent $(CARGO_TARGET_DIR)/resident/island-agent; \
	else echo "bench: prometheus-node-exporter and boinc are not installed, the agent's footprint was not measured"; fi
