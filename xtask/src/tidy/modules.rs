//! Rule `dead-files`: a source file that no `mod` reaches is compiled by nobody and rots.

use super::{
    Finding,
    tree::{Place, Tree},
};
use std::collections::BTreeSet;

pub(super) fn dead_files(tree: &Tree) -> Vec<Finding> {
    let mut reached = BTreeSet::new();
    for target in tree.packages().iter().flat_map(|package| &package.targets) {
        reach(tree, tree.relative(&target.src_path), true, &mut reached);
    }
    // `fuzz` is a workspace of its own: this one's metadata says nothing of it.
    tree.rust_files()
        .filter(|file| file.place != Place::Outside && file.package != "fuzz" && !reached.contains(file.path))
        .map(|file| Finding::error(file.path, 0, "no `mod` reaches this file: name it or remove it"))
        .collect()
}

/// Follows every `mod name;` from `path` on. `is_root` files look for their modules beside themselves.
fn reach(tree: &Tree, path: String, is_root: bool, reached: &mut BTreeSet<String>) {
    let Some(source) = tree.source(&path) else { return };
    let dir = path.rsplit_once('/').map_or("", |(dir, _)| dir).to_owned();
    let beside = if is_root || path.ends_with("/mod.rs") {
        dir.clone()
    } else {
        path.trim_end_matches(".rs").to_owned()
    };
    if !reached.insert(path) {
        return;
    }
    for module in source.mod_files() {
        let mut home = beside.clone();
        for part in &module.inside {
            home = format!("{home}/{part}");
        }
        let candidates = match &module.path {
            Some(odd) if module.inside.is_empty() => vec![format!("{dir}/{odd}")],
            Some(odd) => vec![format!("{home}/{odd}")],
            None => vec![
                format!("{home}/{}.rs", module.name),
                format!("{home}/{}/mod.rs", module.name),
            ],
        };
        for candidate in candidates {
            reach(tree, candidate, false, reached);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{super::tree::sample, *};
    use crate::workspace::{Package, Target};

    #[test]
    fn only_the_unreached_file_is_dead() {
        let package = Package {
            name: "dm-a".to_owned(),
            manifest_path: "/sample/crates/dm-a/Cargo.toml".into(),
            dependencies: Vec::new(),
            targets: vec![Target {
                name: "dm-a".to_owned(),
                kind: vec!["lib".to_owned()],
                src_path: "/sample/crates/dm-a/src/lib.rs".into(),
            }],
        };
        let tree = sample([
            (
                "crates/dm-a/src/lib.rs",
                "mod b;\nmod old;\nmod inline { mod deep; }\n#[path = \"odd_name.rs\"] mod odd;",
            ),
            ("crates/dm-a/src/b.rs", "mod tests;\n// mod dead;"),
            ("crates/dm-a/src/b/tests.rs", ""),
            ("crates/dm-a/src/inline/deep.rs", ""),
            ("crates/dm-a/src/odd_name.rs", ""),
            ("crates/dm-a/src/old/mod.rs", "mod inner;"),
            ("crates/dm-a/src/old/inner.rs", ""),
            ("crates/dm-a/src/b/dead.rs", ""),
            ("crates/dm-a/tests/t.rs", ""),
        ])
        .with_packages(vec![package]);
        let found: Vec<_> = dead_files(&tree)
            .into_iter()
            .map(|finding| finding.path)
            .collect();
        assert_eq!(found, ["crates/dm-a/src/b/dead.rs"]);
    }
}
