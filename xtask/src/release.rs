//! `msrv`, `deny`, `api` and `book`: checks and pages for a release, each by a tool that is not part of Rust's usual
//! installation.

use crate::{
    Result, tidy,
    workspace::{self, Package},
};
use std::{
    collections::BTreeMap,
    fmt::Write as _,
    fs,
    path::{Path, PathBuf},
};
use xshell::{Shell, cmd};

/// Crates that `msrv` and `api` leave out, because they need RDMA packages.
const NEEDS_RDMA: &str = "dm-ib";
/// The crates on floors 0 and 1 that other projects import alone; `msrv` checks them with all features.
const ALONE: [&str; 4] = ["dm-sync", "dm-layout", "dm-verbs", "dm-history"];

/// Compiles every published crate except dm-ib with the oldest compiler that its manifest promises.
pub(crate) fn msrv(root: &Path) -> Result<()> {
    let shell = shell_in(root)?;
    let mut by_version: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for package in workspace::packages(root)? {
        let compiled = package.is_published() && package.name != NEEDS_RDMA;
        if let Some(version) = package.rust_version.filter(|_| compiled) {
            by_version.entry(version).or_default().push(package.name);
        }
    }
    let installed = cmd!(shell, "rustup toolchain list").read()?;
    let missing: Vec<_> = by_version
        .keys()
        .filter(|version| !has(&installed, version))
        .collect();
    for (version, packages) in &by_version {
        if missing.contains(&version) {
            continue;
        }
        let names = packages.iter().flat_map(|name| ["--package", name]);
        let all = packages.iter().all(|name| ALONE.contains(&name.as_str()));
        let features = all.then_some("--all-features");
        eprintln!("Rust {version}: {}", packages.join(", "));
        cmd!(
            shell,
            "rustup run {version} cargo check {names...} {features...} --lib --target-dir target/msrv"
        )
        .run()?;
    }
    match missing.as_slice() {
        [] => Ok(()),
        versions => {
            let install = versions
                .iter()
                .map(|version| format!("rustup toolchain install {version} --profile minimal"));
            let install = install.collect::<Vec<_>>().join("; ");
            Err(format!("not every compiler is installed, so not every crate was checked: {install}").into())
        }
    }
}

/// Returns whether a list of rustup's toolchains contains this version.
fn has(installed: &str, version: &str) -> bool {
    let names = installed
        .lines()
        .filter_map(|line| line.split_whitespace().next());
    let mut versions = names.map(|name| name.split_once('-').map_or(name, |(version, _)| version));
    versions.any(|name| name == version)
}

/// Checks licences, sources and duplicate versions of all dependencies, and known vulnerabilities if the network is
/// there.
pub(crate) fn deny(root: &Path) -> Result<()> {
    let shell = shell_in(root)?;
    need(&shell, "deny", "cargo-deny")?;
    // The fuzz targets have fewer dependencies, so they do not need every exception.
    let needless: &[&str] = &["-A", "unmatched-skip", "-A", "unnecessary-skip"];
    for (manifest, allowed) in [("Cargo.toml", &[][..]), ("fuzz/Cargo.toml", needless)] {
        cmd!(
            shell,
            "cargo deny --manifest-path {manifest} check --hide-inclusion-graph {allowed...} licenses bans sources"
        )
        .run()?;
    }
    let fetched = cmd!(shell, "cargo deny fetch db").quiet().ignore_stderr().run();
    if fetched.is_err() {
        eprintln!("note: the list of known vulnerabilities could not be fetched, so they were not checked");
        return Ok(());
    }
    Ok(cmd!(shell, "cargo deny check --hide-inclusion-graph advisories").run()?)
}

