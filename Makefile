# Everything is built in the release profile, tests included, so that C++ is compiled once.

GAME ?= kung_fu_master
# `make train` uses preset quick if the game supports it, and otherwise the game's default preset.
PRESET ?=
ARGS ?=

# GPU=1 builds with CUDA (docs/gpu.md), and runs the cluster's learner on a GPU.
GPU ?=
ifneq ($(GPU),)
export LIBTORCH := $(CURDIR)/.deps/libtorch-cuda/torch
endif

# Idle OpenMP threads spin by default and take the cores from busy processes.
export OMP_NUM_THREADS ?= 1
export OMP_WAIT_POLICY ?= passive

.DEFAULT_GOAL := help
.PHONY: help setup build train cluster test same-weights check-cuda docs book deny dashboards test-compose test-kubernetes bench fuzz clean

help: ## List the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-16s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

setup: ## Download missing dependencies: system packages, libtorch, ALE with its ROMs
	@deploy/setup $(if $(GPU),--cuda)

build: setup ## Build the release binaries into target/release (GPU=1: with CUDA)
	cargo build --release --locked --workspace --bins

train: build ## Train an Atari game with VER (GAME=breakout, ARGS='--seed 1')
	@preset=$(PRESET); ./target/release/quiver config show $(GAME) --preset quick >/dev/null 2>&1 && preset=$${preset:-quick}; \
	set -x; ./target/release/quiver train $(GAME) $${preset:+--preset $$preset} $(ARGS)

cluster: ## Start the cluster of deploy/compose.yaml and wait until training ends (GAME=pong, ACTORS=16, GPU=1)
	deploy/cluster

test: setup ## Check format, lints and documentation, then run every test
	cargo fmt --all --check
	# Modules of the fuzz targets are declared by a macro, which cargo fmt does not follow.
	rustfmt --check --edition 2024 fuzz/src/*.rs fuzz/src/*/*.rs
	cargo clippy --release --workspace --all-targets --locked -- -D warnings
	RUSTDOCFLAGS="-D warnings" cargo doc --release --no-deps --workspace --locked
	# Crates that only read the environments' registry must build without ALE; in the workspace its feature is on.
	cargo clippy --release --locked -p quiver-settings -p quiver-run -p quiver-sweep -p quiver-coordinator -p quiver-page -p quiver-plot -p quiver-stats -p quiver-dashboards -- -D warnings
	! cargo tree --locked -e normal,build -p quiver-settings -p quiver-run -p quiver-sweep -p quiver-coordinator -p quiver-page -p quiver-plot -p quiver-stats -p quiver-dashboards | grep -E 'quiver-ale|torch'
	# These may be redistributed, because they do not link ALE, which is GPL-2.0-only (crates/ale/LICENSE-NOTE.md).
	! cargo tree --locked -e normal,build -p quiver-replay-server -p quiver-python -p quiver-dashboards | grep -E 'quiver-ale|torch'
	deploy/check-licences
	deploy/pin-images --self-test
	# The learner links the live page, which is SVG only: it must not pull in a rasteriser.
	! cargo tree --locked -e normal -p quiver-page | grep -E 'resvg|tiny-skia'
	python3 tests/same_weights/run.py --self-test
	cargo build --release --workspace --bins --locked
	cargo test --release --workspace --locked
	for example in embed own_environment talk_to_a_shard; do ./target/release/examples/$$example >/dev/null || exit 1; done
	deploy/check-links
	deploy/check-messages
	deploy/check-monitoring

same-weights: build ## Prove that a refactoring changed no behaviour: train BASE=<commit> and this tree, compare bit for bit
	@test -n "$(BASE)" || { echo "error: name the commit to compare with: make same-weights BASE=main~1" >&2; exit 2; }
	python3 tests/same_weights/run.py --base $(BASE)

check-cuda: ## Build with CUDA into target/cuda and check what needs no GPU (the first run downloads 2.5 GB)
	deploy/check-cuda

docs: ## Regenerate the generated documents, after a setting has changed
	cargo build --release --locked --bin quiver
	./target/release/quiver config reference >docs/configuration.md

book: ## Build docs/ as a book into target/book and check its links
	deploy/check-docs

deny: ## Check licences, bans and sources of all dependencies with cargo-deny
	$$(deploy/tool cargo-deny 0.20.2) --locked --log-level warn check --show-stats licenses bans sources

dashboards: ## Regenerate the dashboards' files, after crates/dashboards has changed
	cargo run --release --locked -p quiver-dashboards -- write

test-compose: build ## Start, scale, kill, stop and resume a compose cluster in its own Docker engine (needs root)
	python3 tests/compose/run.py

test-kubernetes: ## Render deploy/kubernetes and validate it against the schemas of the Kubernetes API
	tests/kubernetes/run.sh

bench: build ## Measure against bare ALE, bare libtorch and PyTorch (the first run installs PyTorch, 5 GB)
	./target/release/quiver-bench

fuzz: setup ## Fuzz every decoder for 10 minutes each (SECONDS_EACH=60)
	fuzz/run.sh

clean: ## Delete build outputs; downloads in .deps stay
	cargo clean
