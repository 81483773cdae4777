//! `cargo xtask page`: checks the pages of results in a browser.
//!
//! The pages are those of small runs: a bench of all indexes, as the main job writes it, and some figures of the
//! papers. Before these, the checks must find the fault in each of several broken pages.

mod browser;
mod twins;

use crate::{Result, debian, steps, workspace};
use browser::Browser;
use serde_json::Value;
use std::{
    fs,
    path::{Path, PathBuf},
    time::Instant,
};
use xshell::{Shell, cmd};

/// The packages with the browser and its driver, and the programs in them.
const PACKAGES: [&str; 3] = ["chromium", "chromium-driver", "fonts-dejavu-core"];
const PROGRAMS: [&str; 2] = ["chromium", "chromedriver"];

/// A kind of window: its name, width and height.
type Window = (&'static str, u32, u32);

const WINDOWS: [Window; 3] = [("phone", 390, 844), ("tablet", 820, 1180), ("desktop", 1440, 900)];
const THEMES: [&str; 2] = ["light", "dark"];
/// The largest size of a page in bytes.
const BYTES_MAX: u64 = 2_000_000;
const CHECK: &str = include_str!("page/check.js");
/// The keys of the WebDriver standard.
const TAB: char = '\u{e004}';
const RIGHT: char = '\u{e014}';

/// The small runs whose pages are checked. The bench has the panels of the main job.
const RUNS: [&str; 5] = [
    "bench --index sherman,smart,chime,dolphin,marlin,rolex --workload c,a,load,e --clients 10,40,160 --cns 10 --mns 1 \
     --keys 20K --ops 5K",
    "reproduce sherman-3 --quick",
    "reproduce sherman-10 --panel a --quick --keys 50K",
    "reproduce chime-12 --panel C --quick --keys 50K",
    "reproduce sherman-14 --panel b --quick --keys 50K --page",
];

/// The options.
#[derive(Debug, clap::Args)]
pub(crate) struct Asked {
    /// Check this page, instead of those of small runs. May be given more than once.
    #[arg(value_name = "FILE")]
    pages: Vec<PathBuf>,
}

/// Checks the pages, and leaves pictures of them in `target/page`.
pub(crate) fn run(root: &Path, asked: &Asked) -> Result<()> {
    install()?;
    let begun = Instant::now();
    let dir = workspace::target_directory(root)?.join("page");
    if dir.is_dir() {
        fs::remove_dir_all(&dir)?;
    }
    let [downloads, profile, pictures] = ["downloads", "profile", "pictures"].map(|name| dir.join(name));
    fs::create_dir_all(&downloads)?;
    fs::create_dir_all(&pictures)?;
    let pages = match asked.pages.is_empty() {
        true => make(root, &dir)?,
        false => asked.pages.clone(),
    };
    eprintln!("made {} pages in {} s", pages.len(), begun.elapsed().as_secs());
    let begun = Instant::now();
    let browser = Browser::start(&profile, &downloads)?;
    let twins = twins::all_fail(&browser, &pages[0], &dir, &downloads)?;
    let mut faults = Vec::new();
    for (number, page) in pages.iter().enumerate() {
        faults.extend(check(&browser, page, &downloads, &WINDOWS, &THEMES)?);
        shoot(&browser, page, &pictures.join(number.to_string()))?;
    }
    faults.sort_unstable();
    faults.dedup();
    for fault in &faults {
        println!("{fault}");
    }
    eprintln!(
        "checked {} pages and {twins} broken ones in {} s; pictures: {}",
        pages.len(),
        begun.elapsed().as_secs(),
        pictures.display()
    );
    match faults.len() {
        0 => Ok(()),
        count => Err(format!("the pages have {count} faults").into()),
    }
}

/// Installs the browser and its driver on a CI machine. Elsewhere, returns an error that says how to install them if
/// one is missing.
fn install() -> Result<()> {
    let missing = |program: &&str| debian::find(program).is_err();
    match PROGRAMS.iter().find(|program| missing(program)) {
        None => Ok(()),
        Some(_) if steps::in_ci() => debian::install_missing(&PACKAGES),
        Some(program) => {
            let packages = PACKAGES.join(" ");
            Err(format!("{program} is not installed; on Debian: apt-get install {packages}").into())
        }
    }
}

/// Makes the small runs, and returns their pages.
fn make(root: &Path, dir: &Path) -> Result<Vec<PathBuf>> {
    let shell = Shell::new()?;
    shell.change_dir(root);
    let out = dir.join("out");
    let dmkit = steps::programs(&shell, root)?.join("dmkit");
    for run in RUNS {
        let words = run.split_whitespace();
        cmd!(shell, "{dmkit} {words...} --out {out}")
            .ignore_stdout()
            .run()?;
    }
    Ok(vec![out.join("latest/index.html"), out.join("index.html")])
}

/// Returns the faults of a page. It is looked at in these windows and themes, and a fault that is found there names
/// both. Keys, the pointer, downloads, links and the size are checked once, in the last window and theme.
fn check(
    browser: &Browser,
    page: &Path,
    downloads: &Path,
    windows: &[Window],
    themes: &[&str],
) -> Result<Vec<String>> {
    let name = page.parent().and_then(Path::file_name).unwrap_or_default();
    let name = name.to_string_lossy();
    let mut faults = Vec::new();
    // Discard the messages of the previous page, which may have been opened once more after its messages were read.
    browser.console()?;
    for (window, width, height) in windows {
        for theme in themes {
            browser.look(*width, *height, theme)?;
            browser.open(page)?;
            let found = browser.run(CHECK)?;
            let found = found.as_array().cloned().unwrap_or_default();
            let found = found
                .iter()
                .map(|fault| fault.as_str().unwrap_or_default().to_owned());
            let all = found.chain(browser.console()?);
            faults.extend(all.map(|fault| format!("{name}, {window}, {theme}: {fault}")));
        }
    }
    browser.open(page)?;
    let more = [
        keys(browser)?,
        hover(browser)?,
        saved(browser, downloads)?,
        files(browser, page)?,
    ];
    let large = too_large(fs::metadata(page)?.len());
    let more = more.concat().into_iter().chain(large);
    faults.extend(more.map(|fault| format!("{name}: {fault}")));
    Ok(faults)
}

fn too_large(bytes: u64) -> Option<String> {
    (bytes > BYTES_MAX).then(|| format!("size: {bytes} bytes, and not at most {BYTES_MAX}"))
}

/// Checks that keys reach a point, its neighbour, a permalink and a download.
fn keys(browser: &Browser) -> Result<Vec<String>> {
    let mut wanted = vec![".permalink", ".pt", ".tools button"];
    // The charts follow the contents and the claims, so the search begins at the first heading of the results.
    browser.run("document.querySelector('figure').previousElementSibling?.scrollIntoView(); document.querySelector('main').focus()")?;
    let mut faults = Vec::new();
    for _ in 0..400 {
        browser.press(TAB)?;
        // After the last part of the page, the focus is on no part.
        if wanted.is_empty() || !focused(browser, ":not(body)")? {
            break;
        }
        let mut left = Vec::new();
        for part in wanted {
            if !focused(browser, part)? {
                left.push(part);
            } else if part == ".pt" {
                browser.press(RIGHT)?;
                let hint = browser.run("return document.getElementById('tip')?.hidden === false")?;
                if !focused(browser, ".pt[data-r='1']")? || hint != Value::Bool(true) {
                    faults.push(
                        "keyboard: the arrow key does not reach the next point with its hint".to_owned(),
                    );
                }
            }
        }
        wanted = left;
    }
    faults.extend(
        wanted
            .iter()
            .map(|part| format!("keyboard: the Tab key does not reach {part}")),
    );
    Ok(faults)
}

/// Returns whether the focus is on a part of the page that fits the selector.
fn focused(browser: &Browser, selector: &str) -> Result<bool> {
    let found = browser.run(&format!("return document.activeElement.matches(\"{selector}\")"))?;
    Ok(found == Value::Bool(true))
}

/// Checks that the pointer at a point shows the cells of its row.
fn hover(browser: &Browser) -> Result<Vec<String>> {
    let at = browser.run(
        "const point = document.querySelector('.pt'); document.activeElement.blur(); point.scrollIntoView({block: 'center'}); \
         const box = point.getBoundingClientRect(); \
         return [Math.round(box.left + box.width / 2), Math.round(box.top + box.height / 2)]",
    )?;
    let place = |at: &Value| at.as_i64().unwrap_or(0);
    browser.point_at(place(&at[0]), place(&at[1]))?;
    let hint = browser.run(
        "const tip = document.getElementById('tip'); return tip && !tip.hidden ? tip.textContent : ''",
    )?;
    let hint = hint.as_str().unwrap_or_default();
    let missing = !hint.contains("busiest resource");
    Ok(missing
        .then(|| format!("hover: the hint at a point is {hint:?}"))
        .into_iter()
        .collect())
}

/// Checks that the buttons of the first chart save files of their kinds.
fn saved(browser: &Browser, downloads: &Path) -> Result<Vec<String>> {
    let id = browser.run(
        "const figure = document.querySelector('figure'); figure.querySelectorAll('button').forEach((b) => b.click()); return figure.id",
    )?;
    let id = id.as_str().unwrap_or_default();
    let mut faults = Vec::new();
    for (ending, begin) in [("csv", "series,"), ("svg", "<svg"), ("png", "\u{fffd}PNG")] {
        let file = downloads.join(format!("{id}.{ending}"));
        for _ in 0..100 {
            if file.is_file() {
                break;
            }
            browser.pause(100)?;
        }
        let bytes = fs::read(&file).unwrap_or_default();
        if !String::from_utf8_lossy(&bytes).starts_with(begin) {
            faults.push(format!("download: no file {id}.{ending}"));
            break;
        }
        // The next page may save a file of the same name.
        let _absent = fs::remove_file(file);
    }
    Ok(faults)
}

/// Checks that the files exist to which the page refers.
fn files(browser: &Browser, page: &Path) -> Result<Vec<String>> {
    let targets = browser.run(
        "return [...document.querySelectorAll('a[href]')].map((a) => a.getAttribute('href')).filter((h) => !h.startsWith('#'))",
    )?;
    let here = page.parent().unwrap_or(Path::new("."));
    let targets = targets.as_array().cloned().unwrap_or_default();
    let targets = targets.iter().filter_map(Value::as_str);
    Ok(targets
        .filter(|target| !here.join(target).is_file())
        .map(|target| format!("anchor: there is no file {target}"))
        .collect())
}

/// Takes two pictures in each window and theme: of the top of the page, and of the charts.
fn shoot(browser: &Browser, page: &Path, stem: &Path) -> Result<()> {
    for (window, width, height) in WINDOWS {
        for theme in THEMES {
            browser.look(width, height, theme)?;
            browser.open(page)?;
            for (name, script) in [
                ("top", "scrollTo(0, 0)"),
                (
                    "charts",
                    "document.querySelector('.charts').previousElementSibling.scrollIntoView()",
                ),
            ] {
                browser.run(script)?;
                let file = format!("{}-{window}-{theme}-{name}.png", stem.display());
                fs::write(file, browser.picture()?)?;
            }
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page_has_a_largest_size() {
        assert_eq!(too_large(BYTES_MAX), None);
        assert!(too_large(BYTES_MAX + 1).is_some_and(|fault| fault.starts_with("size: ")));
    }
}
