//! From NVIDIA's device plugin. Paths of its settings: its chart, release 0.19
//! (<https://github.com/NVIDIA/k8s-device-plugin/blob/main/deployments/helm/nvidia-device-plugin/values.yaml>).

use tessera_api::DEFAULT_DRIVER_NAME;

use super::release::{self, Charts};
use super::sharing::Configurations;
use super::steps::{self, Moving};
use super::{Draft, Known, MigrateError, Plan, values, workloads};

const CHARTS: Charts = Charts {
    names: &["nvidia-device-plugin"],
    image: "k8s-device-plugin",
    container: "nvidia-device-plugin-ctr",
};

/// Makes the plan.
pub fn plan(known: Known<'_>) -> Result<Plan, MigrateError> {
    let release =
        release::find(known.foreign, &CHARTS, known.namespace)?.ok_or_else(|| MigrateError::Nothing {
            driver: "NVIDIA's device plugin",
            charts: CHARTS.names.join(" or "),
            also: "DaemonSet with its image (for the GPU Operator's, use --from gpu-operator)",
        })?;
    let mut draft = Draft { found: vec![release.told()], ..Draft::default() };
    values::driver_root(&mut draft, &release, "nvidiaDriverRoot");
    values::of_pods(&mut draft, &release, "");
    for key in ["gdrcopyEnabled", "gdsEnabled", "mofedEnabled"] {
        if release.is_on(key) {
            draft.values.set(&[key], true);
        }
        draft.values.carried(key);
    }
    let configurations = Configurations::read(known, &release.namespace, release.at("config"), &mut draft)?;
    let resources = configurations.carry(known, release.text("migStrategy"), &mut draft)?;
    let served = resources.carry(known, &mut draft);
    for carried in ["config", "migStrategy", "deviceListStrategy", "deviceIDStrategy", "devicePlugin"] {
        draft.values.carried(carried);
    }
    let has_discovery = release.is_on("gfd.enabled");
    if has_discovery {
        draft.note("gfd", "GPU Feature Discovery stays, with devicePlugin.enabled=false: pods can still select \
                           nodes by its labels. Until the last step, migrated nodes lack these labels: it has the \
                           device plugin's nodeSelector");
        draft.values.carried("gfd");
        draft.values.carried("nfd");
    }
    if release.text("runtimeClassName").is_some() {
        draft.note(
            "runtimeClassName",
            "not needed: the plugin opens the cards itself (deviceAccess, docs/installing.md)",
        );
        draft.values.carried("runtimeClassName");
    }
    values::rest(&mut draft, &release);
    let moving = Moving {
        driver: DEFAULT_DRIVER_NAME,
        label_path: "nodeSelector",
        release: &release,
        classes: Vec::new(),
        end: if has_discovery {
            steps::End::Upgrade("devicePlugin.enabled=false")
        } else {
            steps::End::Uninstall
        },
    };
    let steps = steps::of_release(known, &moving, &draft);
    Ok(draft.plan("NVIDIA's device plugin", workloads::of_resources(known, &served), steps))
}