/// Compares the public interfaces with those of the last release: fails if a change needs a higher version than the
/// manifests have, and prints every added, changed and removed item.
pub(crate) fn api(root: &Path, only: Option<&str>) -> Result<()> {
    let shell = shell_in(root)?;
    let tag = cmd!(shell, "git describe --tags --abbrev=0 --match v*")
        .quiet()
        .ignore_stderr()
        .read();
    let Ok(tag) = tag else {
        eprintln!("no release yet (no tag begins with `v`), so there is no interface to compare with");
        return Ok(());
    };
    need(&shell, "semver-checks", "cargo-semver-checks")?;
    need(&shell, "public-api", "cargo-public-api")?;
    let packages = workspace::packages(root)?;
    let libraries: Vec<_> = packages
        .iter()
        .filter(|package| has_interface(package) && only.is_none_or(|only| package.name == only))
        .collect();
    if libraries.is_empty() {
        return Err("no published library has this name".into());
    }
    let dir = workspace::target_directory(root)?.join("api");
    let old = dir.join("released");
    // An earlier run that was stopped may have left this worktree.
    drop(
        cmd!(shell, "git worktree remove --force {old}")
            .quiet()
            .ignore_stderr()
            .run(),
    );
    cmd!(shell, "git worktree add --quiet --detach {old} {tag}").run()?;
    let compared = compare(&shell, &dir, &old, &libraries);
    let names = libraries
        .iter()
        .flat_map(|package| ["--package", package.name.as_str()]);
    let checked = cmd!(shell, "cargo semver-checks --baseline-root {old} {names...}").run();
    cmd!(shell, "git worktree remove --force {old}").run()?;
    compared?;
    Ok(checked?)
}

/// Returns whether the package has a library that other projects use.
fn has_interface(package: &Package) -> bool {
    let is_library = |target: &workspace::Target| target.kind.iter().any(|kind| kind == "lib");
    package.is_published() && package.name != NEEDS_RDMA && package.targets.iter().any(is_library)
}

/// Prints the differences of the interfaces, each crate for itself.
fn compare(shell: &Shell, dir: &Path, old: &Path, libraries: &[&Package]) -> Result<()> {
    let target = dir.join("target");
    let list = |at: &Path, package: &str| -> Result<String> {
        let manifest = at.join("Cargo.toml");
        // `-sss` leaves out the implementations that the compiler adds to nearly every type.
        let listed = cmd!(
            shell,
            "cargo public-api --manifest-path {manifest} --package {package} -sss"
        );
        Ok(listed.env("CARGO_TARGET_DIR", &target).quiet().read()?)
    };
    let new = shell.current_dir();
    for package in libraries {
        let name = package.name.as_str();
        let (before, after) = (list(old, name).unwrap_or_default(), list(&new, name)?);
        let changes = changes(&before, &after);
        eprintln!(
            "{name}: {} lines of its interface changed",
            changes.lines().count()
        );
        eprint!("{changes}");
    }
    Ok(())
}

/// Returns the lines that only one of two lists has: first those of `before`, with `-` before each, then those of
/// `after`, with `+`.
fn changes(before: &str, after: &str) -> String {
    let mut found = String::new();
    let only = |a: &str, b: &str| {
        let b: std::collections::BTreeSet<_> = b.lines().collect();
        a.lines()
            .filter(|line| !b.contains(line))
            .map(str::to_owned)
            .collect::<Vec<_>>()
    };
    for (sign, lines) in [('-', only(before, after)), ('+', only(after, before))] {
        for line in lines {
            // Writing to a string cannot fail.
            _ = writeln!(found, "{sign}{line}");
        }
    }
    found
}

/// The parts of the book: a heading, and the pages below it in order. A page that is in no part comes last.
const PARTS: [(&str, &[&str]); 4] = [
    (
        "Use",
        &[
            "README.md",
            "examples/README.md",
            "docs/assemble.md",
            "docs/model-your-lock.md",
            "docs/cluster.md",
        ],
    ),
    ("Understand", &["docs/ARCHITECTURE.md", "docs/GLOSSARY.md"]),
    (
        "Look up",
        &[
            "docs/rows.md",
            "docs/trace.md",
            "docs/hardware.md",
            "docs/models.md",
            "docs/PERFORMANCE.md",
        ],
    ),
    (
        "Take part",
        &[
            "CONTRIBUTING.md",
            "docs/TESTING.md",
            "SECURITY.md",
            "CHANGELOG.md",
        ],
    ),
];

