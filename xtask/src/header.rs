//! The C header, made from the crate `swath-ffi` and checked in.

use anyhow::{Context, Result, bail, ensure};
use cargo_metadata::Metadata;
use xshell::Shell;

/// Where it stands, from the workspace's root.
const HEADER: &str = "crates/swath-ffi/include/swath.h";

/// The crate that it is made from.
const CRATE: &str = "swath-ffi";

/// The header as the crate has it; `None` without the crate.
fn made(metadata: &Metadata) -> Result<Option<String>> {
    let packages = metadata.workspace_packages();
    let Some(package) = packages.iter().find(|package| package.name.as_str() == CRATE) else {
        return Ok(None);
    };
    let directory = package.manifest_path.parent().context("a manifest without directory")?;
    let config = cbindgen::Config::from_file(directory.join("cbindgen.toml").as_std_path())
        .map_err(anyhow::Error::msg)?;
    let made = cbindgen::Builder::new().with_config(config).with_crate(directory).generate()?;
    let mut header = Vec::new();
    made.write(&mut header);
    Ok(Some(String::from_utf8(header)?))
}

/// Writes it.
pub(crate) fn write(shell: &Shell, metadata: &Metadata) -> Result<()> {
    let Some(header) = made(metadata)? else { bail!("there is no crate {CRATE}") };
    shell.write_file(HEADER, header)?;
    println!("{HEADER} is written");
    Ok(())
}

/// Whether the one that is checked in is what the crate says.
pub(crate) fn check(shell: &Shell, metadata: &Metadata) -> Result<()> {
    if let Some(header) = made(metadata)? {
        let here = shell.read_file(HEADER)?;
        ensure!(here == header, "{HEADER} is not what {CRATE} says: run `cargo xtask header`");
    }
    Ok(())
}
