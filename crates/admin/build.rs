//! Takes over the built console (`web/dist`), each file as it is and compressed, as a table of the crate.

use std::fmt::Write as _;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::{env, fs, io};

use flate2::Compression;
use flate2::write::GzEncoder;
use sha2::{Digest as _, Sha256};

/// Content types by extension.
const TYPES: &[(&str, &str)] = &[
    ("html", "text/html; charset=utf-8"),
    ("js", "text/javascript; charset=utf-8"),
    ("css", "text/css; charset=utf-8"),
    ("svg", "image/svg+xml"),
    ("png", "image/png"),
    ("ico", "image/x-icon"),
    ("json", "application/json"),
    ("txt", "text/plain; charset=utf-8"),
    ("woff2", "font/woff2"),
];

fn main() -> io::Result<()> {
    let root = Path::new("../../web/dist");
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rerun-if-changed={}", root.display());
    let out = env::var_os("OUT_DIR").map(PathBuf::from);
    let out = out.ok_or_else(|| io::Error::other("OUT_DIR is not set"))?;
    let mut files = Vec::new();
    if root.is_dir() {
        collect(root, &mut files)?;
    }
    files.sort();
    let mut table = String::from("&[\n");
    for (number, file) in files.iter().enumerate() {
        let name = file.strip_prefix(root).map_err(io::Error::other)?;
        table += &row(&out, number, file, name)?;
    }
    table += "]\n";
    fs::write(out.join("console.rs"), table)
}

fn collect(directory: &Path, files: &mut Vec<PathBuf>) -> io::Result<()> {
    for entry in fs::read_dir(directory)? {
        let path = entry?.path();
        if path.is_dir() {
            collect(&path, files)?;
        } else {
            files.push(path);
        }
    }
    Ok(())
}

/// A row of the table; the bytes go into files beside it.
fn row(out: &Path, number: usize, file: &Path, name: &Path) -> io::Result<String> {
    let bytes = fs::read(file)?;
    let mut encoder = GzEncoder::new(Vec::new(), Compression::best());
    encoder.write_all(&bytes)?;
    let (plain, packed) = (format!("{number}.plain"), format!("{number}.gz"));
    fs::write(out.join(&packed), encoder.finish()?)?;
    let mut tag = String::new();
    for byte in Sha256::digest(&bytes).iter().take(8) {
        write!(tag, "{byte:02x}").map_err(io::Error::other)?;
    }
    fs::write(out.join(&plain), bytes)?;
    Ok(format!(
        "File {{ path: \"/{}\", content_type: {:?}, tag: {tag:?}, plain: \
         include_bytes!(concat!(env!(\"OUT_DIR\"), \"/{plain}\")), \
         packed: include_bytes!(concat!(env!(\"OUT_DIR\"), \"/{packed}\")) }},\n",
        name.display(),
        content_type(name)?,
    ))
}

fn content_type(name: &Path) -> io::Result<&'static str> {
    let extension = name.extension().unwrap_or_default();
    let row = TYPES.iter().find(|(own, _)| extension == *own);
    row.map(|(_, content_type)| *content_type).ok_or_else(|| {
        io::Error::other(format!(
            "{}: no content type for this extension; add it to TYPES",
            name.display()
        ))
    })
}
