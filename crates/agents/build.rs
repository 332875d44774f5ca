//! Compiles `src/ops.cc` against libtorch, and does what `rpath.rs` does.

#[path = "rpath.rs"]
mod rpath;

fn main() {
    rpath::main();
    println!("cargo:rerun-if-changed=src/ops.cc");
    let lib = std::env::var_os("DEP_TCH_LIBTORCH_LIB").expect("torch-sys says where libtorch is");
    let include = std::path::Path::new(&lib).parent().expect("lib has a parent").join("include");
    cc::Build::new()
        .cpp(true)
        .std("c++20")
        .include(&include)
        .include(include.join("torch/csrc/api/include"))
        .warnings(false)
        .flag("-D_GLIBCXX_USE_CXX11_ABI=1")
        .file("src/ops.cc")
        .compile("quiver-ops");
}
