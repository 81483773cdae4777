//! The files of the workspace that are not ignored.

use crate::Result;
use std::{collections::BTreeMap, fs, path::Path};

/// The text of each file, by its path relative to the root with `/` between the parts.
#[derive(Default)]
pub(super) struct Tree(BTreeMap<String, String>);

impl Tree {
    /// Loads the files below `root`. Each line of `.gitignore` is a path relative to the root, so this does not need
    /// git.
    pub(super) fn load(root: &Path) -> Result<Self> {
        let ignore = fs::read_to_string(root.join(".gitignore"))?;
        let mut tree = Self::default();
        let mut dirs = vec![String::new()];
        while let Some(dir) = dirs.pop() {
            for entry in fs::read_dir(format!("{}{dir}", root.display()))? {
                let entry = entry?;
                let path = format!("{dir}/{}", entry.file_name().to_string_lossy());
                if path == "/.git" || ignore.lines().any(|line| line == path) {
                    continue;
                }
                if entry.file_type()?.is_dir() {
                    dirs.push(path);
                } else {
                    // A file that is not UTF-8, such as a picture, counts as empty.
                    let text = String::from_utf8(fs::read(entry.path())?).unwrap_or_default();
                    tree.0.insert(path[1..].to_owned(), text);
                }
            }
        }
        Ok(tree)
    }

    /// Makes a tree for the rules' tests. The line `== PATH` comes before the text of each file.
    #[cfg(test)]
    pub(super) fn sample(files: &str) -> Self {
        let files = files.split("== ").filter_map(|file| file.split_once('\n'));
        Self(
            files
                .map(|(path, text)| (path.to_owned(), text.to_owned()))
                .collect(),
        )
    }

    /// Returns every file whose path ends with `end`, with its text.
    pub(super) fn files(&self, end: &str) -> impl Iterator<Item = (&str, &str)> {
        let files = self.0.iter().map(|(path, text)| (path.as_str(), text.as_str()));
        files.filter(move |(path, _)| path.ends_with(end))
    }

    /// Returns every line of the files whose path ends with `end`, with the file and the line's number from 1.
    pub(super) fn lines(&self, end: &str) -> impl Iterator<Item = (&str, usize, &str)> {
        let numbered = |(path, text)| {
            (1..)
                .zip(str::lines(text))
                .map(move |(at, line)| (path, at, line))
        };
        self.files(end).flat_map(numbered)
    }

    /// Returns the text of one file, or an empty text if there is no such file.
    pub(super) fn text(&self, path: &str) -> &str {
        self.0.get(path).map_or("", String::as_str)
    }

    /// Returns whether `path` is a file, or a directory with files in it.
    pub(super) fn exists(&self, path: &str) -> bool {
        let mut rest = self.0.keys().filter_map(|file| file.strip_prefix(path));
        rest.any(|rest| rest.is_empty() || rest.starts_with('/'))
    }
}

/// Returns the package of a file, which is named after its directory: "dm-sync", "xtask".
pub(super) fn package(path: &str) -> &str {
    let path = path.trim_start_matches("crates/");
    path.split('/').next().unwrap_or_default()
}

/// Crates that run whole programs on the machine's own threads and clock: the command, its harness and its studies.
const PROGRAMS: [&str; 3] = ["dmkit", "dm-bench", "dm-eval"];

/// Returns whether this is a source file of a library that index code may use, and not of tests or of a program.
pub(super) fn is_library(path: &str) -> bool {
    let tests = path.ends_with("/tests.rs") || path.contains("/tests/");
    path.starts_with("crates/") && path.contains("/src/") && !tests && !PROGRAMS.contains(&package(path))
}
