//! Rule `floors`: the house has floors, and a crate uses only crates below its own (dev-dependencies exempt). The picture of the
//! house shows each where it stands.

use super::{Finding, tree::Tree};
use std::collections::BTreeSet;

/// Every crate's floor. A new crate is placed here before it can use or be used.
const FLOORS: &[(u8, &[&str])] = &[
    (0, &["dm-sync", "dm-layout"]),
    (1, &["dm-verbs", "dm-history", "dm-control"]),
    (
        2,
        &[
            "dm-index",
            "dm-loopback",
            "dm-sim",
            "dm-explore",
            "dm-ib",
            // What clients do is drawn without any index, and test kits above it draw from it.
            "dm-workload",
        ],
    ),
    (3, &["dm-alloc", "dm-lock", "dm-combine", "dm-cache"]),
    (4, &["dm-leaf", "dm-art", "dm-blink", "dm-indirect"]),
    // Around whole nodes of dm-leaf's.
    (5, &["dm-hopscotch", "dm-testkit"]),
    (6, &["sherman", "smart", "chime", "dolphin"]),
    (7, &["dm-models"]),
    (8, &["dmkit"]),
];

/// The page that begins with the picture: lines that begin with a floor's number, or go on with its crates.
const PICTURE: &str = "docs/ARCHITECTURE.md";

/// Not part of the house: may use any crate, and no crate may use it.
const OUTSIDE: &str = "xtask";

fn floor(name: &str) -> Option<u8> {
    FLOORS
        .iter()
        .find(|(_, names)| names.contains(&name))
        .map(|(floor, _)| *floor)
}

pub(super) fn check(tree: &Tree) -> Vec<Finding> {
    let mut found = Vec::new();
    for package in tree.packages() {
        let manifest = tree.relative(&package.manifest_path);
        let dir = manifest.rsplit('/').nth(1).unwrap_or_default();
        if dir != package.name {
            found.push(Finding::error(
                &manifest,
                0,
                format!(
                    "directory `{dir}` holds package `{}`: name both alike",
                    package.name
                ),
            ));
        }
        if package.name == OUTSIDE {
            continue;
        }
        let Some(own) = floor(&package.name) else {
            found.push(Finding::error(
                &manifest,
                0,
                format!(
                    "`{}` has no floor: give it one in xtask/src/tidy/floors.rs",
                    package.name
                ),
            ));
            continue;
        };
        let ours = package
            .dependencies
            .iter()
            .filter(|dependency| dependency.path.is_some());
        for dependency in ours.filter(|dependency| dependency.kind.as_deref() != Some("dev")) {
            let problem = match floor(&dependency.name) {
                Some(used) if used < own => continue,
                Some(used) => format!("is on floor {used}: only floors below {own} may be used"),
                None => "is not part of the house".to_owned(),
            };
            found.push(Finding::error(
                &manifest,
                0,
                format!(
                    "`{}` is on floor {own} and uses `{}`, which {problem}",
                    package.name, dependency.name
                ),
            ));
        }
    }
    found.extend(drawn(tree));
    found
}

fn drawn(tree: &Tree) -> Vec<Finding> {
    let Some(page) = tree.file(PICTURE) else {
        return Vec::new();
    };
    let picture = page.lines().skip_while(|line| !line.starts_with("```")).skip(1);
    let mut here = None;
    let mut seen = BTreeSet::new();
    for line in picture.take_while(|line| !line.starts_with("```")) {
        let mut words = line.split_whitespace().peekable();
        if let Some(number) = words.peek().and_then(|word| word.parse().ok()) {
            here = Some(number);
        }
        seen.extend(words.map(|word| (here, word)));
    }
    let crates = FLOORS
        .iter()
        .flat_map(|(floor, names)| names.iter().map(move |name| (*floor, *name)));
    crates
        .filter(|(floor, name)| !seen.contains(&(Some(*floor), *name)))
        .map(|(floor, name)| Finding::error(PICTURE, 0, format!("`{name}` is not drawn on floor {floor}")))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::{super::tree::sample, *};
    use crate::workspace::{Dependency, Package};
    use std::path::PathBuf;

    fn package(dir: &str, name: &str, uses: &[(&str, Option<&str>)]) -> Package {
        Package {
            name: name.to_owned(),
            manifest_path: PathBuf::from(format!("/sample/crates/{dir}/Cargo.toml")),
            dependencies: uses
                .iter()
                .map(|(name, kind)| Dependency {
                    name: (*name).to_owned(),
                    kind: kind.map(str::to_owned),
                    path: Some(PathBuf::from("/sample/crates")),
                })
                .collect(),
            targets: Vec::new(),
        }
    }

    fn messages(packages: Vec<Package>) -> Vec<String> {
        check(&sample([]).with_packages(packages))
            .into_iter()
            .map(|finding| finding.message)
            .collect()
    }

    #[test]
    fn lower_floors_and_upward_dev_dependencies_pass() {
        let uses = [
            ("dm-sync", None),
            ("dm-layout", Some("build")),
            ("sherman", Some("dev")),
        ];
        assert!(messages(vec![package("dm-verbs", "dm-verbs", &uses)]).is_empty());
    }

    #[test]
    fn the_own_floor_and_higher_ones_fail() {
        let found = messages(vec![package(
            "dm-lock",
            "dm-lock",
            &[("dm-alloc", None), ("sherman", Some("build"))],
        )]);
        assert_eq!(
            found,
            [
                "`dm-lock` is on floor 3 and uses `dm-alloc`, which is on floor 3: only floors below 3 may be used",
                "`dm-lock` is on floor 3 and uses `sherman`, which is on floor 6: only floors below 3 may be used",
            ]
        );
    }

    #[test]
    fn an_unknown_crate_and_a_use_of_xtask_fail() {
        let found = messages(vec![
            package("dm-new", "dm-new", &[]),
            package("dmkit", "dmkit", &[("xtask", None)]),
        ]);
        assert_eq!(found.len(), 2, "{found:?}");
        assert!(found[0].contains("has no floor") && found[1].contains("not part of the house"));
    }

    #[test]
    fn a_directory_of_another_name_fails() {
        let found = messages(vec![package("sync", "dm-sync", &[])]);
        assert_eq!(
            found,
            ["directory `sync` holds package `dm-sync`: name both alike"]
        );
    }

    #[test]
    fn a_crate_that_is_drawn_elsewhere_is_found() {
        let mut picture = String::from("# House\n```text\n");
        for (floor, names) in FLOORS {
            picture += &format!("  {floor}   {}   and words\n", names.join("\n      "));
        }
        let sound = format!("{picture}```\n");
        let wrong = sound.replace("  8   dmkit ", "      dmkit ");
        assert!(drawn(&sample([(PICTURE, &sound)])).is_empty());
        let found: Vec<_> = drawn(&sample([(PICTURE, &wrong)]))
            .into_iter()
            .map(|finding| finding.message)
            .collect();
        assert_eq!(found, ["`dmkit` is not drawn on floor 8"]);
    }

    #[test]
    fn foreign_crates_have_no_floor() {
        let mut package = package("dm-sync", "dm-sync", &[("libc", None)]);
        package.dependencies[0].path = None;
        assert!(messages(vec![package]).is_empty());
    }
}
