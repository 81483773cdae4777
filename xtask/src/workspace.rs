//! The workspace as cargo describes it: its root, its packages and their targets.

use crate::Result;
use serde::Deserialize;
use std::{
    path::{Path, PathBuf},
    process::Command,
};

/// One member of the workspace, as `cargo metadata --no-deps` prints it.
#[derive(Clone, Debug, Deserialize)]
pub(crate) struct Package {
    /// The package's name.
    pub(crate) name: String,
    /// The version.
    pub(crate) version: String,
    /// The package's library, binaries, examples and tests.
    pub(crate) targets: Vec<Target>,
    /// The path of the package's `Cargo.toml`.
    pub(crate) manifest_path: PathBuf,
    /// The registries that accept the package: any if `None`, and none if the list is empty.
    pub(crate) publish: Option<Vec<String>>,
    /// The oldest compiler that the manifest promises.
    pub(crate) rust_version: Option<String>,
    /// The address of the repository, from the workspace's `Cargo.toml`.
    pub(crate) repository: Option<String>,
}

impl Package {
    /// Returns the name of the package's directory. The façades' packages have another name, because the registry has
    /// packages with the names of the papers' indexes.
    pub(crate) fn folder(&self) -> &str {
        let folder = self.manifest_path.parent().and_then(Path::file_name);
        folder.and_then(|name| name.to_str()).unwrap_or(&self.name)
    }

    /// Returns whether the package goes to a registry.
    pub(crate) fn is_published(&self) -> bool {
        self.publish
            .as_ref()
            .is_none_or(|registries| !registries.is_empty())
    }
}

/// One target that cargo builds of a package.
#[derive(Clone, Debug, Deserialize)]
pub(crate) struct Target {
    /// The target's name. A test is named after its file.
    pub(crate) name: String,
    /// "lib", "bin", "example", "test", "bench", "custom-build" …
    pub(crate) kind: Vec<String>,
}

#[derive(Deserialize)]
struct Metadata {
    packages: Vec<Package>,
}

#[derive(Deserialize)]
struct Build {
    target_directory: PathBuf,
}

/// Returns the workspace's root directory, which is the parent of this crate's own.
pub(crate) fn root() -> Result<PathBuf> {
    let own = Path::new(env!("CARGO_MANIFEST_DIR"));
    let root = own.parent().ok_or("xtask has no parent directory")?;
    if !root.join("Cargo.toml").is_file() {
        return Err(format!(
            "{} holds no Cargo.toml: if the workspace was moved, build xtask again",
            root.display()
        )
        .into());
    }
    Ok(root.to_path_buf())
}

/// Returns the members of the workspace at `root`.
pub(crate) fn packages(root: &Path) -> Result<Vec<Package>> {
    Ok(metadata::<Metadata>(root)?.packages)
}

/// Returns the names of the members' directories, which traces and debug information contain.
pub(crate) fn folders(root: &Path) -> Result<Vec<String>> {
    let members = packages(root)?;
    Ok(members
        .iter()
        .map(|package| package.folder().to_owned())
        .collect())
}

/// Returns the directory of the workspace's builds.
pub(crate) fn target_directory(root: &Path) -> Result<PathBuf> {
    Ok(metadata::<Build>(root)?.target_directory)
}

/// Runs `cargo metadata` on the workspace at `root` and parses its output.
pub(crate) fn metadata<T: for<'de> Deserialize<'de>>(root: &Path) -> Result<T> {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let output = Command::new(cargo)
        .args(["metadata", "--no-deps", "--format-version", "1", "--offline"])
        .current_dir(root)
        .output()?;
    if !output.status.success() {
        return Err(format!(
            "cargo metadata failed: {}",
            String::from_utf8_lossy(&output.stderr).trim()
        )
        .into());
    }
    Ok(serde_json::from_slice(&output.stdout)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Deserialize)]
    struct Members {
        workspace_members: Vec<String>,
        workspace_default_members: Vec<String>,
    }

    /// A plain `cargo build` builds all crates except the one that needs RDMA packages.
    #[test]
    fn every_member_but_dm_ib_is_a_default_one() {
        let Members {
            workspace_members: mut all,
            workspace_default_members: mut default,
        } = metadata(&root().unwrap()).unwrap();
        let count = all.len();
        all.retain(|id| !id.contains("/crates/dm-ib#"));
        assert_eq!(all.len(), count - 1);
        all.sort_unstable();
        default.sort_unstable();
        assert_eq!(default, all);
    }
}
