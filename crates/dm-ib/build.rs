//! Compiles what `ibverbs-sys` does not bind: the verbs that its header defines inline over the provider's table.

fn main() {
    println!("cargo:rerun-if-changed=src/ffi/extended.c");
    cc::Build::new()
        .file("src/ffi/extended.c")
        .warnings_into_errors(true)
        .extra_warnings(true)
        .compile("dm_ib_extended");
    // Behind the archive that needs it.
    println!("cargo:rustc-link-lib=ibverbs");
}
