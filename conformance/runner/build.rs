//! Lists every case file under `conformance/cases`, so that the binary carries them all and runs from anywhere.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::{env, fs, io};

fn main() -> io::Result<()> {
    let manifest = PathBuf::from(env::var("CARGO_MANIFEST_DIR").map_err(io::Error::other)?);
    let cases = manifest.join("../cases");
    let out = PathBuf::from(env::var("OUT_DIR").map_err(io::Error::other)?);
    println!("cargo::rerun-if-changed={}", cases.display());
    println!("cargo::rerun-if-changed=build.rs");

    let mut files = Vec::new();
    collect(&cases, &mut files)?;
    files.sort();

    let mut code = String::from("&[\n");
    for file in &files {
        let name = file.strip_prefix(&cases).map_err(io::Error::other)?;
        let full = fs::canonicalize(file)?;
        writeln!(
            code,
            "    ({:?}, include_str!({full:?})),",
            name.display().to_string()
        )
        .map_err(io::Error::other)?;
    }
    code.push_str("]\n");
    fs::write(out.join("embedded_cases.rs"), code)
}

fn collect(dir: &Path, into: &mut Vec<PathBuf>) -> io::Result<()> {
    if !dir.is_dir() {
        return Ok(());
    }
    println!("cargo::rerun-if-changed={}", dir.display());
    for entry in fs::read_dir(dir)? {
        let path = entry?.path();
        if path.is_dir() {
            collect(&path, into)?;
        } else if path.extension().is_some_and(|ext| ext == "yaml") {
            into.push(path);
        }
    }
    Ok(())
}
