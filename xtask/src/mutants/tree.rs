//! A copy of the workspace under `target/mutants` into which mutants are put, and its builds.

use super::{
    list::Mutant,
    run::Program,
    stages::Stage,
    switch::{self, Switched},
};
use crate::Result;
use serde::Deserialize;
use std::{
    collections::BTreeMap,
    fs,
    hash::{DefaultHasher, Hash, Hasher},
    path::{Path, PathBuf},
    process::{Command, Output},
};

/// The copy of the workspace. Changes are written before a build, and only to files that differ, so that cargo rebuilds
/// as little as possible.
#[derive(Debug)]
pub(crate) struct Tree {
    base: PathBuf,
    original: BTreeMap<String, Vec<u8>>,
    changed: BTreeMap<String, String>,
}

/// The line ranges of a crate's mutants, by file.
#[derive(Debug, Default)]
pub(crate) struct Places(BTreeMap<String, Switched>);

impl Places {
    /// Returns the mutant to which a line of a file belongs.
    pub(crate) fn mutant_at(&self, file: &str, line: usize) -> Option<usize> {
        self.0.get(file)?.mutant_at(line)
    }
}

/// A compiler error.
#[derive(Debug)]
pub(crate) struct CompileError {
    /// The file, relative to the root of the workspace.
    pub(crate) file: String,
    /// The line, from 1.
    pub(crate) line: usize,
    /// The function that a constant calls and that must therefore stay a `const fn`, if this is the error.
    pub(crate) needs_constant: Option<String>,
    /// The compiler's message.
    pub(crate) text: String,
}

#[derive(Deserialize)]
struct Line {
    reason: String,
    message: Option<Message>,
    executable: Option<PathBuf>,
    manifest_path: Option<PathBuf>,
}

#[derive(Deserialize)]
struct Message {
    level: String,
    message: String,
    rendered: Option<String>,
    code: Option<Code>,
    spans: Vec<MessageSpan>,
}

#[derive(Deserialize)]
struct Code {
    code: String,
}

#[derive(Deserialize)]
struct MessageSpan {
    file_name: String,
    line_start: usize,
    is_primary: bool,
}

impl Tree {
    /// Reads the files that git tracks, and new files that it does not ignore. The first build writes them to the copy.
    pub(crate) fn copy(root: &Path) -> Result<Self> {
        let listed = Command::new("git")
            .args(["ls-files", "-z", "--cached", "--others", "--exclude-standard"])
            .current_dir(root)
            .output()?;
        if !listed.status.success() {
            return Err(format!("git ls-files failed: {}", String::from_utf8_lossy(&listed.stderr)).into());
        }
        let mut original = BTreeMap::new();
        for name in String::from_utf8(listed.stdout)?
            .split('\0')
            .filter(|name| !name.is_empty())
        {
            let path = root.join(name);
            if path.is_file() {
                original.insert(name.to_owned(), fs::read(path)?);
            }
        }
        Ok(Self::of(root, original))
    }

    /// Makes a tree of these files. The first build writes them to the copy.
    pub(crate) fn of(root: &Path, original: BTreeMap<String, Vec<u8>>) -> Self {
        Self {
            base: root.join("target/mutants"),
            original,
            changed: BTreeMap::new(),
        }
    }

    /// Returns a number that identifies the files without mutants. The files of xtask do not count: the tests do not
    /// depend on them, and otherwise each new reason for a mutant would change the number.
    pub(crate) fn stamp(&self) -> u128 {
        // The standard library does not promise that another release computes the same hash. If it does not, some
        // tests run once more than necessary.
        let mut hasher = DefaultHasher::new();
        for file in self
            .original
            .iter()
            .filter(|(name, _)| !name.starts_with("xtask/"))
        {
            file.hash(&mut hasher);
        }
        u128::from(hasher.finish())
    }

    /// Removes every mutant.
    pub(crate) fn restore(&mut self) {
        self.changed.clear();
    }

    /// Puts mutants of a crate into the tree. An environment variable picks one of them at run time.
    pub(crate) fn switch(&mut self, package: &str, mutants: &[&Mutant]) -> Result<Places> {
        let mut places = Places::default();
        let mut files: BTreeMap<&str, Vec<&Mutant>> = BTreeMap::new();
        for mutant in mutants {
            files.entry(&mutant.file).or_default().push(mutant);
        }
        for (file, mutants) in files {
            let switched = switch::switched(self.text(file)?, &mutants);
            places.0.insert(file.to_owned(), switched);
        }
        for (file, switched) in &places.0 {
            self.changed.insert(file.clone(), switched.text.clone());
        }
        let root = format!("crates/{package}/src/lib.rs");
        let text = match self.changed.get(&root) {
            Some(text) => text.clone(),
            None => self.text(&root)?.to_owned(),
        };
        self.changed.insert(root, text + switch::SWITCH);
        Ok(places)
    }

    /// Puts one mutant into the tree. It is always active.
    pub(crate) fn apply(&mut self, mutant: &Mutant) -> Result<()> {
        let text = self.text(&mutant.file)?;
        let mutated = switch::mutated(text, &(0..text.len()), mutant);
        self.changed.insert(mutant.file.clone(), mutated);
        Ok(())
    }

    fn text(&self, file: &str) -> Result<&str> {
        let bytes = self
            .original
            .get(file)
            .ok_or_else(|| format!("{file} is not in the workspace"))?;
        Ok(std::str::from_utf8(bytes)?)
    }

    /// Checks that the crate's library compiles, without generating code.
    pub(crate) fn check(&self, package: &str) -> Result<Vec<CompileError>> {
        let output = self.cargo(&["check", "--package", package, "--lib"], false)?;
        self.errors(&output)
    }

