# Everything is built in the release profile, for people and for tests alike, so that C++ is compiled once.

GAME ?= kung_fu_master
# `make train` takes preset quick where it is for the game, and otherwise the game's own.
PRESET ?=
ARGS ?=

# Idle OpenMP threads spin by default and take the cores from whoever has work.
export OMP_NUM_THREADS ?= 1
export OMP_WAIT_POLICY ?= passive

.DEFAULT_GOAL := help
.PHONY: help setup build train cluster test same-weights dashboards test-compose test-kubernetes bench fuzz clean

help: ## List the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-16s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

setup: ## Fetch what is missing: system packages, libtorch, ALE with its ROMs
	@deploy/setup

build: setup ## Build the release binaries into target/release
	cargo build --release --locked --workspace --bins

train: build ## Train an Atari game with VER (GAME=breakout, ARGS='--seed 1')
	@preset=$(PRESET); ./target/release/quiver config show $(GAME) --preset quick >/dev/null 2>&1 && preset=$${preset:-quick}; \
	set -x; ./target/release/quiver train $(GAME) $${preset:+--preset $$preset} $(ARGS)

cluster: ## Start the cluster of deploy/compose.yaml and wait for its end (GAME=pong, ACTORS=16, GPU=1)
	deploy/cluster

test: setup ## Check format, lints and documentation, then run every test
	cargo fmt --all --check
	cargo clippy --release --workspace --all-targets --locked -- -D warnings
	RUSTDOCFLAGS="-D warnings" cargo doc --release --no-deps --workspace --locked
	# Crates that only read the environments' registry build without ALE; in the workspace its feature is on.
	cargo clippy --release --locked -p quiver-settings -p quiver-run -p quiver-sweep -p quiver-coordinator -p quiver-page -p quiver-plot -p quiver-dashboards -- -D warnings
	! cargo tree --locked -e normal,build -p quiver-settings -p quiver-run -p quiver-sweep -p quiver-coordinator -p quiver-page -p quiver-plot -p quiver-dashboards | grep -E 'quiver-ale|torch'
	# The live page, which the learner links, is SVG only: no rasteriser.
	! cargo tree --locked -e normal -p quiver-page | grep -E 'resvg|tiny-skia'
	python3 tests/same_weights/run.py --self-test
	cargo build --release --workspace --bins --locked
	cargo test --release --workspace --locked
	deploy/check-monitoring

same-weights: build ## Prove that a refactoring changed no behaviour: train BASE=<commit> and this tree, compare bit for bit
	@test -n "$(BASE)" || { echo "error: name the commit to compare with: make same-weights BASE=main~1" >&2; exit 2; }
	python3 tests/same_weights/run.py --base $(BASE)

dashboards: ## Write the dashboards' files again, after crates/dashboards has changed
	cargo run --release --locked -p quiver-dashboards -- write

test-compose: build ## Start, scale, hit, stop and resume a compose cluster in a Docker engine of its own (needs root)
	python3 tests/compose/run.py

test-kubernetes: ## Render deploy/kubernetes and hold it against the schemas of the Kubernetes API
	tests/kubernetes/run.sh

bench: build ## Measure against bare ALE and bare libtorch
	./target/release/quiver-bench

fuzz: setup ## Attack every decoder for 10 minutes each (SECONDS_EACH=60)
	fuzz/run.sh

clean: ## Delete what was built; what was fetched into .deps stays
	cargo clean
