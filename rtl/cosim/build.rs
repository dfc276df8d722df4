//! Has Verilator turn the RTL into C++, and compiles that with the shim, once for each design.

use std::path::{Path, PathBuf};
use std::process::Command;

/// A design: the prefix of its names, the folder and the name of the top module, its parameters, the shim.
struct Design {
    name: &'static str,
    room: &'static str,
    top: &'static str,
    parameters: &'static [&'static str],
    shim: &'static str,
}

const DESIGNS: &[Design] = &[
    Design {
        name: "arrays",
        room: "cosim",
        top: "unit",
        parameters: &["-GSCHEME=0"],
        shim: "unit.cpp",
    },
    Design {
        name: "nodes",
        room: "cosim",
        top: "unit",
        parameters: &["-GSCHEME=1"],
        shim: "unit.cpp",
    },
    Design {
        name: "page_table",
        room: "cosim",
        top: "unit",
        parameters: &["-GSCHEME=2"],
        shim: "unit.cpp",
    },
    Design {
        name: "tlb_page",
        room: "cosim",
        top: "tlb",
        parameters: &["-GFORM=0"],
        shim: "tlb.cpp",
    },
    Design {
        name: "tlb_aligned",
        room: "cosim",
        top: "tlb",
        parameters: &["-GFORM=1"],
        shim: "tlb.cpp",
    },
    Design {
        name: "tlb_run",
        room: "cosim",
        top: "tlb",
        parameters: &["-GFORM=2"],
        shim: "tlb.cpp",
    },
    Design {
        name: "tlb_leaf",
        room: "cosim",
        top: "tlb",
        parameters: &["-GFORM=2", "-GLEAF_BITS=9"],
        shim: "tlb.cpp",
    },
    Design {
        name: "walking_any",
        room: "tlb",
        top: "walking_tlb",
        parameters: &["-GLEAF_BITS=36"],
        shim: "walking_tlb.cpp",
    },
    Design {
        name: "walking_leaf",
        room: "tlb",
        top: "walking_tlb",
        parameters: &["-GLEAF_BITS=9"],
        shim: "walking_tlb.cpp",
    },
    Design {
        name: "system_regions",
        room: "system",
        top: "system",
        parameters: &["-GCONVENTIONAL=0"],
        shim: "system.cpp",
    },
    Design {
        name: "system_table",
        room: "system",
        top: "system",
        parameters: &["-GCONVENTIONAL=1"],
        shim: "system.cpp",
    },
];

/// The folders of the modules.
const ROOMS: [&str; 4] = ["rtmmu", "tlb", "system", "cosim"];

fn run(command: &mut Command) -> String {
    let output = command.output().unwrap_or_else(|error| panic!("{command:?}: {error}"));
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{command:?}: {said}");
    String::from_utf8_lossy(&output.stdout).trim().to_owned()
}

fn files(dir: &Path, ending: &str) -> Vec<PathBuf> {
    let entries =
        std::fs::read_dir(dir).unwrap_or_else(|error| panic!("{}: {error}", dir.display()));
    let mut files: Vec<_> = entries
        .map(|entry| entry.expect("the folder can be read").path())
        .filter(|path| path.extension().is_some_and(|extension| extension == ending))
        .collect();
    files.sort();
    files
}

fn main() {
    let root = PathBuf::from(
        std::env::var("CARGO_MANIFEST_DIR").expect("cargo says where the crate lies"),
    );
    let out = PathBuf::from(std::env::var("OUT_DIR").expect("cargo says where to build"));
    let rtl = root.parent().expect("the crate lies in rtl/");
    let share = PathBuf::from(run(Command::new("verilator").args(["--getenv", "VERILATOR_ROOT"])));
    let include = share.join("include");

    let mut build = cc::Build::new();
    build.cpp(true).std("c++17").opt_level(3).warnings(false).include(&include);
    build.include(include.join("vltstd")).file(include.join("verilated.cpp"));
    if include.join("verilated_threads.cpp").is_file() {
        build.file(include.join("verilated_threads.cpp"));
    }
    build.compile("verilated");

    for Design { name, room, top, parameters, shim } in DESIGNS {
        let dir = out.join(name);
        // What an earlier build left there may belong to no file now.
        let _ = std::fs::remove_dir_all(&dir);
        let mut verilate = Command::new("verilator");
        verilate.args(["--cc", "-O3", "--x-assign", "fast", "--noassert", "--prefix"]);
        verilate.arg(format!("V{name}")).args(*parameters).arg("--Mdir").arg(&dir);
        verilate.arg(rtl.join("rtmmu/verdict.sv"));
        for room in ROOMS {
            verilate.arg("-y").arg(rtl.join(room));
        }
        run(verilate.args(["--top-module", top]).arg(rtl.join(room).join(format!("{top}.sv"))));
        let mut build = cc::Build::new();
        build.cpp(true).std("c++17").opt_level(3).warnings(false).include(&include);
        build.include(include.join("vltstd")).include(&dir).files(files(&dir, "cpp"));
        build.define("NAME", *name).define("MODEL", &*format!("V{name}"));
        build.define("HEADER", &*format!("\"V{name}.h\"")).file(root.join(shim));
        build.compile(name);
    }
    for path in ROOMS.iter().flat_map(|room| ["sv", "cpp"].map(|ending| (rtl.join(room), ending))) {
        for file in files(&path.0, path.1) {
            println!("cargo:rerun-if-changed={}", file.display());
        }
    }
}
