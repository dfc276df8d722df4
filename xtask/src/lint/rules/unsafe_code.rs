//! Unsafe code stands only in the modules that are listed here.
//!
//! A file of Rust that is not listed must not contain the word `unsafe`, a listed one must, and a crate without
//! a listed module forbids unsafe code at its roots.

use std::str::FromStr;

use proc_macro2::TokenStream;

use crate::lint::rust::has_word;
use crate::lint::tree::Tree;

/// The files that may hold unsafe code, each block with its proof. A row that ends in a slash
/// names a folder with all that is in it: tests, which call what the library offers.
const MODULES: &[&str] = &[
    "bench/src/buffer.rs",
    "bench/src/callgrind.rs",
    "bench/src/heap.rs",
    "bench/llfree/src/simulated.rs",
    "bench/src/setup.rs",
    "bench/src/shrink.rs",
    "crates/swath-cmt/src/allocate.rs",
    "crates/swath-cmt/src/c.rs",
    "crates/swath-cmt/src/contiguous.rs",
    "crates/swath-cmt/src/extents.rs",
    "crates/swath-cmt/src/foreign.rs",
    "crates/swath-cmt/src/global.rs",
    "crates/swath-cmt/src/lock.rs",
    "crates/swath-cmt/src/options.rs",
    "crates/swath-cmt/src/physical/file.rs",
    "crates/swath-cmt/src/pin.rs",
    "crates/swath-cmt/src/process/background.rs",
    "crates/swath-cmt/src/process/begin.rs",
    "crates/swath-cmt/src/process/canary.rs",
    "crates/swath-cmt/src/process/exit.rs",
    "crates/swath-cmt/src/process/fork.rs",
    "crates/swath-cmt/src/process/own.rs",
    "crates/swath-cmt/src/process/state.rs",
    "crates/swath-cmt/src/process/thread.rs",
    "crates/swath-cmt/src/process/words.rs",
    "crates/swath-cmt/src/process/zero.rs",
    "crates/swath-cmt/src/report.rs",
    "crates/swath-cmt/src/reserve/grow.rs",
    "crates/swath-cmt/src/reserve/stock.rs",
    "crates/swath-cmt/src/source/backing.rs",
    "crates/swath-cmt/src/source/dma_heap.rs",
    "crates/swath-cmt/src/source/mapping.rs",
    "crates/swath-cmt/src/source/mend.rs",
    "crates/swath-cmt/src/source/ordinary.rs",
    "crates/swath-cmt/src/source/pages.rs",
    "crates/swath-cmt/src/source/protect.rs",
    "crates/swath-cmt/src/source/scratch.rs",
    "crates/swath-cmt/tests/",
    "crates/swath-ffi/src/banks.rs",
    "crates/swath-ffi/src/cmt.rs",
    "crates/swath-ffi/src/dram.rs",
    "crates/swath-ffi/src/frames.rs",
    "crates/swath-ffi/src/heap.rs",
    "crates/swath-ffi/src/map.rs",
    "crates/swath-ffi/src/mmu.rs",
    "crates/swath-ffi/src/object.rs",
    "crates/swath-ffi/src/pmap.rs",
    "crates/swath-ffi/src/regions.rs",
    "crates/swath-ffi/src/reservations.rs",
    "crates/swath-ffi/src/result.rs",
    "crates/swath-ffi/src/segments.rs",
    "crates/swath-ffi/src/space.rs",
    "crates/swath-ffi/tests/",
    "crates/swath-frame/tests/",
    "crates/swath-heap/src/allocator.rs",
    "crates/swath-heap/src/block.rs",
    "crates/swath-heap/src/check.rs",
    "crates/swath-heap/src/conformance.rs",
    "crates/swath-heap/src/heap.rs",
    "crates/swath-heap/src/locked.rs",
    "crates/swath-heap/src/pages.rs",
    "crates/swath-heap/src/plausible.rs",
    "crates/swath-heap/src/pool/change.rs",
    "crates/swath-heap/src/pool/record.rs",
    "crates/swath-heap/src/resize.rs",
    "crates/swath-heap/tests/",
    "crates/swath-lab/src/live/hold.rs",
    "crates/swath-lab/src/papers/clmalloc/allocator.rs",
    "crates/swath-lab/src/papers/clmalloc/blocks.rs",
    "crates/swath-lab/src/papers/clmalloc/memory.rs",
    "crates/swath-lab/src/papers/clmalloc/variant.rs",
    "crates/swath-lab/src/papers/real_time/heap.rs",
    "crates/swath-lab/tests/count.rs",
    "crates/swath-malloc/src/foreign.rs",
    "crates/swath-malloc/src/info.rs",
    "crates/swath-malloc/src/lib.rs",
    "crates/swath-malloc/src/operators.rs",
    "crates/swath-malloc/tests/memory.rs",
    "crates/swath-pool/src/heap/cache.rs",
    "crates/swath-pool/src/heap/front.rs",
    "crates/swath-pool/src/heap/local.rs",
    "crates/swath-pool/src/heap/reach.rs",
    "crates/swath-pool/src/heap/segment.rs",
    "crates/swath-pool/src/heap/segment_faults.rs",
    "crates/swath-pool/src/heap/slot.rs",
    "crates/swath-pool/src/heap/spill.rs",
    "crates/swath-pool/src/plain/agrees.rs",
    "crates/swath-pool/src/plain/both.rs",
    "crates/swath-pool/src/plain/fixture.rs",
    "crates/swath-pool/src/plain/frees.rs",
    "crates/swath-pool/src/pool/buffer_pool.rs",
    "crates/swath-pool/src/pool/check_faults.rs",
    "crates/swath-pool/src/pool/exchange.rs",
    "crates/swath-pool/src/pool/fork.rs",
    "crates/swath-pool/src/pool/overwritten.rs",
    "crates/swath-pool/src/source/first_fit.rs",
    "crates/swath-pool/src/source/segment_source.rs",
    "crates/swath-pool/src/superblock/live.rs",
    "crates/swath-pool/src/superblock/register.rs",
    "crates/swath-pool/tests/",
    "crates/swath-region/src/heap/allocator.rs",
    "crates/swath-region/src/heap/source.rs",
    "crates/swath-region/tests/",
    "crates/swath-trace/src/inspect/pagemap.rs",
    "crates/swath-trace/src/valgrind/supervise.rs",
    "fuzz/src/operations/c_interface.rs",
    "fuzz/src/operations/cmt.rs",
    "fuzz/src/operations/pool.rs",
    "examples/kernels/src/paging.rs",
    "examples/kernels/tests/",
    "kernel/src/machine/aarch64.rs",
    "kernel/src/machine/arm.rs",
    "kernel/src/machine/device_tree.rs",
    "kernel/src/machine/fault.rs",
    "kernel/src/machine/image.rs",
    "kernel/src/machine/riscv64.rs",
    "kernel/src/machine/x86_64.rs",
    "kernel/src/c.rs",
    "kernel/src/heap.rs",
    "kernel/src/memory.rs",
    "kernel/src/scenario.rs",
    "kernel/src/vm.rs",
    "rtl/cosim/src/machine.rs",
    "rtl/cosim/src/tlb.rs",
    "rtl/cosim/src/unit.rs",
    "rtl/cosim/src/walking.rs",
    "rtl/system/program/src/global.rs",
    "rtl/system/program/src/machine.rs",
    "rtl/system/program/src/main.rs",
    "rtl/system/program/src/regions.rs",
    "rtl/system/program/src/table.rs",
];

