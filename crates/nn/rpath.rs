//! Build script of every package with torch in its executables: tells the linker where libtorch will be found.
//!
//! tch's own search path does not reach packages that depend on it, and `LD_LIBRARY_PATH` in `.cargo/config.toml`
//! is ignored by cargo. The second path keeps a moved checkout working.
fn main() {
    println!("cargo:rerun-if-env-changed=DEP_TCH_LIBTORCH_LIB");
    println!("cargo:rerun-if-env-changed=LIBTORCH");
    if let Some(lib) = std::env::var_os("DEP_TCH_LIBTORCH_LIB") {
        println!("cargo:rustc-link-arg=-Wl,-rpath,{}", lib.to_string_lossy());
    }
    println!("cargo:rustc-link-arg=-Wl,-rpath,$ORIGIN/../../.deps/libtorch/torch/lib");
}
