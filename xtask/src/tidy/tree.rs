//! One picture of the tree: every file that is not ignored, and what cargo knows of the packages.

use super::source::Source;
use crate::{Result, workspace::Package};
use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::{Path, PathBuf},
};

/// The files of a workspace by their path relative to its root, with `/` between the parts.
#[derive(Debug, Default)]
pub(crate) struct Tree {
    root: PathBuf,
    files: BTreeMap<String, String>,
    sources: BTreeMap<String, Source>,
    packages: Vec<Package>,
}

/// Where a Rust file stands in its package.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Place {
    /// Under `src`: what users link.
    Src,
    /// Under `src`, but a file of unit tests: `tests.rs`, or below a directory `tests`.
    UnitTests,
    /// `tests`, `examples` or `benches` of the package.
    Outside,
}

/// One Rust file with its place.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RustFile<'a> {
    /// The path relative to the root.
    pub(crate) path: &'a str,
    /// The name of its package's directory, which is the package's too: "dm-sync", "xtask", "fuzz".
    pub(crate) package: &'a str,
    /// Where in the package it stands.
    pub(crate) place: Place,
    /// Its text, lexed.
    pub(crate) source: &'a Source,
}

impl Tree {
    /// Reads every file below `root` that `.gitignore` does not name.
    pub(crate) fn load(root: &Path, packages: Vec<Package>) -> Result<Self> {
        let ignored = ignored_paths(&fs::read_to_string(root.join(".gitignore"))?)?;
        let mut tree = Self {
            root: root.to_path_buf(),
            packages,
            ..Self::default()
        };
        let mut pending = vec![root.to_path_buf()];
        while let Some(dir) = pending.pop() {
            for entry in fs::read_dir(&dir)? {
                let path = entry?.path();
                let name = relative(root, &path);
                if name == ".git" || ignored.contains(&name) {
                    continue;
                }
                if path.is_dir() {
                    pending.push(path);
                } else {
                    // A picture or another binary file counts in the listing, and has no words.
                    tree.insert(&name, String::from_utf8(fs::read(&path)?).unwrap_or_default());
                }
            }
        }
        Ok(tree)
    }

    fn insert(&mut self, path: &str, text: String) {
        if path.ends_with(".rs") {
            self.sources.insert(path.to_owned(), Source::lex(&text));
        }
        self.files.insert(path.to_owned(), text);
    }

    /// Every file with its text.
    pub(crate) fn files(&self) -> impl Iterator<Item = (&str, &str)> {
        self.files
            .iter()
            .map(|(path, text)| (path.as_str(), text.as_str()))
    }

    /// The text of one file.
    pub(crate) fn file(&self, path: &str) -> Option<&str> {
        self.files.get(path).map(String::as_str)
    }

    /// The lexed text of one Rust file.
    pub(crate) fn source(&self, path: &str) -> Option<&Source> {
        self.sources.get(path)
    }

    /// Whether `path` is a file, or a directory with files in it.
    pub(crate) fn exists(&self, path: &str) -> bool {
        let below = format!("{path}/");
        self.files.contains_key(path)
            || self
                .files
                .range(below.clone()..)
                .next()
                .is_some_and(|(next, _)| next.starts_with(&below))
    }

    /// Every Rust file that belongs to a package directory.
    pub(crate) fn rust_files(&self) -> impl Iterator<Item = RustFile<'_>> {
        self.sources.iter().filter_map(|(path, source)| {
            let package_dir = package_dir(path)?;
            let package = package_dir.rsplit('/').next()?;
            let inner = path.strip_prefix(package_dir)?.strip_prefix('/')?;
            let place = match inner.split_once('/') {
                Some(("src", rest)) if rest == "tests.rs" || rest.ends_with("/tests.rs") => Place::UnitTests,
                Some(("src", rest)) if rest.starts_with("tests/") || rest.contains("/tests/") => {
                    Place::UnitTests
                }
                Some(("src", _)) => Place::Src,
                _ => Place::Outside,
            };
            Some(RustFile {
                path,
                package,
                place,
                source,
            })
        })
    }

    /// The packages cargo knows.
    pub(crate) fn packages(&self) -> &[Package] {
        &self.packages
    }

    /// A path that cargo gave, relative to the root.
    pub(crate) fn relative(&self, path: &Path) -> String {
        relative(&self.root, path)
    }

    /// The names in the root directory.
    pub(crate) fn top_level(&self) -> BTreeSet<&str> {
        self.files
            .keys()
            .filter_map(|path| path.split('/').next())
            .collect()
    }
}

