//! Finds a program's needs at run time: its loader and its libraries.

use std::{
    collections::BTreeSet,
    fs,
    path::{Path, PathBuf},
    process::Command,
};

use object::{
    Endianness,
    elf::{DT_NEEDED, FileHeader64, PT_INTERP},
    read::elf::{FileHeader, ProgramHeader},
};

use super::{Architecture, Image, ImageError};

/// Libraries of the C library's own family, possibly needed by a library loaded at run time even if the program needs none.
/// Libraries missing on the machine are left out.
const LOADED_LATER: &[&str] =
    &["libc.so.6", "libdl.so.2", "libm.so.6", "libpthread.so.0", "librt.so.1", "libgcc_s.so.1"];

/// The used parts of an ELF file.
struct Elf {
    architecture: Architecture,
    /// Its loader; `None` for a static program.
    loader: Option<PathBuf>,
    /// Linked libraries, by name.
    needed: Vec<String>,
}

/// A library: its path here, and its path in the image.
type Library = (PathBuf, PathBuf);

impl Image {
    /// An image with a program, its loader and all linked libraries: this machine's, at the same
    /// paths; for a cross-built program, the cross compiler's. A static program is copied alone.
    ///
    /// # Errors
    /// The file is not a program for a supported architecture, or a library is missing.
    pub fn from_binary(reference: impl Into<String>, program: &Path) -> Result<Self, ImageError> {
        let name = program.file_name().and_then(|name| name.to_str()).unwrap_or("program");
        let place = format!("/usr/bin/{name}");
        Self::new(reference).binary(&place, program).map(|image| image.entrypoint([place]))
    }

    /// Adds a program like [`Image::from_binary`].
    ///
    /// # Errors
    /// As there.
    pub fn binary(mut self, place: &str, program: &Path) -> Result<Self, ImageError> {
        let elf = Elf::read(program)?;
        self = self.file(place, program, 0o755)?;
        self.architecture = Some(elf.architecture);
        let libraries = match &elf.loader {
            None => Vec::new(),
            Some(loader) if Architecture::native() == Some(elf.architecture) => here(loader, program)?,
            Some(loader) => of_cross_compiler(loader, &elf, program)?,
        };
        for (path, place) in &libraries {
            match place.to_str() {
                Some(place) if !self.contains(place) => self = self.file(place, path, 0o755)?,
                _ => {}
            }
        }
        Ok(self)
    }
}

impl Elf {
    fn read(path: &Path) -> Result<Self, ImageError> {
        let bytes = fs::read(path).map_err(|source| ImageError::Read { path: path.to_owned(), source })?;
        Self::parse(&bytes).map_err(|message| ImageError::Program { path: path.to_owned(), message })
    }

    fn parse(data: &[u8]) -> Result<Self, String> {
        let failed = |error: object::read::Error| error.to_string();
        let header = FileHeader64::<Endianness>::parse(data).map_err(failed)?;
        let endian = header.endian().map_err(failed)?;
        let machine = header.e_machine(endian);
        let architecture =
            Architecture::of_machine(machine).ok_or_else(|| format!("its ELF machine is {machine}"))?;
        let mut loader = None;
        for segment in header.program_headers(endian, data).map_err(failed)? {
            if segment.p_type(endian) == PT_INTERP {
                let name = segment.interpreter(endian, data).map_err(failed)?;
                loader = name.map(|name| PathBuf::from(String::from_utf8_lossy(name).into_owned()));
            }
        }
        let sections = header.sections(endian, data).map_err(failed)?;
        let table = sections.dynamic_table(endian, data).map_err(failed)?;
        let mut needed = Vec::new();
        for entry in table.iter().filter(|entry| entry.tag == DT_NEEDED) {
            needed.push(String::from_utf8_lossy(table.string(entry).map_err(failed)?).into_owned());
        }
        Ok(Self { architecture, loader, needed })
    }
}

/// Asks the loader itself for each library's path, because the loader has the authoritative rules.
fn here(loader: &Path, program: &Path) -> Result<Vec<Library>, ImageError> {
    let output = Command::new(loader)
        .arg("--list")
        .arg(program)
        .output()
        .map_err(|source| ImageError::Read { path: loader.to_owned(), source })?;
    let text = String::from_utf8_lossy(&output.stdout);
    if !output.status.success() {
        let message = String::from_utf8_lossy(&output.stderr).trim().to_owned();
        return Err(ImageError::Program { path: program.to_owned(), message });
    }
    let mut libraries =
        parse_list(&text).map_err(|library| ImageError::Library { path: program.to_owned(), library })?;
    let folders: BTreeSet<PathBuf> =
        libraries.iter().filter_map(|library| library.parent().map(Path::to_owned)).collect();
    for name in LOADED_LATER {
        libraries.extend(folders.iter().map(|folder| folder.join(name)).find(|path| path.exists()));
    }
    libraries.push(loader.to_owned());
    Ok(libraries.into_iter().map(|path| (path.clone(), path)).collect())
}