/// Makes the pages into a book, and checks that its links lead somewhere.
pub(crate) fn book(root: &Path) -> Result<()> {
    let shell = shell_in(root)?;
    let book = workspace::target_directory(root)?.join("book");
    let src = book.join("src");
    if src.exists() {
        fs::remove_dir_all(&src)?;
    }
    let pages = pages(&shell)?;
    let others = lines(
        &cmd!(shell, "git ls-files docs examples LICENSE-MIT LICENSE-APACHE")
            .quiet()
            .read()?,
    );
    for file in pages
        .iter()
        .chain(others.iter().filter(|file| !file.ends_with(".md")))
    {
        let to = src.join(file);
        fs::create_dir_all(to.parent().unwrap_or(&src))?;
        if file.ends_with(".md") {
            fs::write(to, for_book(file, &fs::read_to_string(root.join(file))?, &pages))?;
        } else {
            fs::copy(root.join(file), to)?;
        }
    }
    fs::write(src.join("SUMMARY.md"), summary(root, &pages)?)?;
    fs::copy(root.join("docs/book.toml"), book.join("book.toml"))?;
    if cmd!(shell, "mdbook --version")
        .quiet()
        .ignore_stdout()
        .ignore_stderr()
        .run()
        .is_err()
    {
        return Err("mdbook is missing: cargo install mdbook --locked".into());
    }
    cmd!(shell, "mdbook build {book}").run()?;
    let html = book.join("html");
    let dead = dead_links(&html)?;
    if !dead.is_empty() {
        return Err(format!("links of the book lead nowhere:\n{}", dead.join("\n")).into());
    }
    eprintln!(
        "the book of {} pages: {}",
        pages.len(),
        html.join("index.html").display()
    );
    Ok(())
}

/// Returns every page of the repository: the Markdown files, except those of templates and hidden directories.
fn pages(shell: &Shell) -> Result<Vec<String>> {
    let listed = cmd!(shell, "git ls-files *.md --cached --others --exclude-standard")
        .quiet()
        .read()?;
    let mut pages = lines(&listed);
    pages.retain(|page| !page.contains("/template/") && !page.starts_with('.'));
    pages.sort();
    Ok(pages)
}

fn lines(text: &str) -> Vec<String> {
    text.lines().map(str::to_owned).collect()
}

/// Returns the table of contents.
fn summary(root: &Path, pages: &[String]) -> Result<String> {
    let mut left: Vec<&str> = pages.iter().map(String::as_str).collect();
    let mut text = "# Summary\n".to_owned();
    let mut part = |heading: &str, pages: Vec<&str>, left: &mut Vec<&str>| -> Result<()> {
        // Writing to a string cannot fail.
        _ = writeln!(text, "\n# {heading}\n");
        for page in pages {
            left.retain(|other| *other != page);
            let title = title(&fs::read_to_string(root.join(page))?).unwrap_or_else(|| page.to_owned());
            _ = writeln!(text, "- [{title}]({page})");
        }
        Ok(())
    };
    for (heading, pages) in PARTS {
        part(heading, pages.to_vec(), &mut left)?;
    }
    for (heading, dir) in [
        ("Protocols", "docs/protocol/"),
        ("Decisions", "docs/decisions/"),
        ("Bytes of nodes", "docs/layout/"),
        ("Crates", "crates/"),
        ("More", ""),
    ] {
        let inside = left
            .iter()
            .copied()
            .filter(|page| page.starts_with(dir))
            .collect();
        part(heading, inside, &mut left)?;
    }
    Ok(text)
}

/// Returns the first heading of a page, without marks that have a meaning in a table of contents.
fn title(page: &str) -> Option<String> {
    let heading = page.lines().find_map(|line| line.strip_prefix("# "))?;
    Some(heading.replace(['`', '[', ']'], ""))
}

/// Returns a page with the links that the book needs: the book calls a README `index`, and a directory has no page of
/// its own.
fn for_book(page: &str, text: &str, pages: &[String]) -> String {
    let mut rest = text;
    let mut out = String::new();
    while let Some((before, link)) = rest.split_once("](") {
        let Some((target, after)) = link.split_once(')') else {
            break;
        };
        let (file, anchor) = target
            .split_once('#')
            .map_or((target, ""), |(file, anchor)| (file, anchor));
        let hash = if anchor.is_empty() {
            String::new()
        } else {
            format!("#{anchor}")
        };
        let dir = format!("{}/README.md", file.trim_end_matches('/'));
        let is_page = |file: &str| tidy::resolve(page, file).is_some_and(|at| pages.contains(&at));
        let target = match file {
            _ if !file.is_empty() && is_page(&dir) => {
                format!("{}{hash}", dir.replace("README.md", "index.md"))
            }
            _ if is_page(file) => format!("{}{hash}", file.replace("README.md", "index.md")),
            _ => target.to_owned(),
        };
        _ = write!(out, "{before}]({target})");
        rest = after;
    }
    out + rest
}