/// The line at the root of a crate without unsafe code.
const FORBID: &str = "#![forbid(unsafe_code)]";

pub(crate) fn breaches(tree: &Tree) -> Vec<String> {
    against(MODULES, tree)
}

fn against(modules: &[&str], tree: &Tree) -> Vec<String> {
    let mut breaches = Vec::new();
    let mut used = vec![false; modules.len()];
    for file in tree.rust_files() {
        let path = file.path.as_str();
        let Ok(tokens) = TokenStream::from_str(&file.text) else {
            breaches.push(format!("{path} is not Rust"));
            continue;
        };
        if !has_word(tokens, "unsafe") {
            continue;
        }
        let row = modules
            .iter()
            .position(|row| *row == path || row.ends_with('/') && path.starts_with(row));
        match row {
            Some(row) => used[row] = true,
            None => breaches.push(format!("{path} holds unsafe code and has no row in the table")),
        }
    }
    for (row, _) in modules.iter().zip(used).filter(|(_, used)| !used) {
        breaches.push(format!("{row} is listed and holds no unsafe code"));
    }
    for package in &tree.crates {
        let source = package.beside_manifest("src/");
        if modules.iter().any(|row| row.starts_with(&source)) {
            continue;
        }
        for root in &package.roots {
            let forbids = tree
                .file(&root.path)
                .is_some_and(|file| file.text.lines().any(|line| line == FORBID));
            if !forbids {
                breaches.push(format!("{} lacks the line {FORBID}", root.path));
            }
        }
    }
    breaches
}

#[cfg(test)]
mod unit {
    use super::*;

    #[test]
    fn unsafe_code_stands_where_the_table_says() {
        let tree = Tree::of(&[
            ("crates/a/src/lib.rs", "//! unsafe\nconst A: &str = \"unsafe\"; // unsafe\n"),
            (
                "crates/a/src/raw.rs",
                "#![allow(unsafe_code)]\nmacro_rules! m { () => { unsafe {} } }\n",
            ),
            ("crates/a/tests/all/raw.rs", "unsafe fn f() {}\n"),
        ]);
        assert_eq!(against(&["crates/a/src/raw.rs", "crates/a/tests/"], &tree), [""; 0]);
        assert_eq!(
            against(&["crates/a/src/lib.rs", "crates/a/tests/"], &tree),
            [
                "crates/a/src/raw.rs holds unsafe code and has no row in the table",
                "crates/a/src/lib.rs is listed and holds no unsafe code"
            ]
        );
    }

    #[test]
    fn a_crate_without_unsafe_code_says_so_for_every_build() {
        let lacks = ["crates/a/src/lib.rs lacks the line #![forbid(unsafe_code)]"];
        for (text, expected) in [
            ("#![forbid(unsafe_code)]\n", &lacks[..0]),
            ("#![cfg_attr(not(test), forbid(unsafe_code))]\n", &lacks),
            ("// #![forbid(unsafe_code)]\n", &lacks),
        ] {
            assert_eq!(against(&[], &Tree::of(&[("crates/a/src/lib.rs", text)])), expected);
        }
    }
}
