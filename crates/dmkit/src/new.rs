//! `dmkit new`: writes a crate for an index of your own, from the files in `template/`.

use std::fmt::Display;
use std::fs;
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use clap::{Args, ValueEnum};
use dm_bench::Registry;

/// The crate that the command writes.
#[derive(Debug, Clone, Args)]
pub(crate) struct New {
    /// The crate's name, which is also the name of its index in `bench`.
    name: String,
    /// The inner structure, which leads from a key to its leaf.
    #[arg(long, value_enum, default_value_t = Inner::Blink)]
    inner: Inner,
    /// The format of leaves.
    #[arg(long, value_enum, default_value_t = Leaf::TwoLevel)]
    leaf: Leaf,
    /// The directory to write; default: NAME in this directory.
    #[arg(long, value_name = "PATH")]
    at: Option<PathBuf>,
    /// dmkit itself: a checkout, or the address of a git repository. Default: the checkout in which this command was
    /// built, or the packages of this command's version in the registry if there is no such checkout.
    #[arg(long, value_name = "PATH|URL")]
    dmkit: Option<String>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Inner {
    /// B-link levels, whose nodes a client caches.
    Blink,
    /// A radix tree that contains the low fence key of each leaf.
    Separators,
    /// A structure of your own. The template has an array of fence keys, which clients fill while they work.
    Own,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Leaf {
    /// Unsorted entries, which a client reads whole.
    TwoLevel,
    /// A hopscotch table, of which a client reads a neighbourhood.
    Hopscotch,
}

/// The place of dmkit's crates, as a manifest gives it.
enum Source {
    Checkout(PathBuf),
    Git(String),
    /// The registry, with this command's version.
    Registry,
}

/// A file of the template: its path in the new crate, and its text.
type Text = (&'static str, &'static str);

/// Includes a file of the template.
macro_rules! text {
    ($path:literal from $file:literal) => {
        ($path, include_str!(concat!("../template/", $file)))
    };
}

/// The name of the index in the template's files, as a package and as a crate.
const NAME: [&str; 2] = ["my-index", "my_index"];

/// The text with which a manifest of the template names the directory of a dmkit crate.
const SIBLING: &str = "path = \"../../";

/// Names that the new crate cannot have: keywords, and crates that every program has.
const RESERVED: &str = "abstract alloc as async await become box break const continue core crate do dyn else enum \
    extern false final fn for gen if impl in let loop macro match mod move mut override priv proc_macro pub ref return \
    self static std struct super test trait true try type typeof unsafe unsized use virtual where while yield";

/// Writes the crate, and prints the next steps.
pub(crate) fn perform(asked: &New, registry: &Registry) -> io::Result<bool> {
    let files = files(asked, registry).map_err(io::Error::other)?;
    let at = asked.at.clone().unwrap_or_else(|| PathBuf::from(&asked.name));
    write(&at, &files).map_err(|e| io::Error::new(e.kind(), format!("{}: {e}", at.display())))?;
    let (name, at) = (&asked.name, at.display());
    let mut out = io::stdout().lock();
    writeln!(
        out,
        "{at}: a crate for the index {name:?}. Next:\n\n  cd {at}\n  cargo test"
    )?;
    writeln!(
        out,
        "  cargo run -- bench --index {name},chime --workload c,a,load,e --clients 16,64 --cns 4 --mns 4 --keys 50k \
         --ops 50k --warmup 500us"
    )?;
    Ok(true)
}

/// Returns the files of the crate: their paths and texts.
fn files(asked: &New, registry: &Registry) -> Result<Vec<(&'static str, String)>, String> {
    let template = template(asked.inner, asked.leaf);
    check_name(&asked.name, registry)?;
    let source = source(asked.dmkit.as_deref())?;
    let code: Vec<Text> = template
        .iter()
        .copied()
        .filter(|(path, _)| path.ends_with(".rs"))
        .collect();
    let [package, krate] = [asked.name.clone(), asked.name.replace('-', "_")];
    let texts = template.into_iter().map(|(path, text)| {
        let text = match path {
            "Cargo.toml" => manifest(text, &code, &source),
            _ => text.to_owned(),
        };
        (path, text.replace(NAME[0], &package).replace(NAME[1], &krate))
    });
    Ok(texts.collect())
}

/// Returns the files of the template that belong to these parts.
fn template(inner: Inner, leaf: Leaf) -> Vec<Text> {
    let mut files = vec![
        text!("Cargo.toml" from "manifest.toml"),
        text!("README.md" from "README.md"),
        text!(".gitignore" from "gitignore"),
        text!("src/lib.rs" from "lib.rs"),
        text!("src/main.rs" from "main.rs"),
        text!("tests/index/main.rs" from "tests/main.rs"),
        text!("tests/index/budget.rs" from "tests/budget.rs"),
        text!("tests/index/model.rs" from "tests/model.rs"),
        text!("tests/index/script.rs" from "tests/script.rs"),
    ];
    match inner {
        Inner::Blink => files.push(text!("src/inner/mod.rs" from "inner/blink.rs")),
        Inner::Separators => files.push(text!("src/inner/mod.rs" from "inner/separators.rs")),
        Inner::Own => files.extend([
            text!("src/inner/mod.rs" from "inner/own.rs"),
            text!("src/inner/array.rs" from "inner/array.rs"),
            text!("src/inner/fences.rs" from "inner/fences.rs"),
            text!("src/inner/walk.rs" from "inner/walk.rs"),
        ]),
    }
    files.extend(match leaf {
        Leaf::TwoLevel => [
            text!("src/leaf.rs" from "leaf/two_level.rs"),
            text!("tests/index/costs.rs" from "tests/costs/two_level.rs"),
        ],
        Leaf::Hopscotch => [
            text!("src/leaf.rs" from "leaf/hopscotch.rs"),
            text!("tests/index/costs.rs" from "tests/costs/hopscotch.rs"),
        ],
    });
    files
}

/// Returns the manifest. Of dmkit's crates, it has only those as dependencies that the code uses, each with its place.
fn manifest(text: &str, code: &[Text], source: &Source) -> String {
    let used = |package: &str| {
        let krate = format!("{}::", package.replace('-', "_"));
        code.iter().any(|(_, text)| text.contains(&krate))
    };
    let mut manifest = String::new();
    for line in text.lines() {
        let Some((package, rest)) = line.split_once(" = { path = \"../../") else {
            manifest += &format!("{line}\n");
            continue;
        };
        let rest = rest.trim_end_matches(" }").trim_end_matches('"');
        if used(package) {
            let place = match source {
                Source::Checkout(root) => {
                    format!("path = {}", quoted(root.join("crates").join(rest).display()))
                }
                Source::Git(url) => format!("git = {}", quoted(url)),
                Source::Registry => format!("version = {}", quoted(env!("CARGO_PKG_VERSION"))),
            };
            manifest += &format!("{package} = {{ {place} }}\n");
        }
    }
    manifest
}

/// Returns a string of TOML.
fn quoted(text: impl Display) -> String {
    let text = text.to_string().replace('\\', "\\\\").replace('"', "\\\"");
    format!("\"{text}\"")
}

/// Returns an error if a crate must not have this name, if an index of `registry` has it, or if a crate of dmkit that
/// the template's manifest lists has it.
fn check_name(name: &str, registry: &Registry) -> Result<(), String> {
    let refuse = |why: &str| Err(format!("{name:?} is not a valid name for the crate: {why}"));
    let allowed = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-' || c == '_';
    if !name.starts_with(|c: char| c.is_ascii_lowercase()) || !name.chars().all(allowed) {
        return refuse("use lower-case letters, digits, `-` and `_`, a letter first");
    }
    if name.len() > 64 {
        return refuse("use at most 64 characters");
    }
    let krate = name.replace('-', "_");
    if RESERVED.split_whitespace().any(|word| word == krate) {
        return refuse("it is a reserved word of Rust");
    }
    if registry.entries().iter().any(|entry| entry.name() == name) {
        return refuse("an index of this command has this name");
    }
    let ours = format!("\n{name} = {{ {SIBLING}");
    if template(Inner::Blink, Leaf::TwoLevel)
        .iter()
        .any(|(_, text)| text.contains(&ours))
    {
        return refuse("a crate of dmkit has this name");
    }
    Ok(())
}

/// Returns the place at which the new crate finds dmkit.
fn source(asked: Option<&str>) -> Result<Source, String> {
    let is_checkout = |root: &Path| root.join("crates/dm-verbs/Cargo.toml").is_file();
    let built_in = concat!(env!("CARGO_MANIFEST_DIR"), "/../..");
    let Some(asked) = asked else {
        return Ok(match fs::canonicalize(built_in) {
            Ok(root) if is_checkout(&root) => Source::Checkout(root),
            _ => Source::Registry,
        });
    };
    if asked.contains("://") || asked.starts_with("git@") {
        return Ok(Source::Git(asked.to_owned()));
    }
    match fs::canonicalize(asked) {
        Ok(root) if is_checkout(&root) => Ok(Source::Checkout(root)),
        Ok(root) => Err(format!(
            "{} is not a checkout of dmkit: it has no crates/dm-verbs",
            root.display()
        )),
        Err(e) => Err(format!(
            "{asked}: {e}; give a checkout of dmkit, or an address such as https://…"
        )),
    }
}

/// Writes the files below `at`, which must be empty or missing.
fn write(at: &Path, files: &[(&str, String)]) -> io::Result<()> {
    fs::create_dir_all(at)?;
    if fs::read_dir(at)?.next().is_some() {
        return Err(io::Error::new(
            io::ErrorKind::AlreadyExists,
            "the directory is not empty; choose another one with --at",
        ));
    }
    for (path, text) in files {
        let path = at.join(path);
        fs::create_dir_all(path.parent().unwrap_or(at))?;
        fs::write(path, text)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn asked(name: &str, inner: Inner, leaf: Leaf) -> New {
        New {
            name: name.to_owned(),
            inner,
            leaf,
            at: None,
            dmkit: None,
        }
    }

    #[test]
    fn every_pair_of_parts_makes_a_crate_that_names_what_it_uses() {
        let registry = dm_shipped::shipped();
        for inner in [Inner::Blink, Inner::Separators, Inner::Own] {
            for leaf in [Leaf::TwoLevel, Leaf::Hopscotch] {
                let files = files(&asked("swift-2", inner, leaf), &registry).expect("a name");
                for (path, text) in &files {
                    let left = [NAME[0], NAME[1], SIBLING].iter().any(|word| text.contains(word));
                    assert!(!left, "{inner:?} {leaf:?}, {path}: {text}");
                }
                let text = |path: &str| &files.iter().find(|(at, _)| *at == path).expect(path).1;
                let manifest = text("Cargo.toml");
                assert!(manifest.contains("name = \"swift-2\""), "{manifest}");
                for (package, used) in [
                    ("dm-blink", inner == Inner::Blink),
                    ("dm-art", inner == Inner::Separators),
                    ("dm-hopscotch", leaf == Leaf::Hopscotch),
                    ("dm-explore", true),
                    ("dmkit", true),
                ] {
                    assert_eq!(
                        manifest.contains(&format!("\n{package} = ")),
                        used,
                        "{package}: {manifest}"
                    );
                }
                assert!(text("src/main.rs").contains("use swift_2::"));
            }
        }
    }

    #[test]
    fn dependencies_come_from_a_checkout_or_from_git() {
        let registry = dm_shipped::shipped();
        let mut new = asked("mine", Inner::Own, Leaf::Hopscotch);
        let manifest = |new: &New| files(new, &registry).map(|files| files[0].1.clone());
        new.dmkit = Some("https://example.org/dmkit".to_owned());
        let text = manifest(&new).expect("an address");
        assert!(
            text.contains("dm-verbs = { git = \"https://example.org/dmkit\" }"),
            "{text}"
        );
        new.dmkit = Some(concat!(env!("CARGO_MANIFEST_DIR"), "/../..").to_owned());
        let text = manifest(&new).expect("a checkout");
        assert!(
            text.contains("/crates/dm-verbs\" }") && !text.contains(".."),
            "{text}"
        );
        new.dmkit = Some(env!("CARGO_MANIFEST_DIR").to_owned());
        assert!(
            manifest(&new)
                .expect_err("not a checkout")
                .contains("not a checkout")
        );
        let line = "dm-verbs = { path = \"../../dm-verbs\" }";
        let code = [("src/lib.rs", "use dm_verbs::Verbs;")];
        let expected = concat!("dm-verbs = { version = \"", env!("CARGO_PKG_VERSION"), "\" }\n");
        assert_eq!(super::manifest(line, &code, &Source::Registry), expected);
        assert_eq!(quoted("a\"b\\c"), r#""a\"b\\c""#);
    }

    #[test]
    fn names_that_no_crate_may_have_are_refused() {
        let registry = dm_shipped::shipped();
        let long = "a".repeat(65);
        for name in [
            "", "2tree", "-x", "_x", "Tree", "a b", "a/b", "../a", "é", "match", "std", "chime", "dm-verbs",
            "dmkit", &long,
        ] {
            let refused = check_name(name, &registry).expect_err(name);
            assert!(refused.contains("is not a valid name"), "{refused}");
        }
        for name in ["mine", "my-index", "tree_2"] {
            assert_eq!(check_name(name, &registry), Ok(()));
        }
    }

    #[test]
    fn a_directory_with_something_in_it_is_left_alone() {
        let at = std::env::temp_dir().join(format!("dmkit-new-{}", std::process::id()));
        let files = [("src/lib.rs", "//! Mine.\n".to_owned())];
        write(&at, &files).expect("it is missing");
        let again = write(&at, &[("src/lib.rs", String::new())]).expect_err("it is not empty");
        assert_eq!(again.kind(), io::ErrorKind::AlreadyExists);
        assert_eq!(
            fs::read_to_string(at.join("src/lib.rs")).expect("written"),
            "//! Mine.\n"
        );
        fs::remove_dir_all(at.join("src")).expect("it is ours");
        write(&at, &files).expect("it is empty");
        fs::remove_dir_all(&at).expect("it is ours");
    }

    #[test]
    fn every_file_of_the_template_is_used() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("template");
        let parts = [
            (Inner::Blink, Leaf::TwoLevel),
            (Inner::Separators, Leaf::Hopscotch),
            (Inner::Own, Leaf::Hopscotch),
        ];
        let used: Vec<Text> = parts
            .into_iter()
            .flat_map(|(inner, leaf)| template(inner, leaf))
            .collect();
        let mut dirs = vec![root];
        while let Some(dir) = dirs.pop() {
            for entry in fs::read_dir(dir).expect("the template") {
                let path = entry.expect("a file").path();
                if path.is_dir() {
                    dirs.push(path);
                    continue;
                }
                let text = fs::read_to_string(&path).expect("a text");
                assert!(used.iter().any(|(_, other)| *other == text), "{}", path.display());
            }
        }
    }
}
