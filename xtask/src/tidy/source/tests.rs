//! Tests of the lexical views.

use super::*;

#[test]
fn views_keep_length_and_lines() {
    let text = "fn a() { // ü\n  let s = \"x // y\\\"\"; /* b /* c */ d */ }\n'x'; '\\''; &'a str; r#\"q\"w\"#; b'{'";
    let source = Source::lex(text);
    for view in [&source.code, &source.comments, &source.shipped] {
        assert_eq!(view.len(), text.len());
        assert_eq!(view.lines().count(), text.lines().count());
    }
}

#[test]
fn comments_and_literals_are_not_code() {
    let source = Source::lex(
        "let a = \"std::thread {\"; // std::thread {\n/* a /* std::thread */ } */ let b = r#\"} \" std::thread\"#; \
         let c = br\"}\"; let d = ['{', b'}', '\\'', '\\u{7d}', 'é']; fn f<'a>(x: &'a u8) {}",
    );
    assert!(!source.code.contains("thread"), "{}", source.code);
    assert_eq!(source.code.matches('{').count(), 1, "{}", source.code);
    assert_eq!(source.code.matches('}').count(), 1, "{}", source.code);
    assert!(source.code.contains("fn f<'a>(x: &'a u8) {}"));
    assert_eq!(source.comments.matches("std::thread").count(), 2);
}

#[test]
fn unclosed_text_ends_without_a_panic() {
    for text in [
        "\"abc",
        "/* a",
        "r#\"abc",
        "'",
        "'\\",
        "fn f() {",
        "mod",
        "use a::{b",
        "#[cfg(test",
        "b'",
        "r#",
    ] {
        let source = Source::lex(text);
        source.functions();
        source.mod_files();
        Source::paths(&source.code);
    }
}

#[test]
fn test_items_are_not_shipped() {
    let source = Source::lex(
        "fn kept() {}\n#[cfg(test)]\nmod tests {\n    fn gone() {}\n}\n#[cfg(test)]\nuse gone_too;\n\
         #[cfg(not(test))]\nfn stays() {}\n#[cfg(all(test, dm_loom))]\nmod loom { fn gone() {} }\nfn end() {}",
    );
    assert!(!source.shipped.contains("gone"), "{}", source.shipped);
    for name in ["kept", "stays", "end"] {
        assert!(
            source.shipped.contains(name),
            "{name} is missing in {}",
            source.shipped
        );
    }
}

#[test]
fn paths_expand_groups_and_forget_renames() {
    let source = Source::lex(
        "use std::{\n    fmt,\n    sync::{Arc as A, atomic::AtomicU64},\n};\nlet x = core::hint::black_box(1);",
    );
    let paths = Source::paths(&source.code);
    let expected = [
        (2, "std::fmt"),
        (3, "std::sync::Arc"),
        (3, "std::sync::atomic::AtomicU64"),
        (5, "core::hint::black_box"),
    ];
    assert_eq!(paths, expected.map(|(line, path)| (line, path.to_owned())));
}

#[test]
fn functions_have_their_length() {
    let source = Source::lex(
        "trait T {\n    fn no_body(&self, a: [u8; 2]);\n}\nfn two(f: fn(u8) -> u8) -> [u8; 3] {\n}\n",
    );
    assert_eq!(
        source.functions(),
        [Function {
            name: "two".to_owned(),
            line: 4,
            lines: 2
        }]
    );
}

#[test]
fn modules_know_what_surrounds_them() {
    let source = Source::lex(
        "pub mod a;\nmod b {\n    #[path = \"odd.rs\"]\n    mod c;\n}\npub(crate) mod d;\n// mod e;\nlet s = \"mod f;\";",
    );
    let seen: Vec<_> = source
        .mod_files()
        .into_iter()
        .map(|file| (file.inside.join("/"), file.name, file.path))
        .collect();
    assert_eq!(
        seen,
        [
            (String::new(), "a".to_owned(), None),
            ("b".to_owned(), "c".to_owned(), Some("odd.rs".to_owned())),
            (String::new(), "d".to_owned(), None),
        ]
    );
}

#[test]
fn lines_without_tests_leave_tests_out() {
    let source = Source::lex("fn a() {}\n\n#[cfg(test)]\nmod tests {\n    fn b() {}\n}\n");
    assert_eq!(source.lines_without_tests(), 3);
}
