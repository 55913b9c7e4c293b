//! What goes wrong with cards and drivers.

use std::fs;

use tessera_nvml::{LIBRARY_NAME, Library, OpenError};

use crate::machine::EmulatedMachine;

#[test]
fn a_driver_root_without_a_driver() {
    let empty = tempfile::tempdir().unwrap();
    let error = Library::open_below(empty.path()).unwrap_err();
    assert!(matches!(error, OpenError::NotFound { .. }), "{error}");
}

#[test]
fn a_broken_library() {
    let machine = EmulatedMachine::new("t4");
    let link = machine.root().join("lib").join(LIBRARY_NAME);
    let target = link.canonicalize().unwrap();
    let whole = fs::read(&target).unwrap();
    fs::write(&target, &whole[..200]).unwrap();
    let error = Library::open_below(&machine.root()).unwrap_err();
    assert!(matches!(error, OpenError::NotLoadable { .. }), "{error}");
}
