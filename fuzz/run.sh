#!/bin/sh
# Runs libFuzzer on each target, or on the named ones: fuzz/run.sh codec_frame snapshot
#
#   SECONDS_EACH   time for each target, 600 by default
#   SANITIZER      address by default; none is faster and finds less
#   JOBS           compiler jobs
#
# Works with the pinned stable compiler. Coverage is a pass of LLVM that needs no nightly, and AddressSanitizer comes
# with the toolchain behind a flag that RUSTC_BOOTSTRAP enables. The corpus is kept from run to run.
set -eu
cd "$(dirname "$0")/.."
seconds=${SECONDS_EACH:-600}
sanitizer=${SANITIZER:-address}
target=$(rustc -vV | sed -n 's/^host: //p')
build=${CARGO_TARGET_DIR:-target}/fuzz
scratch=$(mktemp -d -p "$([ -w /dev/shm ] && echo /dev/shm || echo /tmp)")
trap 'rm -rf "$scratch"' EXIT INT TERM

flags='-Cpasses=sancov-module -Cllvm-args=-sanitizer-coverage-level=4'
flags="$flags -Cllvm-args=-sanitizer-coverage-inline-8bit-counters -Cllvm-args=-sanitizer-coverage-pc-table"
flags="$flags -Cllvm-args=-sanitizer-coverage-trace-compares -Ccodegen-units=1"
flags="$flags -Cdebug-assertions -Coverflow-checks -Cforce-frame-pointers"
[ "$sanitizer" = none ] || flags="$flags -Zsanitizer=$sanitizer"
RUSTC_BOOTSTRAP=1 RUSTFLAGS="$flags" CARGO_TARGET_DIR="$build" \
    cargo build --release --locked --target "$target" -p quiver-fuzz --features libfuzzer ${JOBS:+-j "$JOBS"}
binary=$build/$target/release/quiver-fuzz

all=$(sed -n '/^targets! {/,/^}/s/^ *\([a-z_]*\): .*/\1/p' fuzz/src/lib.rs)
failed=
for name in ${*:-$all}; do
    corpus=fuzz/corpus/$name
    mkdir -p "$corpus" "fuzz/artifacts/$name" "$scratch/$name"
    echo "== $name, $seconds s"
    ASAN_OPTIONS=detect_leaks=0:malloc_context_size=3:quarantine_size_mb=16 \
        TMPDIR=$scratch/$name QUIVER_FUZZ_TARGET=$name QUIVER_FUZZ_SEEDS=$corpus "$binary" \
        -detect_leaks=0 -max_total_time="$seconds" -timeout=20 -rss_limit_mb=1024 -malloc_limit_mb=256 -max_len=8192 \
        -print_final_stats=1 -artifact_prefix="fuzz/artifacts/$name/" "$corpus" \
        >"$scratch/$name.log" 2>&1 || failed="$failed $name"
    grep -E '^(#[0-9]+.DONE|stat::peak|SUMMARY|thread )' "$scratch/$name.log" || true
    case $failed in *" $name"*) tail -n 60 "$scratch/$name.log" ;; esac
done
[ -z "$failed" ] || { echo "failed:$failed; see fuzz/artifacts and fuzz/README.md"; exit 1; }
