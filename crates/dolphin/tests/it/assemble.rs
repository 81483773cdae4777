//! Tests that `docs/assemble.md` quotes only the example and the template of `dmkit new`, and quotes them exactly.

use std::fs;
use std::path::Path;

/// Returns the lines that are not blank, without their indentation.
fn lines(text: &str) -> Vec<&str> {
    text.lines()
        .map(str::trim)
        .filter(|line| !line.is_empty())
        .collect()
}

#[test]
fn the_walk_through_quotes_the_files_exactly() {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    let read = |path: &str| fs::read_to_string(here.join(path)).expect(path);
    let page = read("../../docs/assemble.md");
    let files =
        ["main.rs", "tree.rs", "checks.rs"].map(|file| read(&format!("examples/art_hopscotch/{file}")));
    let whole: usize = files.iter().map(|file| file.lines().count()).sum();
    assert!(whole <= 400, "{whole} lines are too long for a walk-through");
    let template = [
        "main.rs",
        "inner/array.rs",
        "inner/fences.rs",
        "inner/walk.rs",
        "tests/model.rs",
    ];
    let template = template.map(|file| read(&format!("../dmkit/template/{file}")));
    let mut quotes = 0;
    for block in page.split("```rs").skip(1) {
        let code = block.split("```").next().unwrap_or_default();
        // The code begins after the line with the opening fence.
        let code = lines(code.split_once('\n').map_or("", |(_, code)| code));
        let quoted = files
            .iter()
            .chain(&template)
            .any(|file| lines(file).windows(code.len()).any(|part| part == code));
        assert!(quoted, "in no file: {code:#?}");
        quotes += 1;
    }
    assert!(quotes > 16, "{quotes} quotes");
}
