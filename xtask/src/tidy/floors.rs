//! Rule `floors`: a crate may only depend on crates of lower floors. The picture in docs/ARCHITECTURE.md is the only
//! list of floors. A line of the picture begins with a floor's number, or continues the list of crates of the previous
//! floor.

use super::{Finding, finding, tree::Tree};
use std::collections::BTreeMap;
use toml::{Table, Value};

const PICTURE: &str = "docs/ARCHITECTURE.md";

pub(super) fn check(tree: &Tree) -> Vec<Finding> {
    let floors = floors(tree.text(PICTURE));
    let mut found = Vec::new();
    for (path, text) in tree.files("/Cargo.toml") {
        let manifest: Table = text.parse().unwrap_or_default();
        let name = || manifest.get("package")?.get("name")?.as_str();
        let Some(name) = name().filter(|_| path.starts_with("crates/")) else {
            continue;
        };
        let Some(own) = floors.get(name) else {
            found.push(finding(
                path,
                1,
                format!("no `{name}` in the picture in {PICTURE}"),
            ));
            continue;
        };
        // Crates of other workspaces have no floor.
        let used = uses(&manifest).filter_map(|used| Some((used, floors.get(used)?)));
        for (used, floor) in used.filter(|(_, floor)| *floor >= own) {
            let message = format!("a crate on floor {own} may not use `{used}` on floor {floor}");
            found.push(finding(path, 1, message));
        }
    }
    found
}

/// Returns the floor of every word in the picture. Words that are not names of crates are included too, but nobody
/// looks them up.
fn floors(page: &str) -> BTreeMap<&str, u8> {
    let (mut floor, mut found) = (0, BTreeMap::new());
    for line in page.split("```").nth(1).unwrap_or_default().lines() {
        let mut words = line.split_whitespace().peekable();
        floor = words.peek().and_then(|word| word.parse().ok()).unwrap_or(floor);
        words.for_each(|word| _ = found.entry(word).or_insert(floor));
    }
    found
}

/// Returns the dependencies of a package, without the dependencies of its tests.
fn uses(manifest: &Table) -> impl Iterator<Item = &str> {
    let targets = manifest.get("target").and_then(Value::as_table);
    let targets = targets.into_iter().flat_map(Table::values);
    let tables = targets.filter_map(Value::as_table).chain([manifest]);
    let kinds = tables.flat_map(|table| ["dependencies", "build-dependencies"].map(|kind| table.get(kind)));
    let used = kinds.flatten().filter_map(Value::as_table).flat_map(Table::keys);
    used.map(String::as_str)
}

#[cfg(test)]
mod tests {
    #[test]
    fn a_use_of_no_lower_floor_and_a_crate_that_is_not_drawn_are_found() {
        let sample = r#"== docs/ARCHITECTURE.md
```text
 2  a   higher
 1  b   and words
    c
 0  d
```
== crates/a/Cargo.toml
package.name = "a"
dependencies = { b = "1", foreign = "1" }
== crates/b/Cargo.toml
package.name = "b"
target.'cfg(x)'.dependencies.c = "1"
== crates/c/Cargo.toml
package.name = "c"
dev-dependencies.a.workspace = true
== crates/d/Cargo.toml
package.name = "d"
build-dependencies.a.workspace = true
== crates/e/Cargo.toml
package.name = "e"
"#;
        let expected = "crates/b/Cargo.toml:1 crates/d/Cargo.toml:1 crates/e/Cargo.toml:1";
        super::super::expect(super::check, sample, expected);
    }
}
