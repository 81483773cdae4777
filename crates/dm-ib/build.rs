//! Compiles C wrappers of those verbs that `ibverbs-sys` does not bind, because the C header defines them as inline
//! functions.

fn main() {
    println!("cargo:rerun-if-changed=src/ffi/extended.c");
    cc::Build::new()
        .file("src/ffi/extended.c")
        .warnings_into_errors(true)
        .extra_warnings(true)
        .compile("dm_ib_extended");
    // The linker must see libibverbs after the archive that uses it.
    println!("cargo:rustc-link-lib=ibverbs");
}