    /// Builds a stage's tests, or returns the compiler's errors.
    pub(crate) fn build(
        &self,
        stage: &Stage,
    ) -> Result<std::result::Result<Vec<Program>, Vec<CompileError>>> {
        eprintln!("== building {} of {}", stage.name, stage.package);
        let mut args = vec!["test", "--no-run", "--package", stage.package];
        match stage.target {
            Some(target) => args.extend(["--test", target]),
            None => args.push("--tests"),
        }
        let output = self.cargo(&args, stage.loom)?;
        if !output.status.success() {
            return Ok(Err(self.errors(&output)?));
        }
        let mut programs = Vec::new();
        for line in lines(&output) {
            if let (Some(executable), Some(manifest)) = (line.executable, line.manifest_path) {
                let dir = manifest
                    .parent()
                    .ok_or("a manifest has no directory")?
                    .to_path_buf();
                programs.push(Program {
                    executable,
                    dir,
                    filter: stage.filter,
                    skip: stage.skip,
                });
            }
        }
        Ok(Ok(programs))
    }

    fn cargo(&self, args: &[&str], loom: bool) -> Result<Output> {
        self.write()?;
        let flags = std::env::var("RUSTFLAGS").unwrap_or_default();
        // A mutant may make code unreachable, so warnings are turned off.
        let flags = format!(
            "{flags} --cap-lints allow{}",
            if loom { " --cfg dm_loom" } else { "" }
        );
        let target = self.base.join(if loom { "loom" } else { "target" });
        Ok(Command::new("cargo")
            .args(args)
            .args(["--message-format", "json", "--target-dir"])
            .arg(target)
            .current_dir(self.base.join("tree"))
            .env("RUSTFLAGS", flags.trim())
            // A function has one copy of its body for each mutant. To optimise all copies would take longer than the
            // tests run.
            .env("CARGO_PROFILE_TEST_OPT_LEVEL", "1")
            .env("CARGO_PROFILE_TEST_DEBUG", "0")
            .env("CARGO_PROFILE_DEV_DEBUG", "0")
            .output()?)
    }

    /// Writes the files of the copy that differ from those on disk, and removes sources that the workspace no longer
    /// has.
    fn write(&self) -> Result<()> {
        let tree = self.base.join("tree");
        for (name, original) in &self.original {
            let wanted = self
                .changed
                .get(name)
                .map_or(original.as_slice(), String::as_bytes);
            let path = tree.join(name);
            if fs::read(&path).is_ok_and(|there| there == wanted) {
                continue;
            }
            fs::create_dir_all(path.parent().ok_or("a file has no directory")?)?;
            fs::write(path, wanted)?;
        }
        remove_others(&tree, &tree, &self.original)
    }

    fn errors(&self, output: &Output) -> Result<Vec<CompileError>> {
        let mut errors = Vec::new();
        for message in lines(output).filter_map(|line| line.message) {
            if message.level != "error" {
                continue;
            }
            let Some(span) = message.spans.iter().find(|span| span.is_primary) else {
                continue;
            };
            let of_constants = message.code.as_ref().is_some_and(|code| code.code == "E0015");
            errors.push(CompileError {
                file: span.file_name.clone(),
                line: span.line_start,
                needs_constant: of_constants.then(|| last_name(&message.message)).flatten(),
                text: message.rendered.unwrap_or(message.message),
            });
        }
        if errors.is_empty() && !output.status.success() {
            return Err(format!("cargo failed: {}", String::from_utf8_lossy(&output.stderr).trim()).into());
        }
        Ok(errors)
    }
}

/// Returns the last segment of the path between the first two backticks.
fn last_name(message: &str) -> Option<String> {
    let path = message.split('`').nth(1)?;
    Some(path.rsplit("::").next()?.to_owned())
}

fn lines(output: &Output) -> impl Iterator<Item = Line> {
    let known = |line: &Line| line.reason == "compiler-message" || line.reason == "compiler-artifact";
    output
        .stdout
        .split(|byte| *byte == b'\n')
        .filter_map(|line| serde_json::from_slice(line).ok())
        .filter(known)
}

/// Removes sources that the workspace no longer has, because cargo would still build a removed test.
fn remove_others(tree: &Path, dir: &Path, keep: &BTreeMap<String, Vec<u8>>) -> Result<()> {
    for entry in fs::read_dir(dir)? {
        let path = entry?.path();
        if path.is_dir() {
            remove_others(tree, &path, keep)?;
        } else if path.extension().is_some_and(|kind| kind == "rs") {
            let name = path
                .strip_prefix(tree)?
                .to_str()
                .ok_or("a file's name is not UTF-8")?;
            if !keep.contains_key(name) {
                fs::remove_file(path)?;
            }
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_stamp_changes_with_every_file_but_those_of_xtask() {
        let stamp = |files: &[(&str, &str)]| {
            let files = files.iter();
            let original = files.map(|(name, text)| ((*name).to_owned(), text.as_bytes().to_vec()));
            Tree::of(Path::new(""), original.collect()).stamp()
        };
        let (a, b, tool) = (("a.rs", "fn a() {}"), ("b.rs", ""), ("xtask/mutants/a.toml", "a"));
        let all = stamp(&[a, b, tool]);
        assert_eq!(all, stamp(&[a, b, ("xtask/mutants/a.toml", "b")]));
        assert_ne!(all, stamp(&[a, ("b.rs", "fn b() {}"), tool]));
        assert_ne!(all, stamp(&[a, ("c.rs", ""), tool]));
        assert_ne!(all, stamp(&[a, tool]));
    }

    #[test]
    fn the_function_that_a_constant_needs_is_named() {
        let message = "cannot call non-const associated function `LockWord::pack` in constants";
        assert_eq!(last_name(message).as_deref(), Some("pack"));
        assert_eq!(last_name("no name"), None);
    }
}
