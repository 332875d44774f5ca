//! A sandbox for `quiver`: a copy without the other programs, and an empty current directory.

use std::ffi::OsStr;
use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use tempfile::TempDir;

/// A temporary directory, deleted when dropped.
pub struct Sandbox(TempDir);

/// The result of a command.
pub struct Ran {
    pub code: Option<i32>,
    pub out: String,
    pub err: String,
}

impl Sandbox {
    pub fn new() -> Self {
        let folder = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
        for name in ["bin", "here", "seen"] {
            fs::create_dir(folder.path().join(name)).unwrap();
        }
        // A link, not a copy: executing a file that was just written can fail as busy while other tests fork.
        fs::hard_link(env!("CARGO_BIN_EXE_quiver"), folder.path().join("bin/quiver")).unwrap();
        Self(folder)
    }

    /// The current directory of the commands.
    pub fn here(&self) -> PathBuf {
        self.0.path().join("here")
    }

    /// Names in the current directory.
    pub fn left(&self) -> Vec<String> {
        let mut names: Vec<_> = fs::read_dir(self.here())
            .unwrap()
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .collect();
        names.sort();
        names
    }

    /// The directory in which fake programs record their starts, separate from the command's files.
    pub fn seen(&self) -> PathBuf {
        self.0.path().join("seen")
    }

    /// Installs a shell script as `quiver-lockstep`.
    pub fn install_lockstep(&self, script: &str) {
        self.program("quiver-lockstep", script);
    }

    /// Installs a shell script as a program.
    pub fn program(&self, name: &str, script: &str) {
        // Written by another process, for the same reason as the link above.
        let mut install = Command::new("install")
            .args([
                OsStr::new("-m755"),
                OsStr::new("/dev/stdin"),
                self.0.path().join("bin").join(name).as_os_str(),
            ])
            .stdin(Stdio::piped())
            .spawn()
            .unwrap();
        write!(install.stdin.take().unwrap(), "#!/bin/sh\n{script}\n").unwrap();
        assert!(install.wait().unwrap().success());
    }

    /// `quiver` with these arguments and variables, and without this process's `QUIVER_` variables.
    pub fn command(&self, words: &[&str], variables: &[(&str, &str)]) -> Command {
        self.command_through(&[], words, variables)
    }

    /// The same, started by another command, such as `nohup`.
    pub fn command_through(&self, by: &[&str], words: &[&str], variables: &[(&str, &str)]) -> Command {
        let quiver = self.0.path().join("bin/quiver");
        let mut line = by.iter().map(OsStr::new).chain([quiver.as_os_str()]);
        let mut command = Command::new(line.next().expect("at least quiver itself"));
        command.args(line);
        for (name, _) in std::env::vars_os().filter(|(name, _)| name.to_string_lossy().starts_with("QUIVER_"))
        {
            command.env_remove(name);
        }
        command.args(words).envs(variables.iter().copied()).current_dir(self.here());
        command.env("RUST_BACKTRACE", "1").stdin(Stdio::null());
        command
    }

    pub fn quiver_with(&self, words: &[&str], variables: &[(&str, &str)]) -> Ran {
        let Output { status, stdout, stderr } = self.command(words, variables).output().unwrap();
        let text = |bytes| String::from_utf8(bytes).unwrap();
        Ran { code: status.code(), out: text(stdout), err: text(stderr) }
    }

    pub fn quiver(&self, words: &[&str]) -> Ran {
        self.quiver_with(words, &[])
    }

    /// Creates a run as training would, with its settings and nothing else.
    pub fn run(&self, name: &str, game: &str) -> PathBuf {
        self.run_with(name, game, &[])
    }

    /// The same with changed settings.
    pub fn run_with(&self, name: &str, game: &str, settings: &[(&str, &str)]) -> PathBuf {
        let path = self.here().join(name);
        let flags = settings.iter().map(|(key, text)| ((*key).into(), (*text).into())).collect();
        let resolved = settings::Layers { flags, ..settings::Layers::default() }.resolve(Some(game)).unwrap();
        run::RunDir::create(&path, &resolved).unwrap();
        path
    }
}

impl Ran {
    /// The one line of an error, without `error: `.
    #[track_caller]
    pub fn refused(&self) -> &str {
        assert_eq!(self.code, Some(1), "{}{}", self.out, self.err);
        assert_eq!(self.err.lines().count(), 1, "one line, not {}", self.err);
        self.err.trim_end().strip_prefix("error: ").unwrap_or_else(|| panic!("no 'error: ' in {}", self.err))
    }

    /// Expects an error of one line that contains all of these parts.
    #[track_caller]
    pub fn refused_for(&self, parts: &[&str]) {
        let line = self.refused();
        for part in parts {
            assert!(line.contains(part), "'{part}' is not in: {line}");
        }
    }

    /// Standard output of a command that succeeded.
    #[track_caller]
    pub fn stdout(&self) -> &str {
        assert_eq!(self.code, Some(0), "{}", self.err);
        &self.out
    }
}

/// Copies a ROM, for a test that damages it.
pub fn copy_rom(game: &str, to: &Path) -> PathBuf {
    let path = to.join(format!("{game}.bin"));
    fs::copy(envs::roms::find(game, None).unwrap(), &path).unwrap();
    path
}
