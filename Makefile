# Everything is built in the release profile, for people and for tests alike, so that C++ is compiled once.

GAME ?= kung_fu_master
PRESET ?= $(if $(filter cartpole,$(GAME)),cartpole,quick)
ARGS ?=

# Idle OpenMP threads spin by default and take the cores from whoever has work.
export OMP_NUM_THREADS ?= 1
export OMP_WAIT_POLICY ?= passive

.DEFAULT_GOAL := help
.PHONY: help setup build train test bench fuzz clean

help: ## List the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-8s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

setup: ## Fetch what is missing: system packages, libtorch, ALE with its ROMs
	@deploy/setup

build: setup ## Build the release binaries into target/release
	cargo build --release --locked --workspace --bins

train: build ## Train an Atari game with VER (GAME=breakout, ARGS='--seed 1')
	./target/release/quiver train $(GAME) --preset $(PRESET) $(ARGS)

test: setup ## Check format, lints and documentation, then run every test
	cargo fmt --all --check
	cargo clippy --release --workspace --all-targets --locked -- -D warnings
	RUSTDOCFLAGS="-D warnings" cargo doc --release --no-deps --workspace --locked
	cargo build --release --workspace --bins --locked
	cargo test --release --workspace --locked

bench: build ## Measure against bare ALE and bare libtorch
	./target/release/quiver-bench

fuzz: setup ## Attack every decoder for 10 minutes each (SECONDS_EACH=60)
	fuzz/run.sh

clean: ## Delete what was built; what was fetched into .deps stays
	cargo clean
