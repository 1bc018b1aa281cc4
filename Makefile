# The developer's index. Everything lands in one target directory outside the clone, shared between clones.
export CARGO_TARGET_DIR ?= $(HOME)/.cache/island/target
SHELL := /bin/bash
.DEFAULT_GOAL := help

.PHONY: help setup cargos demo test check fmt lint macos bench deb deb-test

help: ## Show these targets
	@awk -F':.*## ' '/^[a-z-]+:.*## /{printf "  make %-8s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

setup: ## Bring what is missing to build and run
	@scripts/setup.sh

cargos: ## Build the programs that wasm and container Cargos run
	@scripts/cargos.sh

demo: setup ## Build, start a network, stream a reply from its model, stop
	cargo build --locked --workspace --bins
	@scripts/demo.sh

test: ## Bring what is missing, build everything, run every test
	@scripts/setup.sh test
	@scripts/cargos.sh test
	cargo build --locked --workspace --all-targets
	@scripts/macos.sh
	cargo test --locked --workspace

check: fmt lint test ## Everything a change must pass

fmt: ## Formatting
	cargo fmt --all --check

lint: ## Clippy, and dependency rules where cargo-deny is installed
	cargo clippy --locked --workspace --all-targets -- -D warnings
	@if command -v cargo-deny >/dev/null; then cargo deny --locked check; else echo "lint: cargo-deny is not installed, deny.toml was not checked"; fi

macos: ## Types of what runs on macOS alone, checked on any system
	@scripts/macos.sh

deb: setup cargos ## Debian packages of the agent, the coordinator and the command line
	cargo build --locked --workspace --bins --release
	cargo build --locked --package island-agent --bins --profile resident
	@packaging/deb.sh

deb-test: ## Install, join, run, upgrade, update, remove and purge what `make deb` made, in a clean Debian that boots (root)
	@packaging/test.sh
	@HOSTILE=$$(cargo test --locked --workspace --test hostile --no-run --message-format=json 2>/dev/null | \
		jq -r 'select(.executable and (.manifest_path | endswith("runtimes/worker/Cargo.toml"))).executable') packaging/boot.sh

bench: setup ## Every claim of speed, each against a peer in the same run
	@benches/peers.sh
	cargo build --locked --workspace --all-targets
	$(CARGO_TARGET_DIR)/debug/island-bench decode --model .tools/bench/qwen2.5-0.5b-q8_0.gguf --llama-server .tools/bench/llama-server
	$(CARGO_TARGET_DIR)/debug/island-bench --rounds 3 chats --model .tools/bench/qwen2.5-0.5b-q8_0.gguf --llama-server .tools/bench/llama-server
	$(CARGO_TARGET_DIR)/debug/island-bench overhead
	$(CARGO_TARGET_DIR)/debug/island-bench gateway --litellm .tools/bench/venv/bin/litellm
	$(CARGO_TARGET_DIR)/debug/island-bench wasm
	ORT_DISABLE_TELEMETRY=1 $(CARGO_TARGET_DIR)/debug/island-bench onnx --models .tools/bench/onnx --python .tools/bench/onnx-venv/bin/python
	$(CARGO_TARGET_DIR)/debug/island-bench --rounds 4 diffusers --model .tools/bench/diffusers --python .tools/bench/diffusers-venv/bin/python
	$(CARGO_TARGET_DIR)/debug/island-bench --rounds 31 containers
	@if command -v prometheus-node-exporter >/dev/null && command -v boinc >/dev/null; then \
		cargo build --locked --package island-agent --bins --profile resident && \
		$(CARGO_TARGET_DIR)/debug/island-bench footprint --agent $(CARGO_TARGET_DIR)/resident/island-agent; \
	else echo "bench: prometheus-node-exporter and boinc are not installed, i1 and i2 were not measured"; fi
