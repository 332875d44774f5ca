//! Build script of every package with torch in its executables: tells the linker where libtorch will be found.
//!
//! tch's own search path does not reach packages that depend on it, and `LD_LIBRARY_PATH` in `.cargo/config.toml`
//! is ignored by cargo. The second path keeps a moved checkout working.
pub fn main() {
    println!("cargo:rerun-if-env-changed=DEP_TCH_LIBTORCH_LIB");
    println!("cargo:rerun-if-env-changed=LIBTORCH");
    let mut folder = "libtorch";
    if let Some(lib) = std::env::var_os("DEP_TCH_LIBTORCH_LIB").map(std::path::PathBuf::from) {
        println!("cargo:rustc-link-arg=-Wl,-rpath,{}", lib.display());
        // Nothing refers to the GPU half by name, so the linker would drop it and with it every GPU.
        if lib.join("libtorch_cuda.so").is_file() {
            println!("cargo:rustc-link-arg=-L{}", lib.display());
            println!("cargo:rustc-link-arg=-Wl,--no-as-needed,-ltorch_cuda,--as-needed");
            folder = "libtorch-cuda";
        }
    }
    println!("cargo:rustc-link-arg=-Wl,-rpath,$ORIGIN/../../.deps/{folder}/torch/lib");
}
