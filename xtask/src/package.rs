//! `package`: checks that a registry would accept the crates, and that they compile from their packages alone.

use crate::{
    Result,
    workspace::{self, Package},
};
use std::{
    fmt::Write as _,
    fs,
    path::{Path, PathBuf},
};
use xshell::{Shell, cmd};

/// Files that every package contains.
const FILES: [&str; 4] = ["Cargo.toml", "README.md", "LICENSE-MIT", "LICENSE-APACHE"];
/// The host name example.org is reserved for examples (RFC 2606), so an address with it is a placeholder.
const PLACEHOLDER: &str = "://example.org/";
/// The crate that is packaged but not compiled, because it needs RDMA packages. `cargo xtask rxe` compiles it.
const NEEDS_RDMA: &str = "dm-ib";

/// Makes the package of every published crate, and checks that it contains [`FILES`].
pub(crate) fn contents(root: &Path) -> Result<()> {
    let unpacked = Unpacked::make(root)?;
    eprintln!("{} packages are complete", unpacked.packages.len());
    Ok(())
}

/// Makes and checks the packages, compiles all crates except dm-ib from them, and asks the registry's client whether it
/// would upload them.
pub(crate) fn run(root: &Path) -> Result<()> {
    let unpacked = Unpacked::make(root)?;
    unpacked.compile(root)?;
    let shell = Shell::new()?;
    shell.change_dir(root);
    // The crates were compiled above, in one build. Without `--no-verify`, this command would compile each of them
    // alone.
    cmd!(
        shell,
        "cargo publish --workspace --dry-run --no-verify --allow-dirty --quiet"
    )
    .run()?;
    eprintln!("{} packages could be published", unpacked.packages.len());
    if let Some(note) = unpacked.packages.iter().find_map(placeholder) {
        eprintln!("{note}");
    }
    Ok(())
}

/// Returns what the maintainer must do if the repository's address is a placeholder.
fn placeholder(package: &Package) -> Option<String> {
    let address = package.repository.as_deref().unwrap_or_default();
    (address.is_empty() || address.contains(PLACEHOLDER)).then(|| {
        format!(
            "note: the repository's address {address:?} is a placeholder. Before the first release, put the real one into \
             `repository` of [workspace.package] in Cargo.toml, which is the only place that has it"
        )
    })
}

/// The packages as a user of the registry gets them, each unpacked into its own directory.
struct Unpacked {
    dir: PathBuf,
    packages: Vec<Package>,
}

impl Unpacked {
    /// Makes and unpacks all packages, and checks that no file is missing.
    fn make(root: &Path) -> Result<Self> {
        let members = workspace::packages(root)?;
        let (packages, internal): (Vec<_>, Vec<_>) = members.into_iter().partition(Package::is_published);
        let shell = Shell::new()?;
        shell.change_dir(root);
        let without = internal
            .iter()
            .flat_map(|package| ["--exclude", package.name.as_str()]);
        // The checkout of a change under test may be dirty.
        cmd!(
            shell,
            "cargo package --workspace {without...} --no-verify --allow-dirty --offline --quiet"
        )
        .run()?;
        let made = workspace::target_directory(root)?.join("package");
        let dir = made.join("unpacked");
        // A package that was made earlier could hide that a file is missing.
        if dir.exists() {
            fs::remove_dir_all(&dir)?;
        }
        fs::create_dir_all(&dir)?;
        for package in &packages {
            let (name, version) = (&package.name, &package.version);
            let archive = made.join(format!("{name}-{version}.crate"));
            cmd!(shell, "tar -xzf {archive} -C {dir}").quiet().run()?;
            let missing = missing(&dir.join(format!("{name}-{version}")));
            if !missing.is_empty() {
                return Err(format!("the package of {name} lacks {}", missing.join(", ")).into());
            }
        }
        Ok(Self { dir, packages })
    }

    /// Compiles the crates from their packages, as one workspace in which each crate finds the others.
    fn compile(&self, root: &Path) -> Result<()> {
        fs::write(self.dir.join("Cargo.toml"), manifest(&self.packages))?;
        // This build uses the same versions of foreign crates as the tests.
        fs::copy(root.join("Cargo.lock"), self.dir.join("Cargo.lock"))?;
        let shell = Shell::new()?;
        shell.change_dir(&self.dir);
        // This build does not replace the normal one, and stays when the packages are made again.
        shell.set_var(
            "CARGO_TARGET_DIR",
            workspace::target_directory(root)?.join("packages"),
        );
        Ok(cmd!(
            shell,
            "cargo check --workspace --exclude {NEEDS_RDMA} --lib --bins --features dmkit/eval"
        )
        .run()?)
    }
}

/// Returns the names of the files that are missing in a package.
fn missing(unpacked: &Path) -> Vec<&'static str> {
    FILES
        .into_iter()
        .filter(|file| !unpacked.join(file).is_file())
        .collect()
}

/// Returns the manifest of a workspace of the unpacked packages.
fn manifest(packages: &[Package]) -> String {
    let mut text = "[workspace]\nresolver = \"3\"\nmembers = [\"*-*\"]\n\n[patch.crates-io]\n".to_owned();
    for Package { name, version, .. } in packages {
        // Writing to a string cannot fail.
        _ = writeln!(text, "{name} = {{ path = \"{name}-{version}\" }}");
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn package(repository: &str) -> Package {
        Package {
            name: "dm-a".to_owned(),
            version: "0.1.0".to_owned(),
            targets: Vec::new(),
            manifest_path: PathBuf::from("/crates/a/Cargo.toml"),
            publish: None,
            rust_version: None,
            repository: Some(repository.to_owned()),
        }
    }

    #[test]
    fn a_placeholder_is_told_and_an_address_is_not() {
        assert!(
            placeholder(&package("https://example.org/dmkit"))
                .is_some_and(|note| note.contains("Cargo.toml"))
        );
        assert!(placeholder(&package("")).is_some());
        assert!(placeholder(&package("https://git.example.net/dmkit")).is_none());
    }

    #[test]
    fn a_missing_file_is_named() {
        let dir = std::env::temp_dir().join(format!("xtask-package-{}", std::process::id()));
        fs::create_dir_all(&dir).unwrap();
        for file in &FILES[..3] {
            fs::write(dir.join(file), "").unwrap();
        }
        assert_eq!(missing(&dir), ["LICENSE-APACHE"]);
        fs::remove_dir_all(dir).unwrap();
    }

    #[test]
    fn crates_that_are_not_published_are_known_and_every_other_one_has_its_words() {
        #[derive(serde::Deserialize)]
        struct Words {
            keywords: Vec<String>,
            categories: Vec<String>,
            description: Option<String>,
        }
        let root = workspace::root().unwrap();
        let internal: Vec<_> = workspace::packages(&root)
            .unwrap()
            .into_iter()
            .filter(|package| !package.is_published())
            .map(|package| package.name)
            .collect();
        assert_eq!(internal, ["dmkit-examples", "xtask"]);
        #[derive(serde::Deserialize)]
        struct All {
            packages: Vec<Words>,
        }
        let All { packages } = workspace::metadata(&root).unwrap();
        let wordless = packages.iter().filter(|words| {
            words.keywords.is_empty() || words.categories.is_empty() || words.description.is_none()
        });
        assert_eq!(wordless.count(), internal.len());
    }

    #[test]
    fn each_unpacked_crate_finds_the_others() {
        let text = manifest(&[package("")]);
        assert!(text.contains("\ndm-a = { path = \"dm-a-0.1.0\" }\n"), "{text}");
    }
}
