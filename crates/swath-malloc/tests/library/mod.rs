//! The library as the tests' build makes it, with every assertion.

use std::path::PathBuf;

/// Returns its file.
pub(crate) fn library() -> PathBuf {
    let exe = std::env::current_exe().expect("this test");
    let library = exe.with_file_name("libswath_malloc.so");
    assert!(library.is_file(), "{} was not built", library.display());
    library
}
