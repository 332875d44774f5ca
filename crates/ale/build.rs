//! Compiles the Arcade Learning Environment from its source, without cmake, SDL, OpenCV or Python.
//!
//! The source is fetched by `make setup` and found through `QUIVER_ALE_SOURCE`. It is built at -O3 in every profile:
//! the emulator is what bounds the speed of playing.

use std::path::{Path, PathBuf};
use std::{env, fs, process};

fn main() {
    println!("cargo:rerun-if-env-changed=QUIVER_ALE_SOURCE");
    println!("cargo:rerun-if-changed=build.rs");
    for file in ["lib.rs", "emulator.h", "emulator.cc", "state.cc"] {
        println!("cargo:rerun-if-changed=src/{file}");
    }
    let root = source();
    let out = PathBuf::from(env::var_os("OUT_DIR").expect("cargo sets OUT_DIR"));
    write_version_header(&root, &out);

    // The bridge first: it needs ALE's symbols, so ALE has to come after it on the linker's command line.
    common(&mut cxx_build::bridge("src/lib.rs"), &root, &out)
        .files(["src/emulator.cc", "src/state.cc"])
        // ALE's own save format leaves out private members of the video chip; `state.cc` reads and writes them.
        .flag("-fno-access-control")
        .compile("quiver-ale-bridge");
    common(&mut cc::Build::new(), &root, &out).files(ale_files(&root, &out)).compile("quiver-ale-core");
    println!("cargo:rustc-link-lib=z");
    println!("cargo:rustc-env=QUIVER_ALE_ROMS={}", roms(&root).display());
}

/// The unpacked source, or a one-line error that says how to get it.
fn source() -> PathBuf {
    let root = env::var_os("QUIVER_ALE_SOURCE").map(PathBuf::from).unwrap_or_default();
    let interface = root.join("src/ale/ale_interface.cpp");
    println!("cargo:rerun-if-changed={}", interface.display());
    if !interface.is_file() {
        println!("cargo::error=ALE source not found at '{}': run `make setup`", root.display());
        process::exit(1);
    }
    root
}

fn roms(root: &Path) -> PathBuf {
    root.join("src/ale/python/roms")
}

fn common<'a>(build: &'a mut cc::Build, root: &Path, out: &Path) -> &'a mut cc::Build {
    build
        .cpp(true)
        .std("c++17")
        .opt_level(3)
        .debug(false)
        .define("NDEBUG", None)
        .include(root.join("src"))
        .include(out)
        .warnings(false)
        .flag("-w")
        .cargo_warnings(false)
}

/// `version.hpp` is made by cmake from a template; these few lines are all that it needs.
fn write_version_header(root: &Path, out: &Path) {
    let version = fs::read_to_string(root.join("version.txt")).unwrap_or_default();
    let mut parts = version.trim().split('.');
    let mut header = read(&root.join("src/ale/version.hpp.in"))
        .replace("@ALE_VERSION@", version.trim())
        .replace("@ALE_VERSION_GIT_SHA@", "release");
    for name in ["MAJOR", "MINOR", "PATCH"] {
        header = header.replace(&format!("@ALE_VERSION_{name}@"), parts.next().unwrap_or("0"));
    }
    write(&out.join("version.hpp"), &header);
}

/// Everything to compile. The hundred files of `games/supported` are small and include the same headers, so one file
/// that includes them all halves the time.
fn ale_files(root: &Path, out: &Path) -> Vec<PathBuf> {
    let ale = root.join("src/ale");
    let mut files = vec![ale.join("ale_interface.cpp")];
    for folder in ["common", "emucore", "environment", "games"] {
        files.extend(sources(&ale.join(folder)));
    }
    let unity = out.join("supported_games.cpp");
    let includes = sources(&ale.join("games/supported"));
    let text: String = includes.iter().map(|file| format!("#include \"{}\"\n", file.display())).collect();
    write(&unity, &text);
    files.push(unity);
    files
}

/// The C++ files directly in `folder`, sorted, so that a build does not depend on the order of a directory.
fn sources(folder: &Path) -> Vec<PathBuf> {
    let entries =
        fs::read_dir(folder).unwrap_or_else(|error| panic!("cannot list {}: {error}", folder.display()));
    let mut files: Vec<PathBuf> = entries
        .map(|entry| entry.expect("a directory entry").path())
        .filter(|path| path.extension().is_some_and(|extension| extension == "cpp" || extension == "cxx"))
        .collect();
    files.sort();
    files
}

fn read(path: &Path) -> String {
    fs::read_to_string(path).unwrap_or_else(|error| panic!("cannot read {}: {error}", path.display()))
}

/// Writes only what changed, so that the compiler's outputs stay fresh.
fn write(path: &Path, text: &str) {
    if fs::read_to_string(path).is_ok_and(|old| old == text) {
        return;
    }
    fs::write(path, text).unwrap_or_else(|error| panic!("cannot write {}: {error}", path.display()));
}
