//! `layout`: draws the byte pictures in `docs/layout` from the types themselves, so that the pictures agree with the
//! types.

use crate::Result;
use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::Path,
};

/// The directory of the pages, relative to the root. It contains no other files.
const DIR: &str = "docs/layout";

/// The first line of every page.
const NOTE: &str = "<!-- Drawn by `cargo xtask layout` from the types; change those. -->\n\n";

/// Draws every page again, and removes all other files of the directory. With `check`, changes nothing, and returns an
/// error that names the pages that differ from the types.
pub(crate) fn run(root: &Path, check: bool) -> Result<()> {
    let dir = root.join(DIR);
    let (wanted, present) = (pages(), present(&dir)?);
    let problems = compare(&wanted, &present);
    if check {
        return match problems.as_slice() {
            [] => Ok(()),
            _ => Err(format!("{}; run `cargo xtask layout`", problems.join("; ")).into()),
        };
    }
    fs::create_dir_all(&dir)?;
    for name in present.keys().filter(|name| !wanted.contains_key(*name)) {
        fs::remove_file(dir.join(name))?;
    }
    for (name, page) in &wanted {
        fs::write(dir.join(name), page)?;
    }
    for problem in problems {
        println!("{problem}: redrawn");
    }
    Ok(())
}

/// Returns every page by its file name.
fn pages() -> BTreeMap<String, String> {
    let pictures = dm_layout::picture::pictures();
    let mut contents = format!("{NOTE}# Byte pictures\n\n");
    let mut pages = BTreeMap::new();
    for (stem, picture) in pictures {
        let title = picture
            .lines()
            .find_map(|line| line.strip_prefix("# "))
            .unwrap_or(stem);
        contents += &format!("- [{title}]({stem}.md)\n");
        pages.insert(format!("{stem}.md"), format!("{NOTE}{}\n", picture.trim()));
    }
    pages.insert("README.md".to_owned(), contents);
    pages
}

/// Returns the content of every file of `dir` by the file's name, or nothing if there is no such directory.
fn present(dir: &Path) -> Result<BTreeMap<String, String>> {
    let mut files = BTreeMap::new();
    if dir.is_dir() {
        for entry in fs::read_dir(dir)? {
            let path = entry?.path();
            let name = path
                .file_name()
                .unwrap_or_default()
                .to_string_lossy()
                .into_owned();
            files.insert(name, fs::read_to_string(path)?);
        }
    }
    Ok(files)
}

/// Returns one sentence for every page that is missing, differs or should not be there.
fn compare(wanted: &BTreeMap<String, String>, present: &BTreeMap<String, String>) -> Vec<String> {
    let names: BTreeSet<_> = wanted.keys().chain(present.keys()).collect();
    let verdict = |name: &String| match (wanted.get(name), present.get(name)) {
        (Some(page), Some(file)) if page == file => None,
        (Some(page), Some(file)) => {
            let line = page
                .lines()
                .zip(file.lines())
                .take_while(|(page, file)| page == file)
                .count()
                + 1;
            Some(format!("{DIR}/{name}:{line} differs from the types"))
        }
        (Some(_), None) => Some(format!("{DIR}/{name} is missing")),
        (None, _) => Some(format!("{DIR}/{name} belongs to no type")),
    };
    names.into_iter().filter_map(verdict).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn map<const N: usize>(files: [(&str, &str); N]) -> BTreeMap<String, String> {
        files
            .map(|(name, text)| (name.to_owned(), text.to_owned()))
            .into()
    }

    #[test]
    fn a_changed_a_missing_and_a_stale_page_are_named() {
        let wanted = map([("a.md", "1\n2\n"), ("b.md", "b"), ("c.md", "c")]);
        let present = map([("a.md", "1\n3\n"), ("c.md", "c"), ("d.md", "d")]);
        assert_eq!(
            compare(&wanted, &present),
            [
                "docs/layout/a.md:2 differs from the types",
                "docs/layout/b.md is missing",
                "docs/layout/d.md belongs to no type",
            ]
        );
        assert!(compare(&wanted, &wanted).is_empty());
    }

    #[test]
    fn the_committed_pictures_are_those_of_the_types() {
        run(&crate::workspace::root().unwrap(), true).unwrap();
    }

    #[test]
    fn every_page_is_in_the_contents() {
        let pages = pages();
        assert!(pages.len() > 1, "no pictures");
        for name in pages.keys().filter(|name| *name != "README.md") {
            assert!(pages["README.md"].contains(&format!("({name})")), "{name}");
        }
    }
}