/// The package directory a path lies in: two parts below `crates`, else one; `None` for files in the root.
fn package_dir(path: &str) -> Option<&str> {
    let first = path.find('/')?;
    if &path[..first] != "crates" {
        return Some(&path[..first]);
    }
    let second = path[first + 1..].find('/')?;
    Some(&path[..first + 1 + second])
}

fn relative(root: &Path, path: &Path) -> String {
    let parts: Vec<_> = path
        .strip_prefix(root)
        .unwrap_or(path)
        .components()
        .map(|part| part.as_os_str().to_string_lossy().into_owned())
        .collect();
    parts.join("/")
}

/// Ignore files here hold one rooted path a line and no patterns, so that the walk needs no git and agrees with it.
fn ignored_paths(gitignore: &str) -> Result<BTreeSet<String>> {
    gitignore
        .lines()
        .map(str::trim)
        .filter(|line| !line.is_empty() && !line.starts_with('#'))
        .map(|line| match line.strip_prefix('/') {
            Some(path) if !path.contains(['*', '?', '[', '!']) => Ok(path.trim_end_matches('/').to_owned()),
            _ => Err(format!(".gitignore: `{line}` is not a rooted path such as `/target`").into()),
        })
        .collect()
}

/// The file and the line of each finding, for the rules' tests.
#[cfg(test)]
pub(crate) fn lines(findings: Vec<super::Finding>) -> Vec<(String, usize)> {
    findings
        .into_iter()
        .map(|finding| (finding.path, finding.line))
        .collect()
}

/// A tree made of samples, for the rules' tests.
#[cfg(test)]
pub(crate) fn sample<const N: usize>(files: [(&str, &str); N]) -> Tree {
    let mut tree = Tree {
        root: PathBuf::from("/sample"),
        ..Tree::default()
    };
    for (path, text) in files {
        tree.insert(path, text.to_owned());
    }
    tree
}

#[cfg(test)]
impl Tree {
    /// The same tree with packages.
    pub(crate) fn with_packages(mut self, packages: Vec<Package>) -> Self {
        self.packages = packages;
        self
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_knows_its_package_and_place() {
        let tree = sample([
            ("crates/dm-a/src/lib.rs", ""),
            ("crates/dm-a/src/b/tests.rs", ""),
            ("crates/dm-a/tests/t.rs", ""),
            ("xtask/src/main.rs", ""),
            ("build.rs", ""),
        ]);
        let seen: Vec<_> = tree.rust_files().map(|file| (file.package, file.place)).collect();
        assert_eq!(
            seen,
            [
                ("dm-a", Place::UnitTests),
                ("dm-a", Place::Src),
                ("dm-a", Place::Outside),
                ("xtask", Place::Src),
            ]
        );
    }

    #[test]
    fn a_directory_exists_when_a_file_lies_in_it() {
        let tree = sample([("docs/a.md", ""), ("docs2", "")]);
        assert!(tree.exists("docs") && tree.exists("docs/a.md") && tree.exists("docs2"));
        assert!(!tree.exists("doc") && !tree.exists("docs/b.md"));
    }

    #[test]
    fn ignore_lines_must_be_rooted_paths() {
        assert_eq!(
            ignored_paths("/target\n# note\n/fuzz/corpus/\n").unwrap().len(),
            2
        );
        assert!(ignored_paths("*.log").is_err());
        assert!(ignored_paths("target").is_err());
    }
}