/// Asks the cross compiler for each library's path, and reads further needs from the libraries. They go where
/// the loader looks first on every distribution: beside itself.
fn of_cross_compiler(loader: &Path, program: &Elf, path: &Path) -> Result<Vec<Library>, ImageError> {
    let compiler = program.architecture.cross_compiler();
    let folder = loader.parent().unwrap_or(Path::new("/lib"));
    let mut names: BTreeSet<String> = program.needed.iter().cloned().collect();
    names.extend(loader.file_name().map(|name| name.to_string_lossy().into_owned()));
    let mut open: Vec<(String, bool)> = names.iter().map(|name| (name.clone(), true)).collect();
    open.extend(LOADED_LATER.iter().map(|name| ((*name).to_owned(), false)));
    let mut libraries = Vec::new();
    while let Some((name, required)) = open.pop() {
        let Some(library) = find(compiler, &name)? else {
            if required {
                let library = format!("{name} for {}", program.architecture);
                return Err(ImageError::Library { path: path.to_owned(), library });
            }
            continue;
        };
        let more = Elf::read(&library)?.needed;
        open.extend(more.into_iter().filter(|name| names.insert(name.clone())).map(|name| (name, true)));
        libraries.push((library, folder.join(name)));
    }
    Ok(libraries)
}

/// Path of a compiler's library. For a missing library the compiler prints the bare name.
fn find(compiler: &str, library: &str) -> Result<Option<PathBuf>, ImageError> {
    let output = Command::new(compiler)
        .arg(format!("-print-file-name={library}"))
        .output()
        .map_err(|source| ImageError::Read { path: compiler.into(), source })?;
    let path = PathBuf::from(String::from_utf8_lossy(&output.stdout).trim());
    Ok(path.is_absolute().then_some(path))
}

/// Parses lines such as `libc.so.6 => /lib/x86_64-linux-gnu/libc.so.6 (0x7f…)`; the vdso has no path and needs none.
/// The error is the name of a missing library.
fn parse_list(text: &str) -> Result<Vec<PathBuf>, String> {
    let mut found = Vec::new();
    for line in text.lines() {
        let Some((name, rest)) = line.trim().split_once(" => ") else { continue };
        match rest.split(" (").next() {
            Some("not found") => return Err(name.to_owned()),
            Some(path) if path.starts_with('/') => found.push(PathBuf::from(path)),
            _ => {}
        }
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_loaders_list_is_understood() {
        let text = "\tlinux-vdso.so.1 (0x00007ffd)\n\tlibgcc_s.so.1 => /lib/x86_64-linux-gnu/libgcc_s.so.1 (0x00007f01)\n\t/lib64/ld-linux-x86-64.so.2 (0x00007f02)\n";
        assert_eq!(parse_list(text).unwrap(), [PathBuf::from("/lib/x86_64-linux-gnu/libgcc_s.so.1")]);
        assert_eq!(parse_list("\tliba.so.1 => not found\n").unwrap_err(), "liba.so.1");
    }

    #[test]
    fn a_dynamic_program_brings_its_loader_and_the_c_library() {
        let program = std::env::current_exe().unwrap();
        let image = Image::from_binary("example.test/self:1", &program).unwrap();
        let elf = Elf::read(&program).unwrap();
        let loader = elf.loader.expect("test programs are dynamic");
        assert!(image.contains(loader.to_str().unwrap()));
        let libraries = here(&loader, &program).unwrap();
        assert!(elf.needed.contains(&"libc.so.6".to_owned()));
        for name in elf.needed {
            assert!(libraries.iter().any(|(path, _)| path.ends_with(&name)), "{name} is not found");
        }
        for (_, place) in libraries {
            assert!(image.contains(place.to_str().unwrap()), "{} is missing", place.display());
        }
    }

    #[test]
    fn a_text_file_is_refused() {
        let file = tempfile::NamedTempFile::new().unwrap();
        fs::write(file.path(), "no program").unwrap();
        assert!(matches!(Image::from_binary("a:1", file.path()), Err(ImageError::Program { .. })));
    }
}
