//! The oracle: programs built from the Go module of this folder, one for each release of Kubernetes.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Mutex, PoisonError};

use tessera_api::kubernetes::KubernetesVersion;

/// One build at a time: threads share the name of the partial file.
static BUILD: Mutex<()> = Mutex::new(());

fn hash(bytes: &[u8], mut state: u64) -> u64 {
    // FNV-1a: the name of a folder, nothing secret.
    for byte in bytes {
        state = (state ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3);
    }
    state
}

/// The module file of a Kubernetes release.
fn module_file(version: KubernetesVersion) -> String {
    match version {
        KubernetesVersion::V1_37 => "go.mod".to_owned(),
        older => format!("kubernetes-{older}.mod"),
    }
}

/// Path of this release's program; built on first use into `$TESSERA_CACHE` or `~/.cache/tessera`.
pub fn path(version: KubernetesVersion) -> PathBuf {
    let module = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut sources: Vec<PathBuf> = std::fs::read_dir(module)
        .expect("tests/oracle is part of the repository")
        .map(|entry| entry.expect("a readable folder").path())
        .filter(|path| {
            path.extension()
                .is_some_and(|extension| ["go", "mod", "sum"].iter().any(|known| extension == *known))
        })
        .collect();
    sources.sort();
    let state = sources.iter().fold(0xcbf2_9ce4_8422_2325, |state, path| {
        hash(&std::fs::read(path).expect("a readable source"), state)
    });
    let cache = std::env::var_os("TESSERA_CACHE").map_or_else(
        || Path::new(&std::env::var_os("HOME").expect("HOME or TESSERA_CACHE is set")).join(".cache/tessera"),
        PathBuf::from,
    );
    let folder = cache.join(format!("oracle-{state:016x}"));
    let program = folder.join(format!("oracle-{version}"));
    let _build = BUILD.lock().unwrap_or_else(PoisonError::into_inner);
    if !program.exists() {
        std::fs::create_dir_all(&folder).expect("the cache folder can be made");
        let partial = folder.join(format!("oracle-{version}.{}", std::process::id()));
        let status = Command::new("go")
            .arg("build")
            .arg(format!("-modfile={}", module_file(version)))
            .arg("-o")
            .arg(&partial)
            .arg(".")
            .current_dir(module)
            .status()
            .expect("Go builds the oracle: install Go or put it into PATH");
        assert!(status.success(), "go build of tests/oracle failed");
        std::fs::rename(&partial, &program).expect("the cache folder can be written");
    }
    program
}
