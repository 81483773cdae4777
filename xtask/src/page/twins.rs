//! Broken pages, each of which is a sound page with one change. The checks must find the fault in each of them.

use super::{Browser, THEMES, WINDOWS, check};
use crate::Result;
use std::{fs, path::Path};

/// The kind of the fault, and what is added at the end of the page's content to cause it.
///
/// Some additions change a part that the page's own script makes. They wait for `load`, because this script follows the
/// addition, and a timer might run before the browser has read the script.
const TWINS: [(&str, &str); 13] = [
    ("overflow", "<div style=\"width:3000px\">wide</div>"),
    ("contrast", "<p style=\"color:#999;background:#fff\">pale</p>"),
    ("small", "<p style=\"font-size:7px\">small</p>"),
    ("anchor", "<a href=\"#nowhere\">dead</a>"),
    ("anchor", "<a href=\"nowhere.json\">dead</a>"),
    ("anchor", "<p id=\"results\">a second one</p>"),
    (
        "clipped",
        "<svg viewBox=\"0 0 40 30\" width=\"200\"><text x=\"5\" y=\"20\">a long name</text></svg>",
    ),
    (
        "overlap",
        "<svg viewBox=\"0 0 90 30\" width=\"200\"><text x=\"5\" y=\"20\">one</text><text x=\"9\" y=\"21\">two</text></svg>",
    ),
    ("figure", "<figure><svg viewBox=\"0 0 9 9\"></svg></figure>"),
    ("console", "<script>console.error('broken')</script>"),
    (
        "keyboard",
        "<script>addEventListener('load', () => document.querySelectorAll('.pt').forEach((p) => p.setAttribute('tabindex', -1)))</script>",
    ),
    (
        "hover",
        "<script>addEventListener('load', () => document.getElementById('tip').remove())</script>",
    ),
    (
        "download",
        "<script>URL.createObjectURL = () => 'about:blank'</script>",
    ),
];

/// Checks that the fault of each broken twin is found. Returns the number of twins.
pub(super) fn all_fail(browser: &Browser, sound: &Path, dir: &Path, downloads: &Path) -> Result<usize> {
    let html = fs::read_to_string(sound)?;
    let dir = dir.join("twins");
    fs::create_dir_all(&dir)?;
    for (number, (kind, change)) in TWINS.iter().enumerate() {
        let twin = dir.join(format!("{number}-{kind}.html"));
        fs::write(&twin, html.replace("</main>", &format!("{change}</main>")))?;
        let faults = check(browser, &twin, downloads, &WINDOWS[..1], &THEMES[..1])?;
        if !faults.iter().any(|fault| fault.contains(&format!(": {kind}: "))) {
            return Err(format!("the checks miss the fault in {}: {faults:?}", twin.display()).into());
        }
    }
    Ok(TWINS.len())
}
