//! What is written where.

use std::path::{Path, PathBuf};
use std::{fs, io};

use crate::{all, console, grafana};

/// Every generated file, by its path below the repository's root.
pub fn generated() -> Vec<(PathBuf, String)> {
    let dashboards = all();
    let mut files = Vec::new();
    for dashboard in &dashboards {
        let name = dashboard.name;
        let grafana = format!("deploy/grafana/dashboards/{name}.json");
        files.push((grafana.into(), grafana::file(dashboard)));
        let console = format!("deploy/prometheus/consoles/{name}.html");
        files.push((console.into(), console::file(dashboard, &dashboards)));
    }
    files
}

/// Files below `root` that are not as they would be written now.
pub fn stale(root: &Path) -> Vec<PathBuf> {
    let is_stale = |(path, text): &(PathBuf, String)| {
        fs::read_to_string(root.join(path)).map_or(true, |found| found != *text)
    };
    generated().into_iter().filter(is_stale).map(|(path, _)| path).collect()
}

/// Writes all of them below `root`.
pub fn write(root: &Path) -> io::Result<()> {
    for (path, text) in generated() {
        let path = root.join(path);
        fs::create_dir_all(path.parent().expect("every file is in a folder"))?;
        fs::write(path, text)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_changed_or_is_missing_is_stale() {
        let root = tempfile::tempdir().unwrap();
        assert_eq!(stale(root.path()).len(), 8, "nothing is there yet");
        write(root.path()).unwrap();
        assert_eq!(stale(root.path()), [""; 0].map(PathBuf::from));
        let changed = PathBuf::from("deploy/grafana/dashboards/replay.json");
        fs::write(root.path().join(&changed), "{}").unwrap();
        assert_eq!(stale(root.path()), [changed]);
    }
}
