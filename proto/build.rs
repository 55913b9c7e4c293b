//! Generates the kubelet's gRPC types with protox, so that no `protoc` is needed.

use std::{env, error::Error, fs, path::PathBuf};

/// Each API with a folder of its own for the generated code: two of upstream's packages are called plainly `v1` and
/// `v1alpha1`, and more of that kind exist (podresources), which would end up in one file.
const APIS: [&str; 7] = [
    "pluginregistration/v1",
    "dra/v1",
    "dra/v1beta1",
    "dra-health/v1alpha1",
    "dra-health/v1",
    "grpc-health/v1",
    "podresources/v1",
];

fn main() -> Result<(), Box<dyn Error>> {
    let out = PathBuf::from(env::var_os("OUT_DIR").ok_or("OUT_DIR is not set")?);
    println!("cargo::rerun-if-changed=proto");
    for api in APIS {
        let folder = out.join(api);
        fs::create_dir_all(&folder)?;
        let files = protox::compile([format!("{api}/api.proto")], ["proto"])?;
        tonic_prost_build::configure().out_dir(folder).compile_fds(files)?;
    }
    Ok(())
}