/// Returns the links of a book's pages that lead to no file of it.
fn dead_links(html: &Path) -> Result<Vec<String>> {
    let mut dead = Vec::new();
    for page in files(html)? {
        if page.extension().is_none_or(|end| end != "html") {
            continue;
        }
        let text = fs::read_to_string(&page)?;
        let targets = ["href=\"", "src=\""]
            .into_iter()
            .flat_map(|begin| text.split(begin).skip(1))
            .filter_map(|rest| rest.split(['"', '#', '?']).next());
        for target in targets.filter(|target| !target.is_empty() && !target.contains(':')) {
            if !page.with_file_name("").join(target).exists() {
                dead.push(format!("{}: {target}", page.display()));
            }
        }
    }
    dead.sort();
    dead.dedup();
    Ok(dead)
}

/// Returns all files below a directory.
fn files(dir: &Path) -> Result<Vec<PathBuf>> {
    let mut found = Vec::new();
    for entry in fs::read_dir(dir)? {
        let path = entry?.path();
        match path.is_dir() {
            true => found.extend(files(&path)?),
            false => found.push(path),
        }
    }
    Ok(found)
}

/// Returns an error that says how to install a subcommand of cargo if it is missing.
fn need(shell: &Shell, subcommand: &str, package: &str) -> Result<()> {
    let asked = cmd!(shell, "cargo {subcommand} --version")
        .quiet()
        .ignore_stdout()
        .ignore_stderr();
    asked
        .run()
        .map_err(|_| format!("{package} is missing: cargo install {package} --locked").into())
}

fn shell_in(root: &Path) -> Result<Shell> {
    let shell = Shell::new()?;
    shell.change_dir(root);
    Ok(shell)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_toolchain_is_known_by_its_version() {
        let list = "stable-x86_64-unknown-linux-gnu (active, default)\n1.85-x86_64-unknown-linux-gnu\n1.90\n";
        assert!(has(list, "1.85") && has(list, "1.90") && !has(list, "1.8") && !has(list, "1.95"));
    }

    #[test]
    fn lines_that_only_one_interface_has_are_told() {
        let (before, after) = ("pub fn a()\npub fn b()", "pub fn b()\npub fn c()");
        assert_eq!(changes(before, after), "-pub fn a()\n+pub fn c()\n");
        assert_eq!(changes(after, after), "");
    }

    #[test]
    fn crates_that_others_import_alone_promise_an_old_compiler() {
        let root = workspace::root().unwrap();
        for package in workspace::packages(&root).unwrap() {
            let old = package.rust_version.as_deref() == Some("1.85");
            assert_eq!(old, ALONE.contains(&package.name.as_str()), "{}", package.name);
        }
    }

    #[test]
    fn every_page_is_in_the_book_once() {
        let root = workspace::root().unwrap();
        let pages = pages(&shell_in(&root).unwrap()).unwrap();
        let summary = summary(&root, &pages).unwrap();
        assert!(pages.len() > 40, "{pages:?}");
        for page in &pages {
            assert_eq!(summary.matches(&format!("]({page})")).count(), 1, "{page}");
        }
    }

    #[test]
    fn a_dead_link_is_found() {
        let dir = std::env::temp_dir().join(format!("xtask-book-{}", std::process::id()));
        fs::create_dir_all(dir.join("in")).unwrap();
        let text = r##"<a href="../b.html#x"> <a href="c.html"> <a href="#y"> <a href="https://example.org/d.html">"##;
        fs::write(dir.join("in/a.html"), text).unwrap();
        fs::write(dir.join("b.html"), "").unwrap();
        let dead = dead_links(&dir).unwrap();
        assert!(
            dead.len() == 1 && dead[0].ends_with("in/a.html: c.html"),
            "{dead:?}"
        );
        fs::remove_dir_all(dir).unwrap();
    }
}
