//! `cargo xtask crds`: the chart's CustomResourceDefinitions, from the Rust types.

use std::{fs, path::PathBuf, process::ExitCode};

use anyhow::{Context as _, Result};
use clap::Args;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::CustomResourceExt as _;
use serde_json::Value;
use tessera_api::gpu_pool::GpuPool;
use tessera_api::gpu_quota::GpuQuota;
use tessera_harness::workspace;

/// What `cargo xtask crds` takes.
#[derive(Args)]
#[command(after_help = "Writes charts/tessera/templates/crds.yaml. A test says when it is not up to date.")]
pub struct CrdsArguments {}

/// Writes the chart's file.
///
/// # Errors
/// When the file cannot be written.
pub fn run(_: &CrdsArguments) -> Result<ExitCode> {
    let path = path();
    fs::write(&path, text()?).with_context(|| format!("cannot write {}", path.display()))?;
    println!("{}", path.display());
    Ok(ExitCode::SUCCESS)
}

fn path() -> PathBuf {
    workspace::root().join("charts/tessera/templates/crds.yaml")
}

/// The file. In `templates/` and not in `crds/`, so that `helm upgrade` brings changes; with the policy to keep the
/// CRDs, since pools and quotas are deleted with their kinds.
fn text() -> Result<String> {
    let definitions = [definition(GpuPool::crd())?, definition(GpuQuota::crd())?].join("\n---\n");
    anyhow::ensure!(!definitions.contains("{{"), "a text that helm would take for a template");
    Ok(format!(
        "{{{{- if .Values.crds.install }}}}\n# Written by cargo xtask crds.\n{definitions}\n{{{{- end }}}}\n"
    ))
}

fn definition(mut definition: CustomResourceDefinition) -> Result<String> {
    let keep = ("helm.sh/resource-policy".to_owned(), "keep".to_owned());
    definition.metadata.annotations.get_or_insert_default().extend([keep]);
    let mut definition = serde_json::to_value(&definition)?;
    without_foreign_formats(&mut definition);
    Ok(serde_saphyr::to_string(&definition)?.trim_end().to_owned())
}

/// Rust's number formats, unknown to the API server and warned about; the limits say the same.
fn without_foreign_formats(value: &mut Value) {
    match value {
        Value::Object(fields) => {
            if fields.get("format").is_some_and(|format| format == "uint32" || format == "uint64") {
                fields.remove("format");
            }
            fields.values_mut().for_each(without_foreign_formats);
        }
        Value::Array(items) => items.iter_mut().for_each(without_foreign_formats),
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_charts_definitions_are_up_to_date() {
        let written = fs::read_to_string(path()).unwrap();
        assert_eq!(written, text().unwrap(), "cargo xtask crds writes it anew");
    }
}
