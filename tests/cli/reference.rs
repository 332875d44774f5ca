//! The configuration reference in docs/ is the one that the program prints.

use crate::sandbox::Sandbox;

#[test]
fn the_configuration_reference_is_current() {
    let printed = Sandbox::new().quiver(&["config", "reference"]);
    let page =
        std::fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/docs/configuration.md")).unwrap();
    assert!(printed.out == page, "stale: run 'make docs' to write docs/configuration.md again");
}
