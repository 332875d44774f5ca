//! Compiles the Arcade Learning Environment from its source, without cmake, SDL, OpenCV or Python.
//!
//! `make setup` fetches the source; `QUIVER_ALE_SOURCE` is its path. It is compiled with -O3 in every profile, because
//! the emulator limits the speed of playing.

use std::path::{Path, PathBuf};
use std::{env, fs, process};

fn main() {
    println!("cargo:rerun-if-env-changed=QUIVER_ALE_SOURCE");
    println!("cargo:rerun-if-changed=build.rs");
    for file in ["lib.rs", "emulator.h", "emulator.cc", "state.cc", "no_blend.cc"] {
        println!("cargo:rerun-if-changed=src/{file}");
    }
    let root = source();
    let out = PathBuf::from(env::var_os("OUT_DIR").expect("cargo sets OUT_DIR"));
    write_version_header(&root, &out);

    // The bridge uses ALE's symbols, so ALE must come after it on the linker's command line.
    common(&mut cxx_build::bridge("src/lib.rs"), &root, &out)
        .files(["src/emulator.cc", "src/state.cc"])
        // ALE's own save format omits private members of the video chip, which `state.cc` reads and writes.
        .flag("-fno-access-control")
        .compile("quiver-ale-bridge");
    common(&mut cc::Build::new(), &root, &out)
        .files(ale_files(&root, &out))
        .file("src/no_blend.cc")
        .compile("quiver-ale-core");
    println!("cargo:rustc-link-lib=z");
    println!("cargo:rustc-env=QUIVER_ALE_ROMS={}", roms(&root).display());
}

/// The path of the source. If it is missing, fails with a one-line error that says how to fetch it.
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

/// Writes `version.hpp`, which cmake would generate from a template.
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

/// All files to compile. The hundred files of `games/supported` are small and include the same headers, so compiling
/// them as one file halves the build time.
fn ale_files(root: &Path, out: &Path) -> Vec<PathBuf> {
    let ale = root.join("src/ale");
    let mut files = vec![ale.join("ale_interface.cpp")];
    for folder in ["common", "emucore", "environment", "games"] {
        files.extend(sources(&ale.join(folder)));
    }
    // `src/no_blend.cc` takes its place.
    let blend = ale.join("environment/phosphor_blend.cpp");
    files.retain(|file| *file != blend);
    let unity = out.join("supported_games.cpp");
    let includes = sources(&ale.join("games/supported"));
    let text: String = includes.iter().map(|file| format!("#include \"{}\"\n", file.display())).collect();
    write(&unity, &text);
    files.push(unity);
    files
}

/// The C++ files directly in `folder`, sorted, so that the build does not depend on directory order.
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

/// Writes the file only if its content changed, so that compiled outputs stay up to date.
fn write(path: &Path, text: &str) {
    if fs::read_to_string(path).is_ok_and(|old| old == text) {
        return;
    }
    fs::write(path, text).unwrap_or_else(|error| panic!("cannot write {}: {error}", path.display()));
}
